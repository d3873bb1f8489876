"""The one request of KIP-848, from what a member knows; apart from `coordinator_client/group/group_requests.py`, since
few members speak it."""

from collections.abc import Mapping
from typing import Any, Final

from kohort.coordinator_client.group.events import Identity
from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOIN_EPOCH: Final = 0  # the epochs that say something else than which one we are in
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2


def consumer_group_heartbeat(identity: Identity, said: Mapping[str, Any]) -> ConsumerGroupHeartbeatRequest:
    """To join or to stay: `said` are the fields that are not as they were told last."""
    return ConsumerGroupHeartbeatRequest(
        group_id=identity.group_id,
        member_id=identity.member_id,
        member_epoch=max(identity.generation, JOIN_EPOCH),
        instance_id=identity.instance_id,
        **said,
    )


def leave_consumer_group(identity: Identity, *, for_good: bool) -> ConsumerGroupHeartbeatRequest:
    """A static member leaves for a while, unless it leaves `for_good`: its partitions wait for it."""
    return ConsumerGroupHeartbeatRequest(
        group_id=identity.group_id,
        member_id=identity.member_id,
        member_epoch=LEAVE_EPOCH if for_good else LEAVE_FOR_A_WHILE_EPOCH,
        instance_id=identity.instance_id,
    )
