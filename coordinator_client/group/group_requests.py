"""The requests of a member, one function each.

Requests after the join are imported when they are made. Versions are not considered here (see
`network/request_versions.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kohort.coordinator_client.group.member_settings import CONSUMER_PROTOCOL_TYPE, MemberSettings
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from kohort.protocol.apis.heartbeat import HeartbeatRequest
    from kohort.protocol.apis.leave_group import LeaveGroupRequest

REASON_CHARACTERS_MAX = 255  # KIP-800: clients cut longer ones


def find_coordinator(settings: MemberSettings) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=settings.group_id, key_type=0, coordinator_keys=(settings.group_id,))


def join_group(
    settings: MemberSettings, identity: ConsumerGroupMetadata, protocols: Sequence[tuple[str, bytes]], reason: str
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_ms,
        member_id=identity.member_id,
        group_instance_id=settings.instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols),
        reason=reason[:REASON_CHARACTERS_MAX],
    )


def sync_group(
    identity: ConsumerGroupMetadata, protocol: str, assignments: tuple[SyncGroupRequestAssignment, ...]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=identity.group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=assignments,
    )


def heartbeat(identity: ConsumerGroupMetadata) -> "HeartbeatRequest":
    from kohort.protocol.apis.heartbeat import HeartbeatRequest

    return HeartbeatRequest(
        group_id=identity.group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
    )


def leave_group(identity: ConsumerGroupMetadata, reason: str) -> "LeaveGroupRequest":
    from kohort.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity

    return LeaveGroupRequest(
        group_id=identity.group_id,
        member_id=identity.member_id,
        members=(
            MemberIdentity(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                reason=reason[:REASON_CHARACTERS_MAX],
            ),
        ),
    )
