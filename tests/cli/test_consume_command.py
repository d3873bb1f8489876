"""`kohort consume` as a user types it, on a real broker; rare contents of a log, on a fake one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.admin import Admin
from kohort.cli.main import main
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Call, Delay
from tests.coordinator_client.consumer_helpers import numbers, produce
from tests.support.broker_selection import SelectedBroker

Run = Callable[..., str]


@pytest.fixture
def run(broker: SelectedBroker, topic: str, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("--limit", "3")` consumes `topic`, ten records in each of two partitions, and is what was printed."""
    for partition in (0, 1):
        produce(broker.bootstrap, topic, numbers(partition * 100, 10), partition=partition)
    capfd.readouterr()

    def ran(*arguments: str, code: int = 0) -> str:
        assert main(["consume", topic, *arguments, "--bootstrap", broker.bootstrap]) == code
        printed = capfd.readouterr()
        return printed.err if code else printed.out

    return ran


def offsets(printed: str) -> list[tuple[int, int]]:
    return sorted((one["partition"], one["offset"]) for one in map(json.loads, printed.splitlines()))


@pytest.mark.broker
def test_all_of_a_topic_and_parts_of_it(run: Run) -> None:
    everything = [(partition, offset) for partition in (0, 1) for offset in range(10)]
    assert offsets(run("--format", "json")) == everything
    assert offsets(run("-f", "json", "--partition", "1", "--from", "7")) == [(1, 7), (1, 8), (1, 9)]
    assert offsets(run("-f", "json", "--from", "-2")) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert offsets(run("-f", "json", "--from", "3", "--to", "5")) == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert offsets(run("-f", "json", "--from", "PT1H")) == everything
    assert offsets(run("-f", "json", "--to", "2020-01-01T00:00:00Z")) == []
    assert len(offsets(run("-f", "json", "--limit", "13"))) == 13
    assert len(offsets(run("-f", "json", "--to", "never", "--limit", "20"))) == 20
    assert run("--from", "latest", "-f", "json") == ""
    assert offsets(run("--json")) == everything


@pytest.mark.broker
def test_every_way_to_show_them(run: Run, topic: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    one = ("--partition", "1", "--limit", "1")
    (record,) = map(json.loads, run("-f", "json", *one).splitlines())
    shown = {name: record[name] for name in ("topic", "partition", "offset", "key", "value", "headers")}
    assert shown == {"topic": topic, "partition": 1, "offset": 0, "key": None, "value": "100", "headers": []}
    values: dict[str, Any] = {"hex": "313030", "base64": "MTAw", "json": 100, "int": 0x313030}
    for text, value in values.items():
        assert json.loads(run("-f", "json", "--value", text, *one))["value"] == value
    assert run("-f", "raw", "--partition", "0").split() == [str(number) for number in range(10)]
    assert "100" in run(*one)
    file = tmp_path / "records.parquet"
    assert run("--parquet", str(file)) == ""
    assert sorted(pq.read_table(file)["value"].to_pylist()) == sorted(numbers(0, 10) + numbers(100, 10))


@pytest.mark.broker
def test_wrong_words_are_one_line(run: Run) -> None:
    assert "the topic has 3 partitions" in run("--partition", "9", code=1)
    assert "neither an offset nor a time" in run("--from", "soon", code=1)
    assert "'P1X' is not a duration" in run("--from", "P1X", code=1)
    assert "cannot be written" in run("--parquet", "/nowhere/records.parquet", code=1)


@pytest.mark.broker
def test_a_file_for_members_makes_no_member(run: Run, broker: SelectedBroker, unique: Callable[[str], str]) -> None:
    group = unique("group")
    member = ("-X", f"group.id={group}", "-X", "enable.auto.commit=true", "-X", "auto.commit.interval.ms=10")
    assert len(offsets(run("--json", *member))) == 20
    with Admin(broker.bootstrap) as admin:
        assert admin.committed(group) == {}
        assert group not in {one.group for one in admin.list_groups()}


@pytest.mark.broker
def test_nothing_to_read_is_said_and_is_no_error(
    broker: SelectedBroker, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["consume", topic, "-b", broker.bootstrap]) == 0
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "no records in this range\n")


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 1}) as broker:
        yield broker


def consumed(fake: FakeBroker, capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["consume", "topic", *arguments, "-b", fake.bootstrap]) == 0
    return capfd.readouterr().out


