"""Metrics pushed to real brokers: to one with a plugin that takes them, and nothing to one without (KIP-714)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kohort import Consumer, Producer
from kohort.testing import RealBroker, jars
from kohort.testing.jdk import java
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker, wanted_version

WANTED = "interval.ms=200,metrics=[org.apache.kafka.consumer.,org.apache.kafka.producer.]"
ZSTD = bytes.fromhex("28b52ffd")


@pytest.mark.broker
def test_a_broker_without_a_plugin_gets_no_request(broker: SelectedBroker, topic: str, tmp_path: Path) -> None:
    produce(broker.bootstrap, topic, numbers(0, 3))
    tape = tmp_path / "tape.jsonl"
    with Consumer(broker.bootstrap, group=f"g-{topic}", auto_offset_reset="earliest", tape=str(tape)) as consumer:
        consumer.subscribe([topic])
        read(consumer, 3)
        assert consumer.metrics().request_failures_total == 0
        assert consumer._session.read(lambda core: core.telemetry.ended)
    taped = tape.read_text()
    assert '"JoinGroup"' in taped
    assert "Telemetry" not in taped


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metrics") / "pushes"


@pytest.fixture(scope="module")
def taking(received: Path) -> Iterator[RealBroker]:
    """A broker that takes metrics, with a push interval of 200 ms."""
    version = wanted_version()
    classes = received.parent / "classes"
    classes.mkdir()
    classpath = os.pathsep.join(map(str, jars.classpath(version)))
    source = Path(__file__).with_name("MetricsToFile.java")
    javac = java().with_name("javac")
    subprocess.run(
        [str(javac), "-nowarn", "-Xlint:-removal", "-cp", classpath, "-d", str(classes), str(source)],
        check=True,
        timeout=120,
    )
    with RealBroker(
        version=version,
        plugins=[classes],
        properties={"metric.reporters": "MetricsToFile"},
        jvm_options=[f"-Dkohort.metrics={received}"],
    ) as broker:
        moved = tuple(map(int, version.split("."))) >= (4, 4)
        command = "org.apache.kafka.tools.ConfigCommand" if moved else "kafka.admin.ConfigCommand"
        reported = [str(java()), "-XX:TieredStopAtLevel=1", "-cp", classpath, command]
        reported += ["--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "client-metrics"]
        reported += ["--entity-name", "all", "--add-config", WANTED]
        subprocess.run(reported, check=True, timeout=120, capture_output=True)
        yield broker


def pushes(received: Path, client: str) -> list[tuple[str, bool, MetricsData]]:
    """(the client's id, whether it was the last, what it said), in the order in which they came."""
    written = received.read_text() if received.exists() else ""
    whole = [line.split() for line in written.splitlines(keepends=True) if line.endswith("\n")]
    return [(each[1], each[2] == "true", parsed(bytes.fromhex(each[3]))) for each in whole if each[0] == client]


def parsed(data: bytes) -> MetricsData:
    """Old brokers (3.7) leave it to their plugins to decompress what they get."""
    found: MetricsData = MetricsData.FromString(bytes(cramjam.zstd.decompress(data)) if data.startswith(ZSTD) else data)
    return found


def values(data: MetricsData) -> dict[str, float]:
    """The metrics of a push that are of the client as a whole."""
    return {
        metric.name: point.as_double
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
        if not point.attributes
    }


@pytest.mark.broker
def test_a_broker_that_requests_metrics_gets_them(taking: RealBroker, received: Path) -> None:
    create_topic(taking.bootstrap, "watched", partitions=2)
    produce(taking.bootstrap, "watched", numbers(0, 10))
    settings: dict[str, Any] = {"client_id": "watched-client", "rack": "r1", "auto_offset_reset": "earliest"}
    with Consumer(taking.bootstrap, group="watched", **settings) as consumer:
        consumer.subscribe(["watched"])
        read(consumer, 10)
        consumer.commit()
        before = len(pushes(received, "watched-client"))
        poll_until(consumer, lambda: len(pushes(received, "watched-client")) >= before + 3)
        assert consumer.metrics().records_consumed_total == 10
        member = consumer.group_metadata().member_id
    reported = pushes(received, "watched-client")
    assert [last for _, last, _ in reported] == [False] * (len(reported) - 1) + [True]
    assert len({client for client, _, _ in reported}) == 1
    names = {name for _, _, data in reported for name in values(data)}
    assert {
        "org.apache.kafka.consumer.coordinator.rebalance.latency.avg",
        "org.apache.kafka.consumer.coordinator.assigned.partitions",
        "org.apache.kafka.consumer.coordinator.commit.latency.max",
        "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg",
        "org.apache.kafka.consumer.poll.idle.ratio.avg",
        "org.apache.kafka.consumer.connection.creation.total",
    } <= names
    assert all(name.startswith("org.apache.kafka.consumer.") for name in names)  # that was requested, and no more
    # The broker requests differences: all of them together are the whole.
    consumed = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
    assert sum(values(data)[consumed] for _, _, data in reported) == 10
    assert values(reported[-1][2])["org.apache.kafka.consumer.coordinator.assigned.partitions"] in (0, 2)
    labels = {one.key: one.value.string_value for one in reported[-2][2].resource_metrics[0].resource.attributes}
    assert labels == {"client_rack": "r1", "group_id": "watched", "group_member_id": member}
    spans = [
        (point.start_time_unix_nano, point.time_unix_nano)
        for _, _, data in reported
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == consumed
        for point in metric.sum.data_points
    ]
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert all(
        metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        for metric in reported[0][2].resource_metrics[0].scope_metrics[0].metrics
        if metric.HasField("sum")
    )


@pytest.mark.broker
def test_a_program_that_does_not_want_to_be_watched_is_not(taking: RealBroker, received: Path) -> None:
    create_topic(taking.bootstrap, "private", partitions=1)
    settings: dict[str, Any] = {"auto_offset_reset": "earliest"}
    with (
        Consumer(taking.bootstrap, group="p", client_id="hidden", enable_metrics_push=False, **settings) as hidden,
        Consumer(taking.bootstrap, group="q", client_id="seen", **settings) as seen,
    ):
        hidden.subscribe(["private"])
        seen.subscribe(["private"])
        poll_until(hidden, lambda: len(hidden.assignment) == 1)
        poll_until(seen, lambda: len(pushes(received, "seen")) >= 3)
    assert pushes(received, "hidden") == []


@pytest.mark.broker
def test_a_producers_metrics_reach_a_broker_that_requests_them(taking: RealBroker, received: Path) -> None:
    create_topic(taking.bootstrap, "written", partitions=1)
    settings: dict[str, Any] = {"client_id": "writer", "transactional_id": "writer"}
    with Producer(taking.bootstrap, **settings) as producer:
        with producer.transaction():
            producer.send("written", b"x").result(120)
            before = len(pushes(received, "writer"))  # on a busy machine some came before the record
            while len(pushes(received, "writer")) < before + 3:
                producer.send("written", b"x").result(120)
        sent = producer.metrics().record_send_total
    reported = pushes(received, "writer")
    assert [last for _, last, _ in reported] == [False] * (len(reported) - 1) + [True]
    names = {name for _, _, data in reported for name in values(data)}
    assert all(name.startswith("org.apache.kafka.producer.") for name in names)
    assert {"record.queue.time.avg", "produce.throttle.time.max", "connection.creation.total"} <= {
        name.removeprefix("org.apache.kafka.producer.") for name in names
    }
    assert sum(values(data)["org.apache.kafka.producer.record.send.total"] for _, _, data in reported) == sent
    labels = {one.key: one.value.string_value for one in reported[-1][2].resource_metrics[0].resource.attributes}
    assert labels == {"transactional_id": "writer"}
