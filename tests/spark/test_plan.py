"""Plans on a real broker: every way to say where to start and stop, and what each refuses."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.coordinator_client import UnknownTopic
from kohort.spark import DataLossError, OffsetRange, PlanError, plan
from kohort.spark.source import KohortSource
from tests.spark.sent import Sent, varied
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker

FIRST = datetime.fromtimestamp(1_700_000_000, UTC)


@pytest.fixture
def thirty(topic: str, send: Callable[..., None]) -> str:
    """A topic with ten records in each of three partitions, a second between any two."""
    send(topic, varied(30))
    return topic


def ranges(topic: str, *bounds: tuple[int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(topic, partition, *bound) for partition, bound in enumerate(bounds))


def test_all_there_is(broker: SelectedBroker, thirty: str) -> None:
    assert plan(broker.bootstrap, topics=[thirty]) == ranges(thirty, (0, 10), (0, 10), (0, 10))


def test_some_partitions_only(broker: SelectedBroker, thirty: str) -> None:
    found = plan(broker.bootstrap, partitions=[TopicPartition(thirty, 2), TopicPartition(thirty, 0)])
    assert found == (OffsetRange(thirty, 0, 0, 10), OffsetRange(thirty, 2, 0, 10))


def test_from_the_end_there_is_nothing(broker: SelectedBroker, thirty: str) -> None:
    assert plan(broker.bootstrap, topics=[thirty], start="latest") == ()


@pytest.mark.parametrize(
    ("start", "stop", "bounds"),
    [
        # Partition p holds records p, p+3, p+6 ... of the seconds since the first.
        (FIRST + timedelta(seconds=9), "latest", [(3, 10), (3, 10), (3, 10)]),
        (FIRST + timedelta(seconds=10), FIRST + timedelta(seconds=20), [(4, 7), (3, 7), (3, 6)]),
        ("earliest", FIRST, [(0, 0), (0, 0), (0, 0)]),
        (FIRST + timedelta(days=1), "latest", [(0, 0), (0, 0), (0, 0)]),
        ("earliest", FIRST + timedelta(days=1), [(0, 10), (0, 10), (0, 10)]),
        (FIRST + timedelta(seconds=20), FIRST + timedelta(seconds=10), [(0, 0), (0, 0), (0, 0)]),
    ],
)
def test_by_time(broker: SelectedBroker, thirty: str, start: Any, stop: Any, bounds: list[tuple[int, int]]) -> None:
    wanted = tuple(one for one in ranges(thirty, *bounds) if len(one))
    assert plan(broker.bootstrap, topics=[thirty], start=start, stop=stop) == wanted


def test_each_partition_its_own_way(broker: SelectedBroker, thirty: str) -> None:
    zero, one, two = (TopicPartition(thirty, partition) for partition in range(3))
    found = plan(
        broker.bootstrap,
        topics=[thirty],
        start={zero: 4, one: "earliest", two: FIRST + timedelta(seconds=8)},
        stop={zero: 5, one: "latest", two: 9},
    )
    assert found == ranges(thirty, (4, 5), (0, 10), (2, 9))


def test_from_what_a_group_committed(broker: SelectedBroker, thirty: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.commit({TopicPartition(thirty, 0): 7, TopicPartition(thirty, 2): 10})
    assert plan(broker.bootstrap, topics=[thirty], start="committed", group=group) == (
        OffsetRange(thirty, 0, 7, 10),
        OffsetRange(thirty, 1, 0, 10),
    )


def test_settings_of_sizes_reach_the_split(broker: SelectedBroker, thirty: str) -> None:
    assert len(plan(broker.bootstrap, topics=[thirty], min_partitions=7)) == 7
    assert max(len(one) for one in plan(broker.bootstrap, topics=[thirty], max_records_per_partition=4)) == 4


def test_ranges_by_bytes(broker: SelectedBroker, topic: str, send: Callable[..., None]) -> None:
    large, small = b"v" * 1000, b"v" * 10
    send(topic, [Sent(p, None, value, 1_700_000_000_000, ()) for p, value in ((0, large), (1, small))] * 100)
    found = plan(broker.bootstrap, topics=[topic], max_bytes_per_partition=10_000)
    assert found == (*(OffsetRange(topic, 0, at, at + 10) for at in range(0, 100, 10)), OffsetRange(topic, 1, 0, 100))
    assert plan(broker.bootstrap, topics=[topic], max_bytes_per_partition=1, max_records_per_partition=30)[:2] == (
        OffsetRange(topic, 0, 0, 1),
        OffsetRange(topic, 0, 1, 2),
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "maxBytesPerPartition": "10000"}
    source = KohortSource(options)
    assert tuple(one for piece in source.reader(source.schema()).partitions() for one in piece.value) == found


def test_a_range_that_shows_no_record_stays_whole(
    broker: SelectedBroker, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    send(topic, [Sent(0, None, b"v" * 100, 1_700_000_000_000, ())] * 2, **{"transactional.id": unique("writer")})
    place = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap) as consumer:
        deadline = time.monotonic() + 120
        while consumer.end_offsets([place])[place] < 3 and time.monotonic() < deadline:  # the commit's marker
            time.sleep(0.05)
    assert plan(broker.bootstrap, partitions=[place], start={place: 2}, max_bytes_per_partition=1) == (
        OffsetRange(topic, 0, 2, 3),
    )


@pytest.mark.proves("B-40")
def test_a_start_that_retention_took_is_a_loss_unless_it_may_be_skipped(
    broker: SelectedBroker, thirty: str, delete_before: Callable[[str, int, int], None]
) -> None:
    delete_before(thirty, 1, 6)
    requested: dict[str, Any] = {"partitions": [TopicPartition(thirty, 1)], "start": {TopicPartition(thirty, 1): 2}}
    with pytest.raises(DataLossError, match=rf"holds \[6, 10\) \(topic={thirty}, partition=1, offset=2\).*Loss=false"):
        plan(broker.bootstrap, **requested)
    assert plan(broker.bootstrap, **requested, on_data_loss="skip") == (OffsetRange(thirty, 1, 6, 10),)
    assert plan(broker.bootstrap, topics=[thirty])[1] == OffsetRange(thirty, 1, 6, 10)


@pytest.mark.parametrize(
    ("requested", "says"),
    [
        ({"start": "earlyest"}, "start cannot be 'earlyest'"),
        ({"on_late_time": "error"}, "on_late_time must be latest or fail, not 'error'"),
        ({"on_data_loss": "ignore"}, "on_data_loss must be fail or skip, not 'ignore'"),
        ({"start": datetime(2024, 1, 1)}, "start is a time without a time zone"),
        ({"start": "committed"}, "'committed' needs a group"),
        ({"start": {TopicPartition("other", 0): 1}}, "start has no offset for a partition of the plan"),
        ({"start": FIRST + timedelta(days=1), "on_late_time": "fail"}, "no record has this timestamp.*Strategy=latest"),
        ({"min_partitions": 0}, "min_partitions must be at least 1"),
        ({"min_partitions": "4"}, "min_partitions must be a whole number, not '4'"),
        ({"max_records_per_partition": 2.5}, "max_records_per_partition must be a whole number, not 2.5"),
        ({"max_bytes_per_partition": True}, "max_bytes_per_partition must be a whole number, not True"),
        ({"max_bytes_per_partition": 0}, "max_bytes_per_partition must be at least 1"),
        ({"partitions": [("TOPIC", 3)]}, "no such partition .*partition=3"),
        ({"topics": "TOPIC"}, "one string"),
        ({"topics": []}, "nothing to read"),
        ({"pattern": "a{99999999999}"}, "not a regular expression"),
    ],
)
def test_what_cannot_be_planned_says_why(
    broker: SelectedBroker, thirty: str, requested: dict[str, Any], says: str
) -> None:
    requested = {"topics": [thirty]} | requested
    if "partitions" in requested:
        requested["partitions"] = [TopicPartition(thirty, number) for _, number in requested["partitions"]]
    with pytest.raises(PlanError, match=says):
        plan(broker.bootstrap, **requested)


def test_two_numbers_in_the_wrong_order_are_a_mistake(broker: SelectedBroker, thirty: str) -> None:
    place = TopicPartition(thirty, 0)
    with pytest.raises(PlanError, match="start=5, stop=4"):
        plan(broker.bootstrap, partitions=[place], start={place: 5}, stop={place: 4})


@pytest.mark.parametrize(("start", "stop"), [(5, FIRST), (FIRST + timedelta(seconds=20), FIRST)])
def test_a_time_of_one_partition_behind_its_stop_is_an_empty_range(
    broker: SelectedBroker, thirty: str, start: Any, stop: Any
) -> None:
    place, other = TopicPartition(thirty, 0), TopicPartition(thirty, 1)
    found = plan(
        broker.bootstrap, partitions=[place, other], start={place: start, other: 0}, stop={place: stop, other: 3}
    )
    assert found == (OffsetRange(thirty, 1, 0, 3),)


def test_a_topic_that_is_not_there_is_named(broker: SelectedBroker, unique: Callable[[str], str]) -> None:
    name = unique("nowhere")
    with pytest.raises(UnknownTopic, match=name):
        plan(broker.bootstrap, topics=[name])
