"""Rules about a group: its members, their rebalances, and their lag."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kohort.admin import GroupDescription, MemberDescription
from kohort.cli.doctor.finding import Finding, error, note, warning
from kohort.coordinator_client.consumer_config import ConsumerConfig

EAGER: Final = frozenset({"range", "roundrobin", "sticky"})
MOST_NAMED: Final = 3
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})


@dataclass(frozen=True, slots=True)
class TimedSnapshot:
    """A group at one moment. `at_s`: seconds since the first snapshot. `lag`: the sum over all partitions."""

    at_s: float
    group: GroupDescription
    lag: int


def group_exists(settings: ConsumerConfig, group: GroupDescription | None) -> Iterator[Finding]:
    if group is None:
        yield note(
            "the group does not exist yet",
            f"group {settings.group}",
            "check its name with `kohort group list`; the first member creates it",
        )


def common_assignor(settings: ConsumerConfig, group: GroupDescription | None) -> Iterator[Finding]:
    if group is None or settings.protocol != "classic" or group.type != "classic" or not group.assignor:
        return
    names = [one if isinstance(one, str) else one.name for one in settings.assignors]
    if group.assignor not in names:
        yield error(
            f"the group uses {group.assignor!r}, and these settings list {', '.join(names)}: a member with them is "
            "refused with INCONSISTENT_GROUP_PROTOCOL unless the others list one of those too",
            f"group {group.group}",
            f"add {group.assignor!r} to partition.assignment.strategy (kohort assign plan-migration lists the steps)",
        )


def eager_and_cooperative(group: GroupDescription | None) -> Iterator[Finding]:
    if group is None or group.assignor not in EAGER:
        return
    keepers = [one for one in group.members if one.kept]
    if keepers and len(group.members) > 1:
        yield error(
            f"{_names(keepers)} kept partitions through the last rebalance, but {group.assignor!r} needs all members "
            "to release them first: two members may have read the same partition",
            f"group {group.group}",
            "stop all members, and start them with the same assignors and the same mode",
        )


def both_protocols(group: GroupDescription | None) -> Iterator[Finding]:
    if group is None:
        return
    classic = [one for one in group.members if one.classic]
    new = [one for one in group.members if one.classic is False]
    if classic and new:
        yield warning(
            f"{len(classic)} members use the classic protocol and {len(new)} the new one (KIP-848): intended for a "
            "migration only",
            f"group {group.group}",
            f"set group.protocol=consumer for {_names(classic)}",
        )


def other_kind(group: GroupDescription | None) -> Iterator[Finding]:
    if group is not None and group.protocol_type not in ("consumer", "share", ""):
        yield error(
            f"the group has the protocol type {group.protocol_type}, so no consumer can join it",
            f"group {group.group}",
            "choose another group.id",
        )


def instance_taken(settings: ConsumerConfig, group: GroupDescription | None) -> Iterator[Finding]:
    wanted = settings.group_instance_id
    for one in () if group is None or wanted is None else group.members:
        if one.instance_id == wanted:
            yield error(
                f"group.instance.id={wanted} is in use by {one.client_id} at {one.host}: a process that starts with it "
                "fences that member",
                f"group {group.group if group else ''}",
                "give every process an instance id of its own, or stop that one first",
            )


def instance_fought_over(looks: Sequence[TimedSnapshot]) -> Iterator[Finding]:
    holders: dict[str, dict[str, str]] = defaultdict(dict)
    for look in looks:
        for one in look.group.members:
            if one.instance_id is not None:
                holders[one.instance_id][one.member_id] = f"{one.client_id} at {one.host}"
    for instance, members in sorted(holders.items()):
        if len(members) > 1:
            clients = ", ".join(sorted(set(members.values())))
            yield error(
                f"group.instance.id={instance} changed hands {len(members) - 1} times during the watch ({clients}): "
                "several processes have it and fence each other, or one process restarts again and again",
                f"group {looks[-1].group.group}",
                "give every process an instance id of its own; if only one has it, find the cause of its restarts",
            )


def rebalance_stuck(settings: ConsumerConfig, looks: Sequence[TimedSnapshot]) -> Iterator[Finding]:
    if len(looks) > 1 and all(look.group.state in REBALANCING for look in looks):
        last = looks[-1]
        yield warning(
            f"the group has been {last.group.state} all the {last.at_s - looks[0].at_s:.0f} s of the watch: a member "
            f"that does not poll holds it up, for {settings.max_poll_interval_ms} ms with these settings",
            f"group {last.group.group}",
            "find the member whose handler is slow; `kohort group describe` lists them",
        )


def lag_growing(looks: Sequence[TimedSnapshot]) -> Iterator[Finding]:
    """Find a growing lag: the minimum of the second half is above the maximum of the first.

    Halves are compared because commits, and so lag, change in steps.
    """
    half = len(looks) // 2
    if half < 2:
        return
    last = looks[-1].group
    least = min(look.lag for look in looks[half:])
    if least > max(look.lag for look in looks[:half]):
        readers = f"{len(last.members)} members" if last.members else "no consumer, because the group has no members"
        yield warning(
            f"lag grows: from {looks[0].lag} to {looks[-1].lag} records in {looks[-1].at_s - looks[0].at_s:.0f} s, "
            f"read by {readers}",
            f"group {last.group}",
            "start members, up to one a partition; watch the lag (`kohort group lag --watch`)",
        )


def idle_members(group: GroupDescription | None) -> Iterator[Finding]:
    if group is None or group.state != "Stable":
        return
    idle = [one for one in group.members if not one.owned]
    if idle:
        yield note(
            f"{len(idle)} of {len(group.members)} members own no partition: {_names(idle)}",
            f"group {group.group}",
            "remove these members, or add partitions",
        )


def _names(members: Sequence[MemberDescription]) -> str:
    reported = ", ".join(sorted({one.instance_id or f"{one.client_id} at {one.host}" for one in members})[:MOST_NAMED])
    return reported if len(members) <= MOST_NAMED else f"{reported} and others"
