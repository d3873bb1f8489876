"""Public calls with timeouts under faults from one seed: a check that none outlives its timeout by more than a second.

The calls are those of both consumers, the producer and the admin.

python -m tests.testing.overstay --calls 20000 --seed 1

`python -m benchmarks.reliability run overstay` keeps what it prints for docs/reliability.md. Time that a
busy machine takes away from a call is subtracted. Linux counts how long threads waited for a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kohort import Admin, AsyncConsumer, Consumer, KohortError, Producer, TopicPartition
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Action, Call, Close, Delay, Drop
from tests.testing.starved import lost_s, starved

T = TypeVar("T")
TOPIC, PARTITIONS = "topic", 4
WORKERS = 4
ALLOWED_S = 1.0
CALLS_A_LIFE = 60
TIMEOUTS_S = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5)
APIS = (
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "ListOffsets",
    "Fetch",
    "InitProducerId",
    "Produce",
    "ListGroups",
    "DescribeGroups",
)
PLACES = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))


@dataclass
class Tally:
    """`worst_s`: the longest overrun, net. `overran`: calls that outlived their timeout by more than allowed."""

    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    overran: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    worst_s: float = 0.0


def faults(chance: random.Random, share: float) -> Callable[[Call], Action | None]:
    """One response in so many comes late, never, or ends its connection."""

    def control(call: Call) -> Action | None:
        if chance.random() >= share:
            return None
        return chance.choice(
            (
                Delay(chance.uniform(0.05, 2.5)),
                Drop(),
                Drop(after_work=True),
                Close(),
                Close(reset=True),
                Close(after_work=True),
            )
        )

    return control


@contextmanager
def falling(broker: FakeBroker, chance: random.Random) -> Iterator[None]:
    """Now and then one of two brokers falls, and the other may be silent meanwhile: for seconds nothing wakes a client
    but its own deadlines."""
    over = threading.Event()

    def fall() -> None:
        while not over.wait(chance.uniform(1.0, 4.0)):
            node, silent = chance.randint(1, 2), chance.random() < 0.5
            mute = [broker.control(api, lambda _call: Drop()) for api in APIS] if silent else []
            broker.stop_node(node)
            over.wait(chance.uniform(0.5, 3.0))
            broker.start_node(node)
            for control in mute:
                control.remove()

    thread = threading.Thread(target=fall, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class OnALoop:
    """An AsyncConsumer that lives on an event loop of its own, and is called like a Consumer."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def make() -> AsyncConsumer:
            return AsyncConsumer(bootstrap, **settings)

        self._consumer = self._wait(make())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._consumer, name)
        if not inspect.iscoroutinefunction(method):
            return method
        return lambda *given, **named: self._wait(method(*given, **named))

    def close(self, timeout_s: float) -> None:
        try:
            self._wait(self._consumer.close(timeout_s))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def patience(chance: random.Random) -> dict[str, Any]:
    """Of little the client makes much; of much nothing but the call's own timeout ends it."""
    request_ms, bootstrap_ms = chance.choice(((1_500, 0), (30_000, 60_000)))
    return {
        "request_timeout_ms": request_ms,
        "bootstrap_timeout_ms": bootstrap_ms,
        "retry_backoff_ms": 10,
        "reconnect_backoff_ms": 10,
    }


def member(make: Callable[..., Any], bootstrap: str, chance: random.Random, timeout_s: float) -> Any:
    consumer = make(
        bootstrap,
        group=f"group-{chance.randrange(2)}",
        auto_offset_reset="earliest",
        session_timeout_ms=3000,
        heartbeat_interval_ms=200,
        max_poll_interval_ms=10_000,
        fetch_max_wait_ms=100,
        **patience(chance),
    )
    consumer.subscribe([TOPIC])
    return consumer


def admin(bootstrap: str, chance: random.Random, timeout_s: float) -> Admin:
    return Admin(bootstrap, default_api_timeout_ms=max(1, round(timeout_s * 1000)), **patience(chance))


def producer(bootstrap: str, chance: random.Random, timeout_s: float) -> Producer:
    given = patience(chance)
    del given["bootstrap_timeout_ms"]  # a producer has no end at its start
    return Producer(
        bootstrap,
        max_block_ms=round(timeout_s * 1000),
        batch_bytes=2_000,
        max_request_bytes=2_000,
        buffer_bytes=4_000,
        **given,
    )


