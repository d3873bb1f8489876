"""Tracks the member's state. All state transitions and history entries go through here."""

from collections.abc import Mapping
from math import inf
from typing import Final

from kohort.common.foreign_text import MOST_NOTICE_CHARACTERS, cut, escaped
from kohort.coordinator_client.group.rebalance_history import Timeline
from kohort.coordinator_client.group.states import TRANSITIONS, MemberState, Trigger, after
from kohort.coordinator_client.hooks import RebalanceCause
from kohort.network.notices import Notice

_ENDS: Final = frozenset(
    {MemberState.STABLE, MemberState.OUT, MemberState.STALLED, MemberState.FAILED, MemberState.CLOSED}
)


class StateTracker:
    """The state in a protocol's table, with its clock (`now`, monotonic seconds) and its history (`timeline`).

    `cause`: of the rebalance under way, else of the last one. `transition` raises `IllegalTransition` for a defect.
    """

    __slots__ = ("_notices", "_table", "cause", "now", "since", "state", "timeline")

    def __init__(self, table: Mapping[MemberState, Mapping[Trigger, MemberState]] = TRANSITIONS) -> None:
        self._table = table
        self.now = -inf
        self.state = MemberState.OUT
        self.since = -inf
        self.cause: RebalanceCause | None = None
        self.timeline = Timeline()
        self._notices: list[Notice] = []

    def at(self, now: float) -> None:
        """Set the time to `now`. A clock that went back is ignored."""
        self.now = max(now, self.now)

    def transition(self, trigger: Trigger) -> None:
        """The only place that changes the state."""
        came_from, self.state = self.state, after(self.state, trigger, self._table)
        if self.state is came_from:
            return  # another attempt: it has been in this state since it came here first
        self.since = self.now
        if self.state not in _ENDS:
            self.timeline.entered(self.state, self.now)
        elif (ended := self.timeline.current) is not None:
            self.timeline.end(self.state, self.now)
            took_s = self.now - ended.started_at
            self.notice("rebalance_ended", f"{ended.cause}: {self.state.value}, after {took_s:.3f} s")

    def begin_rebalance(self, cause: RebalanceCause) -> None:
        """A rebalance begins, or the one under way has one more cause."""
        self.cause = cause
        if self.timeline.current is not None:
            self.timeline.add_error(str(cause))
        self.timeline.begin(cause, self.now)

    def notice(self, kind: str, text: str) -> None:
        self._notices.append(Notice(kind, cut(escaped(text), MOST_NOTICE_CHARACTERS)))

    def drain_notices(self) -> tuple[Notice, ...]:
        """The notices since the last call."""
        notices, self._notices = tuple(self._notices), []
        return notices
