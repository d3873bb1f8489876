"""Lag and rates by partition, from the progress of a query."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.spark import LagListener, PartitionProgress, lag_of
from tests.spark.queries import ended
from tests.spark.sent import varied
from tests.support.broker_selection import SelectedBroker

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def progress(start: Any, end: Any, latest: Any, **about: Any) -> dict[str, Any]:
    offsets = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    source = {"description": "PythonMicroBatchStream@1"} | {name: json.dumps(value) for name, value in offsets.items()}
    return {"durationMs": {"triggerExecution": 500}, "sources": [source]} | about


def test_a_partition_has_its_lag_and_rate() -> None:
    found = lag_of(progress({"a": {"0": 5}}, {"a": {"0": 15, "1": 3}}, {"a": {"0": 40, "1": 3}}))
    assert found == {A0: PartitionProgress(5, 15, 25, 20.0), A1: PartitionProgress(3, 3, 0, 0.0)}


def test_a_stream_with_group_has_the_partitions_of_its_batch() -> None:
    none, batch = {"generation": -1, "ranges": {}}, {"generation": 3, "ranges": {"a": {"1": [2, 6]}}}
    assert lag_of(progress(none, batch, {"a": {"1": 9}})) == {A1: PartitionProgress(2, 6, 3, 8.0)}


def test_a_stream_with_group_has_read_nothing_if_its_offset_is_the_last_one() -> None:
    batch = {"generation": 3, "ranges": {"a": {"1": [2, 6]}}}
    assert lag_of(progress(batch, batch, {"a": {"1": 9}})) == {A1: PartitionProgress(6, 6, 3, 0.0)}


def test_a_query_without_a_batch_has_no_partitions() -> None:
    """Its `lastProgress` is None."""
    assert lag_of(None) == {}


@pytest.mark.parametrize("ahead", [0, 1])
def test_of_sources_with_one_topic_the_one_behind_counts(ahead: int) -> None:
    sources = [
        progress({"a": {"0": 5}}, {"a": {"0": end}}, {"a": {"0": 40}})["sources"][0]
        for end in ((15, 30), (30, 15))[ahead]
    ]
    assert lag_of(progress(1, 2, 3) | {"sources": sources}) == {A0: PartitionProgress(5, 15, 25, 20.0)}


def test_without_latest_offsets_there_is_no_lag() -> None:
    """As with PySpark 4.0 and 4.1."""
    assert lag_of(progress(None, {"a": {"0": 15}}, None)) == {A0: PartitionProgress(15, 15, None, 0.0)}
    assert lag_of(progress(None, None, None)) == {}


@pytest.mark.parametrize(
    "offset", [2, {"seconds": 2}, {"shard-0": {"position": "49"}}, {"table": {"version": 3}}, {"a": {"0": "3"}}]
)
def test_a_source_of_no_topics_is_left_out(offset: Any) -> None:
    assert lag_of(progress(offset, offset, None)) == {}


class ProgressOfConnect(dict[str, Any]):
    """A progress of PySpark 4.0's client of Spark Connect, whose own fields are texts of Python's values."""

    @property
    def json(self) -> str:
        return json.dumps(progress({"a": {"0": 5}}, {"a": {"0": 15}}, None))


def test_a_progress_of_spark_connect_has_its_offsets() -> None:
    texts = {"startOffset": "{'a': {'0': 5}}", "endOffset": "{'a': {'0': 15}}", "latestOffset": "None"}
    found = lag_of(ProgressOfConnect({"durationMs": {"triggerExecution": 500}, "sources": [texts]}))
    assert found == {A0: PartitionProgress(5, 15, None, 20.0)}


@pytest.mark.broker
def test_a_listener_exports_each_batch(
    kohort_spark: Any, broker: SelectedBroker, topic: str, send: Any, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark reports latest offsets since 4.2")
    send(topic, varied(30))
    exported: list[tuple[str, dict[TopicPartition, PartitionProgress]]] = []
    listener = LagListener(lambda query, partitions: exported.append((query, partitions)))
    kohort_spark.streams.addListener(listener)
    try:
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        stream = kohort_spark.readStream.format("kohort").options(**options, maxOffsetsPerTrigger="15").load()
        writer = stream.writeStream.format("noop").queryName("lags").trigger(availableNow=True)
        query = ended(writer.option("checkpointLocation", str(tmp_path)).start)
        kohort_spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
    finally:
        kohort_spark.streams.removeListener(listener)
    batches = [partitions for name, partitions in exported if name == "lags" and partitions]
    assert [sum(one.lag or 0 for one in partitions.values()) for partitions in batches[:2]] == [15, 0]
    assert [sum(one.end for one in partitions.values()) for partitions in batches[:2]] == [15, 30]
    assert sum(one.end - one.start for one in batches[1].values()) == 15
    assert lag_of(query.recentProgress[0]) == batches[0]
