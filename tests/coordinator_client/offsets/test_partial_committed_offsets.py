"""One response about committed offsets, good for some partitions and not for others: each has its own error."""

from typing import Any

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import AuthorizationFailed, Consumer, OffsetReset
from kohort.testing.fake_broker import Alter, FakeBroker, Hold
from kohort.testing.fake_broker.interventions import Call
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read

UNSTABLE, NOT_ALLOWED = 88, 29
P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


def filled() -> FakeBroker:
    """Three records in each of two partitions; a group has committed the first of each."""
    fake = FakeBroker(topics={"topic": 2})
    for number in range(6):
        fake.produce("topic", number % 2, [(None, b"%d" % number)])
    with Consumer(fake.bootstrap, group="group") as consumer:
        consumer.commit({P0: 1, P1: 1})
    return fake


def refuse(fake: FakeBroker, code: int, times: int) -> Any:
    """OffsetFetch returns `code` for partition 0, so often; the rest of each response is as it was."""

    def change(response: Any) -> Any:
        def row(one: Any) -> Any:
            return one._replace(error_code=code, committed_offset=-1) if one.partition_index == 0 else one

        def rows(topics: Any) -> Any:
            return tuple(topic._replace(partitions=tuple(map(row, topic.partitions))) for topic in topics)

        groups = tuple(group._replace(topics=rows(group.topics)) for group in response.groups)
        return response._replace(topics=rows(response.topics), groups=groups)

    def altered(_call: Call) -> Alter:
        return Alter(change)

    return fake.control("OffsetFetch", altered, times=times)


@pytest.mark.proves("E-06")
def test_one_that_a_transaction_holds_is_requested_again_alone() -> None:
    with filled() as fake, Consumer(fake.bootstrap, group="group", auto_offset_reset="earliest") as consumer:
        laid = refuse(fake, UNSTABLE, times=1_000_000)
        consumer.assign([P0, P1])
        assert {(one.partition, one.offset) for one in read(consumer, 2)} == {(1, 1), (1, 2)}
        laid.remove()
        assert {(one.partition, one.offset) for one in read(consumer, 2)} == {(0, 1), (0, 2)}


@pytest.mark.proves("E-06", "B-31")
def test_one_that_we_may_not_read_is_an_error_that_names_it_and_the_other_is_read() -> None:
    with filled() as fake, Consumer(fake.bootstrap, group="group", auto_offset_reset="earliest") as consumer:
        refuse(fake, NOT_ALLOWED, times=1_000_000)
        consumer.assign([P0, P1])
        with pytest.raises(AuthorizationFailed) as caught:  # raised once it is known: the other is not fetched yet
            poll_until(consumer, lambda: False)
        assert caught.value.place["topic"] == "topic"
        assert {(one.partition, one.offset) for one in read(consumer, 2)} == {(1, 1), (1, 2)}


@pytest.mark.proves("S-01")
def test_what_was_committed_is_asked_anew_for_a_partition_that_went_and_came_back() -> None:
    """The response to the first request is late: another member may have had the partition, and committed, since."""
    with filled() as fake, Consumer(fake.bootstrap, group="group", auto_offset_reset="earliest") as consumer:
        late = Hold(after_work=True)
        fake.control("OffsetFetch", lambda call: late, times=1)
        consumer.assign([P0])
        assert late.reached.wait(PATIENCE_S)
        consumer.unsubscribe()
        consumer.assign([P0])
        with Consumer(fake.bootstrap, group="group") as other:
            other.commit({P0: 2})
        late.release()
        assert consumer.position(P0) == 2


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("code", [-1, 2, 89])
def test_what_may_pass_does_not_end_a_question_for_offsets(code: int) -> None:
    def refused(response: Any) -> Any:
        rows = (one._replace(error_code=code, offset=-1) for topic in response.topics for one in topic.partitions)
        return response._replace(topics=(response.topics[0]._replace(partitions=tuple(rows)),))

    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        fake.produce("topic", 0, [(None, b"v")] * 3)
        fake.control("ListOffsets", lambda _call: Alter(refused), times=2)
        assert consumer.end_offsets([P0]) == {P0: 3}


@pytest.mark.proves("G-11")
def test_a_log_without_a_beginning_is_asked_again_and_nothing_is_made_of_it() -> None:
    def nowhere(response: Any) -> Any:
        rows = (one._replace(offset=-1) for topic in response.topics for one in topic.partitions)
        return response._replace(topics=(response.topics[0]._replace(partitions=tuple(rows)),))

    gaps: list[OffsetReset] = []
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.produce("topic", 0, [(None, b"v")])
        fake.control("ListOffsets", lambda _call: Alter(nowhere), times=2)
        with Consumer(fake.bootstrap, auto_offset_reset="earliest", on_reset=gaps.append) as consumer:
            consumer.assign([P0])
            read(consumer, 1)
        assert gaps == [OffsetReset(P0, None, 0, "no offset was given")]
        assert len(fake.calls_of("Fetch")) < 3

        fake.control("ListOffsets", lambda _call: Alter(nowhere), times=2)
        with Consumer(fake.bootstrap) as consumer:
            assert consumer.end_offsets([P0]) == {P0: 1}
            assert consumer.offsets_for_times({P0: 2**60}) == {P0: None}
