"""A coordinator that dies: a request to it starts the search for its successor, long before the next heartbeat."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, wait_until

PLACE = TopicPartition("t", 0)
HEARTBEAT_MS = 600_000  # none is due during a test
DEAD, ALIVE = 1, 2

CALLS: dict[str, Callable[[Consumer], Any]] = {
    "OffsetCommit": lambda consumer: consumer._put_commit({PLACE: 0}, PATIENCE_S, False),
    "OffsetFetch": lambda consumer: consumer._request_committed([PLACE], PATIENCE_S),
    "DescribeGroups": lambda consumer: consumer._request_members(PATIENCE_S),
}


@contextmanager
def membership() -> Iterator[tuple[FakeBroker, Consumer]]:
    """A member of a group whose coordinator is the first node; the second leads the partition."""
    with (
        FakeBroker(nodes=2, topics={"t": 1}) as fake,
        Consumer(
            fake.bootstrap,
            group="g",
            assignors=["range"],
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=3 * HEARTBEAT_MS,
        ) as consumer,
    ):
        fake.set_leader("t", 0, ALIVE)
        fake.move_coordinator("g", DEAD)
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        yield fake, consumer


@pytest.mark.proves("F-05", "G-12")
@pytest.mark.parametrize("api", CALLS)
def test_a_request_without_a_response_starts_a_search_for_the_coordinator_of_a_member(api: str) -> None:
    with membership() as (fake, consumer):
        core = consumer._session.driver.core
        begun = len(fake.calls_of("FindCoordinator"))
        fake.stop_node(DEAD)
        # The connection's end starts a search. Its response names the dead broker, as a cluster's does for seconds.
        wait_until(lambda: len(fake.calls_of("FindCoordinator")) > begun)
        wait_until(lambda: core.view is not None and core.view.coordinator is not None)
        begun = len(fake.calls_of("FindCoordinator"))
        promise = CALLS[api](consumer)
        wait_until(lambda: len(fake.calls_of("FindCoordinator")) > begun)
        fake.move_coordinator("g", ALIVE)
        promise.result(PATIENCE_S)
        assert fake.calls_of(api)[-1].node == ALIVE
        assert core.view is not None
        assert core.view.identity.generation == 1


@pytest.mark.proves("F-06")
def test_a_description_that_an_old_coordinator_denies_starts_a_search_for_the_new_one() -> None:
    with membership() as (fake, consumer):
        fake.move_coordinator("g", ALIVE)
        (member,) = consumer.group_members(timeout_s=PATIENCE_S)
        assert member.member_id == consumer.health().member_id
        assert [call.node for call in fake.calls_of("DescribeGroups")] == [DEAD, ALIVE]
        assert consumer.health().generation == 1
