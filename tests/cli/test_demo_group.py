"""The group's part of the demo: played with a made-up crew on a real ledger, then with processes on a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.cli.demo import DemoFailed, group
from kohort.cli.demo.flights import Aircraft, Totals
from kohort.cli.demo.group import Checkpoints, Crew, GroupAct
from kohort.cli.demo.ledger import DemoEntry, GroupHistory, Ledger
from kohort.cli.demo.member import FlightState, MemberTask, ReadLog
from kohort.common import TopicPartition
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.store import SqliteStore
from kohort.fastpath import Record, decode
from kohort.fastpath._encode import encode
from tests.consistent_region.task_calls import cuts, tasks
from tests.support.broker_selection import SelectedBroker

ENDS = {0: 40, 1: 40}
TASK = MemberTask("", "", "g", "flights", "", "", "range", 0.0)


def landings(first: int, stop: int) -> Iterator[Record]:
    """Records of the demo's kind."""
    landing = (b"N1", b'{"event":"arrived","delay":0,"miles":1}', 0, {"carrier": b"UA"})
    yield from decode(encode([landing] * (stop - first), base_offset=first), topic="flights", partition=0)


class MadeUpCrew(Crew):
    """Members that exist on the ledger only: each look lets every living one read five records of what it owns. What is
    committed is also the newest checkpoint; whenever members come, all go back to it."""

    def __init__(self, ledger: Ledger, *, checkpoints: bool = True) -> None:
        super().__init__(ledger, TASK)
        self.ledger = ledger
        self.living: list[str] = []
        self.owned: dict[str, tuple[int, ...]] = {}
        self.position = dict.fromkeys(ENDS, 0)
        self.committed: dict[int, int] = dict.fromkeys(ENDS, 0)
        self.generation = 0
        self.stopped = False
        self.checkpoints = checkpoints

    def start(self, name: str) -> None:
        self.ledger.append(DemoEntry(name, "started"))
        self.living.append(name)
        self.share()

    def kill(self, name: str) -> int:
        self.ledger.append(DemoEntry(name, "killed"))
        self.living.remove(name)
        self.owned.pop(name, None)
        return 4711

    def stop(self) -> None:
        self.stopped = True

    def share(self) -> None:
        for name, owned in self.owned.items():
            self.ledger.append(DemoEntry(name, "revoked", self.generation, owned))
            self.ledger.append(DemoEntry(name, "undone", cause="partitions moved"))
        self.position = dict(self.committed)
        self.generation += 1
        self.owned = {name: tuple(p for p in ENDS if p % len(self.living) == i) for i, name in enumerate(self.living)}
        for name, owned in self.owned.items():
            self.ledger.append(DemoEntry(name, "assigned", self.generation, owned))
            self.ledger.append(DemoEntry(name, "went_back", self.generation))

    def check(self, code: int | None = None) -> None:
        for name, owned in self.owned.items():
            for partition in owned:
                start = self.position[partition]
                stop = min(start + 5, ENDS[partition])
                if start < stop:
                    read = DemoEntry(name, "read", self.generation, (partition,), start=start, stop=stop)
                    self.ledger.append(read)
                self.position[partition] = stop
        if self.checkpoints and min(self.position.values()) >= 35:
            self.committed = dict(self.position)

    def commits(self) -> dict[int, int]:
        return self.committed


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "flights.ledger")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(group, "FOURTH_AFTER_S", 0.0)
    monkeypatch.setattr(group, "BACK_AFTER_S", 0.0)


