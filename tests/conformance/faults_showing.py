"""G5, G6, H and N: brokers that err about groups as administrators see them, and about odd bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from kohort.protocol.apis.offset_commit import OffsetCommitResponseTopic
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Call
from tests.conformance.bending import Change, Fault, altered, code, in_partitions, reported

Part = Callable[[Any], Any]


def groups(change: Part) -> Change:
    """`change(group)` over every group of a response."""
    return lambda call, response: response._replace(groups=tuple(map(change, response.groups)))


def described(change: Part) -> Change:
    """`change(member)` over every member in a DescribeGroups response."""
    return groups(lambda group: group._replace(members=tuple(map(change, group.members))))


def state(found: str, wrong: str) -> Change:
    return groups(lambda group: group._replace(group_state=wrong) if group.group_state == found else group)


def listed(change: Callable[[bytes], bytes]) -> Change:
    """`change(metadata)` of every member in the leader's JoinGroup response."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(
            members=tuple(member._replace(metadata=change(bytes(member.metadata))) for member in response.members)
        )

    return over


def deleted(found: str, wrong: str) -> Change:
    def change(call: Call, response: Any) -> Any:
        return response._replace(
            results=tuple(
                entry._replace(error_code=ErrorCode[wrong]) if entry.error_code == ErrorCode[found] else entry
                for entry in response.results
            )
        )

    return change


