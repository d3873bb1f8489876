"""A scripted classic member. It keeps ids and generations, and acts only when a check calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kohort.common.errors import WireError
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.errors import Blocked, MissingResponse, PeerClosed
from kohort.protocol.errors import ErrorCode, error_name
from kohort.protocol.membership import Subscription, build_subscription

REBALANCE_MS = 60_000


def subscribe(*topics: str, user_data: bytes | None = None) -> bytes:
    """Encode a consumer subscription that every coordinator can read."""
    return build_subscription(Subscription(topics=topics, user_data=user_data), 1)


SUBSCRIPTION = subscribe("nothing-to-read")


class RequestContext(Protocol):
    """The parts of a `CheckContext` that a member uses."""

    target: BrokerUnderTest

    @property
    def patience_s(self) -> float: ...
    def version_of(self, api: str) -> int: ...
    async def send(
        self,
        api: str,
        values: Mapping[str, object] | None = None,
        *,
        version: int | None = None,
        timeout_s: float = ...,
    ) -> Any: ...


@dataclass
class CheckMember:
    """A scripted classic member.

    The plain calls return the broker's response. `enter` and `settle` are for set-ups, and raise Blocked.
    """

    scene: RequestContext = field(repr=False)
    group: str
    id: str = ""
    instance: str | None = None
    protocols: tuple[tuple[str, bytes], ...] = (("range", SUBSCRIPTION),)
    protocol_type: str = "consumer"
    session_ms: int = 0
    rebalance_ms: int = REBALANCE_MS
    generation: int = -1
    leader: str = ""
    protocol_name: str | None = None
    members: tuple[Any, ...] = ()
    assignment: bytes | None = None

    def __post_init__(self) -> None:
        self.session_ms = self.session_ms or self.scene.target.session_ms

    @property
    def identity(self) -> dict[str, Any]:
        """The arguments of `commit` for a commit of this member."""
        return {"generation": self.generation, "member": self.id}

    async def join(self, *, version: int | None = None, timeout_s: float | None = None, **changes: object) -> Any:
        """Send one JoinGroup. `changes` replace its fields. A successful response is kept."""
        timeout_s = timeout_s or self.scene.patience_s
        version = self.scene.version_of("JoinGroup") if version is None else version
        values: dict[str, object] = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.id,
            "protocol_type": self.protocol_type,
            "protocols": tuple({"name": name, "metadata": metadata} for name, metadata in self.protocols),
        }
        if self.instance is not None:
            values["group_instance_id"] = self.instance
        response = await self.scene.send("JoinGroup", values | changes, version=version, timeout_s=timeout_s)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.scene.target.given_ids[self.group].append(response.member_id)
        if response.error_code == 0:
            self.id, self.generation, self.leader = response.member_id, response.generation_id, response.leader
            self.members, self.protocol_name = response.members, response.protocol_name
        return response

    async def enter(self, **changes: Any) -> Any:
        """Join, with a retry after MEMBER_ID_REQUIRED. Returns once the generation is complete."""
        try:
            response = await self.join(**changes)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.id = response.member_id
                response = await self.join(**changes)
        except (PeerClosed, MissingResponse, WireError) as error:
            raise Blocked(f"JoinGroup: {error}") from error
        if response.error_code:
            raise Blocked(f"JoinGroup failed: {error_name(response.error_code)}")
        return response

    async def sync(
        self, shares: Mapping[str, bytes] | None = None, *, version: int | None = None, **changes: object
    ) -> Any:
        """Send one SyncGroup with the assignments in `shares` (member id to bytes)."""
        version = self.scene.version_of("SyncGroup") if version is None else version
        values: dict[str, object] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "assignments": tuple({"member_id": key, "assignment": share} for key, share in (shares or {}).items()),
        }
        if version >= 5:
            values |= {"protocol_type": self.protocol_type, "protocol_name": self.protocol_name or self.protocols[0][0]}
        if self.instance is not None and version >= 3:
            values["group_instance_id"] = self.instance
        return await self.scene.send("SyncGroup", values | changes, version=version, timeout_s=self.scene.patience_s)

    async def settle(self, shares: Mapping[str, bytes] | None = None) -> Any:
        """Send SyncGroup, and keep the assignment."""
        try:
            response = await self.sync(shares)
        except (PeerClosed, MissingResponse, WireError) as error:
            raise Blocked(f"SyncGroup: {error}") from error
        if response.error_code:
            raise Blocked(f"SyncGroup failed: {error_name(response.error_code)}")
        self.assignment = bytes(response.assignment)
        return response

    async def heartbeat(self, **changes: object) -> Any:
        values: dict[str, object] = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        if self.instance is not None and self.scene.version_of("Heartbeat") >= 3:
            values["group_instance_id"] = self.instance
        return await self.scene.send("Heartbeat", values | changes)

    async def leave(self) -> Any:
        """Send LeaveGroup for this one member, in the form of the version."""
        member: dict[str, object] = {"member_id": self.id}
        if self.scene.version_of("LeaveGroup") >= 3:
            member = {"members": (member | {"group_instance_id": self.instance},)}
        return await self.scene.send("LeaveGroup", {"group_id": self.group} | member)
