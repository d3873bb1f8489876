"""The hooks that users implement to follow their partitions, the events passed to them, and the check of their results.

Hooks run on the caller's thread, inside `poll` (or `close`, `unsubscribe`). They never run under a lock. They run one
at a time, in the order of the events. Their return values are part of the protocol. Offsets returned by `on_revoked`
are committed before the partitions go. Offsets returned by `on_assigned` are the positions at which reading starts.
"""

from collections.abc import Awaitable, Mapping
from enum import Enum

from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.network.errors import IllegalState
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import plain

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
HookResult = Offsets | None | Awaitable[Offsets | None]
"""The values that a hook may return. Awaitables are for `AsyncConsumer` only."""


class RebalanceReason(Enum):
    """The kinds of cause a rebalance, a loss or a leave has. The value is the sentence people read."""

    FIRST_JOIN = "this member joined the group"
    REBALANCE_IN_PROGRESS = "the coordinator requested it: a member joined, left or changed its topics"
    SUBSCRIPTION_CHANGED = "this member's subscription changed"
    TOPICS_CHANGED = "topics or partitions of the group appeared or vanished"
    ENFORCED = "the user requested it"
    FOLLOW_UP = "revoked partitions are now free to be assigned"
    COMMIT_REFUSED = "a commit was refused because a rebalance is in progress"
    SYNC_REFUSED = "the group changed again before it was assigned"
    ASSIGNMENT_UNFIT = "the assignment named topics that this member does not subscribe to"
    UNKNOWN_MEMBER = "the member is unknown to the group"
    STALE_GENERATION = "the group went on to another generation without this member"
    FENCED = "another member joined with the same instance id"
    POLL_STALLED = "the handler took longer than max_poll_interval_ms"
    FATAL = "an error that no retry can cure"
    UNSUBSCRIBED = "the consumer unsubscribed"
    CLOSED = "the consumer was closed"


class RebalanceCause(NamedTuple):
    """The cause of an event: its kind, and a detail if known (an error's name, the user's words)."""

    reason: RebalanceReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value} ({self.detail})" if self.detail else self.reason.value


class Revoked(NamedTuple):
    """Partitions to revoke. The consumer still owns them, so offsets may be committed. Returned offsets are committed.

    `partitions`: the revoked ones. `assignment`: all owned ones, including them. `generation`: the one that owns them.
    """

    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    generation: int
    cause: RebalanceCause


class Assigned(NamedTuple):
    """The outcome of a rebalance, sent once for each, also without new partitions.

    `partitions`: the new ones (under EAGER all of them). `assignment`: all owned ones. `generation`: the one that owns
    them.
    """

    partitions: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    generation: int
    cause: RebalanceCause


class Lost(NamedTuple):
    """Partitions that are gone already and may have another owner: nothing can be committed for them any more.

    `partitions`: what is lost (all that was owned). `generation`: the last one that owned them.
    """

    partitions: frozenset[TopicPartition]
    generation: int
    cause: RebalanceCause


class RebalanceHooks:
    """Override the methods that are needed. Each may be a coroutine function under `AsyncConsumer`.

    An exception of a hook is raised from the poll that ran it. The group's state stays consistent, and the next poll
    continues.
    """

    def on_revoked(self, event: Revoked) -> HookResult:
        """Called before partitions are revoked. Returned offsets (of the next record, by partition) are committed
        first.

        Offsets of partitions that are not owned are ignored, with a notice. None and an empty mapping add nothing to
        commit.
        """
        return None

    def on_assigned(self, event: Assigned) -> HookResult:
        """Called after an assignment. Returned offsets are the start positions.

        A partition without one starts at its committed offset, or by `auto_offset_reset` without a commit. A commit
        that is stored before the hook ends moves the start. A kept partition with one is sought to it, each time.

        An OffsetAndMetadata with a leader epoch is validated before anything is read (KIP-320). After a truncation the
        position follows `auto_offset_reset`, or `poll` raises Truncation.
        """
        return None

    def on_lost(self, event: Lost) -> Awaitable[None] | None:
        """Partitions are gone. Without an override this does nothing.

        Committing or flushing as in `on_revoked` is wrong here, because another member may own them already.
        """
        return None


HookEvent = Revoked | Assigned | Lost


class HookCall(NamedTuple):
    """One call that is due on the caller's thread.

    `serial` identifies it in `HookStarted` and `HookDone`. `before` is the user's visible `assignment` while the hook
    runs, `after` the one from its end on. The visible assignment changes only at hook calls.
    """

    serial: int
    event: HookEvent
    before: frozenset[TopicPartition]
    after: frozenset[TopicPartition]


class Start(NamedTuple):
    """The offset at which to begin reading, and the leader epoch of the record before it (KIP-320).

    A leader epoch of -1 is unknown.
    """

    offset: int
    leader_epoch: int = -1


class Meaning(NamedTuple):
    """The offsets to commit for revoked partitions, the starts of assigned ones, and the value's error."""

    commit: dict[TopicPartition, OffsetAndMetadata]
    start: dict[TopicPartition, Start]
    wrong: BaseException | None = None


def meaning(call: HookCall, result: object, unsaved: Mapping[TopicPartition, OffsetAndMetadata]) -> Meaning:
    """The meaning of a returned value.

    None: the offsets of revoked partitions that auto-commit has not saved, and nothing besides.
    """
    event = call.event
    commit = {one: to for one, to in unsaved.items() if isinstance(event, Revoked) and one in event.partitions}
    if result is None:
        return Meaning(commit, {})
    try:
        given = _checked(call, result)
    except (TypeError, ValueError, KohortError) as problem:
        return Meaning(commit, {}, problem)
    if isinstance(event, Revoked):
        return Meaning(commit | given, {})
    if not isinstance(event, Assigned):
        return Meaning(commit, {})
    return Meaning(commit, {one: Start(to.offset, to.leader_epoch) for one, to in given.items()})


def _checked(call: HookCall, result: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition. Raises TypeError and ValueError for invalid ones, IllegalState for a foreign
    partition."""
    if hasattr(result, "__await__"):
        raise TypeError(f"only AsyncConsumer awaits the result of a hook, which is {result!r}")
    if not isinstance(result, Mapping):
        raise TypeError(f"a hook must return None or offsets by partition, not {result!r}")
    given = plain(result)
    allowed = call.before if isinstance(call.event, Revoked) else call.after
    for partition in given:
        if partition not in allowed:
            raise IllegalState("the hook returned an offset of a partition that is not owned", **partition._asdict())
    return given
