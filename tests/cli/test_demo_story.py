"""The demo as a user runs it, on the session's broker, with as few records as still make a story."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.admin import Admin
from kohort.cli.demo import DemoFailed, flights, producers
from kohort.cli.demo.flights import tally, totals_of_rows
from kohort.cli.demo.ledger import Ledger
from kohort.cli.demo.producers import chunks, fill
from kohort.coordinator_client import Consumer
from kohort.fastpath import Record
from kohort.spark.plan import plan
from kohort.spark.reader import read_range
from kohort.testing.topics import leaders
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker


def demo(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kohort.cli.main", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=580, check=False, env=dict(os.environ))


def test_the_demo_ends_with_equal_totals_and_leaves_a_report(broker: SelectedBroker, tmp_path: Path) -> None:
    ended = demo("--bootstrap", broker.bootstrap, "--records", "6000", "--folder", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "The totals are equal" in ended.stdout
    assert "was killed with SIGKILL" in ended.stdout
    assert "\x1b[" not in ended.stdout  # plain lines without a terminal
    page = (tmp_path / "report.html").read_text()
    assert "All totals are equal" in page
    assert "<td>went_back</td>" in page
    assert "none counted twice" in page
    (path,) = tmp_path.glob("*.ledger")
    ledger = Ledger(path)
    entries = list(ledger.unread())
    ledger.close()
    started, killed, back = (
        [one.member for one in entries if one.kind == k] for k in ("started", "killed", "went_back")
    )
    assert back
    assert (started, killed) == (["ada", "ben", "cleo", "dora", "ben"], ["ben"])
    # On a broker that is not its own, the demo leaves nothing behind.
    deadline = time.monotonic() + 120  # the broker forgets a deleted topic a moment after it has said so
    while leaders(broker.bootstrap, path.stem) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leaders(broker.bootstrap, path.stem) == []


def test_every_producer_writes_every_codec_and_totals_survive_the_trip(
    broker: SelectedBroker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("flights")
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=6, configs={"retention.ms": "-1"})
    _, expected = totals_of_rows(flights.flights(), at_least=20_000)
    total = sum(totals.events for totals in expected.values())
    plan_ = chunks(total, producers.installed())
    assert {(chunk.producer, chunk.codec) for chunk in plan_} == {
        (producer, codec) for producer in producers.installed() for codec in producers.CODECS
    }
    monkeypatch.setattr(producers, "PROGRESS_EVERY", 5000)
    reported: list[str] = []
    assert fill(broker.bootstrap, topic, flights.events(flights.flights()), plan_, reported.append) > 0
    assert len(reported) == total // 5000
    records: list[Record] = [
        record
        for one in plan(broker.bootstrap, topics=[topic])
        for columns in read_range(one, {"bootstrap": broker.bootstrap})
        for record in columns
    ]
    assert len(records) == total
    assert tally(records) == expected
    homes: dict[bytes | None, set[int]] = {}
    for record in records:
        homes.setdefault(record.key, set()).add(record.partition)
    assert homes.pop(None)  # no key, no home
    assert {len(partitions) for partitions in homes.values()} == {1}  # an aircraft has one home for each writer
    with Consumer(broker.bootstrap) as consumer:
        assert len(consumer.partitions_for(topic)) == 6
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics(topic)


def test_a_folder_that_is_a_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = demo("--folder", str(tmp_path / "file"))
    assert ended.returncode == 1
    assert ended.stderr == f"kohort: error: the folder cannot be made: File exists (folder={tmp_path / 'file'})\n"


def test_no_broker_at_the_address_is_one_error() -> None:
    ended = demo("--bootstrap", "127.0.0.1:1", "--records", "100")
    assert ended.returncode == 1
    assert "host=127.0.0.1, port=1)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_producer_that_cannot_write_says_so(broker: SelectedBroker) -> None:
    plan_ = chunks(50, ["java"])
    with pytest.raises(DemoFailed, match="producer=java"):
        fill(broker.bootstrap, "no such/topic", flights.events(flights.flights()), plan_, lambda text: None)
