"""Stories of a group, written by running them: each file in transcripts/ is commands and their results.

A command stands alone, `----` follows, then what happened. `pytest --rewrite` writes what happens now over what is
written there; commit that only if you understand what caused each change.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.subscription_state import Subscription
from tests.coordinator_client.group.group_coordinator import GroupCoordinator
from tests.coordinator_client.group.group_world import World, shown

STORIES = sorted(Path(__file__).with_name("transcripts").glob("*.txt"))
PROVES = {
    "eager": ("G-05", "G-13", "G-15", "G-18"),
    "cooperative": ("G-08", "G-13", "F-04"),
    "static": ("G-17", "B-42"),
    "migration": ("G-08",),
    "failover": ("G-12", "F-05", "F-06", "F-07"),
    "lost": ("S-13", "B-26", "B-33", "B-34"),
    "lag": ("G-04", "G-08"),
    "topics": ("F-16", "G-13", "B-41"),
}


class Story:
    """A world that is driven by commands in words."""

    def __init__(self) -> None:
        self.world = World()

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        names = [word for word in words if "=" not in word]
        given = dict(word.split("=", 1) for word in words if "=" in word)
        self.world.log.clear()
        VERBS[verb](self, names, given)
        if verb not in ("who", "timeline"):
            self.world.settle(polling=given.get("poll") != "no")
            self.world.check()
        return [line for line in self.world.log if not line.endswith("<- Heartbeat ok") and "-> Heartbeat" not in line]

    def start(self, names: list[str], given: dict[str, str]) -> None:
        topics = given.pop("topics", "t").split(",")
        assignors = given.pop("assignors", "range").split(",")
        settings = {key: int(value) if value.isdigit() else value for key, value in given.items()}
        for name in names:
            self.world.start(name, topics, assignors, **settings)

    def time(self, names: list[str], given: dict[str, str]) -> None:
        self.world.pass_time(float(names[0]), polling=given.get("poll") != "no")

    def close(self, names: list[str], given: dict[str, str]) -> None:
        for name in names:
            actor = self.world.actors[name]
            actor.step(ev.CloseRequested(self.world.now + 5))
            while actor.ready.hook is not None:
                actor.begin_hook()
                actor.end_hook()

    def kill(self, names: list[str], given: dict[str, str]) -> None:
        for name in names:
            self.world.actors[name].alive = False
            self.world.actors[name].disconnect()

    def sleep(self, names: list[str], given: dict[str, str]) -> None:
        for name in names:
            self.world.actors[name].awake = False

    def wake(self, names: list[str], given: dict[str, str]) -> None:
        for name in names:
            actor = self.world.actors[name]
            actor.awake = True
            self.world.post(f"{name} shows {shown(actor.shows)} before any response")

    def coordinator(self, names: list[str], given: dict[str, str]) -> None:
        """`coordinator moves to=2` or `coordinator crashes to=2`."""
        old, self.world.home = self.world.home, int(given["to"])
        if names[0] == "crashes":
            self.world.down.add(old)
            for actor in self.world.alive():
                actor.disconnect()
        if "forgets" in names:
            self.world.coordinator = GroupCoordinator()

    def topics(self, names: list[str], given: dict[str, str]) -> None:
        self.world.topics.update({name: int(count) for name, count in given.items()})
        for actor in self.world.alive():
            actor.turn()

    def backlog(self, names: list[str], given: dict[str, str]) -> None:
        """`backlog t-0=500 t-1=0`, or `backlog unknown`: then no response to a lag measurement comes."""
        known = {}
        for name, waiting in given.items():
            topic, _, number = name.rpartition("-")
            known[TopicPartition(topic, int(number))] = int(waiting)
        self.world.backlog = None if "unknown" in names else known

    def subscribe(self, names: list[str], given: dict[str, str]) -> None:
        self.world.actors[names[0]].step(ev.Subscribed(Subscription.of(given["topics"].split(","))))

    def unsubscribe(self, names: list[str], given: dict[str, str]) -> None:
        self.world.actors[names[0]].step(ev.Unsubscribed())

    def enforce(self, names: list[str], given: dict[str, str]) -> None:
        self.world.actors[names[0]].step(ev.RebalanceEnforced(" ".join(names[1:])))

    def commit(self, names: list[str], given: dict[str, str]) -> None:
        """A commit of everything shown, under the member's own identity."""
        actor = self.world.actors[names[0]]
        sent = actor.ready.view.identity
        offsets: dict[TopicPartition, int] = dict.fromkeys(actor.ready.view.assignment, 1)
        code = self.world.coordinator.commit(sent, offsets)
        self.world.post(f"commit of generation {sent.generation}: error {code}")
        if code:
            actor.step(ev.CommitRefused(code, sent, frozenset(offsets)))

    def who(self, names: list[str], given: dict[str, str]) -> None:
        for actor in self.world.actors.values():
            view = actor.ready.view
            state = view.state.name if actor.alive else "killed"
            state = state if actor.awake else "asleep"
            fatal = f" ({view.fatal.message})" if view.fatal else ""
            self.world.post(
                f"{actor.name:6} {state:8} generation {view.identity.generation:2} shows {shown(actor.shows)}{fatal}"
            )

    def timeline(self, names: list[str], given: dict[str, str]) -> None:
        for each in self.world.actors[names[0]].member.timeline.rebalances:
            phases = ", ".join(f"{phase.state.name} {phase.lasted_s(self.world.now):.1f} s" for phase in each.phases)
            outcome = each.outcome.name if each.outcome else "under way"
            self.world.post(f"{each.cause} -> {outcome} in generation {each.generation} ({phases})")
            for label in ("revoked", "lost", "kept", "added"):
                if partitions := getattr(each, label):
                    self.world.post(f"  {label} {shown(partitions)}")
            for trouble in each.troubles:
                self.world.post(f"  trouble: {trouble}")


VERBS: dict[str, Callable[[Story, list[str], dict[str, str]], None]] = {
    name: getattr(Story, name)
    for name in (
        *("start", "time", "close", "kill", "sleep", "wake", "coordinator", "topics", "subscribe", "unsubscribe"),
        *("enforce", "commit", "who", "timeline", "backlog"),
    )
}


class Part(NamedTuple):
    """Lines before a command, the command, and what came of it."""

    before: str
    command: str
    outcome: str


PART = re.compile(r"(?P<before>(?:(?:#.*)?\n)*)(?P<command>[a-z].*)\n----\n(?P<outcome>(?:.+\n)*)")


def parts(text: str) -> Iterator[Part]:
    at = 0
    while match := PART.match(text, at):
        yield Part(match["before"], match["command"], match["outcome"])
        at = match.end()
    assert not text[at:].strip(), f"not a command with its outcome: {text[at : at + 80]!r}"


def replay(text: str) -> str:
    story = Story()
    return "".join(
        f"{part.before}{part.command}\n----\n" + "".join(f"{line}\n" for line in story.run(part.command))
        for part in parts(text)
    )


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=pytest.mark.proves(*PROVES[path.stem])) for path in STORIES]
)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    reported = path.read_text()
    happened = replay(reported)
    if request.config.getoption("--rewrite"):
        path.write_text(happened)
    else:
        assert happened == reported


def test_there_is_a_story_of_every_kind() -> None:
    assert {path.stem for path in STORIES} == set(PROVES)


def test_a_story_that_went_otherwise_is_noticed() -> None:
    reported = "start a\n----\na -> FindCoordinator\n"
    assert replay(reported) != reported
    assert replay(replay(reported)) == replay(reported)
