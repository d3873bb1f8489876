"""The group's part of the demo: played with a made-up crew on a real ledger, then with processes on a real broker."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.cli.demo import group_act
from kohort.cli.demo.crew import Crew, MemberFailed, member_arguments
from kohort.cli.demo.flight_state import FlightState
from kohort.cli.demo.group_act import GroupStalled, play
from kohort.cli.demo.ledger import Ledger
from kohort.cli.demo.outcome import DemoOutcome
from kohort.cli.demo.region_view import DemoRegionView
from kohort.cli.demo.tally import Aircraft, Totals
from kohort.cli.demo.watch import MemberWatch, View
from kohort.common import TopicPartition
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.store import SqliteStore
from kohort.testing.broker_selection import SelectedBroker

ENDS = {0: 40, 1: 40}


class Landing(NamedTuple):
    """A record of the demo's kind."""

    topic: str
    partition: int
    offset: int
    key: bytes | None = b"N1"
    value: bytes | None = b'{"event":"arrived","delay":0,"miles":1}'
    headers: tuple[tuple[str, bytes | None], ...] = (("carrier", b"UA"),)


class QuietScreen:
    """Keeps everything that is shown on it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.views: list[View] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(self, what: str, done: int, total: int) -> None: ...

    def group(self, view: View) -> None:
        self.views.append(view)

    def outcome(self, outcome: DemoOutcome, names: dict[str, str], report: str) -> None: ...


class MadeUpCrew:
    """Members that exist on the ledger only: each look lets every living one read five records of what it owns. What is
    committed is also the newest checkpoint; whenever members come, all go back to it."""

    def __init__(self, ledger: Ledger, *, checkpoints: bool = True) -> None:
        self.ledger = ledger
        self.living: list[str] = []
        self.owned: dict[str, tuple[int, ...]] = {}
        self.position = dict.fromkeys(ENDS, 0)
        self.committed: dict[int, int] = dict.fromkeys(ENDS, 0)
        self.generation = 0
        self.stopped = False
        self.checkpoints = checkpoints

    def start(self, name: str) -> None:
        self.ledger.note(name, "started")
        self.living.append(name)
        self.share()

    def kill(self, name: str) -> int:
        self.ledger.note(name, "killed")
        self.living.remove(name)
        self.owned.pop(name, None)
        return 4711

    def stop(self) -> None:
        self.stopped = True

    def share(self) -> None:
        for name, owned in self.owned.items():
            self.ledger.note(name, "revoked", generation=self.generation, partitions=owned)
            self.ledger.note(name, "undone", cause="partitions moved")
        self.position = dict(self.committed)
        self.generation += 1
        self.owned = {name: tuple(p for p in ENDS if p % len(self.living) == i) for i, name in enumerate(self.living)}
        for name, owned in self.owned.items():
            self.ledger.note(name, "assigned", generation=self.generation, partitions=owned)
            self.ledger.note(name, "went_back", generation=self.generation)

    def check(self) -> None:
        for name, owned in self.owned.items():
            for partition in owned:
                start = self.position[partition]
                stop = min(start + 5, ENDS[partition])
                place = TopicPartition("flights", partition)
                if start < stop:
                    self.ledger.append(name, self.generation, place, start, stop)
                self.position[partition] = stop
        if self.checkpoints and min(self.position.values()) >= 35:
            self.committed = dict(self.position)

    def commits(self) -> Mapping[int, int]:
        return self.committed


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.sqlite", create=True)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_act, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(group_act, "FOURTH_AFTER_S", 0.0)
    monkeypatch.setattr(group_act, "BACK_AFTER_S", 0.0)


def test_one_dies_a_fourth_comes_the_dead_one_is_back_and_all_is_counted(ledger: Ledger) -> None:
    crew, screen = MadeUpCrew(ledger), QuietScreen()
    samples = play(crew, ledger, ENDS, crew.commits, crew.commits, kill_at=0.3, screen=screen)
    kinds = [(one.member, one.kind) for one in ledger.happenings() if one.kind in ("started", "killed")]
    assert kinds == [
        *((name, "started") for name in ("ada", "ben", "cleo")),
        ("ben", "killed"),
        ("dora", "started"),
        ("ben", "started"),
    ]
    assert crew.stopped
    first, again = ledger.records()
    assert first == 80
    assert again > 0
    assert (sum(samples[-1].lag.values()), samples[-1].unsaved) == (0, 0)
    assert max(sample.unsaved for sample in samples) == 80
    assert [view.behind for view in screen.views] == sorted((view.behind for view in screen.views), reverse=True)
    killed = next(line for line in screen.said if "SIGKILL" in line)
    at = int(killed.split(" at ")[1].split()[0])
    assert 24 <= at < 80


def test_a_region_without_a_checkpoint_is_not_taken_for_done(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_act, "STALL_TIMEOUT_S", 0.2)
    crew = MadeUpCrew(ledger, checkpoints=False)
    with pytest.raises(GroupStalled, match="lag=0, unsaved=80, unowned="):
        play(crew, ledger, ENDS, lambda: ENDS, crew.commits, kill_at=0.3, screen=QuietScreen())
    assert not crew.stopped


def test_what_the_group_came_to_is_what_its_checkpoint_says_and_not_its_ledger(ledger: Ledger, tmp_path: Path) -> None:
    group = RegionCoordinator(SqliteStore(tmp_path / "region.db"), "demo", "g")
    ticket = group.register("ada").ticket
    place = TopicPartition("flights", 0)
    group.put_initial(ticket, {place: RegionPosition(0)})
    group.report(ticket, 1, 1)
    state = FlightState("ada", ledger)
    with DemoRegionView(tmp_path / "region.db", "g") as region:
        assert (region.newest, region.offsets(), region.totals()) == (0, {}, {})
        for offset in range(30):
            state.count(Landing("flights", 0, offset))
        barrier = group.begin_checkpoint(ticket, 0).barrier
        assert barrier is not None
        group.contribute(ticket, barrier, {place: RegionPosition(30)}, state.snapshot({}))
        for offset in range(30, 50):  # after the checkpoint: undone, and done again
            state.count(Landing("flights", 0, offset))
        state.reset_initial()
        for offset in range(30, 40):
            state.count(Landing("flights", 0, offset))
        state.note()
        reading, reread = group_act.group_reading(ledger, region)
        assert (reading.records, reread) == (30, 10)
        assert reading.totals == {Aircraft("UA", "N1"): Totals(arrived=30, miles=30)}
        assert (region.newest, region.offsets()) == (1, {0: 30})
    group.store.close()


def test_rates_are_of_the_last_moments_and_states_follow_the_ledger(ledger: Ledger) -> None:
    watch = MemberWatch(ledger, ENDS, dict)
    ledger.note("ada", "started")
    assert watch.look(0).members[0].state == "joining"
    ledger.note("ada", "assigned", generation=1, partitions=[0, 1])
    ledger.append("ada", 1, TopicPartition("flights", 0), 0, 10)
    view = watch.look(1000)
    (ada,) = view.members
    assert (ada.state, ada.partitions, ada.records, ada.per_second, ada.lag) == ("reading", (0, 1), 10, 10.0, 70)
    assert view.unowned == frozenset()
    watch.look(2000)
    assert watch.look(4000).members[0].per_second == 0
    ledger.note("ada", "undone")
    assert watch.look(4500).members[0].state == "going back"
    ledger.note("ada", "went_back")
    ledger.note("ada", "killed")
    view = watch.look(5000)
    assert (view.members[0].state, set(view.unowned), view.behind) == ("killed", {0, 1}, 70)
    assert [sample.at_ms for sample in watch.samples] == [0, 1000, 2000, 4000, 4500, 5000]


def wait_for_the_end(crew: Crew) -> None:
    while True:
        crew.check()


@pytest.mark.broker
def test_a_member_that_fails_is_told_with_its_last_words(
    ledger: Ledger, broker: SelectedBroker, unique: Callable[[str], str]
) -> None:
    arguments = member_arguments(
        bootstrap=broker.bootstrap,
        group=unique("group"),
        topic="t",
        ledger=ledger.path,
        region=ledger.path.with_name("region.db"),
        assignor="rang",
        records_per_second=0.0,
    )
    with Crew(ledger, arguments) as crew:
        crew.start("ada")
        with pytest.raises(MemberFailed, match=r"rang.*member=ada"):
            wait_for_the_end(crew)