Does = Callable[[Any, float], object]
CONSUMES: dict[str, Does] = {
    "poll": lambda consumer, timeout_s: consumer.poll(timeout_s),
    "commit": lambda consumer, timeout_s: consumer.commit(
        dict.fromkeys(consumer.assignment, 1), timeout_s=timeout_s, allow_rewind=True
    ),
    "committed": lambda consumer, timeout_s: consumer.committed(PLACES, timeout_s=timeout_s),
    "position": lambda consumer, timeout_s: consumer.position(PLACES[0], timeout_s=timeout_s),
    "beginning_offsets": lambda consumer, timeout_s: consumer.beginning_offsets(PLACES, timeout_s=timeout_s),
    "end_offsets": lambda consumer, timeout_s: consumer.end_offsets(PLACES, timeout_s=timeout_s),
    "offsets_for_times": lambda consumer, timeout_s: consumer.offsets_for_times(
        dict.fromkeys(PLACES, 1000), timeout_s=timeout_s
    ),
    "partitions_for": lambda consumer, timeout_s: consumer.partitions_for(TOPIC, timeout_s=timeout_s),
    "topics": lambda consumer, timeout_s: consumer.topics(timeout_s=timeout_s),
}
ADMINISTERS: dict[str, Does] = {
    "list_groups": lambda admin, timeout_s: admin.list_groups(),
    "describe_group": lambda admin, timeout_s: admin.describe_group("group-0"),
    "lag": lambda admin, timeout_s: admin.lag("group-1"),
    "reset_offsets": lambda admin, timeout_s: admin.reset_offsets("group-2", dict.fromkeys(PLACES, 3)),
    "offsets_at": lambda admin, timeout_s: admin.offsets_at(dict.fromkeys(PLACES, 1000)),
    "list_topics": lambda admin, timeout_s: admin.list_topics(),
    "brokers": lambda admin, timeout_s: admin.brokers(),
}
PRODUCES: dict[str, Does] = {
    "send": lambda producer, timeout_s: producer.send(TOPIC, b"x" * 1000),
    "flush": lambda producer, timeout_s: producer.flush(timeout_s),
}


class Face(NamedTuple):
    """The methods of a client: its constructor, for calls of so many seconds; its calls, and its close. `fixed`: its
    timeout is a setting, and every call of a life has the same."""

    make: Callable[[str, random.Random, float], Any]
    calls: dict[str, Does]
    close: Does
    fixed: bool = True


def close(consumer: Any, timeout_s: float) -> None:
    consumer.close(timeout_s)


OFTEN = {"poll": 8, "commit": 3, "send": 3}
FACES = {
    "Consumer": Face(partial(member, Consumer), CONSUMES, close, fixed=False),
    "AsyncConsumer": Face(partial(member, OnALoop), CONSUMES, close, fixed=False),
    "Admin": Face(admin, ADMINISTERS, lambda admin, timeout_s: admin.close()),
    "Producer": Face(producer, PRODUCES, close),
}


def measure(name: str, does: Does, client: Any, timeout_s: float, tally: Tally) -> None:
    before, began = starved(), time.monotonic()
    try:
        does(client, timeout_s)
    except KohortError as error:
        tally.errors[type(error).__name__] += 1
    except Exception as error:  # a defect, which is what this looks for too
        tally.broken.append(f"{name}: {type(error).__name__}: {error}")
    over_s = time.monotonic() - began - timeout_s
    tally.calls[name] += 1
    if over_s > ALLOWED_S:
        over_s -= lost_s(before)
    tally.worst_s = max(tally.worst_s, over_s)
    if over_s > ALLOWED_S:
        tally.overran.append(f"{name} with {timeout_s:.2f} s took {over_s:.2f} s more")


def work(broker: FakeBroker, seed: int, calls: int, tally: Tally) -> None:
    """One user's life after the other: clients that come, are called, and go."""
    chance = random.Random(seed)
    while calls > 0:
        name = chance.choice(list(FACES))
        face, timeout_s = FACES[name], chance.choice(TIMEOUTS_S)
        client = face.make(broker.bootstrap, chance, timeout_s)
        for call in chance.choices(list(face.calls), [OFTEN.get(one, 1) for one in face.calls], k=CALLS_A_LIFE)[:calls]:
            measure(f"{name}.{call}", face.calls[call], client, timeout_s, tally)
            calls -= 1
            if not face.fixed:
                timeout_s = chance.choice(TIMEOUTS_S)
        measure(f"{name}.close", face.close, client, chance.choice((0.0, 0.1, 0.5)), tally)
        calls -= 1


def run(calls: int, seed: int, share: float = 0.08) -> Tally:
    """Run so many calls in all. The calls and faults are reproducible, their times are not."""
    tallies = [Tally() for _ in range(WORKERS)]
    with FakeBroker(topics={TOPIC: PARTITIONS}, nodes=2) as broker:
        for place in PLACES:
            broker.produce(TOPIC, place.partition, [(None, b"x" * 100)] * 200)
        control = faults(random.Random(seed), share)
        for api in APIS:
            broker.control(api, control)
        with falling(broker, random.Random(f"falling {seed}")), ThreadPoolExecutor(WORKERS) as pool:
            workers = [
                pool.submit(work, broker, seed * 1000 + number, calls // WORKERS, tally)
                for number, tally in enumerate(tallies)
            ]
        for worker in workers:
            worker.result()  # a life that could not even begin is reported
    whole = Tally()
    for tally in tallies:
        whole.calls += tally.calls
        whole.errors += tally.errors
        whole.overran += tally.overran
        whole.broken += tally.broken
        whole.worst_s = max(whole.worst_s, tally.worst_s)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    requested = parser.parse_args()
    tally = run(requested.calls, requested.seed)
    result: dict[str, Any] = {
        "calls": tally.calls.total(),
        "by_call": dict(tally.calls.most_common()),
        "errors": dict(tally.errors.most_common()),
        "overran": tally.overran,
        "broken": tally.broken,
        "worst_s": round(tally.worst_s, 3),
    }
    print(json.dumps(result, indent=1))
    if tally.overran or tally.broken:
        sys.exit(1)


if __name__ == "__main__":
    main()
