"""A: ApiVersions, to C: SyncGroup: brokers that err while a member joins."""

from __future__ import annotations

from kohort.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.sync_group import SyncGroupResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import GroupState
from tests.conformance.bending import (
    JOINED,
    Fault,
    altered,
    bent,
    code,
    in_state,
    is_follower,
    is_leader,
    names,
    reported,
    requested,
    responded,
)

# Every later request of a member names its generation: checks of SyncGroup, Heartbeat and commits fail as well.
OF_GENERATIONS = (
    "B18a",
    "B2",
    "B3a",
    "B23",
    "C2a",
    "C3a",
    "C3b",
    "C5",
    "C5b",
    "C7b",
    "C8",
    "C11",
    "C12",
    "C13",
    "C14",
    "D1b",
    "F6a",
    "N7",
)

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
        "ApiVersions has a shorter list in later versions",
        altered(
            "ApiVersions",
            lambda call, response: response._replace(api_keys=response.api_keys[1:]) if call.version else response,
        ),
        ("A12",),
    ),
    Fault(
        "a broker is taken for any other",
        bent("ApiVersions", lambda request: request._replace(cluster_id=None, node_id=-1)),
        ("A16b", "A16c", "A16d", "A16e"),
    ),
    Fault(
        "a broker reads only the id of the cluster",
        bent("ApiVersions", lambda request: request if request.cluster_id is None else request._replace(node_id=1)),
        ("A16c", "A16e"),
    ),
    Fault(
        "a broker reads only its own id",
        bent(
            "ApiVersions",
            lambda request: request if request.cluster_id is None else request._replace(cluster_id="fake-cluster"),
        ),
        ("A16b",),
    ),
    Fault(
        "a broker without a cluster is taken for none",
        bent("ApiVersions", lambda request: request if request.cluster_id else request._replace(node_id=-1)),
        ("A16d",),
    ),
    Fault(
        "a cluster without a broker is taken for none",
        bent(
            "ApiVersions",
            lambda request: request if request.node_id >= 0 else request._replace(cluster_id=None),
        ),
        ("A16e",),
    ),
    Fault(
        "a broker of a cluster is refused as another one",
        altered(
            "ApiVersions",
            lambda call, response: (
                response._replace(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
                if requested(call).cluster_id is not None and not response.error_code
                else response
            ),
        ),
        ("A16a",),
    ),
    Fault(
        "FindCoordinator names a port without a listener",
        altered(
            "FindCoordinator",
            lambda call, response: response._replace(
                coordinators=tuple(entry._replace(port=1) for entry in response.coordinators)
            ),
        ),
        ("A6b",),
    ),
    Fault(
        "FindCoordinator responds to the first of several keys only",
        altered("FindCoordinator", lambda call, response: response._replace(coordinators=response.coordinators[:1])),
        ("A7",),
    ),
    # B: JoinGroup
    Fault(
        "the response to a first join has a protocol before there is one",
        altered("JoinGroup", reported(lambda request, response: response.error_code == 79, protocol_name="range")),
        ("B1",),
    ),
    Fault(
        "the response to a first join has a generation before there is one",
        altered("JoinGroup", reported(lambda request, response: response.error_code == 79, generation_id=0)),
        ("B1",),
    ),
    Fault(
        "a member that is alone is not named as the leader",
        altered("JoinGroup", reported(lambda request, response: len(response.members) == 1, leader="other-member")),
        ("B3a", "B2", "I2"),
    ),
    Fault(
        "JoinGroup has no protocol type",
        altered("JoinGroup", reported(JOINED, protocol_type=None)),
        ("B3b",),
    ),
    Fault(
        "JoinGroup calls an unknown member an unknown group",
        altered(
            "JoinGroup",
            code("UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND", lambda request: request.member_id == "unknown-member-1"),
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
                lambda request: not request.member_id.startswith(("unknown", "other")),
            ),
        ),
        ("B5b", "E6"),
    ),
    Fault(
        "a connect worker in a consumer group gets INVALID_REQUEST",
        altered(
            "JoinGroup",
            code("INCONSISTENT_GROUP_PROTOCOL", "INVALID_REQUEST", lambda request: request.protocol_type == "connect"),
        ),
        ("B6", "M9a"),
    ),
    Fault(
        "protocols with nothing in common get REBALANCE_IN_PROGRESS",
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
        "each response has the member's own favourite protocol",
        altered(
            "JoinGroup",
            lambda call, response: (
                response._replace(protocol_name=names(call.request)[0]) if response.error_code == 0 else response
            ),
        ),
        ("B12", "B12b", "B13b", "I4b"),
    ),
    Fault(
        "a follower gets the list of members",
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
        "the leader gets one member too few",
        altered("JoinGroup", reported(lambda request, response: len(response.members) == 3, members=())),
        ("B13a",),
    ),
    Fault(
        "the leader gets metadata cut short",
        altered(
            "JoinGroup",
            lambda call, response: response._replace(
                members=tuple(entry._replace(metadata=bytes(entry.metadata)[:20]) for entry in response.members)
            ),
        ),
        ("B13b", "B17", "I4c", "N2"),
    ),
    Fault(
        "the leader gets no instance ids",
        altered(
            "JoinGroup",
            lambda call, response: response._replace(
                members=tuple(entry._replace(group_instance_id=None) for entry in response.members)
            ),
        ),
        ("B13c", "I4c", "I7"),
    ),
    Fault(
        "a follower that rejoins gets a generation too high",
        altered(
            "JoinGroup",
            reported(lambda request, response: response.error_code == 0, generation_id=77),
            lambda call, broker: (
                bool(requested(call).member_id)
                and in_state(GroupState.STABLE)(call, broker)
                and is_follower(call, broker)
            ),
        ),
        ("B15", "I9"),
    ),
    Fault(
        "a leader that rejoins starts no rebalance",
        responded(
            "JoinGroup",
            lambda call: JoinGroupResponse(
                generation_id=2, leader=requested(call).member_id, member_id=requested(call).member_id
            ),
            lambda call, broker: in_state(GroupState.STABLE)(call, broker) and is_leader(call, broker),
        ),
        ("B16", "D2a", "E5", "E6"),
    ),
    Fault(
        "an error comes with a generation",
        altered("JoinGroup", reported(lambda request, response: response.error_code == 23, generation_id=1)),
        ("B18b",),
    ),
    Fault(
        "the generation is one too low from the second one on",
        altered(
            "JoinGroup",
            lambda call, response: (
                response._replace(generation_id=response.generation_id - 1) if response.generation_id > 2 else response
            ),
        ),
        ("B18a", "B16", "B17", "B27", "B28", "I4a", "I4b"),
    ),
    Fault(
        "every generation in a response is one too high",
        altered(
            "JoinGroup",
            lambda call, response: (
                response if response.error_code else response._replace(generation_id=response.generation_id + 1)
            ),
        ),
        OF_GENERATIONS,
    ),
    Fault(
        "a static member needs a second step",
        responded(
            "JoinGroup",
            lambda call: JoinGroupResponse(error_code=79, member_id="given", protocol_name=None),
            lambda call, broker: requested(call).group_instance_id is not None and not requested(call).member_id,
        ),
        ("B23", "B26"),
    ),
    Fault(
        "a long reason is too much",
        altered("JoinGroup", reported(lambda request, response: len(request.reason or "") > 255, error_code=42)),
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
        "SyncGroup has the names beside the error",
        altered(
            "SyncGroup",
            reported(
                lambda request, response: response.error_code == 23, protocol_type="consumer", protocol_name="range"
            ),
        ),
        ("C3a", "C3b", "C4a", "C4b"),
    ),
    Fault(
        "a follower that syncs first gets its response at once",
        responded(
            "SyncGroup",
            lambda call: SyncGroupResponse(protocol_type="consumer", protocol_name="range"),
            lambda call, broker: (
                in_state(GroupState.COMPLETING)(call, broker)
                and not requested(call).assignments
                and is_follower(call, broker)
            ),
        ),
        ("C5", "C7b", "C11"),
    ),
    Fault(
        "a follower that syncs after the leader gets nothing",
        altered(
            "SyncGroup",
            reported(lambda request, response: not request.assignments, assignment=b""),
            in_state(GroupState.STABLE),
        ),
        ("C5b", "C6a", "C6b", "I1b", "B25", "N1a", "H2a"),
    ),
    Fault(
        "a leader that syncs again is believed",
        altered(
            "SyncGroup",
            lambda call, response: response._replace(assignment=requested(call).assignments[0].assignment),
            lambda call, broker: in_state(GroupState.STABLE)(call, broker) and bool(requested(call).assignments),
        ),
        ("C6b",),
    ),
    Fault(
        "SyncGroup says NONE while others join",
        altered("SyncGroup", code("REBALANCE_IN_PROGRESS", "NONE"), in_state(GroupState.PREPARING)),
        ("C7a",),
    ),
    Fault(
        "a SyncGroup that waits gets no response at the next rebalance",
        altered("SyncGroup", code("REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"), in_state(GroupState.COMPLETING)),
        ("C7b",),
    ),
    Fault(
        "a member that the leader forgot is sent away",
        altered(
            "SyncGroup",
            reported(lambda request, response: response.error_code == 0 and not response.assignment, error_code=25),
        ),
        ("C8", "N7"),
    ),
    Fault(
        "SyncGroup has no names",
        altered("SyncGroup", reported(JOINED, protocol_name=None)),
        ("C12",),
    ),
    Fault(
        "a large assignment is cut",
        altered("SyncGroup", lambda call, response: response._replace(assignment=bytes(response.assignment)[:65536])),
        ("C13",),
    ),
)
