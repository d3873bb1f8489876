"""Heartbeats of the classic protocol, and the conclusions from their responses and from refused commits.

UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION are ignored unless the request was sent with the present identity.
"""

from typing import Final

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group import group_requests
from kohort.coordinator_client.group.coordinator_lookup import CoordinatorLink
from kohort.coordinator_client.group.error_actions import REACTIONS, ErrorAction, fatal_error
from kohort.coordinator_client.group.member_context import MemberComponent, MemberContext
from kohort.coordinator_client.group.membership import Membership
from kohort.coordinator_client.group.states import HEARTBEATING, MemberState
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.protocol.errors import ErrorCode, error_name

ENOUGH_PROBES: Final = 3
"""Number of successive heartbeats with a newer generation after which a join's response counts as lost."""


class ClassicHeartbeat(MemberComponent):
    """Sends heartbeats while the group expects them, and acts on their responses and time-outs."""

    def __init__(self, shared: MemberContext, membership: Membership, link: CoordinatorLink) -> None:
        super().__init__(shared)
        self._membership = membership
        self._link = link
        self._gone_on = 0

    @property
    def _beating(self) -> bool:
        """True if the group expects heartbeats and the coordinator is known."""
        known = self._coordinator.coordinator is not None
        return known and self._tracker.state in HEARTBEATING and self._membership.in_generation

    @property
    def _probing(self) -> bool:
        """True if heartbeats are sent while partitions are kept and a join waits at the coordinator.

        The group expects none then. They check that the join's response can still come. It may have been lost on the
        way. The coordinator may also be another broker by now, and the partitions may have other owners.
        """
        waits = self._tracker.state is MemberState.JOINING and self._in_flight.is_in_flight("JoinGroup")
        return waits and self._membership.in_generation and self._membership.owns_partitions

    def times(self) -> list[float]:
        """The times (monotonic seconds) at which to look again."""
        if self._probing and not self._in_flight.is_in_flight("Heartbeat"):
            return [self._timers.next_heartbeat_at]
        if not self._beating:
            return []
        waiting = self._in_flight.is_in_flight("Heartbeat")
        return (
            [self._timers.session_deadline]
            if waiting
            else [self._timers.session_deadline, self._timers.next_heartbeat_at]
        )

    def watch_silence(self) -> None:
        if self._beating and self._tracker.now >= self._timers.session_deadline:
            self._link.gone("no response for a whole session timeout")

    def beat(self) -> None:
        """Send a heartbeat, if one is due."""
        if not (self._beating or self._probing):
            return
        if self._in_flight.is_in_flight("Heartbeat") or self._tracker.now < self._timers.next_heartbeat_at:
            return
        self._timers.heartbeat_sent_at = self._tracker.now
        timeout_ms = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms)
        self._membership.send("Heartbeat", group_requests.heartbeat(self._membership.identity), timeout_ms)

    def on_response(self, event: ev.HeartbeatResponded) -> None:
        requested = self._in_flight.complete(event.serial)
        if requested is None:
            return
        code = event.response.error_code
        current = requested.identity == self._membership.identity
        if code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
            self._coordinator.proved()
        if code in (0, ErrorCode.REBALANCE_IN_PROGRESS) and current:
            self._timers.confirmed(requested.sent_at)
            self._timers.last_heartbeat_at = requested.sent_at
        if requested.use_other_connection:
            self._probed(code, current)
        elif code != 0:
            self._reported("Heartbeat", code, current)

    def _probed(self, code: int, current: bool) -> None:
        """Handle the response to a heartbeat that was sent by another connection during a join.

        The join's own response decides about membership. If the group has gone on since, that response should be on its
        way. After `ENOUGH_PROBES` such heartbeats in a row it counts as lost.
        """
        gone_on = (
            current
            and code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
            and self._in_flight.is_in_flight("JoinGroup")
        )
        self._gone_on = self._gone_on + 1 if gone_on else 0
        if self._gone_on >= ENOUGH_PROBES:
            self._gone_on = 0
            self._in_flight.use_new_connection_next()
            self._link.gone("the response to the JoinGroup was lost")
        elif REACTIONS["Heartbeat"].get(code) is ErrorAction.REDISCOVER:
            self._link.gone(f"Heartbeat: {error_name(code)}")

    def on_commit_refused(self, event: ev.CommitRefused) -> None:
        self._tracker.timeline.commit_refused(event.partitions, event.code)
        if event.code not in REACTIONS["OffsetCommit"]:
            return
        current = event.sent == self._membership.identity and event.sent.generation >= 0
        if self._in_flight.is_in_flight("JoinGroup") and event.code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ):
            return  # it lost a race against the member's own join, whose response decides
        self._reported("OffsetCommit", event.code, current)

    def _reported(self, api: str, code: int, current: bool) -> None:
        """Act on an error code about membership. `current`: it was sent with the present identity."""
        reaction = REACTIONS[api].get(code, ErrorAction.FATAL)
        match reaction:
            case ErrorAction.REJOIN if current and self._tracker.state is MemberState.STABLE:
                why = RebalanceReason.REBALANCE_IN_PROGRESS if api == "Heartbeat" else RebalanceReason.COMMIT_REFUSED
                self._membership.rejoin = self._membership.rejoin or RebalanceCause(why)
            case ErrorAction.REDISCOVER:
                self._link.gone(f"{api}: {error_name(code)}")
            case ErrorAction.FORGET_GENERATION if current:
                self._membership.lose(RebalanceCause(RebalanceReason.STALE_GENERATION, api), keep_id=True)
            case ErrorAction.FORGET_MEMBER if current:
                self._membership.lose(RebalanceCause(RebalanceReason.UNKNOWN_MEMBER, api))
            case ErrorAction.FATAL if current or code != ErrorCode.FENCED_INSTANCE_ID:
                self._membership.fail(fatal_error(code, api, self._settings.group_id))
