"""`kohort produce` as a user types it, on a fake broker: inputs, counts, transactions, a rate, mistakes."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort import Consumer, TopicPartition
from kohort.cli import produce
from kohort.cli.main import main
from kohort.cli.record_input import InputRecord
from kohort.protocol.apis.produce import ProduceRequest, ProduceResponse
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter

Run = Callable[..., str]
TOO_LARGE = 10


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"topic": 1, "other": 3}) as broker:
        yield broker


@pytest.fixture
def run(fake: FakeBroker, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("topic", "file")` produces, and is what was printed: errors for another code than 0."""

    def ran(*arguments: str | Path, code: int = 0) -> str:
        assert main(["produce", *map(str, arguments), "-b", fake.bootstrap]) == code
        printed = capfd.readouterr()
        return printed.err if code else printed.out

    return ran


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Give bytes as standard input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def stored(fake: FakeBroker, topic: str = "topic", count: int = 1, **settings: Any) -> list[tuple[Any, ...]]:
    """(partition, key, value, headers, timestamp) of a topic's records."""
    found: list[tuple[Any, ...]] = []
    with Consumer(fake.bootstrap, **settings) as consumer:
        consumer.assign({TopicPartition(topic, number): 0 for number in range(len(consumer.partitions_for(topic)))})
        while len(found) < count:
            for columns in consumer.poll(1.0):
                for one in columns:
                    found.append((one.partition, one.key, one.value, list(one.headers), one.timestamp_ms))
    return found


def acks_of(fake: FakeBroker) -> set[int]:
    """The acks of all Produce requests."""
    requests = [call.request for call in fake.calls_of("Produce")]
    return {request.acks for request in requests if isinstance(request, ProduceRequest)}


def values(records: list[tuple[Any, ...]]) -> list[bytes | None]:
    return [None if record[2] is None else bytes(record[2]) for record in records]


def test_lines_of_standard_input_are_records(run: Run, fake: FakeBroker, piped: Callable[[bytes], None]) -> None:
    piped(b"one\n\nthree\xff\r\nlast")
    assert run("topic") == "4 records delivered to topic\n"
    assert values(stored(fake, count=4)) == [b"one", b"", b"three\xff\r", b"last"]


def test_a_separator_ends_the_key_of_each_line(run: Run, fake: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"anna::1:2\n::no key\n")
    assert json.loads(run("topic", file, "-K", "::", "--json"))["delivered"] == 2
    assert [record[1:3] for record in stored(fake, count=2)] == [(b"anna", b"1:2"), (b"", b"no key")]
    file.write_bytes(b"anna::1\nbert\n")
    assert "no '::' in the line (line=2)" in run("topic", file, "-K", "::", code=1)


