"""A region of one member on a real broker, in this process: its states, its restarts, and how it ends."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from kohort import ConsistentRegion, Consumer, Producer, TopicPartition
from kohort.consistent_region import OperatorDriven, Periodic, SqliteState
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import ConfigurationError, DataLossError, RegionError
from kohort.consistent_region.store import SqliteStore
from tests.consistent_region.running_region import running
from tests.support.broker_selection import SelectedBroker

SCHEMA = "CREATE TABLE seen (part INTEGER, at INTEGER, value BLOB, PRIMARY KEY (part, at))"


def remember(record: Any, state: SqliteState) -> None:
    """The primary key makes a record that counts twice an error of its own."""
    row = (record.partition, record.offset, record.value)
    state.connection.execute("INSERT INTO seen VALUES (?, ?, ?)", row)


class Alone:
    """One member after another, on one coordinator's file."""

    def __init__(self, bootstrap: str, topic: str, path: Path) -> None:
        self.bootstrap, self.topic, self.path = bootstrap, topic, path
        self.region = RegionCoordinator(SqliteStore(path), "alone", f"alone-{topic}")

    def made(self, **changes: Any) -> ConsistentRegion:
        given: dict[str, Any] = {
            "group": f"alone-{self.topic}",
            "bootstrap": self.bootstrap,
            "topics": [self.topic],
            "coordinator": f"sqlite:///{self.path}",
            "trigger": Periodic(0.3),
            "state": lambda: SqliteState(SCHEMA),
            "handler": remember,
            "start_position": "beginning",
        }
        return ConsistentRegion("alone", **{**given, **changes})

    @contextmanager
    def running(self, **changes: Any) -> Iterator[ConsistentRegion]:
        made = self.made(**changes)
        with running(made):
            yield made

    def produce(self, partition: int, *values: bytes | None) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.topic, value=value, partition=partition)
        assert producer.flush(20) == 0

    def wait(self, ends: dict[int, int], timeout_s: float = 120.0) -> None:
        """Until a complete checkpoint has these offsets."""
        wanted = {TopicPartition(self.topic, number): end for number, end in ends.items()}
        deadline = time.monotonic() + timeout_s
        found: dict[TopicPartition, int] = {}
        while found != wanted:
            assert time.monotonic() < deadline, f"{found} and not {wanted}"
            time.sleep(0.05)
            if newest := self.region.checkpoints()[-1:]:
                found = {one: to.offset for one, to in self.region.manifest(newest[0]).offsets.items()}

    def seen(self) -> list[tuple[int, int, bytes | None]]:
        """The contents of the newest checkpoint's states."""
        manifest = self.region.manifest(self.region.checkpoints()[-1])
        rows: list[tuple[int, int, bytes | None]] = []
        for cut in manifest.tasks:
            state = SqliteState(SCHEMA)
            state.restore(self.region.state(cut.state), cut.offsets)
            rows += state.connection.execute("SELECT part, at, value FROM seen ORDER BY part, at").fetchall()
        return rows


@pytest.fixture
def alone(broker: SelectedBroker, make_topic: Callable[..., str], tmp_path: Path) -> Iterator[Alone]:
    made = Alone(broker.bootstrap, make_topic(2), tmp_path / "region.db")
    yield made
    made.region.store.close()


@pytest.mark.broker
@pytest.mark.proves("CR-61", "CR-84", "CR-86", "CR-85", "A10", "B-41")
def test_restarts_tombstones_and_added_partitions_each_once(alone: Alone) -> None:
    alone.produce(0, b"a", None, b"c")
    alone.produce(1, b"d")
    with alone.running():
        pass  # stopped at once: its work is in a checkpoint, or it is not
    with alone.running() as region:
        alone.wait({0: 3, 1: 1})
        alone.produce(0, b"e")
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": alone.bootstrap})
        more = confluent_kafka.admin.NewPartitions(alone.topic, 3)
        admin.create_partitions([more])[alone.topic].result(120)
        time.sleep(0.5)
        alone.produce(2, b"f", b"g")
        alone.wait({0: 4, 1: 1, 2: 2})
        assert region.metrics()["partition_rebalances_total"] >= 2
    assert alone.seen() == [
        (0, 0, b"a"),
        (0, 1, None),
        (0, 2, b"c"),
        (0, 3, b"e"),
        (1, 0, b"d"),
        (2, 0, b"f"),
        (2, 1, b"g"),
    ]
    alone.produce(1, b"h")
    with alone.running():
        alone.wait({0: 4, 1: 2, 2: 2})
    assert len(alone.seen()) == 8
    with Consumer(alone.bootstrap, group=f"alone-{alone.topic}") as reader:
        committed = reader.committed([TopicPartition(alone.topic, 0)])[TopicPartition(alone.topic, 0)]
    assert committed is not None
    assert committed.offset <= 4