def test_one_dies_a_fourth_comes_the_dead_one_is_back_and_all_is_counted(ledger: Ledger) -> None:
    crew, said, history = MadeUpCrew(ledger), list[str](), GroupHistory(ENDS)
    GroupAct(crew, ledger, history, crew.commits, crew.commits, said.append).play(0.3)
    kinds = [(one.member, one.kind) for one in history.events if one.kind in ("started", "killed")]
    assert kinds == [
        *((name, "started") for name in ("ada", "ben", "cleo")),
        ("ben", "killed"),
        ("dora", "started"),
        ("ben", "started"),
    ]
    assert crew.stopped
    assert history.read == 80
    assert history.reread > 0
    _, lag, unsaved = history.samples[-1]
    assert (sum(lag.values()), unsaved) == (0, 0)
    assert max(unsaved for _, _, unsaved in history.samples) == 80
    behind = [sum(lag.values()) for _, lag, _ in history.samples]
    assert behind == sorted(behind, reverse=True)
    assert "  10 read, 0 twice, 80 to save: ada 0, ben 1, cleo joining" in said
    killed = next(line for line in said if "SIGKILL" in line)
    at = int(killed.split(" at ")[1].split()[0])
    assert 24 <= at < 80


def test_a_region_without_a_checkpoint_is_not_taken_for_done(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "STALL_TIMEOUT_S", 0.2)
    crew = MadeUpCrew(ledger, checkpoints=False)
    act = GroupAct(crew, ledger, GroupHistory(ENDS), lambda: ENDS, crew.commits, lambda text: None)
    with pytest.raises(DemoFailed, match="lag=0, unsaved=80, unowned="):
        act.play(0.3)
    assert not crew.stopped


def test_what_the_group_came_to_is_what_its_checkpoint_says_and_not_its_ledger(ledger: Ledger, tmp_path: Path) -> None:
    region = RegionCoordinator(SqliteStore(tmp_path / "region.db"), "demo", "g")
    ticket = region.register("ada").ticket
    place = TopicPartition("flights", 0)
    region.put_initial(ticket, {place: RegionPosition(0)})
    region.take(ticket, 0, 1, 1, tasks(place))
    log = ReadLog("ada", ledger)
    state = FlightState(log)
    checkpoints = Checkpoints(SqliteStore(tmp_path / "region.db"), "g")
    assert (checkpoints.newest(), checkpoints.offsets()) == (None, {})
    for record in landings(0, 30):
        state.count(record)
    barrier = region.begin_checkpoint(ticket, 0).barrier
    assert barrier is not None
    region.contribute(ticket, barrier, cuts({place: RegionPosition(30)}, state.snapshot({})))
    for record in landings(30, 50):  # after the checkpoint: undone, and done again
        state.count(record)
    state.reset_initial()
    for record in landings(30, 40):
        state.count(record)
    log.note()
    history = GroupHistory({0: 50})
    for entry in ledger.unread():
        history.add(entry)
    assert (history.read, history.reread) == (50, 10)
    newest = checkpoints.newest()
    assert newest is not None
    assert (newest.sequence, checkpoints.offsets()) == (1, {0: 30})
    assert checkpoints.totals(newest) == {Aircraft("UA", "N1"): Totals(arrived=30, miles=30)}
    region.store.close()


def test_reads_are_on_the_ledger_before_a_checkpoint_has_them(ledger: Ledger) -> None:
    log = ReadLog("ada", ledger)
    state = FlightState(log)
    for record in landings(0, 5000):
        state.count(record)
    assert [(one.start, one.stop) for one in ledger.unread()] == [(0, 2000), (2000, 4000)]
    state.snapshot({})
    assert [(one.start, one.stop) for one in ledger.unread()] == [(4000, 5000)]
    log.note()
    assert list(ledger.unread()) == []


def wait_for_the_end(crew: Crew) -> None:
    while True:
        crew.check()


@pytest.mark.broker
def test_a_member_that_fails_is_reported_with_its_last_words(
    ledger: Ledger, broker: SelectedBroker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    bad = TASK._replace(
        bootstrap=broker.bootstrap, group=unique("group"), region=str(tmp_path / "r.db"), assignor="rang"
    )
    with Crew(ledger, bad._replace(ledger=str(tmp_path / "flights.ledger"))) as crew:
        crew.start("ada")
        with pytest.raises(DemoFailed, match=r"rang.*member=ada"):
            wait_for_the_end(crew)