def test_a_topic_is_read_if_its_settings_cannot_be_requested(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.produce("topic", 0, [(b"k", b"v")])
    assert offsets(consumed(fake, capfd, "--json")) == [(0, 0)]


def test_nothing_below_the_first_offset_requested_is_shown(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> None:
    fake.produce("topic", 0, [(None, b"%d" % number) for number in range(3)])
    late = threading.Timer(0.5, lambda: fake.produce("topic", 0, [(None, b"%d" % number) for number in range(3, 9)]))
    late.start()
    printed = consumed(fake, capfd, "--from", "5", "--to", "never", "--limit", "2", "--json")
    late.join()
    assert offsets(printed) == [(0, 5), (0, 6)]


@pytest.mark.parametrize("when", ["1969-12-31T23:59:59.999Z", "1969-01-01T00:00:00Z", "0001-01-01T00:00:00Z"])
def test_a_time_before_all_records_means_all_of_them(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str], when: str
) -> None:
    fake.produce("topic", 0, [(None, b"%d" % number, 1_700_000_000_000) for number in range(3)])
    assert offsets(consumed(fake, capfd, "--json", "--from", when)) == [(0, 0), (0, 1), (0, 2)]


def test_table_shows_timestamps_that_are_no_time(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> None:
    microseconds = 1_700_000_000_000_000
    fake.produce("topic", 0, [(b"k", b"v", microseconds), (b"k", b"v", -1)])
    first, second = consumed(fake, capfd).splitlines()[-2:]
    assert first.split() == ["0", "0", str(microseconds), "ms", "k", "v"]
    assert second.split() == ["0", "1", "-", "k", "v"]


def test_table_shows_text_as_it_is(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> None:
    fake.produce("topic", 0, [(b"[red]k", b"\\[/v]", 0)])
    assert consumed(fake, capfd).splitlines()[-1].split()[-2:] == ["[red]k", "\\[/v]"]


def test_records_in_a_table_order_the_terminal_nothing(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> None:
    fake.produce("topic", 0, [(b"\x1b]0;k\x07", "\x9b2Jvé😀".encode(), 0)])
    assert consumed(fake, capfd).splitlines()[-1].split()[-2:] == ["\\x1b]0;k\\x07", "\\x9b2Jvé😀"]


@pytest.mark.parametrize("value", [b"NaN", b"[-Infinity]", b'{"a": 1e999}', b"[" * 100_000])
def test_what_is_nearly_json_is_printed_as_text(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str], value: bytes
) -> None:
    fake.produce("topic", 0, [(None, value)])
    assert json.loads(consumed(fake, capfd, "--json", "--value", "json"))["value"] == value.decode()


def test_all_is_read_however_many_polls_it_takes(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(6):
        fake.produce("topic", 0, [(None, b"v")] * 10)
    piecemeal = ("--json", "-X", "max.poll.records=7", "-X", "fetch.max.bytes=1", "-X", "max.partition.fetch.bytes=1")
    assert offsets(consumed(fake, capfd, *piecemeal)) == [(0, offset) for offset in range(60)]


def test_what_has_no_end_is_waited_for_also_where_nothing_is_there(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    late = threading.Timer(1.0, lambda: fake.produce("topic", 0, [(None, b"v")]))
    late.start()
    assert offsets(consumed(fake, capfd, "--from", "latest", "--to", "never", "--limit", "1", "--json")) == [(0, 0)]
    late.join()


@pytest.mark.parametrize("start", ["earliest", "0", "-1", "2020-01-01T00:00:00Z"])
def test_a_partition_whose_leader_just_moves_is_not_left_out(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str], start: str
) -> None:
    fake.add_partitions("topic", 2)
    for partition in (0, 1):
        fake.produce("topic", partition, [(None, b"v", 1_700_000_000_000)])

    def moved(response: Any) -> Any:
        (topic,) = response.topics
        refused = topic.partitions[0]._replace(error_code=6, offset=-1, timestamp=-1)
        return response._replace(topics=(topic._replace(partitions=(refused, *topic.partitions[1:])),))

    fake.control("ListOffsets", lambda _call: Alter(moved), times=1)
    assert offsets(consumed(fake, capfd, "--json", "--from", start)) == [(0, 0), (1, 0)]


def test_what_is_far_too_long_for_a_number_does_not_end_the_reading(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.produce("topic", 0, [(None, b"\x01" * 2_000), (None, b"\x01\x00")])
    printed = consumed(fake, capfd, "--value", "int", "--json")
    assert [json.loads(line)["value"] for line in printed.splitlines()] == ["01" * 2_000, 256]


def test_a_file_is_of_this_run_also_if_there_was_nothing_to_read(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    file = tmp_path / "records.parquet"
    fake.produce("topic", 0, [(None, b"v")])
    consumed(fake, capfd, "--parquet", str(file))
    before = pq.read_table(file)
    assert before.num_rows == 1
    consumed(fake, capfd, "--from", "latest", "--parquet", str(file))
    assert pq.read_table(file).equals(before.slice(1))


def test_under_read_committed_the_end_is_the_last_stable_offset(
    fake: FakeBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.produce("topic", 0, [(None, b"%d" % number) for number in range(3)])

    def stable(response: Any) -> Any:  # the third is of a transaction that is open: to wait for it is to hang
        (topic,) = response.topics
        partitions = tuple(one._replace(offset=min(one.offset, 2)) for one in topic.partitions)
        return response._replace(topics=(topic._replace(partitions=partitions),))

    def isolated(call: Call) -> Alter | None:
        return Alter(stable) if call.request.isolation_level else None  # type: ignore[attr-defined]

    fake.control("ListOffsets", isolated)
    printed = consumed(fake, capfd, "--json", "-X", "isolation.level=read_committed")
    assert offsets(printed) == [(0, 0), (0, 1)]


@pytest.mark.proves("B-38")
def test_a_log_that_became_shorter_is_read_to_its_new_end(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(4):
        fake.produce("topic", 0, [(None, b"v")])
    cut: list[Call] = []

    def truncated(call: Call) -> None:
        if not cut:
            cut.append(call)
            fake.truncate("topic", 0, 2)

    fake.control("Fetch", truncated)
    fake.control("ListOffsets", lambda _call: Delay(5.0) if cut else None, times=1)  # the end is unknown at first
    assert offsets(consumed(fake, capfd, "--json")) == [(0, 0), (0, 1)]


PARQUET_MAGIC = b"PAR1"  # with which a file begins before anything is written


@pytest.mark.parametrize("form", ["--parquet", "--json"])
def test_what_was_read_until_a_signal_is_kept(form: str, fake: FakeBroker, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file, out = tmp_path / "records.parquet", tmp_path / "records.json"
    fake.produce("topic", 0, [(None, b"a"), (None, b"b")])
    where = [form, str(file)] if form == "--parquet" else [form]
    command = [sys.executable, "-m", "kohort.cli.main", "consume", "topic", *where, "--to", "never"]
    with (
        out.open("wb") as printed,
        subprocess.Popen([*command, "-b", fake.bootstrap], stdout=printed) as process,
    ):
        # Each takes half a second, but the one with the records. On a busy machine that is no time to write them.
        while len(fake.calls_of("Fetch")) < 5 or (form == "--parquet" and file.stat().st_size <= len(PARQUET_MAGIC)):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    if form == "--parquet":
        assert pq.read_table(file)["value"].to_pylist() == [b"a", b"b"]
    else:
        assert offsets(out.read_text()) == [(0, 0), (0, 1)]


def test_a_pipe_has_each_record_while_more_are_waited_for(fake: FakeBroker) -> None:
    command = [sys.executable, "-m", "kohort.cli.main", "consume", "topic", "--json", "--to", "never"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    fake.produce("topic", 0, [(None, b"a"), (None, b"b")])
    with subprocess.Popen([*command, "-b", fake.bootstrap], stdout=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        try:
            for offset in range(2):
                assert json.loads(process.stdout.readline())["offset"] == offset
        finally:
            process.kill()


@pytest.mark.parametrize(("form", "data"), [("base64", b"\xff\x00"), ("hex", b"\xff"), ("utf8", "ü".encode())])
def test_a_copy_by_json_is_exact(form: str, data: bytes, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    forms = [part for option in ("--key", "--value", "--header") for part in (option, form)]
    with FakeBroker(topics={"topic": 1, "copy": 1}) as fake:
        with Producer(fake.bootstrap) as producer:
            producer.send("topic", data, key=data, headers=[("h", data), ("none", None)])
        file = tmp_path / "records.json"
        file.write_text(consumed(fake, capfd, "--json", *forms))
        assert main(["produce", "copy", str(file), *forms, "-b", fake.bootstrap]) == 0
        with Consumer(fake.bootstrap) as consumer:
            consumer.assign({TopicPartition("copy", 0): 0})
            (record,) = [record for columns in consumer.poll(60.0) for record in columns]
    assert (record.key, record.value, list(record.headers)) == (data, data, [("h", data), ("none", None)])