@pytest.mark.broker
@pytest.mark.proves("CR-40")
def test_an_operator_driven_region_takes_a_checkpoint_every_so_many_records(alone: Alone) -> None:
    alone.produce(0, *(b"%d" % n for n in range(20)))
    with alone.running(trigger=OperatorDriven(5)) as region:
        alone.wait({0: 20, 1: 0})
        assert region.metrics()["checkpoints_total"] >= 4
    assert len(alone.seen()) == 20


@pytest.mark.broker
@pytest.mark.proves("CR-73", "B-40")
def test_retention_past_the_checkpoint_is_data_loss_and_never_a_silent_gap(alone: Alone) -> None:
    alone.produce(0, *(b"%d" % n for n in range(10)))
    with alone.running():
        alone.wait({0: 10, 1: 0})
    alone.produce(0, *(b"%d" % n for n in range(10)))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": alone.bootstrap})
    for done in admin.delete_records([confluent_kafka.TopicPartition(alone.topic, 0, 15)]).values():
        done.result(120)
    with pytest.raises(DataLossError, match="log_start=15"):
        alone.made().run()
    with alone.running(on_data_loss="earliest"):
        alone.wait({0: 20, 1: 0})
    assert [at for part, at, _ in alone.seen() if part == 0] == [*range(10), *range(15, 20)]


@pytest.mark.broker
@pytest.mark.proves("CR-73")
def test_retention_of_records_of_aborted_transactions_is_no_data_loss(alone: Alone) -> None:
    alone.produce(0, b"0")
    with Producer(alone.bootstrap, transactional_id=alone.topic) as producer, alone.running():
        alone.wait({0: 1, 1: 0})
        producer.begin()
        producer.send(alone.topic, b"aborted", partition=0)
        producer.flush()
        producer.abort()
        alone.wait({0: 3, 1: 0})
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": alone.bootstrap})
    for done in admin.delete_records([confluent_kafka.TopicPartition(alone.topic, 0, -1)]).values():
        done.result(120)
    alone.produce(0, b"3")
    with alone.running():
        alone.wait({0: 4, 1: 0})
    assert alone.seen() == [(0, 0, b"0"), (0, 3, b"3")]


@pytest.mark.broker
@pytest.mark.proves("CR-83")
def test_a_handler_that_raises_ends_the_member_and_its_mended_successor_goes_on(alone: Alone) -> None:
    alone.produce(0, b"1", b"2", b"poison", b"4")

    def refuse(record: Any, state: SqliteState) -> None:
        remember(record, state)
        if record.value == b"poison":
            raise LookupError("no such thing")

    with pytest.raises(RegionError, match=r"LookupError: no such thing.*offset=2"):
        alone.made(handler=refuse).run()
    with alone.running():
        alone.wait({0: 4, 1: 0})
    assert [at for _, at, _ in alone.seen()] == [0, 1, 2, 3]


@pytest.mark.broker
@pytest.mark.proves("CR-02")
def test_a_second_region_on_the_group_never_subscribes(alone: Alone) -> None:
    alone.region.register("somebody")
    other = ConsistentRegion(
        "another",
        group=f"alone-{alone.topic}",
        bootstrap=alone.bootstrap,
        topics=[alone.topic],
        coordinator=f"sqlite:///{alone.path}",
        handler=lambda record, state: json.dumps(record.value),
    )
    with pytest.raises(ConfigurationError, match="another consistent region"):
        other.run()
    assert alone.region.members() == ("somebody",)
