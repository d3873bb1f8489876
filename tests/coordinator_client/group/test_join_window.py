"""While the group gathers, kept partitions are committed and read, and a member can leave, however slow the others
are."""

from collections.abc import Callable

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group.states import MemberState
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S, numbers, poll_all_until, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
P0 = TopicPartition("topic", 0)


def member(broker: SelectedBroker, group: str) -> Consumer:
    return Consumer(
        broker.bootstrap,
        group=group,
        assignors=["cooperative-sticky"],
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        request_timeout_ms=8_000,
        default_api_timeout_ms=8_000,
    )


def state(consumer: Consumer) -> str:
    return consumer.health().state


@pytest.mark.broker
@pytest.mark.proves("G-08", "E-05", "B-36")
def test_a_member_that_dawdles_holds_up_neither_commits_nor_records_nor_goodbyes(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    """A broker reads nothing behind a join without a response, so all other requests need another connection."""
    stable, gathering = MemberState.STABLE.value, MemberState.JOINING.value
    topic, group = make_topic(2), unique("group")
    with member(broker, group) as keen, member(broker, group) as slow, member(broker, group) as idle:
        keen.subscribe([topic])
        slow.subscribe([topic])
        poll_all_until([keen, slow], lambda: len(keen.assignment) == len(slow.assignment) == 1)
        poll_all_until([keen, slow], lambda: state(keen) == state(slow) == stable)
        # From here on `slow` does not poll: the first rebalance it follows without its user, up to on_assigned; the
        # second has to wait for it.
        idle.subscribe([topic])
        poll_all_until([keen, idle], lambda: state(keen) == state(idle) == stable)
        last = member(broker, group)
        last.subscribe([topic])
        poll_until(keen, lambda: state(keen) == state(last) == gathering and bool(last.health().member_id))
        (mine,) = keen.assignment
        produce(broker.bootstrap, topic, numbers(0, 10), partition=mine.partition)
        assert [record.offset for record in read(keen, 10)] == list(range(10))
        keen.commit({mine: 10})
        found = keen.committed([mine])[mine]
        assert found is not None
        assert found.offset == 10
        last.close(timeout_s=5)
        assert state(keen) == gathering, "all of that happened while the group was gathering"
        poll_all_until([keen, slow, idle], lambda: state(keen) == state(slow) == state(idle) == stable)
        assert keen.assignment == {mine}
        assert keen.assignment | slow.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


@pytest.mark.proves("B-36", "E-05")
@pytest.mark.parametrize(("api", "stored"), [("JoinGroup", 2), ("SyncGroup", None)])
def test_the_last_commit_does_not_queue_behind_a_join_or_sync(api: str, stored: int | None) -> None:
    """A coordinator that waits for a sync refuses the commit, which ends it too."""
    held = Hold()
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as other:
        fake.produce("topic", 0, [(None, b"1"), (None, b"2")])
        consumer = Consumer(
            fake.bootstrap,
            group="group",
            assignors=["cooperative-sticky"],
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            auto_commit_interval_ms=600_000,
        )
        consumer.subscribe(["topic"])
        read(consumer, 2)
        consumer.poll(0)
        fake.control(api, lambda _call: held)
        consumer.enforce_rebalance()
        poll_until(consumer, held.reached.is_set)
        consumer.close()
        assert len(fake.calls_of("LeaveGroup")) == 1
        found = other.committed([P0])[P0]
        assert (found and found.offset) == stored
        held.release()


@pytest.mark.proves("E-06")
def test_committed_offsets_do_not_queue_behind_a_sync_that_was_given_up() -> None:
    held = Hold()
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        fake.control("SyncGroup", lambda _call: held)
        consumer.subscribe(["topic"])
        assert held.reached.wait(PATIENCE_S)
        consumer.unsubscribe()
        fake.commit("group", {P0: 3})
        consumer.assign([P0])
        assert consumer.position(P0, 10.0) == 3
        held.release()
