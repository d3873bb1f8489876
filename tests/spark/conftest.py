"""A real Spark session for the run, and topics filled by librdkafka."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from tests.spark.sent import Sent
from tests.support.broker_selection import SelectedBroker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2] that tries a failed task a second time, as a cluster would."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2, 2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kohort_spark(spark: Any) -> Any:
    """The session with format("kohort")."""
    from kohort.spark import register

    register(spark)
    return spark


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with kohort in an archive, for executors."""
    from tests.spark.packed_environment import pack

    return pack(tmp_path_factory.mktemp("packed"))


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic of three partitions that keeps old records: those of the tests are of 2023."""
    return make_topic(3, config={"retention.ms": "-1"})


@pytest.fixture(scope="session")
def send(broker: SelectedBroker) -> Callable[..., None]:
    """`send(topic, records, codec=..., flush_every=...)` by librdkafka, waiting for every acknowledgement."""

    def sender(topic: str, records: Iterable[Sent], *, codec: str = "none", **settings: Any) -> None:
        refused: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                refused.append(error)

        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5, **settings}
        )
        transactional = "transactional.id" in settings
        if transactional:
            producer.init_transactions(20)
            producer.begin_transaction()
        for record in records:
            producer.produce(
                topic,
                partition=record.partition,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        assert producer.flush(120) == 0
        assert refused == []
        if transactional:
            producer.commit_transaction(20)

    return sender


@pytest.fixture(scope="session")
def delete_before(broker: SelectedBroker) -> Callable[[str, int, int], None]:
    """`delete_before(topic, partition, offset)` as retention would."""

    def deleter(topic: str, partition: int, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_records([Place(topic, partition, offset)]).values():
            future.result(120)

    return deleter


@pytest.fixture(scope="session")
def delete_topic(broker: SelectedBroker) -> Callable[[str], None]:
    """`delete_topic(name)`, until the broker says that it is done."""

    def deleter(topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_topics([topic], operation_timeout=20).values():
            future.result(120)

    return deleter
