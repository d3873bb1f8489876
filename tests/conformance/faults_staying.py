"""D: Heartbeat, to G: OffsetFetch: brokers that err about members that are in, or leave."""

from __future__ import annotations

from kohort.testing.fake_broker import GroupState
from tests.conformance.bending import (
    Fault,
    alone,
    altered,
    code,
    commit_response,
    in_state,
    is_follower,
    left,
    offset_of,
    part_code,
    positions,
    reported,
    requested,
    state_of,
)

FAULTS: tuple[Fault, ...] = (
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
        "Heartbeat never reports a rebalance",
        altered("Heartbeat", code("REBALANCE_IN_PROGRESS", "NONE")),
        ("D2a", "B16", "B17", "E7"),
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
            code("UNKNOWN_MEMBER_ID", "NONE", lambda request: request.member_id == "unknown-member"),
            lambda call, broker: state_of(broker, requested(call).group_id) is not None,
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
            code("UNKNOWN_MEMBER_ID", "NONE", lambda request: request.member_id != "unknown-member"),
            in_state(GroupState.STABLE),
        ),
        ("D9",),
    ),
    # E: LeaveGroup
    Fault(
        "LeaveGroup puts a member's error on top",
        altered(
            "LeaveGroup",
            reported(
                lambda request, response: len(response.members) == 1 and response.members[0].error_code == 25,
                error_code=25,
            ),
        ),
        ("E1a", "E1b", "E4b"),
    ),
    Fault(
        "the LeaveGroup response has no members",
        altered("LeaveGroup", lambda call, response: response._replace(members=())),
        ("E1a", "E1b", "E1c", "E3", "E4a", "E4b", "E5", "E6", "E7", "E8", "E9", "E10", "I3d"),
    ),
    Fault(
        "the LeaveGroup response has the members in another order",
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
        altered(
            "LeaveGroup", left("UNKNOWN_MEMBER_ID", "NONE", lambda entry: entry.member_id not in ("unknown-member", ""))
        ),
        ("E8",),
    ),
    Fault(
        "a leave starts no rebalance of the others",
        altered("Heartbeat", code("REBALANCE_IN_PROGRESS", "NONE"), lambda call, broker: alone(call, broker)),
        ("E7",),
    ),
    # F: OffsetCommit
    Fault(
        "a commit succeeds and is not stored",
        commit_response(lambda request: offset_of(request) == 12),
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
        altered(
            "OffsetCommit",
            part_code("UNKNOWN_MEMBER_ID", "NONE", lambda request: request.member_id == "unknown-member"),
        ),
        ("F4b",),
    ),
    Fault(
        "a commit of an older generation gets NONE",
        altered(
            "OffsetCommit",
            part_code("ILLEGAL_GENERATION", "NONE", lambda request: request.member_id != "unknown-member"),
        ),
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
        "a commit for an unknown topic gets NONE",
        altered("OffsetCommit", part_code("UNKNOWN_TOPIC_ID", "NONE")),
        ("F8a",),
    ),
    Fault(
        "a commit for an unknown partition gets NONE",
        altered("OffsetCommit", part_code("UNKNOWN_TOPIC_OR_PARTITION", "NONE")),
        ("F8b",),
    ),
    Fault(
        "a commit must not go backwards",
        altered("OffsetCommit", part_code("NONE", "OFFSET_OUT_OF_RANGE", lambda request: offset_of(request) == 7)),
        ("F10", "G1b"),
    ),
    Fault(
        "a commit of many partitions loses the last one's result",
        altered(
            "OffsetCommit",
            lambda call, response: (
                response._replace(topics=response.topics[:-1]) if len(response.topics) > 1 else response
            ),
        ),
        ("F14", "F8a"),
    ),
    Fault(
        "the response to a commit has every topic twice",
        altered("OffsetCommit", lambda call, response: response._replace(topics=response.topics * 2)),
        ("F14",),
    ),
    # G: OffsetFetch
    Fault(
        "a partition without a commit is at 0",
        altered(
            "OffsetFetch",
            positions(lambda request, entry: entry._replace(committed_offset=max(entry.committed_offset, 0))),
        ),
        ("G1a", "G1b", "G1c", "F5a", "F15", "G3", "H5", "K3"),
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
        "a request without a member gets everything",
        altered(
            "OffsetFetch",
            lambda call, response: response._replace(
                groups=tuple(
                    entry._replace(topics=()) if one.topics is None else entry
                    for one, entry in zip(requested(call).groups, response.groups, strict=True)
                )
            ),
        ),
        ("G2a", "G5e"),
    ),
    Fault(
        "of several groups the first is in the response twice",
        altered(
            "OffsetFetch", lambda call, response: response._replace(groups=response.groups[:1] * len(response.groups))
        ),
        ("G3",),
    ),
)
