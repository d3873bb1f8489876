"""The way to the group's coordinator: finding it, losing it, and what hangs on that.

Nothing of a membership is lost with the coordinator: same generation, same partitions, fetching goes on. What is void
is what was under way to it.
"""

from typing import Final

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group import group_requests
from kohort.coordinator_client.group.error_actions import REACTIONS, GroupProtocolError, Reaction, fatal_error
from kohort.coordinator_client.group.inflight_requests import BEATS, FAREWELLS
from kohort.coordinator_client.group.member_context import Part, Shared
from kohort.coordinator_client.group.membership import Membership
from kohort.coordinator_client.group.states import IN_GROUP, CoordinatorState, MemberState
from kohort.network.find_coordinator import Coordinator
from kohort.protocol.errors import error_name

NO_OUTCOME: Final = "no outcome in time"
SILENCE: Final = frozenset({"timeout", NO_OUTCOME})
"""Reasons of a `Disconnected` that mean: it was asked, and said nothing."""


class CoordinatorLink(Part):
    """`wanted`: somebody else than the group needs the coordinator (for committed offsets)."""

    def __init__(self, shared: Shared, membership: Membership) -> None:
        super().__init__(shared)
        self._membership = membership
        self.wanted = False

    @property
    def needed(self) -> bool:
        return self._membership.fatal is None and (self._walk.state in IN_GROUP or self.wanted)

    def find(self) -> None:
        """Ask for the coordinator, if it is needed and time to."""
        if self.needed and self._search.due(self._walk.now):
            self._search.asked()
            request = group_requests.find_coordinator(self._settings)
            self._membership.ask("FindCoordinator", request, self._settings.request_timeout_ms, anywhere=True)

    def on_found(self, event: ev.CoordinatorFound) -> None:
        if self._in_flight.answered(event.serial) is None:
            return
        answer = event.response
        if answer.coordinators:
            only = answer.coordinators[0]
            code, message = only.error_code, only.error_message
            coordinator = Coordinator(only.node_id, only.host, only.port)
        else:
            code, message = answer.error_code, answer.error_message
            coordinator = Coordinator(answer.node_id, answer.host, answer.port)
        if len(answer.coordinators) > 1 or (code == 0 and not coordinator.host):
            self._search.not_found(self._walk.now)
            self._membership.fail(
                GroupProtocolError(
                    f"asked for one coordinator, told of {len(answer.coordinators)}",
                    api="FindCoordinator",
                    group=self._settings.group_id,
                )
            )
        elif code == 0:
            self._search.found(coordinator)
            self._pulse.heard_at = self._walk.now
        else:
            self._search.not_found(self._walk.now)
            if REACTIONS["FindCoordinator"].get(code, Reaction.FATAL) is Reaction.FATAL:
                self._membership.fail(fatal_error(code, "FindCoordinator", self._settings.group_id, message))
            else:
                self._still_searching(error_name(code))

    def _still_searching(self, why: str) -> None:
        failures = self._search.failures
        if failures & (failures - 1) == 0:  # 1, 2, 4, 8, ...: said often enough to be seen, not to drown the log
            self._walk.notice("coordinator_missing", f"no coordinator after {failures} attempts: {why}")

    def gone(self, why: str) -> None:
        """Find it again. Nothing of our membership is lost by this: same generation, same partitions."""
        if self._search.state is not CoordinatorState.KNOWN:
            return
        self._search.gone(self._walk.now)
        self._pulse.heard_at = self._walk.now
        self._walk.notice("coordinator_gone", why)
        self._in_flight.forget(*BEATS)
        if self._in_flight.waits_for("JoinGroup") or self._in_flight.waits_for("SyncGroup"):
            self._membership.again(why)
        if self._walk.state is MemberState.LEAVING:
            self._membership.left()

    def on_disconnected(self, event: ev.Disconnected) -> None:
        known = self._search.coordinator
        if event.serial is None:
            if known is not None and event.node_id == known.node_id:
                self.gone(event.reason or "the connection was closed")
            return
        asked = self._in_flight.asked(event.serial)
        if asked is None:
            return
        if asked.api == "FindCoordinator":
            self._search.not_found(self._walk.now)
            self._still_searching(event.reason or "the connection was closed")
        elif asked.api == "Heartbeat" and asked.aside:
            # The other connection may come and go as it likes; but silence on a fresh question is the coordinator's.
            if event.reason in SILENCE:
                self._in_flight.distrust()
                self.gone("no answer to a heartbeat while a join waits")
        elif known is not None and asked.node_id == known.node_id:
            self.gone(event.reason or "the connection was closed")
        self._in_flight.answered(event.serial)

    def watch_answers(self) -> None:
        """A request whose outcome never came is one whose connection was lost."""
        for serial in self._in_flight.overdue(self._walk.now):
            self.on_disconnected(ev.Disconnected(serial, None, NO_OUTCOME))

    def on_refused(self, event: ev.Refused) -> None:
        """A request that could not even be sent."""
        asked = self._in_flight.answered(event.serial)
        if asked is None:
            return
        if asked.api in FAREWELLS and self._walk.state is MemberState.LEAVING:
            self._walk.notice("leave_failed", str(event.error))
            self._membership.left()
            return
        if asked.api == "FindCoordinator":
            self._search.not_found(self._walk.now)
        self._membership.fail(event.error)
