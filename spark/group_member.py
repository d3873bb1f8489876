"""The driver of a Spark application as a member of a consumer group, which reads no records itself.

The member polls on a separate thread, with everything paused. It keeps the position of each owned partition, and the
micro-batch that reads it. A revocation waits until that micro-batch is done. Its positions are then committed under
the old generation. A lost partition is dropped at once, and the offsets of its micro-batch are never committed.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kohort.common import TopicPartition
from kohort.coordinator_client import (
    Assigned,
    CommitFailed,
    Consumer,
    Lost,
    OffsetAndMetadata,
    OperationTimeout,
    RebalanceHooks,
    RebalanceInProgress,
    Revoked,
    TopicRecreated,
    UnknownTopic,
    WakeupError,
)
from kohort.spark.options import SourceOptions
from kohort.spark.plan import LogRange
from kohort.spark.ranges import OffsetRange

POLL_S = 0.2
CLOSE_S = 30.0
LOOK_S = 0.02
MARK = "kohort-spark"  # the metadata of commits by streams. An offset that a tool has set lacks it.


@dataclass(frozen=True, slots=True)
class TakenRecords:
    """The ranges of one micro-batch, and the generation under which the application owns them."""

    generation: int
    ranges: tuple[OffsetRange, ...]


NOTHING = TakenRecords(-1, ())


@dataclass(slots=True)
class _HeldRange:
    """An owned partition. `position`: the next offset to read. `committed`: the offset that the group has.

    `is_foreign`: another program has set that offset, and no batch has begun there.
    """

    position: int
    committed: int | None
    leaving: bool = False
    is_foreign: bool = False


class SparkGroupMember(RebalanceHooks):
    """A group member: `take` a micro-batch, `finish` it, and so on; `close` leaves the group.

    `before`: the ranges of the last batch that Spark has finished. Its commit may be missing after a crash. If a
    stream's commit of the start of such a range is still the last one, reading starts at the end of the range. An
    offset that a tool has set is followed.
    """

    def __init__(self, options: SourceOptions, before: TakenRecords = NOTHING) -> None:
        assert options.member_of is not None
        self._options = options
        self._before = {one.place: one for one in before.ranges}
        self._held: dict[TopicPartition, _HeldRange] = {}
        self._batch: TakenRecords | None = None
        self._batch_of: dict[TopicPartition, _HeldRange] = {}
        self._generation = -1
        self.rebalancing = True
        self._hook_commit_since: float | None = None  # when a hook returned offsets whose commit is in flight
        self._stopping = False
        self._error: BaseException | None = None
        # The stream looks for deleted topics at each trigger.
        self._no_errors = (UnknownTopic, TopicRecreated) if options.skip_lost else ()
        self._changed = threading.Condition()
        # The start offsets are set by on_assigned; the consumer's own reset must only not raise.
        settings = {**options.settings, "auto_offset_reset": "earliest"}
        self._consumer = Consumer(options.bootstrap, group=options.member_of, **settings)
        self._consumer.subscribe(options.topics or None, pattern=options.pattern, hooks=self)
        self._consumer.pause()
        self._thread = threading.Thread(target=self._live, name="kohort-spark-member", daemon=True)
        self._thread.start()

    @property
    def wait_s(self) -> float:
        """The longest delay of a rebalance by a batch; the group waits max_poll_interval_ms at most."""
        return float(self._options.settings.get("max_poll_interval_ms", 300_000)) / 1000 * 0.8

    # --- called by the stream, on its thread

    @property
    def topics(self) -> frozenset[str]:
        """The topics of owned partitions."""
        with self._changed:
            return frozenset(place.topic for place in self._held)

    def forget(self, missing: Collection[str], again: Collection[str]) -> None:
        """Drop the positions of topics that are missing, or were created again, and that the group still assigns.

        A commit for missing ones would be retried until its deadline. A topic that is created again is read from its
        beginning.
        """
        with self._changed:
            for place, held in self._held.items():
                if place.topic in missing or place.topic in again:
                    # A new object: the position of a batch under way belongs to the old one.
                    self._held[place] = _HeldRange(0, None if place.topic in again else 0, held.leaving)

    def take(self, choose: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]) -> TakenRecords:
        """The next micro-batch: the owned partitions, from their positions to the offsets of `choose(positions)`.

        Partitions that are being revoked are left out, also those that were revoked while `choose` ran. An offset
        below the position means that the log lost records. The position moves back to it.
        """
        with self._changed:
            self._raise()
            free = {place: held for place, held in self._held.items() if not held.leaving}
            positions = {place: held.position for place, held in free.items()}
        ends = choose(positions) if positions else {}
        with self._changed:
            self._raise()
            still = {place: held for place, held in free.items() if self._held.get(place) is held and not held.leaving}
            ranges = [
                OffsetRange(*place, positions[place], ends[place])
                for place in sorted(still)
                if ends.get(place, 0) > positions[place]
            ]
            for place, held in still.items():
                held.position = min(held.position, ends.get(place, held.position))
            if not ranges:
                return NOTHING
            self._batch = TakenRecords(self._generation, tuple(ranges))
            self._batch_of = {one.place: still[one.place] for one in ranges}
            for held in self._batch_of.values():
                if held.is_foreign:  # commit it as a stream's, so that a restart passes this batch once it is finished
                    held.committed, held.is_foreign = None, False
                    self._consumer.wakeup()
            return self._batch

    def finish(self, timeout_s: float) -> None:
        """Move the positions behind the taken batch, and commit those that are still owned.

        Raises OperationTimeout if the commit takes longer than `timeout_s`, and the error that ended the membership.
        """
        until = time.monotonic() + timeout_s
        with self._changed:
            if self._batch is not None:
                for one in self._batch.ranges:
                    self._batch_of[one.place].position = one.stop
                self._batch = None
                self._batch_of = {}
                self._changed.notify_all()
                self._consumer.wakeup()
            while self._dirty() or not self._hook_commit_settled():
                self._raise()
                if time.monotonic() >= until:
                    raise OperationTimeout("OffsetCommit took too long", group=self._options.member_of)
                self._changed.wait(LOOK_S)

    def wait_for_assignment(self, timeout_s: float, *, settled: bool = False) -> bool:
        """True if there was an assignment in time, even an empty one. `settled`: no rebalance has begun since."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_assigned(settled) or self._error is not None, timeout_s)
            self._raise()
            return self._is_assigned(settled)

    def _is_assigned(self, settled: bool) -> bool:
        return self._generation >= 0 and not (settled and self.rebalancing)

    def close(self) -> None:
        """Commit finished batches, and leave the group. An unfinished batch is not committed."""
        with self._changed:
            self._stopping = True
            self._batch, self._batch_of = None, {}
            self._changed.notify_all()
        self._consumer.wakeup()
        self._thread.join(CLOSE_S)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _dirty(self) -> dict[TopicPartition, int]:
        return {p: held.position for p, held in self._held.items() if held.position != held.committed}

    def _hook_commit_settled(self) -> bool:
        """True if no commit of the last on_revoked is in flight."""
        since = self._hook_commit_since
        if since is not None and any(entry.at >= since for entry in self._consumer.commit_log()):
            self._hook_commit_since = None
        return self._hook_commit_since is None

    # --- the member's thread

    def _live(self) -> None:
        try:
            with self._consumer:
                while not self._stopping:
                    self._commit()
                    with contextlib.suppress(WakeupError, *self._no_errors):
                        self._consumer.poll(POLL_S)
                self._commit()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._held.clear()
                self._changed.notify_all()

    def _commit(self) -> None:
        with self._changed:
            dirty = self._dirty()
            held = {place: self._held[place] for place in dirty}
        if not dirty:
            return
        try:
            self._consumer.commit(_marked(dirty), allow_rewind=True)
        except (RebalanceInProgress, CommitFailed, *self._no_errors):
            return  # the next poll calls the hooks for partitions that are no longer owned
        with self._changed:
            for place, offset in dirty.items():
                held[place].committed = offset
            self._changed.notify_all()

    def on_assigned(self, event: Assigned) -> dict[TopicPartition, int]:
        starts = self._starts(tuple(sorted(event.partitions)))
        with self._changed:
            self._held = {place: held for place, held in self._held.items() if place in event.assignment} | starts
            self._generation = event.generation
            self.rebalancing = False
            self._hook_commit_since = None
            self._changed.notify_all()
            return {place: held.position for place, held in starts.items()}

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, OffsetAndMetadata]:
        with self._changed:
            self.rebalancing = True
            for place in event.partitions & self._held.keys():
                self._held[place].leaving = True
            self._changed.wait_for(lambda: not self._batch_of.keys() & event.partitions, self.wait_s)
            gone = {place: self._held.pop(place) for place in event.partitions if place in self._held}
            uncommitted = {place: held.position for place, held in gone.items() if held.position != held.committed}
            if uncommitted:
                self._hook_commit_since = time.monotonic()
            self._changed.notify_all()
        # A batch that is not done by now goes on without a commit, and the next owner reads its records again.
        return _marked(uncommitted)

    def on_lost(self, event: Lost) -> None:
        with self._changed:
            self.rebalancing = True
            for place in event.partitions:
                self._held.pop(place, None)
            self._hook_commit_since = None
            self._changed.notify_all()

    def _starts(self, places: tuple[TopicPartition, ...]) -> dict[TopicPartition, _HeldRange]:
        """The partitions at their start offsets.

        A partition without a commit gets a commit of its start at once. Otherwise "latest" would be another offset
        for the next owner.
        """
        found = self._consumer.committed(places)
        fresh = tuple(place for place in places if found.get(place) is None)
        begin = self._begin(fresh)
        starts: dict[TopicPartition, _HeldRange] = {}
        for place in places:
            stored, done = found.get(place), self._before.pop(place, None)
            if stored is None:
                starts[place] = _HeldRange(begin[place], None)
                continue
            ours, start = stored.metadata == MARK, stored.offset
            if ours and done is not None and done.start == start:
                start = done.stop
            starts[place] = _HeldRange(start, stored.offset, is_foreign=not ours)
        return starts

    def _begin(self, places: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        if not places:
            return {}
        try:
            return LogRange(self._consumer, places, has_group=True).resolve(
                self._options.start, "start", self._options.on_late_time
            )
        except UnknownTopic as error:  # deleted since it was assigned
            left = tuple(place for place in places if place.topic != error.place.get("topic"))
            if not self._options.skip_lost or left == places:
                raise
            return dict.fromkeys(places, 0) | self._begin(left)


def _marked(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {place: OffsetAndMetadata(offset, metadata=MARK) for place, offset in offsets.items()}
