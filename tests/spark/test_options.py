"""The options of format("kohort"): what each means, and that a wrong one says which is right."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from kohort.coordinator_client import ConfigError
from kohort.fastpath import TopicPartition
from kohort.spark import OptionError
from kohort.spark.options import SourceOptions

LEAST = {"kafka.bootstrap.servers": "h1:9092,h2:9092", "subscribe": "a, b"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
NOON_MS = 1_709_208_000_123


def options(given: dict[str, str] | None = None, *, streaming: bool = False) -> SourceOptions:
    return SourceOptions.of(LEAST | (given or {}), streaming=streaming)


def test_the_least_there_is_to_say() -> None:
    least = options()
    assert (least.bootstrap, least.topics, least.partitions) == ("h1:9092,h2:9092", ("a", "b"), ())
    assert (least.start, least.stop, options(streaming=True).start) == ("earliest", "latest", "latest")
    assert (least.on_data_loss, least.on_late_time, least.include_headers) == ("fail", "fail", False)
    assert least.settings == {}
    assert pickle.loads(pickle.dumps(least)) == least


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"startingOffsets": "latest"}, "start", "latest"),
        ({"startingoffsets": '{"a":{"0":23,"1":-2}}'}, "start", {A0: 23, A1: "earliest"}),
        ({"startingOffsets": '{"a":{"1":-1}}'}, "start", {A1: "latest"}),
        ({"startingTimestamp": str(NOON_MS)}, "start", NOON),
        ({"startingOffsetsByTimestamp": f'{{"a":{{"0":{NOON_MS}}}}}'}, "start", {A0: NOON}),
        ({"startingTimestamp": str(NOON_MS), "startingOffsets": "latest"}, "start", NOON),
        ({"endingOffsets": '{"a":{"0":9,"1":-1}}'}, "stop", {A0: 9, A1: "latest"}),
        ({"endingTimestamp": str(NOON_MS)}, "stop", NOON),
        ({"endingOffsetsByTimestamp": f'{{"a":{{"0":{NOON_MS}}}}}'}, "stop", {A0: NOON}),
        ({"startingOffsetsByTimestampStrategy": "LATEST"}, "on_late_time", "latest"),
        ({"failOnDataLoss": "False"}, "on_data_loss", "skip"),
        ({"minPartitions": "12"}, "min_partitions", 12),
        ({"maxRecordsPerPartition": "1000"}, "max_records_per_partition", 1000),
        ({"includeHeaders": "true"}, "include_headers", True),
        ({"kafka.group.id": "g"}, "group", "g"),
        ({"kafka.isolation.level": "read_committed"}, "settings", {"isolation_level": "read_committed"}),
        ({"kafka.max.partition.fetch.bytes": "1000"}, "settings", {"max_partition_fetch_bytes": 1000}),
        ({"groupIdPrefix": "p", "kafkaConsumer.pollTimeoutMs": "5"}, "settings", {}),
    ],
)
def test_an_option_means_what_it_means_to_sparks_own_source(given: dict[str, str], field: str, value: Any) -> None:
    streaming = False if any("ending" in name for name in given) else "latest" in given.values() or "-1" in str(given)
    assert getattr(options(given, streaming=streaming), field) == value


def test_assign_names_partitions() -> None:
    found = SourceOptions.of(
        {"kafka.bootstrap.servers": "h:1", "assign": '{"a":[1,0],"b":[2]}'}, streaming=False
    ).partitions
    assert found == (A1, A0, TopicPartition("b", 2))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset' .*did you mean 'startingOffsets'"),
        ({"maxOffsetPerTriger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"failOnDataLos": "true"}, "did you mean 'failOnDataLoss'"),
        ({"startingOffsets": "earlist"}, "cannot be 'earlist' .*did you mean 'earliest'"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be 'latest'"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "-1 is no offset here"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be 'earliest'"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "-2 is no offset here"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-3 is no offset here"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "True is no offset here"),
        ({"startingOffsets": '{"a":7}'}, "by topic and partition"),
        ({"startingOffsets": '{"a":'}, "not JSON"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' is no time in milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "must be error or latest"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"minPartitions": "0"}, "must be a whole number above 0"),
        ({"minPartitions": "many"}, "must be a whole number above 0"),
        ({"maxOffsetsPerTrigger": "10"}, "maxOffsetsPerTrigger has no meaning for a batch"),
        ({"assign": '{"a":[0]}'}, "say what to read, one way"),
        ({"subscribe": " , "}, "no topic is named"),
        ({"subscribePattern": "a.*"}, "name the topics with 'subscribe'"),
        ({"kafka.auto.offset.reset": "earliest"}, "the plan decides it"),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options(given)


def test_what_only_a_batch_has_is_refused_for_a_stream() -> None:
    with pytest.raises(OptionError, match="endingOffsets has no meaning for a stream"):
        options({"endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize("gone", ["kafka.bootstrap.servers", "subscribe"])
def test_what_is_missing_is_named(gone: str) -> None:
    with pytest.raises(OptionError, match=gone):
        SourceOptions.of({name: value for name, value in LEAST.items() if name != gone}, streaming=False)


def test_kafkas_own_names_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"fetch.min.byte.*fetch.min.bytes"):
        options({"kafka.fetch.min.byte": "1"})
