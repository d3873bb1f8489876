"""ShareConsumer on the fake broker: acknowledgements, sessions, locks, and faults."""

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import Any
from uuid import UUID

import pytest

from kohort import Consumer, KohortError, TopicPartition
from kohort.fastpath import CorruptRecord, encode
from kohort.network.errors import (
    AuthorizationFailed,
    ConcurrentUseError,
    ConfigError,
    IllegalState,
    OperationTimeout,
    UnknownTopic,
)
from kohort.protocol.apis.share_acknowledge import ShareAcknowledgeResponse
from kohort.protocol.apis.share_fetch import ShareFetchResponse
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatResponse
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.share_consumer import (
    AcknowledgeOutcome,
    LockLost,
    ShareConsumer,
    ShareConsumerClosed,
    ShareConsumerConfig,
    ShareGroupsUnsupported,
    ShareRecords,
)
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer, Call, Close, CoordinatorSettings, Hold, OffsetState

PATIENCE_S = 60.0
GROUP, TOPIC = "jobs", "work"
P0 = TopicPartition(TOPIC, 0)


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A broker with ten records in one partition, which the group reads from the start."""
    with broker_with(10) as broker:
        yield broker
        assert broker.faults == []


def broker_with(
    records: int, *, partitions: int = 1, nodes: int = 1, settings: CoordinatorSettings | None = None, **more: Any
) -> FakeBroker:
    broker = FakeBroker(topics={TOPIC: partitions}, nodes=nodes, settings=settings, **more)
    broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
    for partition in range(partitions if records else 0):
        broker.produce(TOPIC, partition, [(b"", b"%d" % i) for i in range(records)])
    return broker


def member(broker: FakeBroker, **settings: Any) -> ShareConsumer:
    consumer = ShareConsumer(broker.bootstrap, group=settings.pop("group", GROUP), **settings)
    consumer.subscribe([TOPIC])
    return consumer


def next_batch(consumer: ShareConsumer) -> ShareRecords:
    """The only batch of the next poll that has records."""
    (batch,) = consumer.poll(PATIENCE_S)
    return batch


def offsets(batch: ShareRecords) -> list[int]:
    return list(batch.columns.offsets)


def until(condition: Callable[[], bool]) -> None:
    stop = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < stop
        time.sleep(0.005)


def session_epoch(call: Call) -> int:
    request: Any = call.request
    epoch: int = request.share_session_epoch
    return epoch


def settled(broker: FakeBroker, partition: int = 0) -> bool:
    """Every record of the partition is accepted or archived."""
    return broker.share_states(GROUP, TOPIC, partition) == (broker.end_offset(TOPIC, partition), {})


# ---------------------------------------------------------------------------------------------- acknowledgements


@pytest.mark.proves("SH-38", "SH-50", "SH-51", "SH-52")
def test_accepted_and_rejected_records_are_gone_and_released_ones_come_again(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        batch = next_batch(consumer)
        assert (batch.topic, batch.partition, batch.delivery_count) == (TOPIC, 0, 1)
        for record in batch:
            consumer.acknowledge(record, ("accept", "release", "reject")[record.offset % 3])
        assert consumer.commit() == {}
        again = consumer.poll(PATIENCE_S)
        assert [(offsets(batch), batch.delivery_count) for batch in again] == [([1], 2), ([4], 2), ([7], 2)]
        assert consumer.commit() == {}
        assert settled(fake)


def consumer_batches(consumer: ShareConsumer, count: int) -> list[ShareRecords]:
    """So many batches, which are accepted as they come."""
    found: list[ShareRecords] = []
    for batch in consumer:
        found.append(batch)
        if len(found) == count:
            break
    return found


@pytest.mark.proves("SH-68")
def test_implicit_mode_accepts_with_the_next_poll_and_releases_on_close(fake: FakeBroker) -> None:
    with member(fake, max_poll_records=4, acquire_mode="record_limit") as consumer:
        assert offsets(next_batch(consumer)) == [0, 1, 2, 3]
        assert offsets(next_batch(consumer)) == [4, 5, 6, 7]
    start, states = fake.share_states(GROUP, TOPIC, 0)
    assert start == 4
    assert set(states.values()) == {(OffsetState.AVAILABLE, 1)}


@pytest.mark.proves("SH-68")
def test_iteration_accepts_the_batch_before_and_never_one_that_was_not_yielded() -> None:
    with broker_with(4, partitions=3) as broker:
        with member(broker) as consumer:
            seen = consumer_batches(consumer, 2)
        gone = {batch.partition: settled(broker, batch.partition) for batch in seen}
        assert list(gone.values()) == [True, False]
        assert sum(settled(broker, number) for number in range(3)) == 1


@pytest.mark.proves("SH-69")
def test_explicit_mode_refuses_a_poll_while_records_are_open_and_loses_none(fake: FakeBroker) -> None:
    with member(fake, acknowledgement_mode="explicit") as consumer:
        batch = next_batch(consumer)
        first, *others = batch
        consumer.acknowledge(first)
        with pytest.raises(IllegalState, match="9 records"):
            consumer.poll(0)
        consumer.commit()
        for record in others:
            consumer.acknowledge(record)
        assert consumer.poll(0) == []
        assert consumer.commit() == {}
        assert settled(fake)


def test_a_record_is_acknowledged_once(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        first, second, *_others = next_batch(consumer)
        consumer.acknowledge(first, "reject")
        consumer.acknowledge(first, "accept")  # replaces the earlier one, which was not sent
        consumer.acknowledge(second, "release")
        consumer.commit()
        for record in (first, second):
            with pytest.raises(IllegalState, match="acknowledged already"):
                consumer.acknowledge(record)


def test_a_record_of_elsewhere_is_refused(fake: FakeBroker) -> None:
    fake.create_topic("other")
    with Consumer(fake.bootstrap) as reader, member(fake) as consumer:
        reader.assign({P0: 0})
        (columns,) = reader.poll(PATIENCE_S)
        with pytest.raises(IllegalState, match="not acquired"):
            consumer.acknowledge(columns[0])
        batch = next_batch(consumer)
        with member(fake, group="another") as stranger, pytest.raises(IllegalState, match="not acquired"):
            stranger.acknowledge(batch.columns[0])
        with member(fake, group="a third") as stranger:
            for use in (stranger.acknowledge, stranger.hold):
                with pytest.raises(IllegalState, match="not acquired"):
                    use(batch)
        assert batch.pending == 10


@pytest.mark.proves("SH-40")
def test_record_limit_never_exceeds_max_poll_records_and_batches_do(fake: FakeBroker) -> None:
    with member(fake, max_poll_records=3, acquire_mode="record_limit") as consumer:
        assert [len(next_batch(consumer)) for _ in range(4)] == [3, 3, 3, 1]
    with member(fake, group="others", max_poll_records=3) as consumer:
        until(lambda: consumer.poll(0.05) == [] and fake.share_states("others", TOPIC, 0) == (10, {}))
        fake.produce(TOPIC, 0, [(b"", b"")] * 7)
        assert len(next_batch(consumer)) == 7


@pytest.mark.proves("SH-44", "SH-46")
def test_groups_are_apart_and_a_new_group_starts_at_the_end(fake: FakeBroker) -> None:
    with member(fake, group="late") as late, member(fake) as consumer:
        until(lambda: late.poll(0.05) == [] and fake.share_states("late", TOPIC, 0) == (10, {}))
        fake.produce(TOPIC, 0, [(b"", b"new")])
        assert offsets(next_batch(late)) == [10]
        assert sum(len(batch) for batch in consumer.poll(PATIENCE_S)) >= 10


@pytest.mark.proves("SH-54")
def test_a_record_at_its_delivery_limit_is_archived() -> None:
    with broker_with(1, settings=CoordinatorSettings(group_share_delivery_count_limit=3)) as broker:
        with member(broker) as consumer:
            counts = []
            for _ in range(3):
                batch = next_batch(consumer)
                counts.append(batch.delivery_count)
                consumer.acknowledge(batch, "release")
            assert consumer.poll(0.2) == []
            assert counts == [1, 2, 3]
        assert settled(broker)


@pytest.mark.proves("SH-60")
def test_a_renewed_record_outlives_its_lock_and_is_then_accepted(fake: FakeBroker) -> None:
    fake.configure_group(GROUP, {"share.record.lock.duration.ms": "600"})
    with member(fake) as consumer:
        batch = next_batch(consumer)
        kept, *others = batch
        for record in others:
            consumer.acknowledge(record)
        for _ in range(4):
            consumer.acknowledge(kept, "renew")
            assert consumer.commit() == {}
            time.sleep(0.2)
            assert consumer.poll(0) == []  # a renewed record is not accepted by the next poll
        assert fake.share_states(GROUP, TOPIC, 0)[1][0] == (OffsetState.ACQUIRED, 1)
        consumer.acknowledge(kept)
        assert consumer.commit() == {}
        assert settled(fake)


@pytest.mark.proves("SH-60", "SH-83")
@pytest.mark.parametrize("end", [ShareConsumer.commit, ShareConsumer.close])
@pytest.mark.parametrize("held_up", ["ShareAcknowledge", "ShareFetch"])
def test_a_record_is_acknowledged_while_its_renewal_is_under_way(
    fake: FakeBroker, held_up: str, end: Callable[[ShareConsumer], object]
) -> None:
    """Its acknowledgement is sent after the renewal, which is in flight, or waits for the end of a fetch."""
    hold = Hold()
    with member(fake, acknowledgement_mode="explicit") as consumer:
        batch = next_batch(consumer)
        consumer.hold(batch)
        fake.control(held_up, lambda _call: hold, times=1)
        if held_up == "ShareFetch":
            until(lambda: consumer.poll(0) == [] and hold.reached.is_set())
        consumer.acknowledge(batch, "renew")
        until(lambda: consumer.poll(0) == [] and hold.reached.is_set())
        consumer.acknowledge(batch, "accept")
        fetcher = consumer._driver.core.fetcher

        def release() -> None:
            until(lambda: fetcher.flushes or fetcher.closing)
            hold.release()

        releasing = threading.Thread(target=release)
        releasing.start()
        assert not end(consumer)
        releasing.join()
    assert settled(fake)


@pytest.mark.proves("SH-63")
def test_a_record_whose_renewal_has_failed_is_not_acquired_any_more(fake: FakeBroker) -> None:
    fake.configure_group(GROUP, {"share.auto.offset.reset": "earliest", "share.renew.acknowledge.enable": "false"})
    with member(fake, acknowledgement_mode="explicit") as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch, "renew")
        assert len(consumer.commit()[P0]) == 10
        with pytest.raises(IllegalState, match="not acquired"):
            consumer.acknowledge(batch)


@pytest.mark.proves("SH-53", "SH-63")
def test_a_late_acknowledgement_fails_and_is_returned_once(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch)
        fake.expire_share_locks(GROUP)
        failures = consumer.commit()
        assert list(failures) == [P0]
        assert list(failures[P0]) == list(range(10))
        assert {str(error) for error in failures[P0].values()} == {str(failures[P0][0])}
        error = failures[P0][0]
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INVALID_RECORD_STATE
        assert consumer.commit() == {}
        assert next_batch(consumer).delivery_count == 2


@pytest.mark.proves("SH-56")
def test_one_expired_record_fails_all_of_its_partition_and_no_other() -> None:
    with broker_with(4, partitions=2) as broker, member(broker, acknowledgement_mode="explicit") as consumer:
        batches = {batch.partition: batch for batch in consumer.poll(PATIENCE_S)}
        while len(batches) < 2:
            for batch in batches.values():
                consumer.acknowledge(batch, "renew")
            batches |= {batch.partition: batch for batch in consumer.poll(PATIENCE_S)}
        consumer.acknowledge(batches[0].columns[0])
        consumer.commit()
        broker.control("ShareAcknowledge", lambda call: Answer(one_failed()), times=1)
        for batch in batches.values():
            consumer.acknowledge(batch)
        failures = consumer.commit()
        assert {partition: sorted(places) for partition, places in failures.items()} == {P0: [1, 2, 3]}


def one_failed() -> ShareAcknowledgeResponse:
    from kohort.protocol.apis.share_acknowledge import PartitionData, ShareAcknowledgeTopicResponse

    with FakeBroker(topics={TOPIC: 2}) as same:  # topic ids are made of names
        topic_id = same._cluster.topics[TOPIC].topic_id
    return ShareAcknowledgeResponse(
        responses=(
            ShareAcknowledgeTopicResponse(
                topic_id=topic_id,
                partitions=(
                    PartitionData(partition_index=0, error_code=ErrorCode.INVALID_RECORD_STATE),
                    PartitionData(partition_index=1),
                ),
            ),
        )
    )


@pytest.mark.proves("SH-67")
def test_a_retriable_error_is_retried(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        consumer.acknowledge(next_batch(consumer))
        fake.fail_share_write(GROUP, TOPIC, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert consumer.commit() == {}
        assert len(fake.calls_of("ShareAcknowledge")) == 2
        assert settled(fake)


@pytest.mark.proves("SH-67")
def test_a_retriable_error_that_stays_is_returned_after_the_deadline(fake: FakeBroker) -> None:
    with member(fake, default_api_timeout_ms=300) as consumer:
        consumer.acknowledge(next_batch(consumer))

        def fail(_call: object) -> None:
            fake.fail_share_write(GROUP, TOPIC, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE)

        control = fake.control("ShareAcknowledge", fail)
        failures = consumer.commit(PATIENCE_S)
        control.remove()
        assert len(failures[P0]) == 10
        assert len(fake.calls_of("ShareAcknowledge")) > 1


@pytest.mark.proves("SH-66")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_a_final_error_is_not_retried(fake: FakeBroker, code: ErrorCode) -> None:
    with member(fake) as consumer:
        consumer.acknowledge(next_batch(consumer))
        fake.fail_share_write(GROUP, TOPIC, 0, code)
        error = consumer.commit()[P0][9]
        assert isinstance(error, BrokerError)
        assert (error.code, len(fake.calls_of("ShareAcknowledge"))) == (code, 1)


@pytest.mark.proves("SH-64")
def test_a_partition_that_the_response_lacks_has_failed(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        consumer.acknowledge(next_batch(consumer))
        fake.control("ShareAcknowledge", lambda _call: Alter(lambda response: response._replace(responses=())), times=1)
        error = consumer.commit()[P0][0]
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INVALID_RECORD_STATE


def test_an_error_that_ends_the_consumer_ends_a_commit(fake: FakeBroker) -> None:
    fake.configure_group(GROUP, {"share.auto.offset.reset": "earliest", "share.heartbeat.interval.ms": "100"})
    hold = Hold()

    def refuse(_call: Call) -> Alter | None:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return Alter(lambda response: response._replace(error_code=code)) if hold.reached.is_set() else None

    with member(fake) as consumer:
        next_batch(consumer)
        fake.control("ShareAcknowledge", lambda _call: hold, times=1)
        fake.control("ShareGroupHeartbeat", refuse)
        with pytest.raises(AuthorizationFailed):
            consumer.commit(PATIENCE_S)
        hold.release()


def test_outcomes_are_called_back_on_the_caller_s_thread(fake: FakeBroker) -> None:
    seen: list[AcknowledgeOutcome] = []
    threads: set[int] = set()

    def on_acknowledged(outcome: AcknowledgeOutcome) -> None:
        seen.append(outcome)
        threads.add(threading.get_ident())
        with pytest.raises(IllegalState, match="callback"):
            consumer.commit()

    with member(fake, on_acknowledged=on_acknowledged) as consumer:
        first, *_others = next_batch(consumer)
        consumer.acknowledge(first, "reject")
        consumer.commit()
    assert seen == [AcknowledgeOutcome(P0, 0, 9, None, b"\3" + b"\1" * 9)]
    assert threads == {threading.get_ident()}


# ---------------------------------------------------------------------------------------------- sessions


@pytest.mark.proves("SH-24", "SH-25", "SH-26")
def test_epochs_of_a_session_follow_each_other_with_one_request_in_flight() -> None:
    with broker_with(40, partitions=4, nodes=2) as broker:
        with member(broker, max_poll_records=5, acquire_mode="record_limit") as consumer:
            taken = sum(len(batch) for batch in consumer_batches(consumer, 20))
        assert taken > 20
        calls = [call for call in broker.calls if call.api in ("ShareFetch", "ShareAcknowledge")]
        for node in (1, 2):
            epochs = [session_epoch(call) for call in calls if call.node == node]
            assert epochs == [*range(len(epochs) - 1), -1]
            opening: Any = next(call.request for call in calls if call.node == node)
            assert not any(one.acknowledgement_batches for topic in opening.topics for one in topic.partitions)


@pytest.mark.proves("SH-28", "SH-65", "SH-79")
@pytest.mark.parametrize(
    "code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_lost_session_is_opened_again_and_open_records_are_not_acknowledged_in_it(
    fake: FakeBroker, code: ErrorCode
) -> None:
    """The lock is long, so records come again only because the broker was made to release them."""
    fake.configure_group(GROUP, {"share.record.lock.duration.ms": "600000"})
    with member(fake, max_poll_records=5, acquire_mode="record_limit") as consumer:
        batch = next_batch(consumer)
        first, *others = batch
        consumer.acknowledge(first)
        fake.control("ShareAcknowledge", lambda _call: Answer(ShareAcknowledgeResponse(error_code=code)), times=1)
        failures = consumer.commit()[P0]
        assert {type(error) for error in failures.values()} == {BrokerError}
        assert list(failures) == [0, 1, 2, 3, 4]  # in implicit mode a commit accepts all
        seen: Counter[int] = Counter()
        while sum(seen.values()) < 10:
            seen.update(offset for batch in consumer.poll(PATIENCE_S) for offset in offsets(batch))
        assert consumer.commit() == {}
        assert sorted(seen) == list(range(10))
        epochs = [session_epoch(call) for call in fake.calls_of("ShareFetch")]
        assert epochs.count(0) == 3  # the second of them has the broker release what it keeps
        assert others


@pytest.mark.proves("SH-65")
def test_records_of_a_lost_session_are_not_acknowledged_in_the_next_one(fake: FakeBroker) -> None:
    with member(fake, acknowledgement_mode="explicit") as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch.columns[0])
        fake.control("ShareAcknowledge", lambda _call: Close(after_work=False), times=1)
        assert list(consumer.commit()[P0]) == [0]
        for record in list(batch)[1:]:
            consumer.acknowledge(record)
        failures = consumer.commit()[P0]
        assert {type(error) for error in failures.values()} == {LockLost}
        assert len(failures) == 9
        assert next_batch(consumer).delivery_count == 2


@pytest.mark.proves("SH-74")
def test_a_partition_that_moves_is_fetched_from_the_new_leader() -> None:
    with broker_with(4, nodes=2) as broker, member(broker) as consumer:
        consumer.acknowledge(next_batch(consumer))
        assert consumer.commit() == {}
        broker.set_leader(TOPIC, 0, 2)
        broker.produce(TOPIC, 0, [(b"", b"moved")])
        assert [record.value for record in next_batch(consumer)] == [b"moved"]
        requested = Counter(call.node for call in broker.calls_of("ShareFetch"))
        assert set(requested) == {1, 2}


@pytest.mark.proves("SH-74")
def test_the_leader_of_a_success_is_not_used(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        next_batch(consumer)
        assert fake.calls_of("ShareFetch")
        before = len(fake.calls_of("Metadata"))
        fake.produce(TOPIC, 0, [(b"", b"more")])
        next_batch(consumer)
        assert len(fake.calls_of("Metadata")) == before


@pytest.mark.proves("SH-50")
def test_no_record_is_lost_when_a_broker_restarts_inside_a_session() -> None:
    with broker_with(20, partitions=2, nodes=2) as broker, member(broker, max_poll_records=5) as consumer:
        accepted: set[tuple[int, int]] = set()
        stops = iter((2,))
        while len(accepted) < 40:
            batches = consumer.poll(1.0)
            for node in stops:
                broker.stop_node(node)
                broker.start_node(node)
            for batch in batches:
                consumer.acknowledge(batch)
            failures = consumer.commit()
            for batch in batches:
                failed = failures.get(batch.topic_partition, {})
                new = {(batch.partition, offset) for offset in offsets(batch) if offset not in failed}
                assert not new & accepted
                accepted |= new
        until(lambda: settled(broker, 0) and settled(broker, 1))


def test_a_fetch_error_of_a_partition_does_not_stop_the_others() -> None:
    with broker_with(3, partitions=2) as broker:

        def fail_first(response: ShareFetchResponse) -> ShareFetchResponse:
            return response._replace(
                responses=tuple(
                    topic._replace(
                        partitions=tuple(
                            one._replace(error_code=ErrorCode.KAFKA_STORAGE_ERROR, records=b"", acquired_records=())
                            if one.partition_index == 0
                            else one
                            for one in topic.partitions
                        )
                    )
                    for topic in response.responses
                )
            )

        broker.control("ShareFetch", lambda _call: Alter(fail_first), times=1)
        with member(broker) as consumer:
            assert next_batch(consumer).partition == 1


# ---------------------------------------------------------------------------------------------- data


def test_a_corrupt_batch_is_raised_and_its_records_are_released() -> None:
    with FakeBroker(topics={TOPIC: 1}) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        broker.produce(TOPIC, 0, [(b"", b"fine")])
        damaged = bytearray(encode([(b"", b"damaged")]))
        damaged[-1] ^= 1
        broker.append(TOPIC, 0, bytes(damaged))
        with member(broker, acknowledgement_mode="explicit") as consumer:
            batch = next_batch(consumer)
            assert [record.value for record in batch] == [b"fine"]
            consumer.acknowledge(batch)
            with pytest.raises(CorruptRecord):
                consumer.poll(0)
            consumer.commit()
        assert broker.share_states(GROUP, TOPIC, 0) == (1, {1: (OffsetState.AVAILABLE, 1)})


GOOD = encode([(b"", b"0")])


@pytest.mark.parametrize(
    ("data", "sound"),
    [
        (GOOD + bytes(8) + b"\0\0\0\1" + bytes(40), [0]),  # a batch shorter than any header
        (GOOD + bytes(8) + b"\0\0\1\0" + bytes(4) + b"\x09", [0]),  # part of a batch of a magic that is unknown
        (GOOD, [0]),
        (GOOD[:-3], []),
        (b"", []),
    ],
)
def test_records_whose_bytes_cannot_be_read_are_released_after_one_error(data: bytes, sound: list[int]) -> None:
    acquired: list[object] = []

    def damaged(response: ShareFetchResponse) -> ShareFetchResponse:
        places = [one for topic in response.responses for one in topic.partitions if one.acquired_records]
        acquired.extend(places)
        if acquired != places or not places:
            return response
        (topic,) = response.responses
        return response._replace(responses=(topic._replace(partitions=(places[0]._replace(records=data),)),))

    with broker_with(3) as broker:
        broker.control("ShareFetch", lambda _call: Alter(damaged))
        with member(broker, acknowledgement_mode="explicit") as consumer:
            found, errors = list[tuple[int, int]](), list[CorruptRecord]()

            def poll() -> bool:
                try:
                    for batch in consumer.poll(0.2):
                        found.extend((offset, batch.delivery_count) for offset in batch.columns.offsets)
                        consumer.acknowledge(batch)
                except CorruptRecord as error:
                    errors.append(error)
                return len(found) == 3

            until(poll)
            assert sorted(found) == [(offset, 1 if offset in sound else 2) for offset in range(3)]
            (error,) = errors
            assert (error.place["topic"], error.place["partition"], "offset" in error.place) == (TOPIC, 0, True)


def test_an_error_that_comes_again_before_a_poll_is_raised_once(fake: FakeBroker) -> None:
    def forbidden(response: ShareGroupHeartbeatResponse) -> ShareGroupHeartbeatResponse:
        return response._replace(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="work")

    with member(fake, retry_backoff_ms=1, retry_backoff_max_ms=1) as consumer:
        control = fake.control("ShareGroupHeartbeat", lambda _call: Alter(forbidden))
        until(lambda: control.calls >= 5)
        control.remove()
        calls = len(fake.calls_of("ShareGroupHeartbeat"))
        until(lambda: len(fake.calls_of("ShareGroupHeartbeat")) > calls)
        with pytest.raises(AuthorizationFailed):
            consumer.poll(0)
        assert consumer.poll(PATIENCE_S)


A_BATCH = 100
"""A limit of decompressed bytes with which each of these batches is decoded alone."""


def three_records() -> bytes:
    return encode([(b"", b"v")] * 3, codec="gzip")


@pytest.fixture
def parts() -> Iterator[FakeBroker]:
    """A broker with three batches of three records."""
    with broker_with(0) as broker:
        for _ in range(3):
            broker.append(TOPIC, 0, three_records())
        yield broker
        assert broker.faults == []


@pytest.mark.proves("SH-37", "SH-50", "SH-70", "SH-77")
def test_records_above_the_limit_of_one_decoding_come_with_later_polls_of_a_paused_member(parts: FakeBroker) -> None:
    parts.skip(TOPIC, 0, 12)
    parts.append(TOPIC, 0, three_records())
    with member(parts, max_decompressed_bytes=A_BATCH) as consumer:
        first = next_batch(consumer)
        consumer.pause()
        consumer.hold(first)
        found = [first, *(next_batch(consumer) for _ in range(3))]
        assert [offsets(batch) for batch in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [12, 13, 14]]
        consumer.acknowledge(first)
        assert consumer.commit() == {}
        assert settled(parts)


@pytest.mark.proves("SH-38", "SH-52")
def test_ranges_with_other_delivery_counts_are_cut_where_a_part_ends(parts: FakeBroker) -> None:
    with member(parts) as consumer:
        for record in next_batch(consumer):
            consumer.acknowledge(record, "accept" if record.offset in (1, 5) else "release")
        assert consumer.commit() == {}
    parts.append(TOPIC, 0, three_records())
    with member(parts, max_decompressed_bytes=A_BATCH) as consumer:
        found = [[(offsets(batch), batch.delivery_count) for batch in consumer.poll(PATIENCE_S)] for _ in range(4)]
        assert found == [[([0], 2), ([2], 2)], [([3, 4], 2)], [([6, 7, 8], 2)], [([9, 10, 11], 1)]]
        assert consumer.commit() == {}
        assert settled(parts)


def test_a_corrupt_batch_of_a_later_part_is_raised_once_and_only_its_records_are_released(parts: FakeBroker) -> None:
    damaged = bytearray(three_records())
    damaged[-1] ^= 1
    parts.append(TOPIC, 0, bytes(damaged))
    parts.append(TOPIC, 0, three_records())
    parts.skip(TOPIC, 0, 17)
    parts.append(TOPIC, 0, three_records())
    with member(parts, max_decompressed_bytes=A_BATCH) as consumer:
        found = [offsets(next_batch(consumer)) for _ in range(4)]
        assert found == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [12, 13, 14]]
        with pytest.raises(CorruptRecord):
            consumer.poll(0)
        assert offsets(next_batch(consumer)) == [17, 18, 19]
        assert consumer.commit() == {}
        start, states = parts.share_states(GROUP, TOPIC, 0)
        assert start == 9
        assert [offset for offset, state in states.items() if state == (OffsetState.AVAILABLE, 1)] == [9, 10, 11]


@pytest.mark.proves("SH-53")
def test_records_of_a_later_part_are_not_returned_after_their_lock(parts: FakeBroker) -> None:
    parts.configure_group(GROUP, {"share.record.lock.duration.ms": "600"})
    with member(parts, max_decompressed_bytes=A_BATCH) as consumer:
        lock_until = next_batch(consumer).lock_until
        assert consumer.commit() == {}
        until(lambda: time.monotonic() > lock_until)
        again = next_batch(consumer)
        assert (offsets(again), again.delivery_count) == ([3, 4, 5], 2)


@pytest.mark.proves("SH-68")
def test_close_releases_the_parts_that_were_not_returned(parts: FakeBroker) -> None:
    with member(parts, max_decompressed_bytes=A_BATCH) as consumer:
        consumer.acknowledge(next_batch(consumer))
    assert parts.share_states(GROUP, TOPIC, 0) == (3, dict.fromkeys(range(3, 9), (OffsetState.AVAILABLE, 1)))


def test_another_subscription_releases_what_was_not_returned_of_a_part_and_the_later_parts(parts: FakeBroker) -> None:
    with member(parts) as consumer:
        consumer.acknowledge(next_batch(consumer).columns[1])
    with member(parts, max_decompressed_bytes=A_BATCH) as consumer:
        assert offsets(next(iter(consumer))) == [0]
        consumer.subscribe(["later"])
        assert consumer.commit() == {}
        assert parts.share_states(GROUP, TOPIC, 0) == (2, dict.fromkeys(range(2, 9), (OffsetState.AVAILABLE, 2)))


def test_a_range_that_no_window_has_is_an_error_and_takes_no_memory(fake: FakeBroker) -> None:
    def widen(response: ShareFetchResponse) -> ShareFetchResponse:
        topic = response.responses[0]
        (good,) = topic.partitions[0].acquired_records
        wide = good._replace(last_offset=1 << 40), good._replace(last_offset=-1 << 42)
        return response._replace(
            responses=(topic._replace(partitions=(topic.partitions[0]._replace(acquired_records=wide),)),)
        )

    fake.control("ShareFetch", lambda _call: Alter(widen), times=1)
    with member(fake) as consumer:
        with pytest.raises(KohortError, match="too wide"):
            consumer.poll(PATIENCE_S)
        fake.expire_share_locks(GROUP)
        assert offsets(next_batch(consumer)) == list(range(10))


def test_an_error_of_a_topic_that_was_not_requested_is_ignored(fake: FakeBroker) -> None:
    def beside(response: ShareFetchResponse) -> ShareFetchResponse:
        (topic,) = response.responses
        refused = topic.partitions[0]._replace(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, records=b"", acquired_records=()
        )
        return response._replace(responses=(topic._replace(topic_id=UUID(int=7), partitions=(refused,)), topic))

    fake.control("ShareFetch", lambda _call: Alter(beside), times=1)
    with member(fake) as consumer:
        assert offsets(next_batch(consumer)) == list(range(10))


def test_an_error_of_a_partition_is_raised_again_once_the_partition_has_been_fetched(fake: FakeBroker) -> None:
    def refuse(response: ShareFetchResponse) -> ShareFetchResponse:
        (topic,) = response.responses
        (partition,) = topic.partitions
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused = partition._replace(error_code=code, records=b"", acquired_records=())
        return response._replace(responses=(topic._replace(partitions=(refused,)),))

    with member(fake, retry_backoff_ms=1, retry_backoff_max_ms=1) as consumer:
        for _ in range(2):
            fake.control("ShareFetch", lambda _call: Alter(refuse), times=1)
            with pytest.raises(AuthorizationFailed):
                until(lambda: consumer.poll(0.1) is None)  # the first polls return records that were fetched before
            fake.expire_share_locks(GROUP)
            fake.produce(TOPIC, 0, [(None, b"one")])
            until(lambda: bool(consumer.poll(0.1)))


def test_arrow_has_the_delivery_count(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        table = next_batch(consumer).to_arrow()
        assert table.schema.names[-1] == "delivery_count"
        assert table.column("delivery_count").to_pylist() == [1] * 10


# ---------------------------------------------------------------------------------------------- bad input, the end


@pytest.mark.proves("SH-76")
@pytest.mark.parametrize("hidden", ["ShareGroupHeartbeat", "ShareFetch"])
def test_a_cluster_without_share_groups_raises_one_error_with_feature_and_version(hidden: str) -> None:
    with (
        broker_with(1, versions={hidden: None}) as broker,
        member(broker) as consumer,
        pytest.raises(ShareGroupsUnsupported, match=r"share\.version=1") as raised,
    ):
        consumer.poll(PATIENCE_S)
    assert "4.2" in str(raised.value)


@pytest.mark.proves("SH-18")
def test_a_group_of_another_type_is_refused_and_stays(fake: FakeBroker) -> None:
    with Consumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as other:
        other.subscribe([TOPIC])
        assert other.poll(PATIENCE_S)
        with member(fake) as consumer:
            for _ in range(2):
                with pytest.raises(BrokerError, match="another type"):
                    consumer.poll(PATIENCE_S)
        assert other.poll(0.2) == []
        assert fake.group(GROUP).members


def test_a_topic_that_does_not_exist_is_raised_and_waited_for(fake: FakeBroker) -> None:
    with ShareConsumer(fake.bootstrap, group=GROUP) as consumer:
        consumer.subscribe(["later"])
        with pytest.raises(UnknownTopic):
            consumer.poll(PATIENCE_S)
        fake.create_topic("later")
        fake.produce("later", 0, [(b"", b"there")])
        assert next_batch(consumer).topic == "later"


def test_calls_in_the_wrong_state_are_refused(fake: FakeBroker) -> None:
    consumer = ShareConsumer(fake.bootstrap, group=GROUP)
    with pytest.raises(IllegalState, match="without a subscription"):
        consumer.poll(0)
    with pytest.raises(IllegalState, match="needs topics"):
        consumer.subscribe([])
    with pytest.raises(ValueError, match="NaN"):
        consumer.poll(float("nan"))
    for topics in (TOPIC, None, [5]):
        with pytest.raises(TypeError, match="topics"):
            consumer.subscribe(topics)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topics is empty"):
        consumer.subscribe([""])
    consumer.subscribe([TOPIC])
    assert consumer.subscription == {TOPIC}
    with pytest.raises(TypeError, match="acknowledge a record or a batch"):
        consumer.acknowledge(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="hold a batch"):
        consumer.hold(None)  # type: ignore[arg-type]
    consumer.close()
    consumer.close()
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(0),
        consumer.commit,
        lambda: consumer.subscribe([TOPIC]),
        lambda: consumer.assignment,
    ]
    for call in calls:
        with pytest.raises(ShareConsumerClosed):
            call()
    assert list(consumer) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group.id": "g", "auto.offset.reset": "earliest"}, "share.auto.offset.reset"),
        ({"group.id": "g", "enable.auto.commit": "true"}, "acknowledgement_mode"),
        ({"group.id": "g", "group.instance.id": "one"}, "static"),
        ({}, "needs a group"),
        ({"group.id": "g", "share.acquire.mode": "all"}, "batch_optimized"),
    ],
)
def test_settings_of_other_groups_are_refused_with_their_place(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ShareConsumerConfig.from_kafka({"bootstrap.servers": "h:1", **settings})
    assert message in str(raised.value)


def test_unsubscribe_leaves_and_open_records_can_still_be_acknowledged(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        batch = next_batch(consumer)
        consumer.unsubscribe()
        until(lambda: not fake.share_group(GROUP).members)
        consumer.acknowledge(batch, "reject")
        assert consumer.commit() == {}
        assert settled(fake)


@pytest.mark.proves("SH-21")
def test_close_ends_in_time_though_no_broker_responds(fake: FakeBroker) -> None:
    consumer = member(fake)
    consumer.acknowledge(next_batch(consumer))
    fake.stop_node(1)
    began = time.monotonic()
    consumer.close(timeout_s=1.0)
    assert time.monotonic() - began < 10
    fake.start_node(1)


def test_a_commit_without_a_response_times_out_and_the_next_one_has_the_outcome(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        batch = next_batch(consumer)
        hold = Hold(after_work=False)
        fake.control("ShareAcknowledge", lambda _call: hold, times=1)
        consumer.acknowledge(batch)
        with pytest.raises(OperationTimeout):
            consumer.commit(0.1)
        hold.released.set()
        assert consumer.commit(PATIENCE_S) == {}
        assert settled(fake)


def test_another_thread_is_refused(fake: FakeBroker) -> None:
    with member(fake, group="idle") as consumer:
        errors: list[BaseException] = []
        poll = threading.Thread(target=consumer.poll, args=(1.0,))
        poll.start()
        until(lambda: consumer._door.depth > 0)
        try:
            consumer.commit()
        except KohortError as error:
            errors.append(error)
        poll.join(PATIENCE_S)
        assert [type(error) for error in errors] == [ConcurrentUseError]


def test_a_dropped_consumer_warns_and_leaves(fake: FakeBroker) -> None:
    consumer = member(fake)
    next_batch(consumer)
    with pytest.warns(ResourceWarning, match="unclosed share consumer"):
        consumer = gc.collect()  # type: ignore[assignment]  # the last reference is dropped
    until(lambda: not fake.share_group(GROUP).members)
    until(lambda: set(fake.share_states(GROUP, TOPIC, 0)[1].values()) == {(OffsetState.AVAILABLE, 1)})


def test_a_consumer_that_is_dropped_under_its_drivers_lock_leaves(fake: FakeBroker) -> None:
    kept = [member(fake)]
    next_batch(kept[0])
    driver = kept[0]._driver
    with pytest.warns(ResourceWarning, match="unclosed share consumer"), driver.lock:
        kept.clear()  # as the garbage collector does it on the driver's thread
    until(lambda: not fake.share_group(GROUP).members)
    assert driver.ended.wait(PATIENCE_S)


def test_metrics_count_records_and_acknowledgements(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        consumer.acknowledge(next_batch(consumer))
        consumer.commit()
        metrics = consumer.metrics()
        assert (metrics["records_consumed_total"], metrics["acknowledgements_send_total"]) == (10, 1)
        assert (metrics["acknowledgements_error_total"], consumer.lock_timeout_ms) == (0, 30_000)


# ---------------------------------------------------------------------------------------------- held records


@pytest.mark.proves("SH-77")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_held_record_stays_acquired_over_polls_until_it_is_acknowledged(fake: FakeBroker, mode: str) -> None:
    fake.configure_group(GROUP, {"share.record.lock.duration.ms": "600"})
    with member(fake, acknowledgement_mode=mode, fetch_max_wait_ms=50) as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch.columns[0], "accept")
        consumer.hold(batch)
        assert consumer.commit() == {}
        first_lock = batch.lock_until
        until(lambda: time.monotonic() > first_lock + 0.3)
        for _ in range(3):
            assert consumer.poll(0) == []
        assert consumer.commit() == {}
        assert batch.lock_until > first_lock
        assert {state for state, _count in fake.share_states(GROUP, TOPIC, 0)[1].values()} == {OffsetState.ACQUIRED}
        consumer.acknowledge(batch)
        assert consumer.commit() == {}
        assert settled(fake)


@pytest.mark.proves("SH-77")
def test_a_renewal_that_one_broker_delays_is_no_haste_at_another() -> None:
    hold = Hold(after_work=False)
    waits_ms: list[int] = []
    until = inf

    def watch(call: Call) -> None:
        request: Any = call.request
        if hold.reached.is_set() and call.node == 2 and time.monotonic() < until:
            waits_ms.append(request.max_wait_ms)

    with FakeBroker(topics={TOPIC: 2}, nodes=2) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "600"})
        broker.set_leader(TOPIC, 0, 1)
        broker.set_leader(TOPIC, 1, 2)
        broker.produce(TOPIC, 0, [(b"", b"v")])
        with member(broker, fetch_max_wait_ms=20) as consumer:
            batch = next_batch(consumer)
            broker.control("ShareFetch", watch)
            broker.control("ShareAcknowledge", lambda _call: hold, times=1)
            consumer.hold(batch)
            until = time.monotonic() + 1.5
            consumer.poll(2.0)  # its end shortens the last requests, which are not watched
            hold.release()
    assert set(waits_ms) == {20}


@pytest.mark.proves("SH-77")
def test_close_releases_held_records(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        consumer.hold(next_batch(consumer))
    assert set(fake.share_states(GROUP, TOPIC, 0)[1].values()) == {(OffsetState.AVAILABLE, 1)}


@pytest.mark.proves("SH-78")
def test_a_lock_that_could_not_be_renewed_is_reported_once(fake: FakeBroker) -> None:
    fake.configure_group(GROUP, {"share.record.lock.duration.ms": "300", "share.renew.acknowledge.enable": "false"})
    with member(fake, fetch_max_wait_ms=50, max_poll_records=10) as consumer:
        batch = next_batch(consumer)
        consumer.hold(batch)
        until(lambda: time.monotonic() > batch.lock_until + 0.1)
        failures = consumer.commit()
        assert {offset: type(error) for offset, error in failures[P0].items()} == dict.fromkeys(range(10), LockLost)
        assert consumer.commit() == {}
        with pytest.raises(IllegalState):
            consumer.acknowledge(batch)
        with pytest.raises(IllegalState):
            consumer.hold(batch)


@pytest.mark.proves("SH-77")
def test_a_paused_member_requests_no_records_and_goes_on_to_acknowledge_and_to_renew(fake: FakeBroker) -> None:
    fake.configure_group(GROUP, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "600"})
    with member(fake, max_poll_records=4, acquire_mode="record_limit") as consumer:
        batch = next_batch(consumer)
        consumer.pause()
        fetches = len(fake.calls_of("ShareFetch"))
        consumer.acknowledge(batch.columns[0], "accept")
        consumer.hold(batch)
        first_lock = batch.held_until
        until(lambda: consumer.poll(0.05) == [] and batch.held_until > first_lock)
        start, states = fake.share_states(GROUP, TOPIC, 0)
        held = {offset for offset, (state, _count) in states.items() if state is OffsetState.ACQUIRED}
        assert (start, held) == (1, {1, 2, 3})
        assert len(fake.calls_of("ShareFetch")) == fetches
        consumer.resume()
        assert offsets(next_batch(consumer)) == [4, 5, 6, 7]
