"""Several members, one coordinator, and every order of events that chance can think of.

After every step, no two members would show records of one partition. No commit is accepted for a partition of another
member, and no plan gives a partition twice: the coordinator asserts both. Generations only grow. Once the trouble is
over, all members are in one generation, and every partition has exactly one owner.

`KOHORT_SCHEDULES=1000` tries more of them; a failure names the seed, and the seed is the whole schedule.
"""

import os
import random

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.hooks import Assigned, Lost, Revoked
from kohort.coordinator_client.subscription_state import Subscription
from tests.coordinator_client.group.group_world import Actor, World

SCHEDULES = int(os.environ.get("KOHORT_SCHEDULES", "25"))
MODES = {
    "range": [["range"]],
    "roundrobin": [["roundrobin"]],
    "sticky": [["sticky"]],
    "cooperative": [["cooperative-sticky"]],
    "migration": [["cooperative-sticky", "range"], ["cooperative-sticky"]],
    "before migration": [["range"], ["cooperative-sticky", "range"]],
}


class Schedule:
    """One run of chance. Each action is a method; the kinds of trouble there are is drawn too, so that runs differ."""

    def __init__(self, seed: int, mode: str) -> None:
        self.chance = random.Random(f"{seed} {mode}")
        self.assignors = MODES[mode]
        self.world = World(topics={"t": self.chance.randint(1, 6), "u": self.chance.randint(1, 3)})
        self.names = iter(f"m{number}" for number in range(1, 1000))
        self.generations: dict[str, int] = {}
        self.trouble = [
            name
            for name in (
                "lose_links",
                "move_coordinator",
                "load",
                "kill",
                "sleep",
                "stall",
                "enforce",
                "grow",
                "resubscribe",
            )
            if self.chance.random() < 0.5
        ]

    def one(self, *, awake: bool = True) -> Actor | None:
        found = [each for each in self.world.actors.values() if each.alive and each.awake is awake]
        return self.chance.choice(found) if found else None

    # -- what goes on all the time

    def start(self) -> None:
        if len([each for each in self.world.actors.values() if each.alive]) < 5:
            topics = self.chance.choice([["t"], ["t"], ["t", "u"], ["u"]])
            instance = None
            name = next(self.names)
            if self.chance.random() < 0.2:
                instance = f"i-{name}"
            self.world.start(
                name,
                topics,
                self.chance.choice(self.assignors),
                session_timeout_ms=6_000,
                heartbeat_interval_ms=2_000,
                max_poll_interval_ms=20_000,
                instance_id=instance,
                jitter=self.chance.random(),
            ).commit_on_revoke = self.chance.random() < 0.7

    def deliver(self) -> None:
        actor = self.one()
        if actor is not None and actor.requests:
            actor.send_next()

    def receive(self) -> None:
        actor = self.one()
        if actor is not None and actor.responses:
            actor.receive_next()

    def use(self) -> None:
        """The user's thread takes one step: into poll, into a hook, out of it, out of poll."""
        actor = self.one()
        if actor is None:
            return
        if actor.taken is not None:
            actor.end_hook()
        elif not actor.in_poll:
            actor.enter_poll()
        elif actor.ready.hook is not None:
            actor.begin_hook()
        else:
            actor.leave_poll()

    def tick(self) -> None:
        """Time passes. A link takes a random time of up to a second each way. `lose_links` breaks slower ones."""
        self.world.now += self.chance.choice([0.01, 0.2, 0.5, 0.9])
        self.world.coordinator.tick(self.world.now)
        for actor in self.world.actors.values():
            while actor.alive and actor.requests.age_s >= 1:
                actor.send_next()
            while actor.alive and actor.awake and actor.responses.age_s >= 1:
                actor.receive_next()
            if actor.alive and actor.awake:
                actor.turn()

    # -- trouble

    def lose_links(self) -> None:
        if (actor := self.one()) is not None:
            actor.disconnect()

    def move_coordinator(self) -> None:
        """Failover: the group's state survives, links to the old node do not (or it says that it is not the one)."""
        old, self.world.home = self.world.home, self.world.home + 1
        if self.chance.random() < 0.5:
            self.world.down.add(old)
            for actor in self.world.alive():
                actor.disconnect()

    def load(self) -> None:
        self.world.coordinator.loading = not self.world.coordinator.loading

    def kill(self) -> None:
        if (actor := self.one()) is not None:
            actor.alive = False
            actor.disconnect()

    def sleep(self) -> None:
        """A process stops (SIGSTOP, a long pause of its collector), perhaps past its session, and comes back; the
        others live on meanwhile."""
        actor = self.one()
        if actor is None:
            return
        actor.awake = False
        until = self.world.now + self.chance.uniform(3, 15)
        while self.world.now < until:
            self.chance.choice((self.deliver, self.receive, self.use, self.tick))()
            self.world.check()
        actor.awake = True
        self.world.check()
        actor.turn()

    def stall(self) -> None:
        """The users go away for a while; the processes do not."""
        for _ in range(self.chance.randint(1, 20)):
            self.tick()
            self.deliver()
            self.receive()

    def enforce(self) -> None:
        if (actor := self.one()) is not None:
            actor.step(ev.RebalanceEnforced("chance"))

    def grow(self) -> None:
        self.world.topics["t"] += 1
        for actor in self.world.alive():
            actor.turn()

    def resubscribe(self) -> None:
        actor = self.one()
        if actor is not None and actor.taken is None:
            choice = self.chance.choice([["t"], ["u"], ["t", "u"], []])
            actor.step(ev.Subscribed(Subscription.of(choice)) if choice else ev.Unsubscribed())

    # -- the run

    def step(self) -> None:
        usual = ("deliver", "receive", "use", "tick", "start")
        weights = (30, 30, 25, 24, 2)
        name = self.chance.choices((*usual, "trouble"), (*weights, 4 if self.trouble else 0))[0]
        if name == "trouble":
            name = self.chance.choice(self.trouble)
        getattr(self, name)()
        self.world.check()
        for each in self.world.actors.values():
            going = each.ready.hook.event.partitions if each.ready.hook is not None else frozenset()
            assert not each.shows & going, f"{each.name} shows what it is to let go, or what is not assigned yet"
            if each.alive and each.awake:
                each.turn()
                assert not each.due(), f"{each.name} wants to be woken for something it does not do: a busy loop"
            generation = each.ready.view.identity.generation
            if generation >= 0:
                assert generation >= self.generations.get(each.name, 0), f"{each.name} went back to {generation}"
                self.generations[each.name] = generation

    def heal(self) -> None:
        self.world.coordinator.loading = False
        for actor in self.world.actors.values():
            actor.awake = True
        for actor in self.world.alive():
            if actor.taken is not None:
                actor.end_hook()
            if actor.in_poll:
                actor.leave_poll()
        for turn in range(90):
            self.world.pass_time(2, step_s=1)
            self.world.check()
            for actor in self.world.alive():
                if turn == 30 and actor.state is MemberState.OUT:
                    actor.step(ev.Subscribed(Subscription.of(["t"])))

    def outcome(self) -> None:
        alive = self.world.alive()
        coordinator = self.world.coordinator
        assert {actor.state for actor in alive} <= {MemberState.STABLE}, [(a.name, a.state.name) for a in alive]
        assert {actor.ready.view.identity.generation for actor in alive} <= {coordinator.generation}
        wanted: set[str] = set()
        for actor in alive:
            wanted |= actor.ready.wanted.names
        everything = {TopicPartition(topic, n) for topic in wanted for n in range(self.world.topics[topic])}
        owned = [partition for actor in alive for partition in actor.shows]
        assert sorted(owned) == sorted(everything), "every partition once"
        for actor in alive:
            assert actor.visible == actor.shows, "the notifications to the user are true"