FAULTS: tuple[Fault, ...] = (
    Fault(
        "an unknown group is described as empty",
        altered("DescribeGroups", state("Dead", "Empty")),
        ("H1", "H2e", "H5", "M13"),
    ),
    Fault(
        "an unknown group is described without an error",
        altered("DescribeGroups", groups(lambda group: group._replace(error_code=0, error_message=None))),
        ("H1", "M13"),
    ),
    Fault(
        "members are described without what they were assigned",
        altered("DescribeGroups", described(lambda member: member._replace(member_assignment=b""))),
        ("H2a",),
    ),
    Fault(
        "members are described without what they subscribed to",
        altered("DescribeGroups", described(lambda member: member._replace(member_metadata=b""))),
        ("H2a",),
    ),
    Fault(
        "members are described without a client id",
        altered("DescribeGroups", described(lambda member: member._replace(client_id=""))),
        ("H2a",),
    ),
    Fault(
        "members are described without a host",
        altered("DescribeGroups", described(lambda member: member._replace(client_host=""))),
        ("H2a",),
    ),
    Fault(
        "members are described without their instance",
        altered("DescribeGroups", described(lambda member: member._replace(group_instance_id=None))),
        ("I8",),
    ),
    Fault(
        "a group that waits for its assignment passes for Stable",
        altered("DescribeGroups", state("CompletingRebalance", "Stable")),
        ("H2b",),
    ),
    Fault(
        "a group whose members are joining passes for Stable",
        altered("DescribeGroups", state("PreparingRebalance", "Stable")),
        ("H2c",),
    ),
    Fault(
        "a group without members is Dead at once",
        altered("DescribeGroups", state("Empty", "Dead")),
        ("H2d", "E9", "F3", "F18"),
    ),
    Fault(
        "one group is described, however many were requested",
        altered("DescribeGroups", lambda call, response: response._replace(groups=response.groups[:1])),
        ("H2e",),
    ),
    Fault(
        "authorised operations are there without a request",
        altered("DescribeGroups", groups(lambda group: group._replace(authorized_operations=8))),
        ("H2f",),
    ),
    Fault(
        "authorised operations are never there",
        altered("DescribeGroups", groups(lambda group: group._replace(authorized_operations=-(2**31)))),
        ("H2f",),
    ),
    Fault(
        "groups are listed without their kind",
        altered("ListGroups", groups(lambda group: group._replace(protocol_type=""))),
        ("H3a", "R6b", "S8b"),
    ),
    Fault(
        "groups are listed without their state",
        altered("ListGroups", groups(lambda group: group._replace(group_state=""))),
        ("H3a",),
    ),
    Fault(
        "groups are listed as consumer groups",
        altered("ListGroups", groups(lambda group: group._replace(group_type="consumer"))),
        ("H3a", "R6b", "S8b"),
    ),
    Fault(
        "no group is listed if states are requested",
        altered(
            "ListGroups",
            lambda call, response: response._replace(groups=()) if _requested(call).states_filter else response,
        ),
        ("H3b",),
    ),
    Fault(
        "no group is listed if types are requested",
        altered(
            "ListGroups",
            lambda call, response: response._replace(groups=()) if _requested(call).types_filter else response,
        ),
        ("H3c", "M14", "R6b", "S8b"),
    ),
    Fault(
        "an undefined state is an error",
        altered(
            "ListGroups",
            lambda call, response: (
                response._replace(error_code=ErrorCode.INVALID_REQUEST)
                if "Purple" in _requested(call).states_filter
                else response
            ),
        ),
        ("H3d",),
    ),
    Fault(
        "an active group is reported as deleted",
        altered("DeleteGroups", deleted("NON_EMPTY_GROUP", "NONE")),
        ("H4a", "H6", "M15", "R6d", "S8c"),
    ),
    Fault(
        "an unknown group is reported as deleted",
        altered("DeleteGroups", deleted("GROUP_ID_NOT_FOUND", "NONE")),
        ("H4b", "H6"),
    ),
    Fault(
        "offsets that a member reads are reported as deleted",
        altered("OffsetDelete", in_partitions("GROUP_SUBSCRIBED_TO_TOPIC", "NONE")),
        ("G5a",),
    ),
    Fault(
        "offsets of a partition that is not there are reported as deleted",
        altered("OffsetDelete", in_partitions("UNKNOWN_TOPIC_OR_PARTITION", "NONE")),
        ("G5b",),
    ),
    Fault(
        "OffsetDelete calls an unknown group empty",
        altered("OffsetDelete", code("GROUP_ID_NOT_FOUND", "NONE")),
        ("G5c",),
    ),
    Fault(
        "OffsetDelete calls the empty group unknown",
        altered("OffsetDelete", code("INVALID_GROUP_ID", "GROUP_ID_NOT_FOUND")),
        ("G5d",),
    ),
    Fault(
        "OffsetDelete does not mind members of another kind",
        altered("OffsetDelete", code("NON_EMPTY_GROUP", "NONE")),
        ("G6",),
    ),
    Fault(
        "metadata that cannot be read is not shown to the leader",
        altered("JoinGroup", listed(lambda metadata: b"" if metadata == b"\x00\x01\x00" else metadata)),
        ("N1a",),
    ),
    Fault(
        "metadata of a later version is shown as the latest that is known",
        altered("JoinGroup", listed(lambda metadata: b"\x00\x03" + metadata[2:] if metadata[1] > 3 else metadata)),
        ("N2",),
    ),
    Fault(
        "an assignment of no bytes is filled up",
        altered("SyncGroup", reported(lambda request, response: not response.assignment, assignment=b"\0")),
        ("C8", "N7", "B9", "C2"),
    ),
    Fault(
        "an assignment of no bytes is an empty assignment",
        altered(
            "SyncGroup",
            lambda call, response: (
                response._replace(assignment=b"\0\0")
                if [entry.assignment for entry in _requested(call).assignments] == [b""]
                else response
            ),
        ),
        ("N7",),
    ),
    *(
        Fault(f"{api} has a negative throttle time", altered(api, reported(throttle_time_ms=-5)), (f"N9{letter}",))
        for letter, api in zip(
            "abcdefgh",
            (
                "JoinGroup",
                "SyncGroup",
                "Heartbeat",
                "LeaveGroup",
                "OffsetCommit",
                "OffsetFetch",
                "DescribeGroups",
                "DeleteGroups",
            ),
            strict=True,
        )
    ),
    Fault(
        "a commit of nothing names a topic",
        altered(
            "OffsetCommit",
            lambda call, response: (
                response
                if response.topics
                else response._replace(topics=(OffsetCommitResponseTopic(name="", topic_id=UUID(int=0)),))
            ),
        ),
        ("N8",),
    ),
    Fault(
        "a group id beyond ASCII is described in ASCII",
        altered(
            "DescribeGroups",
            groups(lambda group: group._replace(group_id=group.group_id.encode("ascii", "replace").decode())),
        ),
        ("N6",),
    ),
)


def _requested(call: Call) -> Any:
    return call.request
