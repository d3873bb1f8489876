"""The modules that a record and a rebalance pass through, counted: the counts are upper bounds and may only fall.

A module counts if one of its functions runs on the path, in the network's thread, an assignor's or the caller's. The
functions that every turn of the network's thread calls do not count: they run without a response too. Compiled
modules do not count, because no profiler sees their functions. A record passes nine of them.

The path of a record is counted over all packages. The path of a rebalance has two bounds. One counts the modules of
`coordinator_client/`, which a reader of the group protocol opens. The other counts the modules of all packages, so also
those that carry any request. The turns of the network's thread on this path are counted too. The smallest count of some
rebalances is taken, because the calls of `poll` may add turns, and on a busy machine a timer may run its functions.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import kohort
from kohort import Assigned, Consumer, RebalanceHooks, Revoked, TopicPartition
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Answer, Call, Hold

SOCKET_TO_RECORD = 8
HEARTBEAT_TO_ASSIGNED = 20
HEARTBEAT_TO_ASSIGNED_OF_ALL_PACKAGES = 45
TURNS_OF_A_LEADER = 8
"""Heartbeat, end of `on_revoked`, commit, join, plan and sync take one each, and so does the begin of each hook."""
REBALANCES = 3
HOME = f"{Path(kohort.__file__).parent}/"
TESTING = f"{HOME}testing/"
NAMED_TUPLES = f"{HOME}common/named_tuple.py"
"""The methods of named tuples, in place of those of the standard library, which do not count either."""
PLACE = TopicPartition("t", 0)
CONSUMER = "coordinator_client/"
TURN = (f"{CONSUMER}consumer_core.py", "ConsumerCore.poll")
USUAL_TURNS = 5
TURN_S = 0.05
LIMIT_S = 60.0


class PathTracer:
    """Collects the functions of kohort that are called while it is `open`, but for threads of the fake broker."""

    def __init__(self) -> None:
        self.open = False
        self.turns = 0
        self._called: dict[tuple[str, str], None] = {}
        self._usual: frozenset[tuple[str, str]] = frozenset()
        self._brokers: set[int] = set()
        self._caller = threading.get_ident()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        place = frame.f_code.co_filename
        if event != "call" or not place.startswith(HOME) or place == NAMED_TUPLES:
            return
        thread = threading.get_ident()
        if place.startswith(TESTING) and thread != self._caller:
            self._brokers.add(thread)
        if self.open and thread not in self._brokers:
            function = (place.removeprefix(HOME), frame.f_code.co_qualname)
            self._called.setdefault(function)
            self.turns += function == TURN

    def learn_the_usual(self, consumer: Consumer) -> None:
        """Let the network's thread make turns without updates. Their functions count no more."""
        self.open = True
        for _ in range(USUAL_TURNS):
            consumer._session.driver.wakeup()
            time.sleep(TURN_S)
        self.open = False
        self._usual, self._called = frozenset(self._called), {}

    def begin(self) -> None:
        """Begin with the functions that the caller is in."""
        frame: FrameType | None = sys._current_frames()[self._caller]
        self.turns, self._called = 0, {}
        self.open = True
        while frame is not None:
            self(frame, "call", None)
            frame = frame.f_back

    @property
    def modules(self) -> list[str]:
        """The modules in the order of their first function on the path."""
        return list(dict.fromkeys(module for module, name in self._called if (module, name) not in self._usual))


@contextmanager
def tracing() -> Iterator[PathTracer]:
    """A tracer of this thread and of those that are started in the block."""
    tracer = PathTracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield tracer
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def poll_one(consumer: Consumer) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not sum(map(len, consumer.poll(1.0))):
        assert time.monotonic() < deadline


def listed(modules: list[str]) -> str:
    return f"{len(modules)} modules:\n" + "\n".join(modules)


def test_a_record_passes_no_more_modules_from_the_socket_to_the_caller() -> None:
    with (
        tracing() as path,
        FakeBroker(topics={"t": 1}) as broker,
        Consumer(broker.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=30_000) as consumer,
    ):
        consumer.assign([PLACE])
        for _ in range(2):  # the session is then in its steady state
            broker.produce("t", 0, [(b"key", b"first")])
            poll_one(consumer)
        time.sleep(TURN_S)  # the next Fetch is on its way
        path.learn_the_usual(consumer)

        def produce() -> None:
            path.begin()
            broker.produce("t", 0, [(b"key", b"second")])

        later = threading.Timer(0.2, produce)
        later.start()
        poll_one(consumer)
        path.open = False
        later.join()
    assert len(path.modules) <= SOCKET_TO_RECORD, listed(path.modules)


class Rebalances(RebalanceHooks):
    """Commits what goes, and ends the path when partitions come. `turns` and `modules` of each path.

    `offsets` holds the response to OffsetFetch until then. Its turn is no part of the path.
    """

    def __init__(self, path: PathTracer) -> None:
        self.offsets = Hold()
        self.turns: list[int] = []
        self.modules: list[list[str]] = []
        self._path = path

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        return dict.fromkeys(event.partitions, 1)

    def on_assigned(self, event: Assigned) -> None:
        self._path.open = False
        self.offsets.release()
        self.modules.append(self._path.modules)
        self.turns.append(self._path.turns)


def test_a_rebalance_passes_no_more_modules_from_the_heartbeat_to_on_assigned() -> None:
    with tracing() as path, FakeBroker(topics={"t": 1}) as broker:
        hooks = Rebalances(path)
        settings: dict[str, Any] = {
            "heartbeat_interval_ms": 600,
            "session_timeout_ms": 30_000,
            "fetch_max_wait_ms": 30_000,
        }
        with Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest", **settings) as consumer:
            consumer.subscribe(["t"], hooks=hooks)
            broker.produce("t", 0, [(b"key", b"value")])
            poll_one(consumer)
            beats = len(broker.calls_of("Heartbeat"))
            while len(broker.calls_of("Heartbeat")) == beats:
                consumer.poll(0.01)
            time.sleep(TURN_S)
            consumer.poll(0.0)  # a usual turn takes note of one, and the response's turn has taken note of the last
            path.learn_the_usual(consumer)

            def rebalance(_call: Call) -> Answer:
                hooks.offsets = Hold()
                path.begin()
                return Answer(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

            hooks.modules.clear()
            hooks.turns.clear()
            broker.control("OffsetFetch", lambda _call: hooks.offsets)
            deadline = time.monotonic() + LIMIT_S
            while (done := len(hooks.turns)) < REBALANCES:
                broker.control("Heartbeat", rebalance, times=1)
                while len(hooks.turns) == done:
                    consumer.poll(0.1)
                    assert time.monotonic() < deadline
    modules = min(hooks.modules, key=len)
    assert len(modules) <= HEARTBEAT_TO_ASSIGNED_OF_ALL_PACKAGES, listed(modules)
    modules = [module for module in modules if module.startswith(CONSUMER)]
    assert len(modules) <= HEARTBEAT_TO_ASSIGNED, listed(modules)
    assert min(hooks.turns) <= TURNS_OF_A_LEADER, hooks.turns
