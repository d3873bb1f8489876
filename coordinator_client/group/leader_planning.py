"""The leader's steps from the JoinGroup response to a plan: collect the inputs, then run the assignor on another
thread.

The inputs must not delay a rebalance: topics and lag are awaited for a limited time each, and omitted if they do not
arrive. Only the assignor gets the whole rebalance timeout, because without it there is no plan.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from kohort.assignors import Assignor
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.events import LagKnown, PlanMade
from kohort.coordinator_client.group.leader_assignment import AssignorFailed, PlanOrder, wants_backlog
from kohort.coordinator_client.group.leader_members import Leadership
from kohort.coordinator_client.group.member_context import MemberComponent, MemberContext
from kohort.coordinator_client.group.ready import BacklogOrder
from kohort.coordinator_client.group.states import MemberState

BACKLOG_PATIENCE_S: Final = 5.0
"""Maximum time (s) that a plan waits for the lag, and never more than a quarter of the session."""

BACKLOG_GRACE_S: Final = 1.0
"""Time (s) after the deadline of a lag measurement at which the plan stops waiting for it."""


class Planning(MemberComponent):
    """The steps of one plan, in order; each is taken by `advance` when its time has come. Times: monotonic seconds."""

    def __init__(self, shared: MemberContext, assignors: Mapping[str, Assignor], leadership: Leadership) -> None:
        super().__init__(shared)
        self._assignors = assignors
        self._leadership = leadership
        self._topics_deadline = inf
        self._requested: BacklogOrder | None = None
        self._running: PlanOrder | None = None
        self._plan_deadline = inf
        self._new_backlog: BacklogOrder | None = None
        self._new_plan: PlanOrder | None = None

    def begin(self) -> None:
        """This member leads a new generation. Orders of the previous one are dropped."""
        patience_ms = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms / 2)
        self._topics_deadline = self._tracker.now + patience_ms / 1000
        self._requested = self._running = self._new_backlog = self._new_plan = None

    def advance(self, protocol: str) -> AssignorFailed | None:
        """Order what is due. The error, if the assignor has had its time."""
        now, leadership = self._tracker.now, self._leadership
        if self._running is not None:
            return self._too_late(protocol) if now >= self._plan_deadline else None
        if leadership.missing and now < self._topics_deadline:
            return None
        assignor = self._assignors[protocol]
        if wants_backlog(assignor) and not leadership.backlog_is_fresh(now):
            if self._requested is None:
                self._measure()
                return None
            if now < self._requested.deadline + BACKLOG_GRACE_S:
                return None
            self._measured({}, sum(self._requested.topics.values()), "no response in time")
        order = leadership.plan_order(self._in_flight.next_serial(), assignor)
        self._running = self._new_plan = order
        self._plan_deadline = now + self._settings.rebalance_ms / 1000
        return None

    def _measure(self) -> None:
        patience_s = min(BACKLOG_PATIENCE_S, self._settings.session_timeout_ms / 4000)
        serial, topics = self._in_flight.next_serial(), self._leadership.partition_counts
        self._requested = self._new_backlog = BacklogOrder(serial, topics, self._tracker.now + patience_s)

    def on_backlog(self, event: LagKnown) -> None:
        """Take in the measured lag, as far as it is known."""
        if (
            self._waits
            and self._requested is not None
            and event.serial == self._requested.serial
            and self._running is None
        ):
            self._measured(event.lag, event.unknown, event.why)

    def _measured(self, lag: Mapping[TopicPartition, int], unknown: int, why: str) -> None:
        assert self._requested is not None
        self._leadership.measured(self._requested.topics, lag, self._tracker.now)
        if unknown:
            text = f"planned without knowing how many records wait in {unknown} partitions: {why}"
            self._tracker.notice("backlog_unknown", text)
            self._tracker.timeline.add_error(text)

    def is_due(self, event: PlanMade) -> bool:
        """True if this is the plan that is waited for."""
        return self._waits and self._running is not None and event.serial == self._running.serial

    @property
    def _waits(self) -> bool:
        return self._tracker.state is MemberState.PLANNING

    def _too_late(self, protocol: str) -> AssignorFailed:
        return AssignorFailed(
            f"the assignor made no plan in {self._settings.rebalance_ms / 1000:.0f} s, which is all a rebalance has",
            hint="make it faster, or raise max_poll_interval_ms",
            assignor=protocol,
            group=self._settings.group_id,
        )

    def drain_backlog(self) -> BacklogOrder | None:
        """The lag query ordered since the last call, if there is one."""
        order, self._new_backlog = self._new_backlog, None
        return order

    def drain_plan(self) -> PlanOrder | None:
        """The plan that was ordered since the last call, if one was."""
        order, self._new_plan = self._new_plan, None
        return order

    def wake_at(self) -> float:
        """The time (monotonic s) at which to call `advance` again if nothing happens."""
        if self._running is not None:
            return self._plan_deadline
        return self._topics_deadline if self._requested is None else self._requested.deadline + BACKLOG_GRACE_S
