"""A checkpoint that moves between Spark's own connector and kohort, between runs and within a batch."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kohort import Producer
from kohort.testing.topics import create_topic
from tests.spark_jvm.conftest import CONNECTOR, PYSPARKS, run_session

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3000)]
PARTITIONS, RECORDS = 3, 30
THEIRS, OURS, NEWEST = ("kafka", CONNECTOR), ("kohort", CONNECTOR), ("kohort", PYSPARKS[-1])
Turn = Callable[..., None]


@pytest.fixture
def topic(bootstrap: str, unique: Callable[[str], str]) -> str:
    name = unique("moves")
    create_topic(bootstrap, name, partitions=PARTITIONS)
    return name


@pytest.fixture
def turn(bootstrap: str, topic: str, tmp_path: Path) -> Turn:
    """`turn(source, pyspark)` writes records, and runs the stream once."""

    def run(source: str, pyspark: str, ending: str = "ends") -> None:
        with Producer(bootstrap) as producer:
            for number in range(RECORDS):
                producer.send(topic, b"x", partition=number % PARTITIONS)
        log = tmp_path / f"{source}-{pyspark}.log"
        run_session("checkpoint_turn", source, pyspark, bootstrap, topic, str(tmp_path), ending, log=log)

    return run


def batches(folder: Path) -> list[list[tuple[int, int]]]:
    """The partition and offset of each row, by batch."""
    numbers = sorted(int(path.name.removeprefix("batch=")) for path in (folder / "rows").iterdir())
    tables = [pq.read_table(folder / "rows" / f"batch={number}", partitioning=None) for number in numbers]
    return [sorted((row["partition"], row["offset"]) for row in table.to_pylist()) for table in tables]


def all_of(turns: int) -> list[tuple[int, int]]:
    each = turns * RECORDS // PARTITIONS
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(each)]


@pytest.mark.parametrize(
    "order",
    [(THEIRS, OURS, THEIRS, OURS), (OURS, THEIRS, OURS, THEIRS), (THEIRS, NEWEST, NEWEST), (OURS, NEWEST, THEIRS)],
    ids=["theirs-first", "ours-first", "to-a-newer-spark", "and-back"],
)
def test_a_checkpoint_moves_between_the_connectors(
    turn: Turn, tmp_path: Path, order: tuple[tuple[str, str], ...]
) -> None:
    for source, pyspark in order:
        turn(source, pyspark)
    found = batches(tmp_path)
    assert sorted(row for batch in found for row in batch) == all_of(len(order))
    assert [len(batch) for batch in found] == [RECORDS] * len(order)


@pytest.mark.parametrize(("first", "second"), [(THEIRS, OURS), (OURS, THEIRS), (THEIRS, NEWEST)])
def test_a_batch_that_one_has_begun_is_repeated_by_the_other(
    turn: Turn, tmp_path: Path, topic: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    turn(*first)
    turn(*first, ending="fails")
    assert (tmp_path / "failed").exists()
    planned = json.loads((tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1])
    assert planned == {topic: {str(partition): 20 for partition in range(PARTITIONS)}}
    turn(*second)
    assert len(batches(tmp_path)[1]) == RECORDS  # as planned, though there are more records now
    turn(*second)  # before PySpark 4.2 a run of a source in Python has one batch, which was the repeated one
    found = batches(tmp_path)
    assert sorted(row for batch in found for row in batch) == all_of(4)