def assert_reported_consistently(actor: Actor) -> None:
    """Hooks alone suffice to follow the owned partitions: assigned adds, revoked and lost take away owned ones."""
    owned: frozenset[TopicPartition] = frozenset()
    for event in actor.reported:
        match event:
            case Assigned():
                assert not event.partitions & owned, f"{actor.name}: a second notification of {event}"
                owned |= event.partitions
                assert owned == event.assignment
            case Revoked():
                assert event.partitions <= owned
                assert event.assignment == owned
                owned -= event.partitions
            case Lost():
                assert event.partitions == owned
                owned = frozenset()


@pytest.mark.proves("G-08", "G-12", "G-13", "G-15", "G-18", "F-12", "B-22", "B-26", "B-33")
@pytest.mark.parametrize("mode", MODES)
def test_any_schedule_ends_with_one_owner_each(mode: str) -> None:
    for seed in range(SCHEDULES):
        schedule = Schedule(seed, mode)
        try:
            schedule.start()
            for _ in range(300):
                schedule.step()
            schedule.heal()
            schedule.outcome()
            for actor in schedule.world.actors.values():
                assert_reported_consistently(actor)
        except Exception as error:
            story = "\n".join(schedule.world.log[-60:])
            raise AssertionError(f"seed {seed}, mode {mode!r}, trouble {schedule.trouble}: {error}\n{story}") from error
