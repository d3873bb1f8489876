"""Members of other clients that say what cannot be, beside a leader of ours: the group goes on, and the log says so."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.protocol.membership import Subscription, TopicPartitions, build_subscription, parse_assignment
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_all_until, poll_until
from tests.testing.group_client import MemberClient, Stage

REBALANCE_IN_PROGRESS = 27
ALL = frozenset(TopicPartition("t", number) for number in range(4))


class Stranger:
    """A member that always says `subscription` of itself, and follows every rebalance. `owned`: what it was assigned,
    None before it was; `rounds`: how often."""

    def __init__(self, address: str, assignor: str, subscription: bytes) -> None:
        self._client = MemberClient(Stage(address, "t", "g"), protocols={assignor: subscription})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self.owned: frozenset[TopicPartition] | None = None
        self.rounds = 0
        self.error: BaseException | None = None

    def _live(self) -> None:
        try:
            while not self._stop.is_set():
                assert self._client.join().error_code == 0
                code, data = self._client.sync()
                if code == 0:
                    assigned = parse_assignment(data).assigned_partitions
                    self.owned = frozenset(
                        TopicPartition(one.topic, number) for one in assigned for number in one.partitions
                    )
                    self.rounds += 1
                while code != REBALANCE_IN_PROGRESS and not self._stop.wait(0.02):
                    code = self._client.heartbeat()
                    assert code in (0, REBALANCE_IN_PROGRESS)
            self._client.leave()
        except BaseException as error:
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def stop(self, leader: Consumer) -> None:
        """Its last round may wait for the leader."""
        self._stop.set()
        poll_until(leader, lambda: not self._thread.is_alive())
        self._client.close()
        assert self.error is None


@contextmanager
def stranger(fake: FakeBroker, leader: Consumer, assignor: str, subscription: bytes) -> Iterator[Stranger]:
    one = Stranger(fake.bootstrap, assignor, subscription)
    one.start()
    try:
        yield one
    finally:
        one.stop(leader)


def member(fake: FakeBroker, assignor: str) -> Consumer:
    return Consumer(
        fake.bootstrap, group="g", assignors=[assignor], heartbeat_interval_ms=30, auto_offset_reset="earliest"
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if vars(one).get("event") == "bad_subscription"]


@pytest.mark.proves("B-20")
@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky", "lag"])
@pytest.mark.parametrize("subscription", [b"", b"\x00\x01\x00\x00\x00\x05\x00\x01t"], ids=["empty", "cut"])
def test_an_unreadable_member_gets_nothing_and_the_others_read_on(
    subscription: bytes, assignor: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kohort")
    with FakeBroker(topics={"t": 4}) as fake, member(fake, assignor) as leader:
        leader.subscribe(["t"])
        poll_until(leader, lambda: leader.assignment == ALL)
        with stranger(fake, leader, assignor, subscription) as strange, member(fake, assignor) as other:
            other.subscribe(["t"])
            poll_all_until(
                [leader, other],
                lambda: len(leader.assignment) == len(other.assignment) == 2 and strange.owned is not None,
            )
            assert strange.owned == frozenset()
            assert leader.health().healthy
            reported = warnings(caplog)
            assert {one.levelno for one in reported} == {logging.WARNING}
            assert all(repr(strange._client.member_id) in one.getMessage() for one in reported)
            generations = [vars(one)["generation"] for one in reported]
            assert len(generations) == len(set(generations)), "once in each generation"
        poll_until(leader, lambda: leader.assignment == ALL)


@pytest.mark.proves("B-20", "G-08")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "lag"])
def test_a_member_that_claims_all_as_of_the_highest_generation_leaves_no_partition_without_an_owner(
    assignor: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kohort")
    claims = build_subscription(
        Subscription(
            topics=("t",),
            owned_partitions=(TopicPartitions(topic="t", partitions=(0, 1, 2, 3)),),
            generation_id=2**31 - 1,
        )
    )
    with FakeBroker(topics={"t": 4}) as fake, member(fake, assignor) as leader:
        leader.subscribe(["t"])
        poll_until(leader, lambda: leader.assignment == ALL)
        with stranger(fake, leader, assignor, claims) as strange:

            def settled() -> bool:
                owned = strange.owned or frozenset()
                return len(owned) == 2 and leader.assignment | owned == ALL and not leader.assignment & owned

            poll_until(leader, settled)
            assert warnings(caplog)
        poll_until(leader, lambda: leader.assignment == ALL)
