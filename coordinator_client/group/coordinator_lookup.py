"""Finds the group's coordinator and handles its loss.

A lost coordinator does not affect the membership: generation and partitions stay, and fetching continues. Only requests
in flight to it are void.
"""

from math import inf
from typing import Final

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.error_actions import (
    COORDINATOR_MOVES,
    REACTIONS,
    ErrorAction,
    GroupProtocolError,
)
from kohort.coordinator_client.group.member_context import HEARTBEAT_APIS, LEAVE_APIS, MemberComponent, MemberContext
from kohort.coordinator_client.group.membership import LEAVE_PATIENCE_S, Membership
from kohort.coordinator_client.group.states import IN_GROUP, CoordinatorState, MemberState
from kohort.network.find_coordinator import CoordinatorKind, CoordinatorNode, find_coordinator
from kohort.network.requests import Endpoint
from kohort.protocol.errors import error_name

NO_OUTCOME: Final = "no outcome in time"
SILENCE: Final = frozenset({"timeout", NO_OUTCOME})
"""Reasons of a `Disconnected` that mean a request without a response."""


class CoordinatorLink(MemberComponent):
    """Keeps the coordinator known to a member that is in the group, or is about to join or to leave it."""

    def __init__(self, shared: MemberContext, membership: Membership) -> None:
        super().__init__(shared)
        self._membership = membership

    @property
    def needed(self) -> bool:
        return self._membership.owes_leave or (self._membership.fatal is None and self._tracker.state in IN_GROUP)

    def find(self) -> None:
        """Send a FindCoordinator, if it is needed and due."""
        if self.needed and self._coordinator.due(self._tracker.now):
            self._coordinator.requested()
            request = find_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
            self._membership.send("FindCoordinator", request, self._settings.request_timeout_ms, anywhere=True)

    def on_found(self, event: ev.FindCoordinatorResponded) -> None:
        if self._in_flight.complete(event.serial) is None:
            return
        response = event.response
        only = response.coordinators[0] if response.coordinators else response
        code = only.error_code
        if len(response.coordinators) > 1 or (code == 0 and not only.host):
            self._coordinator.not_found(self._tracker.now)
            self._membership.fail(
                GroupProtocolError(
                    f"FindCoordinator returned {len(response.coordinators)} coordinators, expected 1",
                    api="FindCoordinator",
                    group=self._settings.group_id,
                )
            )
        elif code == 0:
            self._coordinator.found(CoordinatorNode(only.node_id, Endpoint(only.host, only.port)))
            self._timers.last_response_at = self._tracker.now
        else:
            self._coordinator.not_found(self._tracker.now)
            if REACTIONS["FindCoordinator"].get(code, ErrorAction.FATAL) is ErrorAction.FATAL:
                self._membership.fail_by_code(code, "FindCoordinator", only.error_message)
            else:
                self._still_searching(error_name(code))

    def _still_searching(self, why: str) -> None:
        failures = self._coordinator.failures
        if failures & (failures - 1) == 0:  # 1, 2, 4, 8, ...: visible, but without flooding the log
            self._tracker.notice("coordinator_missing", f"no coordinator after {failures} attempts: {why}")

    def gone(self, why: str, *, leave_patience_s: float = LEAVE_PATIENCE_S) -> None:
        """Find the coordinator again. The membership is unaffected: same generation, same partitions.

        `leave_patience_s`: the maximum time (s) of a leave from now on.
        """
        if self._coordinator.state is not CoordinatorState.KNOWN:
            return
        self._coordinator.gone(self._tracker.now)
        self._timers.last_response_at = self._tracker.now
        self._tracker.notice("coordinator_gone", why)
        self._in_flight.cancel(*HEARTBEAT_APIS)
        if self._tracker.state is MemberState.LEAVING:
            self._membership.leave_later(leave_patience_s)
        elif self._in_flight.is_in_flight("JoinGroup") or self._in_flight.is_in_flight("SyncGroup"):
            self._membership.join_again(why)

    def on_left(self, *codes: int) -> None:
        """Handle the response to a leave. A coordinator that moves has not carried it out."""
        if codes[0] in COORDINATOR_MOVES and self._coordinator.state is CoordinatorState.KNOWN:
            self.gone(f"the leave: {error_name(codes[0])}", leave_patience_s=inf)
        else:
            self._membership.left(*codes)

    def on_disconnected(self, event: ev.Disconnected) -> None:
        known = self._coordinator.coordinator
        if event.serial is None:
            # Beside a JoinGroup that waits, it was another connection, which means nothing.
            is_joining = self._in_flight.is_in_flight("JoinGroup")
            if known is not None and event.node_id == known.node_id and not is_joining:
                self.gone(event.reason or "the connection was closed")
            return
        requested = self._in_flight.get(event.serial)
        if requested is None:
            return
        if requested.api == "FindCoordinator":
            self._coordinator.not_found(self._tracker.now)
            self._still_searching(event.reason or "the connection was closed")
        elif requested.api == "Heartbeat" and requested.use_other_connection:
            # A lost extra connection means nothing, but a new request on it without a response shows a dead
            # coordinator.
            if event.reason in SILENCE:
                self._in_flight.use_new_connection_next()
                self.gone("no response to a heartbeat while a join waits")
        elif known is not None and requested.node_id == known.node_id:
            self.gone(event.reason or "the connection was closed")
        self._in_flight.complete(event.serial)

    def watch_responses(self) -> None:
        """Treat a request without an outcome as a lost connection."""
        for serial in self._in_flight.overdue(self._tracker.now):
            self.on_disconnected(ev.Disconnected(serial, None, NO_OUTCOME))

    def on_refused(self, event: ev.RequestFailed) -> None:
        """A request that could not even be sent."""
        requested = self._in_flight.complete(event.serial)
        if requested is None:
            return
        if requested.api in ("JoinGroup", *LEAVE_APIS) and self._tracker.state is MemberState.LEAVING:
            self._tracker.notice("leave_failed", str(event.error))
            self._membership.left()
            return
        if requested.api == "FindCoordinator":
            self._coordinator.not_found(self._tracker.now)
        self._membership.fail(event.error)
