"""The group's part of the demo: played with a made-up crew on a real ledger, then with processes on a real broker."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kohort.cli.demo import group_act
from kohort.cli.demo.crew import Crew, MemberFailed, member_arguments
from kohort.cli.demo.group_act import GroupStalled, play
from kohort.cli.demo.ledger import Ledger
from kohort.cli.demo.outcome import Outcome
from kohort.cli.demo.watch import View, Watch
from kohort.fastpath import TopicPartition
from kohort.testing.selection import Broker

ENDS = {0: 40, 1: 40}


class Landing:
    """A record of the demo's kind."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.key = b"N1"
        self.value = b'{"event":"arrived","delay":0,"miles":1}'
        self.headers = (("carrier", b"UA"),)


class QuietScreen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.views: list[View] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(self, what: str, done: int, total: int) -> None: ...

    def group(self, view: View) -> None:
        self.views.append(view)

    def outcome(self, outcome: Outcome, names: dict[str, str], report: str) -> None: ...


class MadeUpCrew:
    """Members that exist on the ledger only: each look lets every living one read five records of what it owns."""

    def __init__(self, ledger: Ledger, *, successor_reads_again: bool = True) -> None:
        self.ledger = ledger
        self.living: list[str] = []
        self.owned: dict[str, tuple[int, ...]] = {}
        self.position = dict.fromkeys(ENDS, 0)
        self.committed: dict[int, int] = dict.fromkeys(ENDS, 0)
        self.generation = 0
        self.stopped = False
        self.successor_reads_again = successor_reads_again

    def start(self, name: str) -> None:
        self.ledger.note(name, "started")
        self.living.append(name)
        self.share()

    def kill(self, name: str) -> int:
        self.ledger.note(name, "killed")
        self.living.remove(name)
        for partition in self.owned.pop(name, ()):
            self.position[partition] = self.committed[partition]
        return 4711

    def stop(self) -> None:
        self.stopped = True

    def share(self) -> None:
        for name, owned in self.owned.items():
            self.ledger.note(name, "revoked", generation=self.generation, partitions=owned)
            for partition in owned:
                self.committed[partition] = self.position[partition]
        self.generation += 1
        self.owned = {name: tuple(p for p in ENDS if p % len(self.living) == i) for i, name in enumerate(self.living)}
        for name, owned in self.owned.items():
            self.ledger.note(name, "assigned", generation=self.generation, partitions=owned)

    def check(self) -> None:
        for name, owned in self.owned.items():
            for partition in owned:
                start = self.position[partition]
                stop = min(start + 5, ENDS[partition])
                place = TopicPartition("flights", partition)
                self.ledger.append(name, self.generation, place, [Landing(n) for n in range(start, stop)])
                self.position[partition] = stop
                if stop == ENDS[partition] and self.successor_reads_again:
                    self.committed[partition] = stop

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


def test_one_dies_a_fourth_comes_and_all_is_read_and_committed(ledger: Ledger) -> None:
    crew, screen = MadeUpCrew(ledger), QuietScreen()
    samples = play(crew, ledger, ENDS, crew.commits, kill_at=0.3, screen=screen)
    kinds = [(one.member, one.kind) for one in ledger.happenings() if one.kind in ("started", "killed")]
    assert kinds == [*((name, "started") for name in ("ada", "ben", "cleo")), ("ben", "killed"), ("dora", "started")]
    assert crew.stopped
    first, again = ledger.records()
    assert first == 80
    assert again > 0
    assert sum(samples[-1].lag.values()) == 0
    assert [view.behind for view in screen.views] == sorted((view.behind for view in screen.views), reverse=True)
    killed = next(line for line in screen.said if "SIGKILL" in line)
    at = int(killed.split(" at ")[1].split()[0])
    assert 24 <= at < 80
    reading, reread = group_act.group_reading(ledger)
    assert (reading.records, reread) == (80, again)


def test_a_group_that_never_commits_is_not_taken_for_done(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_act, "STALL_TIMEOUT_S", 0.2)
    crew = MadeUpCrew(ledger, successor_reads_again=False)
    with pytest.raises(GroupStalled, match="lag=0, unowned="):
        play(crew, ledger, ENDS, crew.commits, kill_at=0.3, screen=QuietScreen())
    assert not crew.stopped


def test_rates_are_of_the_last_moments_and_states_follow_the_ledger(ledger: Ledger) -> None:
    watch = Watch(ledger, ENDS)
    ledger.note("ada", "started")
    assert watch.look(0).members[0].state == "joining"
    ledger.note("ada", "assigned", generation=1, partitions=[0, 1])
    ledger.append("ada", 1, TopicPartition("flights", 0), [Landing(n) for n in range(10)])
    view = watch.look(1000)
    (ada,) = view.members
    assert (ada.state, ada.partitions, ada.records, ada.per_second, ada.lag) == ("reading", (0, 1), 10, 10.0, 70)
    assert view.unowned == frozenset()
    watch.look(2000)
    assert watch.look(4000).members[0].per_second == 0
    ledger.note("ada", "killed")
    view = watch.look(5000)
    assert (view.members[0].state, set(view.unowned), view.behind) == ("killed", {0, 1}, 70)
    assert [sample.at_ms for sample in watch.samples] == [0, 1000, 2000, 4000, 5000]


def wait_for_the_end(crew: Crew) -> None:
    while True:
        crew.check()


@pytest.mark.broker
def test_a_member_that_fails_is_told_with_its_last_words(
    ledger: Ledger, broker: Broker, unique: Callable[[str], str]
) -> None:
    arguments = member_arguments(
        bootstrap=broker.bootstrap, group=unique("group"), topic="t", ledger=ledger.path, assignor="rang",
        records_per_second=0.0,
    )  # fmt: skip
    with Crew(ledger, arguments) as crew:
        crew.start("ada")
        with pytest.raises(MemberFailed, match=r"rang.*member=ada"):
            wait_for_the_end(crew)
