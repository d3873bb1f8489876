"""The history of a group member, rebalance by rebalance: cause, members, length of each phase, moves.

Written by the machine with the machine's own time. Every entry is a frozen value and the history is a tuple that is
replaced, so any thread may read it at any moment.
"""

from typing import Final, TypeVar

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.hooks import RebalanceCause

KEPT_REBALANCES: Final = 100
KEPT_STEPS: Final = 100  # of one rebalance: a group that finds no end may try for weeks

T = TypeVar("T")


class RebalancePhase(NamedTuple):
    """Time spent in one state. `ended_at` is None while it lasts; times are the machine's monotonic seconds."""

    state: MemberState
    started_at: float
    ended_at: float | None = None

    def lasted_s(self, now: float) -> float:
        return (now if self.ended_at is None else self.ended_at) - self.started_at


class RebalanceRecord(NamedTuple):
    """One rebalance, from its cause to the state that ended it.

    `generation`, `protocol`, `leader`: of the resulting generation (-1 and None if there is none). `members_joined` and
    `members_left`: known only if this member leads. `revoked`, `added`, `lost`, `kept`: partitions. `attempts`: the
    number of JoinGroups. `commits_refused`: partition -> last error code of a commit. `troubles`: errors on the way,
    including exceptions of hooks, one line each. Of these and of `phases`, the last 100 are kept.
    """

    cause: RebalanceCause
    started_at: float
    ended_at: float | None = None
    outcome: MemberState | None = None
    generation: int = -1
    protocol: str | None = None
    leader: bool = False
    phases: tuple[RebalancePhase, ...] = ()
    members_joined: frozenset[str] = frozenset()
    members_left: frozenset[str] = frozenset()
    revoked: frozenset[TopicPartition] = frozenset()
    kept: frozenset[TopicPartition] = frozenset()
    added: frozenset[TopicPartition] = frozenset()
    lost: frozenset[TopicPartition] = frozenset()
    attempts: int = 0
    commits_refused: tuple[tuple[TopicPartition, int], ...] = ()
    troubles: tuple[str, ...] = ()

    def seconds_in(self, state: MemberState, now: float) -> float:
        """The time spent in `state`, in seconds, all its phases together."""
        return sum(phase.lasted_s(now) for phase in self.phases if phase.state is state)


class Timeline:
    """The history of one member, newest last. The machine writes it, and any thread may read `rebalances`."""

    __slots__ = ("rebalances",)

    def __init__(self) -> None:
        self.rebalances: tuple[RebalanceRecord, ...] = ()

    @property
    def current(self) -> RebalanceRecord | None:
        """The rebalance under way, if one is."""
        return self.rebalances[-1] if self.rebalances and self.rebalances[-1].ended_at is None else None

    def begin(self, cause: RebalanceCause, now: float) -> None:
        """Begin a rebalance. An open one continues instead, because a retry is not a new rebalance."""
        if self.current is None:
            self.rebalances = (*self.rebalances[-(KEPT_REBALANCES - 1) :], RebalanceRecord(cause, now))

    def entered(self, state: MemberState, now: float) -> None:
        """The member entered `state`: the phase before it is over."""
        if (current := self.current) is not None:
            self._put(current._replace(phases=_last(*_closed(current.phases, now), RebalancePhase(state, now))))

    def noted(self, **facts: object) -> None:
        """Facts of the rebalance under way: sets grow, numbers and names are replaced."""
        if (current := self.current) is None:
            return
        merged = {
            name: getattr(current, name) | fact if isinstance(fact, frozenset) else fact for name, fact in facts.items()
        }
        self._put(current._replace(**merged))  # type: ignore[arg-type]

    def add_error(self, text: str) -> None:
        """Record an error with the newest rebalance, even after it ended, because the cause is there."""
        if self.rebalances:
            newest = self.rebalances[-1]
            self._put(newest._replace(troubles=_last(*newest.troubles, text)))

    def attempt(self) -> None:
        """One more JoinGroup was sent."""
        if (current := self.current) is not None:
            self._put(current._replace(attempts=current.attempts + 1))

    def commit_refused(self, partitions: frozenset[TopicPartition], code: int) -> None:
        """A commit was refused; recorded with the newest rebalance."""
        if self.rebalances:
            newest = self.rebalances[-1]
            refusals = {**dict(newest.commits_refused), **dict.fromkeys(partitions, code)}
            self._put(newest._replace(commits_refused=tuple(sorted(refusals.items()))))

    def end(self, outcome: MemberState, now: float) -> None:
        """The member reached a state from which nothing moves by itself."""
        if (current := self.current) is not None:
            self._put(current._replace(ended_at=now, outcome=outcome, phases=_closed(current.phases, now)))

    def _put(self, rebalance: RebalanceRecord) -> None:
        self.rebalances = (*self.rebalances[:-1], rebalance)


def _last(*steps: T) -> tuple[T, ...]:
    return steps[-KEPT_STEPS:]


def _closed(phases: tuple[RebalancePhase, ...], now: float) -> tuple[RebalancePhase, ...]:
    if not phases or phases[-1].ended_at is not None:
        return phases
    return (*phases[:-1], phases[-1]._replace(ended_at=now))
