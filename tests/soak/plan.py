"""The plan of a soak run, drawn from its seed alone: strategy, first members, actions, targets and times.

The target of an action is chosen when it is carried out, among the members of that time, by the action's own `pick`.
So a seed gives the same story on a slow machine and on a fast one, up to the machine's own timing.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import NamedTuple

CLASSIC, CONSUMER = "classic", "consumer"
OURS = ("kohort", "kohort-async")
EAGER_PEERS = ("java", "confluent-kafka", "kafka-python", "aiokafka")
COOPERATIVE_PEERS = ("java", "confluent-kafka")
EPOCH_PEERS = COOPERATIVE_PEERS  # those that speak KIP-848
REMOTE_ASSIGNORS = ("uniform", "range")
COOPERATIVE = "cooperative-sticky"
STRATEGIES = ("range", "roundrobin", COOPERATIVE, COOPERATIVE)
MOST_MEMBERS = 6
BETWEEN_S, LONG_BETWEEN_S = (0.2, 1.8), (5.0, 25.0)
_BETWEEN_BROKERS_S = (50.0, 110.0)
LONG_PACE_S = 0.25
QUIET_START_S = 1.5  # the first members meet before anything happens to them


class Act(Enum):
    """The possible actions. `CLOSE` and `FREEZE` last for the action's `for_s`. `CONVERT`: later members speak the
    other protocol. `RESTART`: a member goes and one of its kind comes. Those of the other protocol are first, then
    the oldest. Several of them are thus a rolling restart."""

    JOIN = "join"
    LEAVE = "leave"
    KILL = "kill"
    STOP = "stop"
    CONVERT = "convert"
    RESTART = "restart"
    RESTART_BROKER = "restart broker"
    KILL_BROKER = "kill broker"
    FREEZE_BROKER = "freeze broker"
    ROLL_BROKERS = "roll brokers"


BROKER_ACTS = frozenset({Act.RESTART_BROKER, Act.KILL_BROKER, Act.FREEZE_BROKER, Act.ROLL_BROKERS})
_MEMBER_ODDS = {Act.JOIN: 5, Act.LEAVE: 3, Act.KILL: 3, Act.STOP: 3}
_BROKER_ODDS = {Act.RESTART_BROKER: 4, Act.KILL_BROKER: 4, Act.FREEZE_BROKER: 2, Act.ROLL_BROKERS: 2}
_CHANCE_OF_BROKER_ACT = 0.6  # one at most in a run: each takes seconds, and a run is to be short


class Action(NamedTuple):
    """`act` at `at_s` seconds after the start; `kind` of a joining member. `pick` in [0, 1) draws the other."""

    at_s: float
    act: Act
    kind: str
    pick: float
    for_s: float


class Plan(NamedTuple):
    """One run. `first`: the kinds of the members that are there from the start, by `protocol`; the first `residents`
    of them stay to the end. These may be frozen, but are neither killed nor sent SIGTERM. `remote`: the
    coordinator's assignor, where members of KIP-848 may come. `pace_s`: how often records are written."""

    seed: int
    strategy: str
    partitions: int
    first: tuple[str, ...]
    actions: tuple[Action, ...]
    chaos_s: float
    protocol: str = CLASSIC
    remote: str = ""
    residents: int = 0
    pace_s: float = 0.05


def plan(seed: int, chaos_s: float = 9.0) -> Plan:
    """The run of `seed`, whose faults end after `chaos_s` seconds."""
    chance = random.Random(seed)
    strategy = chance.choice(STRATEGIES)
    peers = COOPERATIVE_PEERS if strategy == COOPERATIVE else EAGER_PEERS
    kinds = (*OURS, *OURS, *peers)
    first = ("kohort", chance.choice(OURS), *chance.sample(peers, chance.randint(1, 2)))
    partitions = chance.randint(4, 12)
    actions = [*_member_actions(chance, kinds, chaos_s), *_broker_action(chance, chaos_s)]
    return Plan(seed, strategy, partitions, first, _in_order(actions), chaos_s)


