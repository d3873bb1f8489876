"""The lease of a membership: what a poll returns while nothing proves that the group still counts this member in."""

from collections.abc import Iterator

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.coordinator_client.hooks import HookCall, RebalanceCause, RebalanceReason, Revoked
from kohort.coordinator_client.subscription_state import Subscription
from kohort.fastpath import encode
from kohort.fastpath._fetch import slice_end
from tests.coordinator_client.consumer_helpers import Witness
from tests.coordinator_client.offsets.test_fenced_commit_queue import VIEW

P0 = TopicPartition("t", 0)
NOW_AND_EVER, OVER = float("inf"), float("-inf")


class Member:
    """A consumer without a broker, whose member's view the test publishes."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.core, self.lock = consumer._session.core, consumer._session.driver.lock
        consumer.assign({P0: 100})
        self.assignment = self.core.manual
        with self.lock:
            self.core.subscription = Subscription.of(["t"])
            self.core.visible = self.assignment.partitions
        self.lease(OVER)

    def lease(self, until: float) -> None:
        """Membership is certain until then (s, monotonic)."""
        with self.lock:
            self.core.view = VIEW._replace(
                assignment=self.assignment, fetchable=self.assignment.partitions, ownership_deadline=until
            )

    def park(self, first: int) -> None:
        """Three records that have been fetched."""
        records = encode([(None, b"v")] * 3, base_offset=first, timestamp_ms=1)
        with self.lock:
            serial = self.core.positions.state(P0).serial
            end = slice_end(memoryview(records)).next_offset
            assert end is not None
            self.core.fetcher.parked.put(CompletedFetch(P0, memoryview(records), first, end, serial, 0, ()))

    def polled(self) -> list[int]:
        return [offset for columns in self.consumer.poll(0) for offset in columns.offsets]


@pytest.fixture
def member() -> Iterator[Member]:
    with Consumer("127.0.0.1:1", bootstrap_timeout_ms=600_000, max_poll_records=2) as consumer:
        yield Member(consumer)


@pytest.mark.proves("B-33", "F-04")
def test_nothing_is_returned_after_the_lease_and_all_of_it_under_a_new_one(member: Member) -> None:
    member.park(100)
    assert member.polled() == []
    assert member.consumer.position(P0) == 100
    member.lease(NOW_AND_EVER)
    assert member.polled() == [100, 101]
    assert member.polled() == [102]


@pytest.mark.proves("B-33", "F-04")
def test_what_is_left_of_a_batch_is_not_returned_after_the_lease_either(member: Member) -> None:
    member.lease(NOW_AND_EVER)
    member.park(100)
    assert member.polled() == [100, 101]
    member.lease(OVER)
    assert member.polled() == []
    assert member.consumer.position(P0) == 102
    member.lease(NOW_AND_EVER)
    assert member.polled() == [102]


@pytest.mark.proves("B-33", "G-15")
def test_on_revoked_is_not_called_after_the_lease_but_under_a_new_one(member: Member) -> None:
    hooks, owned = Witness(), member.assignment.partitions
    member.consumer.replace_hooks(hooks)
    event = Revoked(owned, owned, 1, RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS))
    with member.lock:
        member.core._hook = HookCall(1, event, owned, frozenset())
    assert member.polled() == []
    assert hooks.reported == []
    member.lease(NOW_AND_EVER)
    assert member.polled() == []
    assert hooks.reported == [event]
