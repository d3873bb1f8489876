"""Every check has teeth: a broker with one deliberate fault is caught by the checks of that rule, and by no others.

The broker is the scripted one, whose answers are bent on their way out. Each fault runs against all quick checks, each
in its highest version; the verdicts that the sound broker gets are the baseline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Kind
from kohort.conformance.runner import Plan, plan, play
from kohort.conformance.target import Target
from kohort.conformance.verdict import Verdict
from kohort.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.apis.sync_group import SyncGroupResponse
from kohort.protocol.errors import CODES
from kohort.testing.fake_broker import Alter, Answer, Call, FakeBroker, GroupState

AT_A_TIME = 6
Change = Callable[[Call, Any], Any]
When = Callable[[Call, FakeBroker], bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """`install` bends the broker; `caught_by`: the check whose rule is broken first, then those that lean on the same
    rule and may say so too."""

    name: str
    install: Callable[[FakeBroker], None]
    caught_by: tuple[str, ...]


def altered(api: str, change: Change, when: When = lambda call, broker: True) -> Callable[[FakeBroker], None]:
    """The broker does its work, and tells something else; `change` gives the response back where nothing is wrong."""

    def install(broker: FakeBroker) -> None:
        def control(call: Call) -> Alter | None:
            return Alter(lambda response: change(call, response)) if when(call, broker) else None

        broker.control(api, control)

    return install


def answered(api: str, answer: Callable[[Call], Any], when: When) -> Callable[[FakeBroker], None]:
    """The broker does nothing, and answers at once."""

    def install(broker: FakeBroker) -> None:
        broker.control(api, lambda call: Answer(answer(call)) if when(call, broker) else None)

    return install


def asked(call: Call) -> Any:
    """The request, whose type depends on the API."""
    return call.request


def code(found: str, told: str, where: Callable[[Any], bool] = lambda request: True) -> Change:
    """One error code for another, where the request is of the kind."""

    def change(call: Call, response: Any) -> Any:
        wrong = response.error_code == CODES[found] and where(call.request)
        return response._replace(error_code=CODES[told]) if wrong else response

    return change


def told(where: Callable[[Any, Any], bool] = lambda request, response: True, **values: object) -> Change:
    """Other values in the answer."""

    def change(call: Call, response: Any) -> Any:
        return response._replace(**values) if where(call.request, response) else response

    return change


def state_of(broker: FakeBroker, group: str) -> GroupState | None:
    """Read on the fake's own thread, where controls run."""
    found = broker._cluster.coordinator.groups.get(group)
    return None if found is None else found.state


def in_state(*states: GroupState | None) -> When:
    return lambda call, broker: state_of(broker, asked(call).group_id) in states


def names(request: Any) -> list[str]:
    return [protocol.name for protocol in request.protocols]


def parts(change: Callable[[Any, Any, Any], Any]) -> Change:
    """`change(request, topic, partition)` over every partition of an OffsetCommit answer."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(
            topics=tuple(
                topic._replace(partitions=tuple(change(call.request, topic, entry) for entry in topic.partitions))
                for topic in response.topics
            )
        )

    return over


def part_code(found: str, wrong: str, where: Callable[[Any], bool] = lambda request: True) -> Change:
    return parts(
        lambda request, topic, entry: (
            entry._replace(error_code=CODES[wrong]) if entry.error_code == CODES[found] and where(request) else entry
        )
    )


def positions(change: Callable[[Any, Any], Any]) -> Change:
    """`change(request, partition)` over every partition of an OffsetFetch answer of version 8 or later."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(
            groups=tuple(
                group._replace(
                    topics=tuple(
                        topic._replace(partitions=tuple(change(call.request, entry) for entry in topic.partitions))
                        for topic in group.topics
                    )
                )
                for group in response.groups
            )
        )

    return over