def test_json_lines_are_those_of_consume(
    run: Run, fake: FakeBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.jsonl"
    lines: list[dict[str, Any]] = [
        {"value": "1", "key": "k", "headers": [["a", "x"], ["a", None]], "timestamp_ms": 17, "partition": 2},
        {"value": None, "headers": {"b": "ü"}},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    reported = json.loads(run("other", file, "--json"))
    assert (reported["topic"], reported["delivered"], reported["failed"]) == ("other", 2, 0)
    assert reported["partitions"]["2"] in (1, 2)
    first, second = sorted(stored(fake, "other", 2), key=lambda record: record[2] is None)
    assert first == (2, b"k", b"1", [("a", b"x"), ("a", None)], 17)
    assert second[1:4] == (None, None, [("b", "ü".encode())])
    assert main(["consume", "other", "--json", "-b", fake.bootstrap]) == 0
    file.write_text(capfd.readouterr().out)
    assert json.loads(run("other", file, "--json"))["delivered"] == 2
    assert len(stored(fake, "other", 4)) == 4


@pytest.mark.parametrize(
    ("options", "line"), [(("-K", ""), "a\n"), (("-f", "json"), '{"value": "v", "timestamp_ms": -2}\n')]
)
def test_an_argument_that_the_library_refuses_is_one_line(
    options: tuple[str, ...], line: str, run: Run, piped: Callable[[bytes], None]
) -> None:
    piped(line.encode())
    assert run("topic", *options, code=1).count("\n") == 1


def test_a_closed_standard_input_has_no_records(fake: FakeBroker) -> None:
    command = [sys.executable, "-m", "kohort.cli.main", "produce", "topic", "-b", fake.bootstrap, "--json"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, json.loads(done.stdout)["delivered"], done.stderr) == (0, 0, "")


@pytest.mark.parametrize(
    ("option", "given", "bytes_"),
    [
        ("json", {"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
        ("hex", "00ff", b"\x00\xff"),
        ("base64", "AP8=", b"\x00\xff"),
    ],
)
def test_values_in_other_representations(
    option: str, given: Any, bytes_: bytes, run: Run, fake: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "records.ndjson"
    file.write_text(json.dumps({"value": given, "key": given}))
    run("topic", file, "--value", option, "--key", option)
    assert [record[1:3] for record in stored(fake)] == [(bytes_, bytes_)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("7", "no object with a field 'value'"),
        ('{"key": "k"}', "no object with a field 'value'"),
        ('{"value": "v", "keey": "k"}', "no record has a field 'keey'"),
        ('{"value": 7}', "--value json"),
        ('{"value": "v", "timestamp_ms": "now"}', "timestamp_ms is no integer"),
        ('{"value": "v", "partition": true}', "partition is no integer"),
        ('{"value": "v", "headers": [["only"]]}', "a header is no pair of a name"),
        ('{"value": "v", "headers": [[null, "x"]]}', "a header is no pair of a name"),
        ('{"value": 3}', "3 is no text"),
        ('{"value": {"a": 1}}', '{"a": 1} is no text'),
        ("[" * 100_000, "nested too deeply"),
        ("{", "not a record"),
        ('{"value": NaN}', "not a number in JSON: NaN"),
        ('{"value": [1e400]}', "not a number in JSON: 1e400"),
        ('{"value": "v", "timestamp_ms": -2}', "timestamp_ms is in ms"),
        ('{"value": "v", "partition": 9}', "the topic has 1 partition "),
        ('{"value": "v", "line": 1}', "no record has a field 'line'"),
    ],
)
def test_a_wrong_json_line_is_one_line_and_its_number(line: str, error: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    file.write_text('{"value": "good"}\n' + line + "\n")
    reported = run("topic", file, code=1)
    assert error in reported
    assert "line=2" in reported
    assert reported.count("\n") == 1


def test_columns_of_files_are_those_of_consume(
    run: Run, fake: FakeBroker, tmp_path: Path, piped: Callable[[bytes], None]
) -> None:
    times = pa.array([5, 6, 7], pa.timestamp("ms", "UTC"))
    table = pa.table({"value": [b"a", b"b", None], "key": ["x", None, "z"], "timestamp": times, "offset": [7, 8, 9]})
    parquet, arrow = tmp_path / "t.parquet", tmp_path / "t.arrow"
    pq.write_table(table, parquet)
    with pa.ipc.new_file(arrow, table.schema) as writer:
        writer.write_table(table)
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    piped(stream.getvalue())
    for given in ((parquet,), (arrow,), ("-", "--format", "arrow"), (parquet, "--rate", "1000")):
        assert run("topic", *given) == "3 records delivered to topic\n"
    expected: list[tuple[Any, ...]] = [(0, b"x", b"a", [], 5), (0, None, b"b", [], 6), (0, b"z", None, [], 7)]
    assert stored(fake, count=12) == expected * 4
    for file, reported in ((parquet, "not a Parquet file"), (arrow, "neither an Arrow file nor a stream")):
        file.write_bytes(b"no columns")
        assert reported in run("topic", file, code=1)
    pq.write_table(pa.table({"value": [b"a"], "colour": ["red"]}), parquet)
    assert "no record has a column 'colour'" in run("topic", parquet, code=1)


def test_options_of_records_and_producer(run: Run, fake: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"1\n2\n3\n4\n")
    reported = json.loads(run("other", file, "-n", "3", "-p", "1", "--acks", "1", "-X", "linger.ms=0", "--json", "-q"))
    assert reported["partitions"] == {"1": 3}
    assert acks_of(fake) == {1}
    assert "unknown property 'linger.mss'" in run("other", file, "-X", "linger.mss=0", code=1)
    assert "acks" in run("other", file, "--acks", "0", "--transactional-id", "x", code=1)
    assert "cannot be read" in run("other", tmp_path / "nowhere.txt", code=1)
    assert "is for lines of text" in run("other", file, "-K", ":", "--format", "json", code=1)
    assert "needs --transactional-id" in run("other", file, "--commit-every", "1", code=1)
    assert "the topic has 3 partitions" in run("other", file, "-p", "9", code=1)


def test_a_file_of_a_java_producer_serves_it(run: Run, fake: FakeBroker, tmp_path: Path) -> None:
    settings, file = tmp_path / "producer.properties", tmp_path / "lines.txt"
    settings.write_text("acks=1\nkey.serializer=a.b.C\nlinger.ms=0\nauto.offset.reset=earliest\n")
    file.write_bytes(b"1\n")
    run("topic", file, "-F", settings)
    assert acks_of(fake) == {1}


def test_a_file_may_say_that_keys_are_ignored(run: Run, tmp_path: Path) -> None:
    settings, file = tmp_path / "producer.properties", tmp_path / "lines.txt"
    settings.write_text("partitioner.ignore.keys=true\nlinger.ms=5000\n")
    file.write_bytes(b"".join(b"%d:x\n" % number for number in range(30)))
    assert list(json.loads(run("other", file, "-K", ":", "-F", settings, "--json"))["partitions"].values()) == [30]


def test_records_that_fail_are_counted_and_are_an_error(
    run: Run, fake: FakeBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"1\n" * 5)

    def refused(response: ProduceResponse) -> ProduceResponse:
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        return ProduceResponse(
            responses=(topic._replace(partition_responses=(partition._replace(error_code=29, base_offset=-1),)),)
        )

    fake.control("Produce", lambda _call: Alter(refused))
    assert main(["produce", "topic", str(file), "-b", fake.bootstrap]) == 1
    printed = capfd.readouterr()
    assert printed.out == "0 records delivered to topic, 5 failed\n"
    assert "5 records not delivered; the first error: " in printed.err


def test_a_transaction_is_seen_whole_or_not_at_all(run: Run, fake: FakeBroker, tmp_path: Path) -> None:
    file, table = tmp_path / "lines.jsonl", tmp_path / "t.parquet"
    file.write_text('{"value": "1"}\n{"value": "2"}\noops\n')
    run("topic", file, "--transactional-id", "x", code=1)
    file.write_text('{"value": "3"}\n{"value": "4"}\n{"value": "5"}\n')
    assert run("topic", file, "--transactional-id", "x") == "3 records committed to topic\n"
    seen = stored(fake, count=3, isolation_level="read_committed")
    assert values(seen) == [b"3", b"4", b"5"]
    pq.write_table(pa.table({"value": [b"%d" % number for number in range(7)]}), table)
    ended = len(fake.calls_of("EndTxn"))
    assert run("topic", table, "--transactional-id", "x", "--commit-every", "3") == "7 records committed to topic\n"
    assert len(fake.calls_of("EndTxn")) - ended == 3


def test_parts_of_tables_end_where_they_should() -> None:
    tables = [pa.record_batch({"value": list(range(at, at + size))}) for at, size in ((0, 5), (5, 1), (6, 7))]
    parts = [[one["value"].to_pylist() for one in part] for part in produce._parts(iter(tables), 4)]
    assert parts == [[[0, 1, 2, 3]], [[4], [5], [6, 7]], [[8, 9, 10, 11]], [[12]]]
    assert list(produce._taken(produce._split(iter([InputRecord(b"a")] * 9), 2), 2)) == [InputRecord(b"a")] * 2


def test_a_rate_is_an_upper_bound_and_is_kept_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    now, naps = [100.0], []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    paced = produce._paced(iter([InputRecord(b"a")] * 1_000), 10.0)
    for _ in range(20):
        next(paced)
    assert now[0] == pytest.approx(101.9)
    now[0] += 0.3  # late: the next three follow at once
    naps.clear()
    for _ in range(4):
        next(paced)
    assert now[0] == pytest.approx(102.3)
    now[0] += 60.0  # a long delay is not made up for
    for _ in range(21):
        next(paced)
    assert now[0] == pytest.approx(163.3, abs=0.11)
