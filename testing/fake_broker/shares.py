"""Share sessions and share partitions of a cluster (KIP-932). A machine without socket, thread or clock.

A session belongs to a group, a member and a node. When a connection ends, so does the session of the member that opened
the last one on it. As in Kafka, this also holds if that member has opened it on another connection since.

Omissions:

- records of aborted transactions; a read_committed group stops at the last stable offset
- the state that a leader keeps in memory: offsets that an admin alters are in effect at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_group import Place
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_partition import FakeSharePartition, ShareLimits

OPENING, CLOSING = 0, -1
INT32_MAX = 2**31 - 1

STANDBYS = "streams.num.standby.replicas"
GROUP_CONFIGS: Mapping[str, str] = {
    "share.session.timeout.ms": "group_share_session_timeout_ms",
    "share.heartbeat.interval.ms": "group_share_heartbeat_interval_ms",
    "share.record.lock.duration.ms": "group_share_record_lock_duration_ms",
    "share.delivery.count.limit": "group_share_delivery_count_limit",
    "share.partition.max.record.locks": "group_share_partition_max_record_locks",
}
"""Settings of a group, and the coordinator's setting that has the default."""

OTHER_CONFIGS: Mapping[str, str] = {
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": "true",
    STANDBYS: "0",
}
"""Settings of a group with their defaults."""


class SessionKey(NamedTuple):
    """The identity of a share session."""

    node: int
    group_id: str
    member_id: str


@dataclass(eq=False, slots=True)
class FakeShareSession:
    """A session. `epoch`: the next one that is accepted. `places`: partitions, in the order in which they came."""

    epoch: int = 1
    places: dict[Place, None] = field(default_factory=dict)


class FakeShares:
    """All sessions, share partitions and group settings. `leader_of` returns the node that leads a partition."""

    def __init__(self, settings: CoordinatorSettings, leader_of: Callable[[Place], int | None]) -> None:
        self.settings = settings
        self._leader_of = leader_of
        self.sessions: dict[SessionKey, FakeShareSession] = {}
        self.partitions: dict[tuple[str, Place], FakeSharePartition] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self._last_opened: dict[int, SessionKey] = {}
        self._limits: dict[str, tuple[dict[str, str], ShareLimits]] = {}

    # --- settings

    def config(self, group_id: str, name: str) -> str:
        """The value of a group's setting."""
        default = OTHER_CONFIGS.get(name) or str(getattr(self.settings, GROUP_CONFIGS[name]))
        return self.configs.get(group_id, {}).get(name, default)

    def limits(self, group_id: str) -> ShareLimits:
        """The limits of a group's share partitions."""
        configs = self.configs.get(group_id, {})
        known = self._limits.get(group_id)
        if known is None or known[0] != configs:
            limits = ShareLimits(
                int(self.config(group_id, "share.record.lock.duration.ms")) / 1000,
                int(self.config(group_id, "share.delivery.count.limit")),
                int(self.config(group_id, "share.partition.max.record.locks")),
                self.config(group_id, "share.renew.acknowledge.enable") == "true",
            )
            known = self._limits[group_id] = dict(configs), limits
        return known[1]

    # --- sessions

    def enter(
        self,
        key: SessionKey,
        epoch: int,
        connection: int,
        *,
        opens: bool,
        added: Iterable[Place] = (),
        forgotten: Iterable[Place] = (),
    ) -> int:
        """Take the epoch of a request, and change the session's partitions. Returns the error code.

        `opens`: epoch 0 opens a session, or replaces the live one. Locks are not affected.
        """
        session = self.sessions.get(key)
        if epoch == OPENING:
            if not opens:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            if session is None and len(self.sessions) >= self.settings.group_share_max_share_sessions:
                return ErrorCode.SHARE_SESSION_LIMIT_REACHED
            self.sessions[key] = FakeShareSession(places=dict.fromkeys(added))
            self._last_opened[connection] = key
            return ErrorCode.NONE
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == CLOSING:
            return ErrorCode.NONE
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        session.places |= dict.fromkeys(added)
        for place in forgotten:
            session.places.pop(place, None)
        return ErrorCode.NONE

    def close(self, key: SessionKey) -> None:
        """End a session; the member's records in its partitions are released, where its node leads them."""
        session = self.sessions.pop(key, None)
        for place in session.places if session is not None else ():
            partition = self.partitions.get((key.group_id, place))
            if partition is not None and self._leader_of(place) == key.node:
                partition.release(key.member_id, self.limits(key.group_id))

    def disconnected(self, connection: int) -> bool:
        """The connection has ended, and with it the last session that was opened on it. True if there was one."""
        key = self._last_opened.pop(connection, None)
        if key is None or key not in self.sessions:
            return False
        self.close(key)
        return True

    # --- share partitions

    def partition(self, group_id: str, place: Place, log_start: int, log_end: int) -> FakeSharePartition:
        """The share partition; the first use of it applies `share.auto.offset.reset`."""
        found = self.partitions.get((group_id, place))
        if found is None:
            earliest = self.config(group_id, "share.auto.offset.reset") == "earliest"
            found = self.partitions[group_id, place] = FakeSharePartition(log_start if earliest else log_end)
        found.trim(log_start)
        return found

    def of_group(self, group_id: str) -> dict[Place, FakeSharePartition]:
        """The share partitions of a group."""
        return {place: one for (group, place), one in self.partitions.items() if group == group_id}

    def leader_changed(self, place: Place) -> None:
        """Locks are not part of the state that a new leader loads."""
        for (group_id, where), one in self.partitions.items():
            if where == place:
                one.forget_locks(self.limits(group_id))

    def delete_group(self, group_id: str) -> None:
        """Delete the state of a group."""
        for key in [key for key in self.partitions if key[0] == group_id]:
            del self.partitions[key]

    def expire(self, now: float) -> bool:
        """Return the records whose locks have expired. True if there were any."""
        returned = [one.expire(now, self.limits(group_id)) for (group_id, _place), one in self.partitions.items()]
        return any(returned)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        due = (one.next_deadline() for one in self.partitions.values())
        return min((one for one in due if one is not None), default=None)