def members(change: Callable[[Any, Any], Any]) -> Change:
    """`change(request, member)` over every member of a LeaveGroup answer."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(members=tuple(change(call.request, entry) for entry in response.members))

    return over


def left(found: str, wrong: str, where: Callable[[Any], bool] = lambda entry: True) -> Change:
    return members(
        lambda request, entry: (
            entry._replace(error_code=CODES[wrong]) if entry.error_code == CODES[found] and where(entry) else entry
        )
    )


def offset_of(request: Any) -> int:
    return int(request.topics[0].partitions[0].committed_offset) if request.topics else -1


def is_leader(call: Call, broker: FakeBroker) -> bool:
    group = broker._cluster.coordinator.groups.get(asked(call).group_id)
    return group is not None and group.leader == asked(call).member_id


def is_follower(call: Call, broker: FakeBroker) -> bool:
    group = broker._cluster.coordinator.groups.get(asked(call).group_id)
    return group is not None and asked(call).member_id in group.members and not is_leader(call, broker)


def alone(call: Call, broker: FakeBroker) -> bool:
    group = broker._cluster.coordinator.groups.get(asked(call).group_id)
    return group is not None and len(group.members) == 1 and not group.pending


def answered_commit(where: Callable[[Any], bool]) -> Callable[[FakeBroker], None]:
    """NONE for every partition, and nothing stored."""

    def answer(call: Call) -> OffsetCommitResponse:
        request: Any = call.request
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetCommitResponsePartition(partition_index=entry.partition_index)
                        for entry in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    return answered("OffsetCommit", answer, lambda call, broker: where(call.request))


JOINED = lambda request, response: response.error_code == 0  # noqa: E731

FAULTS: tuple[Fault, ...] = (
    # A: ApiVersions and FindCoordinator
    Fault(
        "ApiVersions turns Heartbeat's range upside down",
        altered(
            "ApiVersions",
            lambda call, response: (
                response._replace(
                    api_keys=tuple(
                        entry._replace(min_version=5, max_version=4) if entry.api_key == 12 else entry
                        for entry in response.api_keys
                    )
                )
                if call.version
                else response
            ),
        ),
        ("A12",),
    ),
    Fault(
        "ApiVersions tells a shorter list in later versions",
        altered(
            "ApiVersions",
            lambda call, response: response._replace(api_keys=response.api_keys[1:]) if call.version else response,
        ),
        ("A12",),
    ),
    Fault(
        "FindCoordinator names a port that nobody has",
        altered(
            "FindCoordinator",
            lambda call, response: response._replace(
                coordinators=tuple(entry._replace(port=1) for entry in response.coordinators)
            ),
        ),
        ("A6b",),
    ),
    Fault(
        "FindCoordinator answers the first of several keys only",
        altered("FindCoordinator", lambda call, response: response._replace(coordinators=response.coordinators[:1])),
        ("A7",),
    ),
    # B: JoinGroup
    Fault(
        "a first join is told a protocol before there is one",
        altered("JoinGroup", told(lambda request, response: response.error_code == 79, protocol_name="range")),
        ("B1",),
    ),
    Fault(
        "a first join is told a generation before there is one",
        altered("JoinGroup", told(lambda request, response: response.error_code == 79, generation_id=0)),
        ("B1",),
    ),
    Fault(
        "a member that is alone is not told that it leads",
        altered("JoinGroup", told(lambda request, response: len(response.members) == 1, leader="somebody")),
        ("B3a", "B2", "I2"),
    ),
    Fault(
        "JoinGroup does not tell the protocol type",
        altered("JoinGroup", told(JOINED, protocol_type=None)),
        ("B3b",),
    ),
    Fault(
        "JoinGroup calls an unknown member an unknown group",
        altered(
            "JoinGroup",
            code("UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND", lambda request: request.member_id == "nobody-1"),
        ),
        ("B4", "B5"),
    ),
    Fault(
        "an id of another group is taken for an illegal generation",
        altered(
            "JoinGroup",
            code(
                "UNKNOWN_MEMBER_ID",
                "ILLEGAL_GENERATION",
                lambda request: not request.member_id.startswith(("nob", "some")),
            ),
        ),
        ("B5b", "E6"),
    ),
    Fault(
        "a connect worker in a consumer group is told that the request is invalid",
        altered(
            "JoinGroup",
            code("INCONSISTENT_GROUP_PROTOCOL", "INVALID_REQUEST", lambda request: request.protocol_type == "connect"),
        ),
        ("B6",),
    ),
    Fault(
        "protocols with nothing in common are told to rejoin",
        altered(
            "JoinGroup",
            code("INCONSISTENT_GROUP_PROTOCOL", "REBALANCE_IN_PROGRESS", lambda request: names(request) == ["mine"]),
        ),
        ("B7",),
    ),
    Fault(
        "protocols in common with some members only will do",
        altered("JoinGroup", code("INCONSISTENT_GROUP_PROTOCOL", "NONE", lambda request: names(request) == ["a", "c"])),
        ("B7b",),
    ),
    Fault(
        "an empty protocol type is an invalid request",
        altered(
            "JoinGroup",
            code("INCONSISTENT_GROUP_PROTOCOL", "INVALID_REQUEST", lambda request: request.protocol_type == ""),
        ),
        ("B8a",),
    ),
    Fault(
        "a join without protocols is an invalid request",
        altered(
            "JoinGroup", code("INCONSISTENT_GROUP_PROTOCOL", "INVALID_REQUEST", lambda request: not request.protocols)
        ),
        ("B8b",),
    ),
    Fault(
        "JoinGroup takes the empty group id for an unknown member",
        altered("JoinGroup", code("INVALID_GROUP_ID", "UNKNOWN_MEMBER_ID")),
        ("B9",),
    ),
    Fault(
        "everybody is told its own favourite protocol",
        altered(
            "JoinGroup",
            lambda call, response: (
                response._replace(protocol_name=names(call.request)[0]) if response.error_code == 0 else response
            ),
        ),
        ("B12", "B12b", "B13b", "I4b"),
    ),
    Fault(
        "a follower is told the members",
        altered(
            "JoinGroup",
            lambda call, response: (
                response._replace(members=(JoinGroupResponseMember(member_id=response.member_id),))
                if response.error_code == 0 and not response.members
                else response
            ),
        ),
        ("B13a",),
    ),
    Fault(
        "the leader is told one member too few",
        altered("JoinGroup", told(lambda request, response: len(response.members) == 3, members=())),
        ("B13a",),
    ),
    Fault(
        "the leader is told metadata cut short",
        altered(
            "JoinGroup",
            lambda call, response: response._replace(
                members=tuple(entry._replace(metadata=bytes(entry.metadata)[:20]) for entry in response.members)
            ),
        ),
        ("B13b", "B17", "I4c", "N2"),
    ),
    Fault(
        "the leader is not told the instance ids",
        altered(
            "JoinGroup",
            lambda call, response: response._replace(
                members=tuple(entry._replace(group_instance_id=None) for entry in response.members)
            ),
        ),
        ("B13c", "I4c", "I7"),
    ),
    Fault(
        "a follower that rejoins is told a generation too high",
        altered(
            "JoinGroup",
            told(lambda request, response: response.error_code == 0, generation_id=77),
            lambda call, broker: (
                bool(asked(call).member_id) and in_state(GroupState.STABLE)(call, broker) and is_follower(call, broker)
            ),
        ),
        ("B15", "I9"),
    ),
    Fault(
        "a leader that rejoins starts no rebalance",
        answered(
            "JoinGroup",
            lambda call: JoinGroupResponse(
                generation_id=2, leader=asked(call).member_id, member_id=asked(call).member_id
            ),
            lambda call, broker: in_state(GroupState.STABLE)(call, broker) and is_leader(call, broker),
        ),
        ("B16", "D2a", "E5", "E6"),
    ),
    Fault(
        "an error comes with a generation",
        altered("JoinGroup", told(lambda request, response: response.error_code == 23, generation_id=1)),
        ("B18b",),
    ),
    Fault(
        "the generation is told one too low from the second one on",
        altered(
            "JoinGroup",
            lambda call, response: (
                response._replace(generation_id=response.generation_id - 1) if response.generation_id > 2 else response
            ),
        ),
        ("B18a", "B16", "B17", "B27", "B28", "I4a", "I4b"),
    ),
    Fault(
        "a static member needs a second step",
        answered(
            "JoinGroup",
            lambda call: JoinGroupResponse(error_code=79, member_id="given", protocol_name=None),
            lambda call, broker: asked(call).group_instance_id is not None and not asked(call).member_id,
        ),
        ("B23", "B26"),
    ),
    Fault(
        "a long reason is too much",
        altered("JoinGroup", told(lambda request, response: len(request.reason or "") > 255, error_code=42)),
        ("B26",),
    ),
    # C: SyncGroup
    Fault(
        "SyncGroup calls an unknown member an illegal generation",
        altered("SyncGroup", code("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")),
        ("C1a", "C1b", "C1c"),
    ),
    Fault(
        "SyncGroup takes any generation",
        altered("SyncGroup", code("ILLEGAL_GENERATION", "NONE")),
        ("C2a", "C2b"),
    ),
    Fault(
        "SyncGroup does not mind the protocol's name",
        altered(
            "SyncGroup",
            code("INCONSISTENT_GROUP_PROTOCOL", "NONE", lambda request: request.protocol_name == "roundrobin"),
        ),
        ("C3a",),
    ),
    Fault(
        "SyncGroup does not mind the protocol's type",
        altered(
            "SyncGroup", code("INCONSISTENT_GROUP_PROTOCOL", "NONE", lambda request: request.protocol_type == "connect")
        ),
        ("C3b",),
    ),
    Fault(
        "SyncGroup tells the names beside the error",
        altered(
            "SyncGroup",
            told(lambda request, response: response.error_code == 23, protocol_type="consumer", protocol_name="range"),
        ),
        ("C3a", "C3b", "C4a", "C4b"),
    ),
    Fault(
        "a follower that syncs first is answered at once",
        answered(
            "SyncGroup",
            lambda call: SyncGroupResponse(protocol_type="consumer", protocol_name="range"),
            lambda call, broker: (
                in_state(GroupState.COMPLETING)(call, broker)
                and not asked(call).assignments
                and is_follower(call, broker)
            ),
        ),
        ("C5", "C7b", "C11"),
    ),
    Fault(
        "a follower that syncs after the leader gets nothing",
        altered(
            "SyncGroup",
            told(lambda request, response: not request.assignments, assignment=b""),
            in_state(GroupState.STABLE),
        ),
        ("C5b", "C6a", "C6b", "I1b", "B25", "N1a"),
    ),
    Fault(
        "a leader that syncs again is believed",
        altered(
            "SyncGroup",
            lambda call, response: response._replace(assignment=asked(call).assignments[0].assignment),
            lambda call, broker: in_state(GroupState.STABLE)(call, broker) and bool(asked(call).assignments),
        ),
        ("C6b",),
    ),
    Fault(
        "SyncGroup says NONE while others join",
        altered("SyncGroup", code("REBALANCE_IN_PROGRESS", "NONE"), in_state(GroupState.PREPARING)),
        ("C7a",),
    ),
    Fault(
        "a SyncGroup that waits is not told of the next rebalance",
        altered("SyncGroup", code("REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"), in_state(GroupState.COMPLETING)),
        ("C7b",),
    ),
    Fault(
        "a member that the leader forgot is sent away",
        altered(
            "SyncGroup",
            told(lambda request, response: response.error_code == 0 and not response.assignment, error_code=25),
        ),
        ("C8", "N7"),
    ),
    Fault(
        "SyncGroup does not tell the names",
        altered("SyncGroup", told(JOINED, protocol_name=None)),
        ("C12",),
    ),
    Fault(
        "a large assignment is cut",
        altered("SyncGroup", lambda call, response: response._replace(assignment=bytes(response.assignment)[:65536])),
        ("C13",),
    ),
    # D: Heartbeat
    Fault(
        "Heartbeat is impatient while the assignment is awaited",
        altered(
            "Heartbeat",
            code("NONE", "REBALANCE_IN_PROGRESS"),
            lambda call, broker: in_state(GroupState.COMPLETING)(call, broker) and is_follower(call, broker),
        ),
        ("D1b",),
    ),
    Fault(
        "Heartbeat calls an illegal generation an unknown member",
        altered("Heartbeat", code("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID")),
        ("D3a", "D3b"),
    ),
    Fault(
        "Heartbeat takes a made-up member",
        altered(
            "Heartbeat",
            code("UNKNOWN_MEMBER_ID", "NONE", lambda request: request.member_id == "nobody"),
            lambda call, broker: state_of(broker, asked(call).group_id) is not None,
        ),
        ("D3c",),
    ),
    Fault(
        "Heartbeat calls an unknown group by its name",
        altered("Heartbeat", code("UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"), in_state(None)),
        ("D3d",),
    ),
    Fault(
        "Heartbeat does not notice that a group emptied",
        altered("Heartbeat", code("UNKNOWN_MEMBER_ID", "NONE"), in_state(GroupState.EMPTY)),
        ("D4", "E1c", "E3"),
    ),
    Fault(
        "Heartbeat calls a fenced instance unknown",
        altered("Heartbeat", code("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID")),
        ("D6", "I3c"),
    ),
    Fault(
        "Heartbeat takes an id that never joined",
        altered(
            "Heartbeat",
            code("UNKNOWN_MEMBER_ID", "NONE", lambda request: request.member_id != "nobody"),
            in_state(GroupState.STABLE),
        ),
        ("D9",),
    ),
    # E: LeaveGroup
    Fault(
        "LeaveGroup puts a member's error on top",
        altered(
            "LeaveGroup",
            told(
                lambda request, response: len(response.members) == 1 and response.members[0].error_code == 25,
                error_code=25,
            ),
        ),
        ("E1a", "E1b", "E4b"),
    ),
    Fault(
        "LeaveGroup answers the members in another order",
        altered("LeaveGroup", lambda call, response: response._replace(members=response.members[::-1])),
        ("E1c",),
    ),
    Fault(
        "LeaveGroup does not know a member by its instance id",
        altered("LeaveGroup", left("NONE", "UNKNOWN_MEMBER_ID", lambda entry: not entry.member_id)),
        ("E3",),
    ),
    Fault(
        "LeaveGroup calls a fenced instance unknown",
        altered("LeaveGroup", left("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID")),
        ("E4a", "I3d"),
    ),
    Fault(
        "LeaveGroup does not mind an unknown instance",
        altered("LeaveGroup", left("UNKNOWN_MEMBER_ID", "NONE", lambda entry: entry.group_instance_id == "i-9")),
        ("E4b",),
    ),
    Fault(
        "a member may leave as often as it likes",
        altered("LeaveGroup", left("UNKNOWN_MEMBER_ID", "NONE", lambda entry: entry.member_id not in ("nobody", ""))),
        ("E8",),
    ),
    Fault(
        "the others are not told that somebody left",
        altered("Heartbeat", code("REBALANCE_IN_PROGRESS", "NONE"), lambda call, broker: alone(call, broker)),
        ("E7",),
    ),
    # F: OffsetCommit
    Fault(
        "a commit is answered and not stored",
        answered_commit(lambda request: offset_of(request) == 12),
        ("F1",),
    ),
    Fault(
        "a commit of an unknown group is one of an unknown member",
        altered("OffsetCommit", part_code("GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID")),
        ("F2",),
    ),
    Fault(
        "an outsider may commit in an active group",
        altered("OffsetCommit", part_code("UNKNOWN_MEMBER_ID", "NONE", lambda request: not request.member_id)),
        ("F4",),
    ),
    Fault(
        "a made-up member may commit",
        altered("OffsetCommit", part_code("UNKNOWN_MEMBER_ID", "NONE", lambda request: request.member_id == "nobody")),
        ("F4b",),
    ),
    Fault(
        "a commit of an older generation is told NONE",
        altered("OffsetCommit", part_code("ILLEGAL_GENERATION", "NONE", lambda request: request.member_id != "nobody")),
        ("F5a",),
    ),
    Fault(
        "OffsetCommit calls a fenced instance unknown",
        altered("OffsetCommit", part_code("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID")),
        ("F5b", "I3e"),
    ),
    Fault(
        "a member may commit before it knows its assignment",
        altered("OffsetCommit", part_code("REBALANCE_IN_PROGRESS", "NONE")),
        ("F6a",),
    ),
    Fault(
        "a member may not commit while others join",
        altered("OffsetCommit", part_code("NONE", "REBALANCE_IN_PROGRESS"), in_state(GroupState.PREPARING)),
        ("F6b",),
    ),
    Fault(
        "metadata that is too long spoils the whole commit",
        altered(
            "OffsetCommit",
            part_code(
                "NONE",
                "OFFSET_METADATA_TOO_LARGE",
                lambda request: any(
                    len(entry.committed_metadata or "") > 4096 for topic in request.topics for entry in topic.partitions
                ),
            ),
        ),
        ("F7",),
    ),
    Fault(
        "metadata of any length will do",
        altered("OffsetCommit", part_code("OFFSET_METADATA_TOO_LARGE", "NONE")),
        ("F7",),
    ),
    Fault(
        "a commit for an unknown topic is told NONE",
        altered("OffsetCommit", part_code("UNKNOWN_TOPIC_ID", "NONE")),
        ("F8a",),
    ),
    Fault(
        "a commit for an unknown partition is told NONE",
        altered("OffsetCommit", part_code("UNKNOWN_TOPIC_OR_PARTITION", "NONE")),
        ("F8b",),
    ),
    Fault(
        "a commit must not go backwards",
        altered("OffsetCommit", part_code("NONE", "OFFSET_OUT_OF_RANGE", lambda request: offset_of(request) == 7)),
        ("F10", "G1b"),
    ),
    Fault(
        "a commit of many partitions loses the last one's answer",
        altered(
            "OffsetCommit",
            lambda call, response: (
                response._replace(topics=response.topics[:-1]) if len(response.topics) > 1 else response
            ),
        ),
        ("F14", "F8a"),
    ),
    # G: OffsetFetch
    Fault(
        "a partition without a commit is at 0",
        altered(
            "OffsetFetch",
            positions(lambda request, entry: entry._replace(committed_offset=max(entry.committed_offset, 0))),
        ),
        ("G1a", "G1b", "G1c", "F5a", "F15", "G3"),
    ),
    Fault(
        "a partition without a commit has null metadata",
        altered(
            "OffsetFetch",
            positions(lambda request, entry: entry._replace(metadata=None) if entry.committed_offset < 0 else entry),
        ),
        ("G1a", "G1b", "G1c"),
    ),
    Fault(
        "the leader epoch is forgotten",
        altered("OffsetFetch", positions(lambda request, entry: entry._replace(committed_leader_epoch=-1))),
        ("F11",),
    ),
    Fault(
        "metadata is kept as ASCII",
        altered(
            "OffsetFetch",
            positions(
                lambda request, entry: entry._replace(
                    metadata=None if entry.metadata is None else entry.metadata.encode("ascii", "replace").decode()
                )
            ),
        ),
        ("F12",),
    ),
    Fault(
        "offsets have 32 bits",
        altered(
            "OffsetFetch",
            positions(lambda request, entry: entry._replace(committed_offset=min(entry.committed_offset, 2**31 - 1))),
        ),
        ("F17",),
    ),
    Fault(
        "nobody gets everything",
        altered(
            "OffsetFetch",
            lambda call, response: response._replace(
                groups=tuple(
                    entry._replace(topics=()) if one.topics is None else entry
                    for one, entry in zip(asked(call).groups, response.groups, strict=True)
                )
            ),
        ),
        ("G2a",),
    ),
    Fault(
        "of several groups the first is answered twice",
        altered(
            "OffsetFetch", lambda call, response: response._replace(groups=response.groups[:1] * len(response.groups))
        ),
        ("G3",),
    ),
)


def verdicts(broker: FakeBroker) -> dict[str, Verdict]:
    """Every quick check against the broker, in its highest version."""

    async def run() -> dict[str, Verdict]:
        target = await Target.reach(broker.bootstrap)
        await target.prepare()
        laid = plan(target, (check for check in CHECKS if check.kind is not Kind.TIMING))
        highest = dict(laid.cells)  # versions go up, so that the last one stays
        results, ended_early = await play(target, Plan(tuple(highest.items()), ()), at_a_time=64)
        await target.close()
        assert not ended_early
        return {result.check: result.verdict for result in results}

    return asyncio.run(run())


@pytest.fixture(scope="module")
def sound() -> dict[str, Verdict]:
    """What the broker without a fault gets."""
    with FakeBroker() as broker:
        return verdicts(broker)


def test_sound_broker_passes_what_the_faults_are_about(sound: dict[str, Verdict]) -> None:
    about = {check for fault in FAULTS for check in fault.caught_by}
    assert {check: sound[check] for check in about} == dict.fromkeys(about, Verdict.PASS)


Outcomes = dict[str, "Future[dict[str, Verdict]]"]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    """Every fault of this session, several at a time: a run mostly waits."""

    def judge(fault: Fault) -> dict[str, Verdict]:
        with FakeBroker() as broker:
            fault.install(broker)
            return verdicts(broker)

    wanted = [item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {fault.name: pool.submit(judge, fault) for fault in wanted if isinstance(fault, Fault)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught_by_its_check_and_by_no_other(
    fault: Fault, outcomes: Outcomes, sound: dict[str, Verdict]
) -> None:
    found = outcomes[fault.name].result()
    failed = {check for check, verdict in found.items() if verdict is Verdict.FAIL and sound[check] is not Verdict.FAIL}
    assert fault.caught_by[0] in failed, "its own check does not notice"
    assert failed <= set(fault.caught_by), "checks of other rules notice too"


def test_there_are_enough_faults() -> None:
    assert len({fault.caught_by[0] for fault in FAULTS}) >= 40
