"""`kohort region reset`, `retire` and `forget`, against a store, and on a region whose members run."""

import functools
import json
import re
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import typer.main

from kohort import ConsistentRegion, TopicPartition
from kohort.cli.main import main
from kohort.consistent_region import DictState, Periodic
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import ResetFailedError
from kohort.consistent_region.manifest import TaskState
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.store import Key, SqliteStore
from kohort.consistent_region.tasks import TaskId
from tests.consistent_region.task_calls import cuts, gone_back, offsets, states, task
from tests.support.broker_selection import SelectedBroker

P0 = TopicPartition("t", 0)


class Region:
    """A region with one member and five checkpoints of which it keeps five; offsets are ten times their number."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self.coordinator = RegionCoordinator(SqliteStore(path), "bills", "billing", kept_checkpoints=5)
        self.ticket = self.coordinator.register("one").ticket
        self.coordinator.put_initial(self.ticket, {P0: RegionPosition(0)})
        for number in range(1, 6):
            self.checkpoint(number)

    def checkpoint(self, number: int) -> None:
        epoch = self.coordinator.look().epoch
        gone_back(self.coordinator, self.ticket, 5, P0)
        barrier = self.coordinator.begin_checkpoint(self.ticket, epoch).barrier
        assert barrier is not None
        state = json.dumps({"a": number}).encode()
        self.coordinator.contribute(self.ticket, barrier, cuts({P0: RegionPosition(10 * number)}, state))


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    made = Region(tmp_path / "region.db")
    yield made
    made.coordinator.store.close()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        assert main(["region", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_begin_anew_accepts_the_store_when_no_member_runs(
    region: Region, command: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = region.coordinator.record().past.lineage
    assert main(["region", "begin", region.url, "--anew", "--yes"]) != 0
    assert "members of the region run" in capsys.readouterr().err
    region.coordinator.deregister(region.ticket)
    assert main(["region", "begin", region.url]) != 0
    assert "--anew" in capsys.readouterr().err
    response = command("begin", region.url, "--anew")
    assert (response["region"], response["newest"]) == ("bills", 5)
    past = region.coordinator.record().past
    assert past.accepted
    assert past.lineage == response["lineage"] != before


@pytest.mark.proves("CR-53", "CR-54")
def test_reset_makes_an_older_checkpoint_the_newest_and_begins_an_epoch(
    region: Region, command: Callable[..., Any]
) -> None:
    response = command("reset", region.url, "--to", "3")
    assert response == {"region": "bills", "to": 3, "epoch": 1, "forgotten": [4, 5]}
    back = gone_back(region.coordinator, region.ticket, 5, P0)
    assert back.starts[task(P0)].sequence == 3
    assert (states(back), offsets(back)) == ({0: b'{"a": 3}'}, {P0: 30})
    with pytest.raises(ResetFailedError, match="checkpoint 5 is not known"):
        region.coordinator.manifest(5)
    region.checkpoint(7)  # sequences go on growing: what was forgotten is never meant by its number again
    assert region.coordinator.checkpoints() == (1, 2, 3, 6)


def test_reset_to_nothing_is_the_initial_state(region: Region, command: Callable[..., Any]) -> None:
    assert command("reset", region.url, "--to", "0")["forgotten"] == [1, 2, 3, 4, 5]
    back = gone_back(region.coordinator, region.ticket, 5, P0)
    assert (states(back), offsets(back)) == ({0: None}, {P0: 0})


def test_reset_runs_a_stopped_region_again(region: Region, command: Callable[..., Any]) -> None:
    while (view := region.coordinator.look()).stopped is None:
        region.coordinator.request_reset(region.ticket, view.epoch, "it will not do", forced=False, generation=None)
    assert "it will not do" in command("status", region.url)["stopped"]
    command("reset", region.url, "--to", "5")
    assert command("status", region.url)["stopped"] is None
    assert region.coordinator.register("one").past


@pytest.mark.proves("CR-65", "CR-66")
def test_a_region_forgets_where_it_was_in_a_topic_that_is_gone(region: Region, command: Callable[..., Any]) -> None:
    """A task of which only some topics are gone keeps its state. A topic that is created again has a new state."""
    gone, more = TopicPartition("gone", 0), TopicPartition("gone", 1)
    coordinator, ticket = region.coordinator, region.ticket
    coordinator.put_initial(ticket, {gone: RegionPosition(3), more: RegionPosition(4)})
    both = {TaskId("", 0): [P0, gone], TaskId("", 1): [more]}
    coordinator.go_back(ticket, both)
    coordinator.report(ticket, 6, 3)
    barrier = coordinator.begin_checkpoint(ticket, 0).barrier
    assert barrier is not None
    at = {P0: RegionPosition(60), gone: RegionPosition(7)}
    given = {TaskId("", 0): TaskState(at, b"{}"), TaskId("", 1): TaskState({more: RegionPosition(8)}, b"{}")}
    coordinator.contribute(ticket, barrier, given)
    coordinator.deregister(ticket)
    assert command("forget", region.url, "gone") == {"region": "bills", "forgotten": ["gone-0", "gone-1"], "left": 1}
    assert command("status", region.url)["partitions"] == 1
    assert [(one.task.number, dict(one.offsets)) for one in coordinator.manifest(7).tasks] == [
        (0, {P0: RegionPosition(60)}),
        (1, {}),
    ]
    ticket = coordinator.register("one").ticket
    back = gone_back(coordinator, ticket, 7, P0)
    assert back.view.epoch == 1
    assert (states(back), dict(back.positions)) == ({0: b"{}"}, {P0: RegionPosition(60)})
    coordinator.put_initial(ticket, {gone: RegionPosition(1)})
    assert coordinator.begin_checkpoint(ticket, 1).barrier is None  # the new one needs an owner, too
    back = coordinator.go_back(ticket, {TaskId("", 0): [P0, gone]})
    assert dict(back.positions) == {P0: RegionPosition(60), gone: RegionPosition(1)}
    coordinator.report(ticket, 7, 2)
    assert coordinator.begin_checkpoint(ticket, 1).barrier is not None
    assert coordinator.whole(7).sequence == 7


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (["t"], "members of the region run .*members=one"),
        (["t", "x"], "has not read this topic .*topic=x.*topics are t"),
    ],
)
def test_what_is_read_is_not_forgotten(
    topics: list[str], said: str, region: Region, capsys: pytest.CaptureFixture[str]
) -> None:
    before = region.coordinator.record()
    assert main(["region", "forget", region.url, *topics, "--yes"]) == 1
    assert re.search(said, capsys.readouterr().err)
    assert region.coordinator.record() == before


@pytest.mark.proves("CR-54")
def test_reset_to_what_is_not_there_or_not_whole_changes_nothing(
    region: Region, capsys: pytest.CaptureFixture[str]
) -> None:
    before = region.coordinator.record()
    assert main(["region", "reset", region.url, "--to", "9", "--yes"]) == 1
    assert "checkpoint 9 is not known" in capsys.readouterr().err
    digest = region.coordinator.manifest(2).tasks[0].state.digest
    store = region.coordinator.store
    assert isinstance(store, SqliteStore)
    with store.transaction() as books:
        books._open().execute("UPDATE kohort_region SET value = x'00' WHERE kind = 'state' AND name = ?", (digest,))
    assert main(["region", "reset", region.url, "--to", "2", "--yes"]) == 1
    assert "contradicts its digest" in capsys.readouterr().err
    assert region.coordinator.record() == before


@pytest.mark.proves("CR-53")
def test_retire_deletes_what_is_old_and_never_the_newest(region: Region, command: Callable[..., Any]) -> None:
    assert command("retire", region.url, "--up-to", "2") == {"region": "bills", "retired": [1, 2], "left": [3, 4, 5]}
    assert command("retire", region.url) == {"region": "bills", "retired": [3, 4], "left": [5]}
    assert command("retire", region.url, "--up-to", "99") == {"region": "bills", "retired": [], "left": [5]}
    with region.coordinator.store.read() as books:
        assert len(books.names("manifest", "billing")) == 1
        assert len(books.names("state", "billing")) == 5  # members run, so a later checkpoint deletes the others


def test_both_prompt_first_and_no_is_no(
    region: Region, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[str] = []

    def no(question: str, *, abort: bool) -> None:
        import typer

        requested.append(question)
        raise typer.Abort

    monkeypatch.setattr("typer.confirm", no)
    before = region.coordinator.record()
    assert main(["region", "reset", region.url, "--to", "4"]) != 0
    assert main(["region", "retire", region.url]) != 0
    assert region.coordinator.record() == before
    assert "checkpoint 5 is deleted" in requested[0]
    assert "checkpoints 1, 2, 3, 4 are deleted" in requested[1]
    assert main(["region", "reset", region.url, "--to", "4", "--yes"]) == 0
    assert "is reset to checkpoint 4: epoch 1, checkpoint 5 is deleted" in capsys.readouterr().out


def test_status_and_retire_leave_a_late_checkpoint_to_the_members(region: Region, command: Callable[..., Any]) -> None:
    # The command does not know that this region may go back as often as it has to.
    patient = RegionCoordinator(
        region.coordinator.store, "bills", "billing", checkpoint_timeout_s=0.01, max_consecutive_resets=1000
    )
    for _ in range(6):
        epoch = patient.look().epoch
        gone_back(patient, region.ticket, 5, P0)
        assert patient.begin_checkpoint(region.ticket, epoch).barrier is not None
        time.sleep(0.02)
    before = patient.record()
    assert command("status", region.url)["checkpoint_under_way"] == before.next_sequence - 1
    assert patient.record() == before
    assert command("retire", region.url)["left"] == [5]
    assert (patient.record().epoch, patient.record().stopped) == (before.epoch, None)
    assert patient.look().epoch == before.epoch + 1


def test_a_region_that_goes_on_is_shown_as_of_one_moment(
    region: Region, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SqliteStore.read
    ours = region.coordinator.store
    retired = 0

    @contextmanager
    def reading(store: SqliteStore) -> Iterator[SqliteStore]:
        nonlocal retired
        with read(store) as books:
            yield books
        if store is not ours:  # after each look of the command's the oldest goes, as with each checkpoint of a member
            retired += 1
            region.coordinator.retire(retired)

    monkeypatch.setattr(SqliteStore, "read", reading)
    assert [row["sequence"] for row in command("checkpoints", region.url)["checkpoints"]] == [2, 3, 4, 5]
    assert command("inspect", region.url, "4")["sequence"] == 4


@pytest.mark.broker
def test_a_running_region_follows_an_operator_back_and_counts_exactly(
    broker: SelectedBroker, make_topic: Callable[..., str], tmp_path: Path, command: Callable[..., Any]
) -> None:
    topic, url = make_topic(2), f"sqlite:///{tmp_path}/region.db"

    def count(_record: Any, totals: DictState) -> None:
        totals["n"] = totals.get("n", 0) + 1

    one = ConsistentRegion(
        "live",
        group=f"live-{topic}",
        topics=[topic],
        bootstrap=broker.bootstrap,
        member="one",
        coordinator=url,
        trigger=Periodic(0.2),
        state=DictState,
        handler=count,
        start_position="beginning",
        kept_checkpoints=100,
    )
    running = threading.Thread(target=one.run)
    running.start()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

    def until(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not reached():
            assert running.is_alive()
            assert time.monotonic() < deadline, one.timeline()
            time.sleep(0.02)

    def counted() -> int:
        kept = one.coordinator.checkpoints() if one.metrics()["checkpoints_total"] else ()
        return sum(at.offset for at in one.coordinator.manifest(kept[-1]).offsets.values()) if kept else -1

    try:
        for number in range(3_000):
            producer.produce(topic, value=b"x", partition=number % 2)
        producer.flush(120)
        until(lambda: counted() == 3_000)
        first = command("status", url)["newest_checkpoint"]
        for number in range(2_000):
            producer.produce(topic, value=b"x", partition=number % 2)
        producer.flush(120)
        until(lambda: counted() == 5_000)
        assert command("reset", url, "--to", str(first))["epoch"] == 1
        until(lambda: any(at.kind == "went_back" and at.checkpoint == first for at in one.timeline()))
        until(lambda: counted() == 5_000)
        rows = command("checkpoints", url)["checkpoints"]
        assert [row["epoch"] for row in rows if row["sequence"] > first] == [1] * sum(
            row["sequence"] > first for row in rows
        )
    finally:
        one.stop()
        running.join(120)
    newest = one.coordinator.manifest(one.coordinator.checkpoints()[-1])
    assert [json.loads(one.coordinator.state(cut.state)) for cut in newest.tasks] == [{"n": 2_500}] * 2
    assert command("retire", url)["left"] == [command("status", url)["newest_checkpoint"]]


def test_what_a_member_is_called_orders_the_terminal_nothing(
    region: Region, capsys: pytest.CaptureFixture[str]
) -> None:
    region.coordinator.register("\x1b[2Jtwo\x9b2J")
    assert main(["region", "status", region.url]) == 0
    said = capsys.readouterr().out
    assert "\\x1b[2Jtwo\\x9b2J" in said
    assert not set(said) & {"\x1b", "\x9b"}


NEWEST = "00000000000000000005"
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    2**63,
    10**4_000,
    1e308,
    float("nan"),
    "",
    "\x1b[2J\n\u202e../../x",
    "x" * 100_000,
    [],
    {},
    [[]],
    {"\x1b[2J": {"0": []}},
    {"../..": [1, 2, 3, 4, 5, 6, 7]},
    {"t": {"-1": [1, 1, ""]}},
    ["\ud800"],
    {"\ud800": {"0": [1, 1, "0" * 32]}},
    {"\ud800": [1, 2, 3, 4, 5]},
    "\ud800",
]


def test_no_record_of_a_region_makes_a_traceback_or_orders_the_terminal(
    region: Region, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # typer makes the command in each of the 1,464 runs.
    monkeypatch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
    key = Key("region", "billing")
    with region.coordinator.store.read() as books:
        sound = books.get(key)
    assert sound is not None
    record = json.loads(sound)
    written = [json.dumps(record | {name: value}).encode() for name in record for value in HOSTILE]
    written += [json.dumps({name: record[name] for name in record if name != left}).encode() for left in record]
    for data in [*written, b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, json.dumps(HOSTILE).encode()]:
        with region.coordinator.store.transaction() as books:
            books.put(key, data)
        for arguments in (("status",), ("checkpoints",), ("retire", "--up-to", "3", "--yes")):
            status = main(["region", arguments[0], region.url, *arguments[1:]])
            said = capsys.readouterr()
            assert status == 0 or said.err.startswith("kohort: "), (arguments, data[:300])
            assert status == 0 or said.err.count("\n") == 1, (arguments, said.err)
            assert not set(said.out + said.err) & {"\x1b", "\u202e"}
            assert len(said.err) < 5_000


@pytest.mark.parametrize(
    "payload", [b"[" * 100_000, b"{}", b'{"contributions":{"a":' * 10_000, b"9" * 5_000, b'"\\ud800"']
)
def test_no_manifest_makes_a_traceback(region: Region, payload: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    data = struct.pack(">8sHQI", b"KREGION\n", 1, len(payload), zlib.crc32(payload)) + payload
    with region.coordinator.store.transaction() as books:
        books.put(Key("manifest", "billing", NEWEST), data)
    for arguments in (
        ("checkpoints", region.url),
        ("inspect", region.url, "5"),
        ("reset", region.url, "--to", "5", "-y"),
    ):
        assert main(["region", *arguments]) != 0
        assert capsys.readouterr().err.startswith("kohort: ")
