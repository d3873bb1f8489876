"""A region with sinks on a real broker: members that end in the middle, and output that has every record once."""

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kohort import ConsistentRegion
from kohort.consistent_region import DictState, KafkaSink, Periodic, SqlSink
from kohort.consistent_region.errors import RegionError
from tests.support.broker_selection import SelectedBroker

RECORDS = 3_000


class Spilled(Exception):
    """The error that the handler raises, once."""


@pytest.mark.broker
@pytest.mark.proves("CR-83", "I1")
def test_after_any_end_of_a_member_its_output_has_every_record_once(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = make_topic(3), make_topic(2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(source, value=str(number), partition=number % 3)
    assert producer.flush(60) == 0
    left = [700, 900]  # so many records, and the handler raises
    made: list[ConsistentRegion] = []

    def live() -> None:
        rows = SqlSink(f"sqlite:///{tmp_path}/out.db", schema="CREATE TABLE IF NOT EXISTS seen (n INTEGER)")
        records = KafkaSink(broker.bootstrap, target)

        def handle(record: Any, state: DictState) -> None:
            if left:
                left[0] -= 1
                if left[0] == 0:
                    left.pop(0)
                    raise Spilled
            state["n"] = state.get("n", 0) + 1
            rows.execute("INSERT INTO seen VALUES (?)", [int(record.value)])
            records.send(bytes(record.value))

        one = ConsistentRegion(
            "out",
            group=f"out-{source}",
            topics=[source],
            bootstrap=broker.bootstrap,
            coordinator=f"sqlite:///{tmp_path}/region.db",
            trigger=Periodic(0.05),
            handler=handle,
            state=DictState,
            sinks={"rows": rows, "records": records},
            start_position="beginning",
            max_poll_records=50,
        )
        made.append(one)
        one.run()

    for _ in range(2):
        with pytest.raises(RegionError, match="Spilled"):
            live()
    running = threading.Thread(target=live)
    running.start()

    def rows() -> Counter[int]:
        with sqlite3.connect(tmp_path / "out.db") as database:
            found = Counter(row[0] for row in database.execute("SELECT n FROM seen"))
        database.close()
        return found

    try:
        deadline = time.monotonic() + 120
        while sum(rows().values()) < RECORDS:
            assert running.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        made[-1].stop()
        running.join(120)
    assert rows() == Counter(range(RECORDS))
    assert Counter(written(broker.bootstrap, target, unique("reader"))) == Counter(range(RECORDS))
    assert made[-1].metrics()["checkpoints_total"] > 0


def written(bootstrap: str, topic: str, group: str) -> list[int]:
    """The records that a read_committed reader of another library finds."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(2)])
    found, ended = [], 0
    while ended < 2:
        message = reader.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(int(message.value()))
    reader.close()
    return found
