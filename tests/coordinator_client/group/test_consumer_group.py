"""A consumer in its group, on a real broker: owners, committed offsets, and arguments of hooks."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import (
    Assigned,
    CallbackError,
    CommitFailed,
    CommitRewind,
    Consumer,
    IllegalState,
    Lost,
    OffsetReset,
    PauseReason,
    RebalanceHooks,
    RebalanceReason,
    Revoked,
)
from tests.coordinator_client.consumer_helpers import Witness, numbers, poll_all_until, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker, wanted_version

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


Join = partial[Consumer]

# KIP-848 is on from Kafka 4.0; what it shares with the classic protocol is tried under both.
PROTOCOLS = ("classic", "consumer") if int(wanted_version().partition(".")[0]) >= 4 else ("classic",)


def member(broker: SelectedBroker, group: str, **settings: object) -> Consumer:
    return Consumer(broker.bootstrap, group=group, **{"auto_offset_reset": "earliest", **settings})  # type: ignore[arg-type]


@pytest.fixture(params=PROTOCOLS)
def join(request: pytest.FixtureRequest) -> Join:
    """`member`, under each of the group protocols."""
    return partial(member, protocol=request.param)


def make_it_let_go(consumer: Consumer, protocol: str, hooks: RebalanceHooks, another: str) -> None:
    """Make `on_revoked` come: a classic member may request it, elsewhere the topic is unsubscribed."""
    if protocol == "classic":
        consumer.enforce_rebalance("a test requests it")
    else:
        consumer.subscribe([another], hooks=hooks)


@pytest.mark.broker
@pytest.mark.proves("G-15", "G-18", "S-10", "G-11")
def test_subscribe_read_commit_and_go_on_where_it_ended(
    join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group = unique("group")
    tps = frozenset(TopicPartition(topic, number) for number in range(3))
    for partition in range(3):
        produce(broker.bootstrap, topic, numbers(partition * 100, 10), partition=partition)
    first = Witness()
    with join(broker, group) as consumer:
        consumer.subscribe([topic], hooks=first)
        records = read(consumer, 30)
        assert consumer.assignment == tps
        assert {record.partition: record.offset for record in records} == {0: 9, 1: 9, 2: 9}
        consumer.commit({TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 10})
        stored = consumer.committed(tps)
        assert {one: to.offset if to else None for one, to in stored.items()} == {
            TopicPartition(topic, 0): 5,
            TopicPartition(topic, 1): 10,
            TopicPartition(topic, 2): None,
        }
        backwards = sorted(tps, reverse=True)
        assert list(consumer.committed(backwards)) == list(consumer.end_offsets(backwards)) == backwards
        assert consumer.lag() == dict.fromkeys(sorted(tps), 0)
        assert consumer.group_metadata().generation >= 1
    assert first.kinds() == ["Assigned", "Revoked"]
    assert first.reported[1].partitions == tps
    with join(broker, group) as consumer:
        consumer.subscribe([topic])
        again = read(consumer, 15)
    assert sorted(record.value or b"" for record in again) == sorted(numbers(5, 5) + numbers(200, 10))


@pytest.mark.broker
@pytest.mark.proves("CR-11")
def test_what_hooks_return_is_committed_and_read_from(
    join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group = unique("group")
    tp = TopicPartition(topic, 1)
    produce(broker.bootstrap, topic, numbers(0, 10), partition=1)
    hooks = Witness()
    hooks.on_assigned_result = {tp: 7}
    hooks.on_revoked_result = {tp: 9}
    with join(broker, group) as consumer:
        consumer.subscribe([topic], hooks=hooks)
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]
    with join(broker, group) as consumer:
        stored = consumer.committed([tp])[tp]
        assert stored is not None
        assert stored.offset == 9


@pytest.mark.broker
@pytest.mark.proves("G-13", "G-14", "G-15", "S-01")
def test_a_second_member_takes_its_share_and_gives_it_back(
    join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group = unique("group")
    produce(broker.bootstrap, topic, numbers(0, 10), partition=2)
    one_hooks, two_hooks = Witness(), Witness()
    with ExitStack() as stack:
        one = stack.enter_context(join(broker, group))
        one.subscribe([topic], hooks=one_hooks)
        read(one, 10)
        one.commit({TopicPartition(topic, 2): 4})
        two = stack.enter_context(join(broker, group))
        two.subscribe([topic], hooks=two_hooks)
        seen: list[int] = []
        limit = time.monotonic() + 120
        while len(one.assignment) + len(two.assignment) != 3 or not two.assignment:
            assert time.monotonic() < limit
            for consumer in (one, two):
                seen += [record.offset for columns in consumer.poll(0.05) for record in columns]
        assert not one.assignment & two.assignment
        # The new owner of partition 2 reads from the committed offset, and not from the other's position.
        limit = time.monotonic() + 120
        while len(seen) < 6 and time.monotonic() < limit:
            for consumer in (one, two):
                seen += [record.offset for columns in consumer.poll(0.05) for record in columns]
        assert seen == [4, 5, 6, 7, 8, 9]
        two.close()
        poll_until(one, lambda: len(one.assignment) == 3 and one.timeline()[-1].outcome is not None)
        # In a classic EAGER group all members revoke when one leaves; in a consumer group only those that must.
        lettings_go = 2 if join.keywords["protocol"] == "classic" else 1
        assert one_hooks.kinds().count("Revoked") == lettings_go
        timeline = one.timeline()
        assert [rebalance.outcome is not None for rebalance in timeline] == [True] * len(timeline)
        assert timeline[-1].generation == one.group_metadata().generation


@pytest.mark.broker
@pytest.mark.proves("G-08", "K-02", "K-03", "K-04", "K-13")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_go_on_reading_what_they_keep(
    protocol: str, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic, group = make_topic(4), unique("group")
    hooks = Witness()
    cooperating = {"assignors": ["cooperative-sticky"]} if protocol == "classic" else {"protocol": "consumer"}
    with member(broker, group, **cooperating) as one:
        one.subscribe([topic], hooks=hooks)
        poll_until(one, lambda: len(one.assignment) == 4)
        one.pause(one.assignment)
        with member(broker, group, **cooperating) as two:
            two.subscribe([topic])
            poll_all_until([one, two], lambda: len(one.assignment) == len(two.assignment) == 2)
            assert not one.assignment & two.assignment
            assert one.paused() == dict.fromkeys(one.assignment, PauseReason.PARTITION)
            assert two.paused() == {}
        revoked = [event for event in hooks.reported if isinstance(event, Revoked)]
        assert [len(event.partitions) for event in revoked] == [2]  # only what moved
        poll_until(one, lambda: len(one.assignment) == 4)
        assert len(one.paused()) == 2  # K-04: what was away comes back unpaused


@pytest.mark.broker
@pytest.mark.proves("F-16", "G-13", "B-41")
def test_a_pattern_follows_topics_that_appear(
    join: Join, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    from kohort.testing.topics import create_topic

    prefix = unique("pay")
    create_topic(broker.bootstrap, f"{prefix}-a", partitions=1)
    create_topic(broker.bootstrap, f"{prefix}-no", partitions=1)
    with join(broker, unique("group"), metadata_max_age_ms=300) as consumer:
        consumer.subscribe(pattern=prefix + "-.*", exclude=".*-no")
        poll_until(consumer, lambda: consumer.assignment == {TopicPartition(f"{prefix}-a", 0)})
        create_topic(broker.bootstrap, f"{prefix}-b", partitions=1)
        produce(broker.bootstrap, f"{prefix}-b", numbers(0, 3))
        records = poll_until(consumer, lambda: len(consumer.assignment) == 2)
        records += read(consumer, 3 - len(records))
        assert {record.topic for record in records} == {f"{prefix}-b"}


@pytest.mark.broker
@pytest.mark.proves("S-04")
def test_auto_commit_stores_what_earlier_polls_returned_and_not_what_is_in_hand(
    join: Join, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic, group = make_topic(1), unique("group")
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 10))
    with join(broker, group, enable_auto_commit=True, auto_commit_interval_ms=100, max_poll_records=5) as consumer:
        consumer.subscribe([topic])
        assert len(read(consumer, 5)) == 5
        time.sleep(0.4)  # the user is at work on them, and the interval passes
        stored = consumer.committed([tp])[tp]
        assert stored is None or stored.offset == 0  # where it stood before the first record came
        assert len(read(consumer, 5)) == 5
        limit = time.monotonic() + 120
        while (stored := consumer.committed([tp])[tp]) is None or stored.offset != 5:
            assert time.monotonic() < limit
        # Closed in the middle of the second batch: that is not committed.
    with join(broker, group) as consumer:
        stored = consumer.committed([tp])[tp]
        assert stored is not None
        assert stored.offset == 5


@pytest.mark.broker
@pytest.mark.proves("S-08")
def test_async_commits_call_back_in_order_and_before_a_later_sync_commit_returns(
    join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    tp = TopicPartition(topic, 0)
    with join(broker, unique("group")) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: tp in consumer.assignment)
        received: list[tuple[int, Exception | None]] = []
        for offset in (1, 2, 3):
            consumer.commit_async({tp: offset}, lambda offsets, error: received.append((offsets[tp].offset, error)))
        consumer.commit({tp: 4})
        assert received == [(1, None), (2, None), (3, None)]
        stored = consumer.committed([tp])[tp]
        assert stored is not None
        assert stored.offset == 4
        with pytest.raises(CommitRewind) as caught:
            consumer.commit({tp: 2})
        assert caught.value.place["partition"] == 0
        consumer.commit({tp: 2}, allow_rewind=True)
        assert [entry.outcome for entry in consumer.commit_log()] == [""] * 5


@pytest.mark.broker
@pytest.mark.proves("S-13", "S-12", "B-34", "CR-47")
def test_a_handler_that_takes_too_long_loses_its_partitions_and_its_commit(
    join: Join, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic, group = make_topic(1), unique("group")
    tp = TopicPartition(topic, 0)
    hooks = Witness()
    produce(broker.bootstrap, topic, numbers(0, 3))
    with join(broker, group, max_poll_interval_ms=1000) as slow:
        slow.subscribe([topic], hooks=hooks)
        read(slow, 3)
        with join(broker, group) as other:
            other.subscribe([topic])
            other_has_it = threading.Event()

            def take_over() -> None:
                poll_until(other, lambda: tp in other.assignment)
                other_has_it.set()

            thread = threading.Thread(target=take_over)
            thread.start()
            assert other_has_it.wait(120)  # without a poll of the slow one
            thread.join()
            with pytest.raises(CommitFailed):
                slow.commit({tp: 3})
            slow.poll(0)
            lost = [event for event in hooks.reported if isinstance(event, Lost)]
            assert [event.partitions for event in lost] == [frozenset({tp})]
            assert "max_poll_interval_ms" in str(lost[0].cause)


@pytest.mark.broker
@pytest.mark.proves("B-43")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("hook", ["on_assigned", "on_revoked"])
def test_what_a_hook_raises_comes_out_of_poll_and_the_group_goes_on(
    hook: str, protocol: str, broker: SelectedBroker, topic: str, make_topic: MakeTopic, unique: Name
) -> None:
    group = unique("group")
    produce(broker.bootstrap, topic, numbers(0, 3))

    class Faulty(RebalanceHooks):
        broken = True

        def on_assigned(self, event: Assigned) -> None:
            self.fail("on_assigned")

        def on_revoked(self, event: Revoked) -> None:
            self.fail("on_revoked")

        def fail(self, name: str) -> None:
            if self.broken and name == hook:
                self.broken = False
                raise RuntimeError(f"{name} is faulty")

    hooks = Faulty()
    with member(broker, group, protocol=protocol) as consumer:
        consumer.subscribe([topic], hooks=hooks)
        if hook == "on_assigned":
            with pytest.raises(RuntimeError, match="faulty"):
                poll_until(consumer, lambda: not hooks.broken)
            read(consumer, 3)
            assert len(consumer.assignment) == 3
        else:
            read(consumer, 3)
            make_it_let_go(consumer, protocol, hooks, make_topic(1))
            with pytest.raises(RuntimeError, match="faulty"):
                poll_until(consumer, lambda: not hooks.broken)
            poll_until(consumer, lambda: len(consumer.timeline()) > 1 and consumer.health().healthy)


@pytest.mark.broker
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hook_may_look_and_commit_but_not_poll_or_close(
    protocol: str, broker: SelectedBroker, topic: str, make_topic: MakeTopic, unique: Name
) -> None:
    refused: list[type[BaseException]] = []

    with member(broker, unique("group"), protocol=protocol) as consumer:

        class Curious(RebalanceHooks):
            def on_assigned(self, event: Assigned) -> None:
                assert consumer.assignment <= event.assignment
                for call in (consumer.poll, consumer.close, consumer.unsubscribe):
                    try:
                        call()
                    except KohortError as error:
                        refused.append(type(error))
                consumer.seek_to_end()

            def on_revoked(self, event: Revoked) -> None:
                if TopicPartition(topic, 0) in event.partitions:
                    consumer.commit({TopicPartition(topic, 0): 1})

        hooks = Curious()
        consumer.subscribe([topic], hooks=hooks)
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        assert refused == [CallbackError] * 3
        make_it_let_go(consumer, protocol, hooks, make_topic(1))
        poll_until(consumer, lambda: len(consumer.timeline()) > 1 and all(one.outcome for one in consumer.timeline()))
        stored = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert stored is not None
        assert stored.offset == 1


@pytest.mark.broker
@pytest.mark.proves("G-17", "S-15")
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group = unique("group")
    with join(broker, group) as witness:
        hooks = Witness()
        witness.subscribe([topic], hooks=hooks)
        with join(broker, group, group_instance_id="i-1") as static:
            static.subscribe([topic])
            poll_all_until([witness, static], lambda: {len(witness.assignment), len(static.assignment)} == {1, 2})
            before = static.assignment
            generation = witness.group_metadata().generation
        reported = len(hooks.reported)
        with join(broker, group, group_instance_id="i-1") as back:
            back.subscribe([topic])
            poll_all_until([witness, back], lambda: back.assignment == before)
            assert witness.group_metadata().generation == generation
            assert len(hooks.reported) == reported


@pytest.mark.broker
@pytest.mark.proves("G-17", "B-42")
def test_the_older_of_two_with_one_instance_id_is_fenced(broker: SelectedBroker, topic: str, unique: Name) -> None:
    group = unique("group")
    with member(broker, group, group_instance_id="i-1", heartbeat_interval_ms=200) as older:
        older.subscribe([topic])
        poll_until(older, lambda: len(older.assignment) == 3)
        with member(broker, group, group_instance_id="i-1") as newer:
            newer.subscribe([topic])
            poll_until(newer, lambda: len(newer.assignment) == 3)
            with pytest.raises(KohortError, match="FENCED_INSTANCE_ID"):
                poll_until(older, lambda: False)
            assert not older.health().healthy
            newer.poll(0.5)
            assert len(newer.assignment) == 3  # no flapping


@pytest.mark.broker
@pytest.mark.proves("K-12", "K-08", "K-11", "X-02", "X-03", "X-04", "X-05")
def test_pausing_by_partition_topic_pattern_and_altogether(
    join: Join, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic = make_topic(2)
    p0, p1 = (TopicPartition(topic, number) for number in (0, 1))
    with join(broker, unique("group"), max_poll_interval_ms=1500) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        assert consumer.paused() == {}
        generation = consumer.group_metadata().generation
        pause: Callable[[], None]
        resume: Callable[[], None]
        for pause, resume, reason in (
            (lambda: consumer.pause([p0, p1]), lambda: consumer.resume([p0, p1]), PauseReason.PARTITION),
            (lambda: consumer.pause(topics=[topic]), lambda: consumer.resume(topics=[topic]), PauseReason.TOPIC),
            (lambda: consumer.pause(pattern="t.*"), lambda: consumer.resume(pattern="t.*"), PauseReason.PATTERN),
            (lambda: consumer.pause(), lambda: consumer.resume(), PauseReason.CONSUMER),
            (lambda: consumer.hold([p0, p1]), lambda: consumer.release([p0, p1]), PauseReason.HELD),
        ):
            pause()
            assert consumer.paused() == {p0: reason, p1: reason}
            produce(broker.bootstrap, topic, numbers(0, 2), partition=0)
            assert consumer.poll(0.7) == []
            resume()
            assert consumer.paused() == {}
            assert [record.value for record in read(consumer, 2)] == numbers(0, 2)
        # All of it took longer than max_poll_interval_ms, in small polls: the member is still the same.
        assert consumer.group_metadata().generation == generation


@pytest.mark.broker
@pytest.mark.proves("B-41")
def test_partitions_that_are_added_are_read_from_their_beginning(
    join: Join, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = make_topic(1)
    with join(broker, unique("group"), metadata_max_age_ms=300) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
        produce(broker.bootstrap, topic, numbers(0, 3), partition=1)
        records = poll_until(consumer, lambda: len(consumer.assignment) == 2)
        records += read(consumer, 3 - len(records)) if len(records) < 3 else []
        assert [record.value for record in records] == numbers(0, 3)


@pytest.mark.broker
def test_unsubscribe_leaves_at_once_and_another_subscription_works(
    join: Join, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    one, two, group = make_topic(1), make_topic(2), unique("group")
    hooks = Witness()
    with join(broker, group) as consumer:
        consumer.subscribe([one], hooks=hooks)
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        consumer.unsubscribe()
        assert hooks.kinds() == ["Assigned", "Revoked"]
        assert consumer.assignment == frozenset()
        with pytest.raises(IllegalState):
            consumer.poll(0.2)
        consumer.subscribe([two], hooks=hooks)
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        consumer.subscribe([one, two], hooks=hooks)
        poll_until(consumer, lambda: len(consumer.assignment) == 3)


@pytest.mark.broker
def test_a_manual_assignment_commits_for_a_group_without_joining_it(
    broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group, tp = unique("group"), TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 5))
    gaps: list[OffsetReset] = []
    with Consumer(broker.bootstrap, group=group, auto_offset_reset="earliest", on_reset=gaps.append) as consumer:
        consumer.assign([tp])
        read(consumer, 5)
        consumer.commit({tp: 3})
        assert consumer.group_metadata().member_id == ""
        assert [(gap.partition, gap.wanted, gap.start) for gap in gaps] == [(tp, None, 0)]
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in read(consumer, 2)] == [3, 4]


@pytest.mark.broker
@pytest.mark.proves("E-05", "S-05")
def test_a_commit_while_the_group_waits_for_our_hook_is_taken_for_it_is_ours_until_then(
    join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    group, tp = unique("group"), TopicPartition(topic, 0)
    with join(broker, group, heartbeat_interval_ms=100) as one:
        one.subscribe([topic])
        poll_until(one, lambda: len(one.assignment) == 3)
        with join(broker, group) as two:
            two.subscribe([topic])
            limit = time.monotonic() + 120
            while one.health().state == "in the group":
                two.poll(0.05)
                assert time.monotonic() < limit
            # The rebalance waits for this member's hooks, and those for its poll.
            one.commit({tp: 7}, allow_rewind=True)
            poll_all_until(
                [one, two],
                lambda: bool(two.assignment) and len({*one.assignment, *two.assignment}) == 3 > len(one.assignment),
            )
            owner = one if tp in one.assignment else two
            found = owner.committed([tp])[tp]
            assert found is not None
            assert found.offset == 7
            owner.commit({tp: 8})


@pytest.mark.broker
@pytest.mark.proves("S-14")
@pytest.mark.parametrize(("max_poll_interval_ms", "rebalances"), [(600, True), (60_000, False)])
def test_a_handler_that_is_too_slow_for_its_settings_shows_in_the_timeline_and_settings_cure_it(
    max_poll_interval_ms: int, rebalances: bool, join: Join, broker: SelectedBroker, topic: str, unique: Name
) -> None:
    with join(broker, unique("group"), max_poll_interval_ms=max_poll_interval_ms) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        time.sleep(1.2)  # the handler is at work
        poll_until(consumer, lambda: consumer.health().healthy and len(consumer.assignment) == 3)
        causes = [rebalance.cause.reason for rebalance in consumer.timeline()]
        assert (RebalanceReason.POLL_STALLED in causes) is rebalances
        assert len(causes) > 1 if rebalances else len(causes) == 1