def epoch_plan(seed: int, chaos_s: float = 9.0) -> Plan:
    """The run of `seed` of a group that is, becomes or was one of KIP-848.

    In half of the runs members restart one by one. In the others these restarts change the protocol, and half of these
    runs change it back.
    """
    chance = random.Random(f"consumer {seed}")
    conversions = chance.choice((0, 0, 1, 2))
    protocol = chance.choice((CLASSIC, CONSUMER)) if conversions else CONSUMER
    strategy, remote = chance.choice(STRATEGIES), chance.choice(REMOTE_ASSIGNORS)
    first = ("kohort", chance.choice(OURS), *chance.sample(EPOCH_PEERS, chance.randint(1, 2)))
    partitions = chance.randint(4, 12)
    actions = [*_member_actions(chance, (*OURS, *OURS, *EPOCH_PEERS), chaos_s), *_broker_action(chance, chaos_s)]
    rounds = max(conversions, 1)
    for number in range(rounds):
        at_s = QUIET_START_S + (chaos_s - QUIET_START_S) * (number + chance.uniform(0.0, 0.4)) / rounds
        if conversions:
            actions.append(_action(chance, at_s, Act.CONVERT, ""))
        for _ in range(len(first) + 1):
            at_s += chance.uniform(0.1, 0.9) / rounds
            actions.append(_action(chance, at_s, Act.RESTART, ""))
    return Plan(seed, strategy, partitions, first, _in_order(actions), chaos_s, protocol, remote)


PLANS = {CLASSIC: plan, CONSUMER: epoch_plan}


def long_plan(seed: int, chaos_s: float) -> Plan:
    """The long run of `seed`. Both of ours and a foreign member stay from beginning to end. Others come and go, and
    brokers fall, one after the other."""
    chance = random.Random(f"long {seed}")
    protocol = chance.choice(tuple(PLANS))
    strategy, remote = chance.choice(STRATEGIES), chance.choice(REMOTE_ASSIGNORS)
    peers = COOPERATIVE_PEERS if protocol == CONSUMER or strategy == COOPERATIVE else EAGER_PEERS
    first = (*OURS, chance.choice(peers))
    actions = _member_actions(chance, (*OURS, *OURS, *peers), chaos_s, LONG_BETWEEN_S)
    at_s = QUIET_START_S + chance.uniform(2.0, 15.0)
    while at_s < chaos_s * 0.9:
        act = chance.choices(list(_BROKER_ODDS), list(_BROKER_ODDS.values()))[0]
        actions.append(_action(chance, at_s, act, ""))
        at_s += chance.uniform(*_BETWEEN_BROKERS_S)
    return Plan(
        seed,
        strategy,
        chance.randint(6, 12),
        first,
        _in_order(actions),
        chaos_s,
        protocol,
        remote if protocol == CONSUMER else "",
        len(first),
        LONG_PACE_S,
    )


def _in_order(actions: list[Action]) -> tuple[Action, ...]:
    return tuple(sorted(actions, key=lambda one: one.at_s))


def _broker_action(chance: random.Random, chaos_s: float) -> list[Action]:
    if chance.random() >= _CHANCE_OF_BROKER_ACT:
        return []
    act = chance.choices(list(_BROKER_ODDS), list(_BROKER_ODDS.values()))[0]
    return [_action(chance, chance.uniform(QUIET_START_S, chaos_s * 0.6), act, "")]


def _member_actions(
    chance: random.Random, kinds: tuple[str, ...], chaos_s: float, between_s: tuple[float, float] = BETWEEN_S
) -> list[Action]:
    actions = []
    at_s = QUIET_START_S
    while at_s < chaos_s:
        act = chance.choices(list(_MEMBER_ODDS), list(_MEMBER_ODDS.values()))[0]
        actions.append(_action(chance, at_s, act, chance.choice(kinds) if act is Act.JOIN else ""))
        at_s += chance.uniform(*between_s)
    return actions


def _action(chance: random.Random, at_s: float, act: Act, kind: str) -> Action:
    return Action(round(at_s, 3), act, kind, chance.random(), round(chance.uniform(0.5, 6.0), 3))
