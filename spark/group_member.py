"""The driver of a Spark application as a member of a consumer group, which reads nothing itself.

The member lives on a thread of its own, polls with everything paused, and knows two things of each partition it owns:
how far reading has come (`position`), and which micro-batch is reading it now. A partition that the group takes away is
let go when the micro-batch that reads it is done, and what that has read is committed under the generation that owned
it. A partition that is lost is forgotten at once: whatever a batch has still read of it is never committed.
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
    OperationTimeout,
    RebalanceHooks,
    RebalanceInProgress,
    Revoked,
    WakeupError,
)
from kohort.spark.options import SourceOptions
from kohort.spark.plan import LogRange
from kohort.spark.ranges import OffsetRange

POLL_S = 0.2
CLOSE_S = 30.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class TakenRecords:
    """The ranges of one micro-batch, and the generation under which the application owns them."""

    generation: int
    ranges: tuple[OffsetRange, ...]


NOTHING = TakenRecords(-1, ())


@dataclass(slots=True)
class _HeldRange:
    """A partition that is owned. `position`: the next offset to read; `committed`: what the group has been told."""

    position: int
    committed: int | None
    leaving: bool = False


class SparkGroupMember(RebalanceHooks):
    """Start it, `take` a micro-batch, `finish` it, and so on; `close` leaves the group.

    `before`: what the last batch that Spark has finished had read. Its commit may have been cut off; where the group's
    commit is still at its beginning, reading goes on behind it.
    """

    def __init__(self, options: SourceOptions, before: TakenRecords = NOTHING) -> None:
        assert options.member_of is not None
        self._options = options
        self._before = {one.place: one for one in before.ranges}
        self._held: dict[TopicPartition, _HeldRange] = {}
        self._batch: TakenRecords | None = None
        self._batch_of: dict[TopicPartition, _HeldRange] = {}
        self._generation = -1
        self._answered_at: float | None = None  # when a hook gave offsets to commit whose end is not known
        self._stopping = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        # Where reading begins is decided here; where the consumer would begin must only not be an error.
        settings = {**options.settings, "auto_offset_reset": "earliest"}
        self._consumer = Consumer(options.bootstrap, group=options.member_of, **settings)
        self._consumer.subscribe(options.topics or None, pattern=options.pattern, hooks=self)
        self._consumer.pause()
        self._thread = threading.Thread(target=self._live, name="kohort-spark-member", daemon=True)
        self._thread.start()

    @property
    def wait_s(self) -> float:
        """The time for which a batch may hold up a rebalance; the group waits max_poll_interval_ms at most."""
        return float(self._options.settings.get("max_poll_interval_ms", 300_000)) / 1000 * 0.8

    # --- what the stream asks, on its own thread

    @property
    def topics(self) -> frozenset[str]:
        """Of which partitions are owned."""
        with self._changed:
            return frozenset(place.topic for place in self._held)

    def forget(self, topics: Collection[str]) -> None:
        """Topics that are there no more, though the group has not noticed: nothing of them is committed, which would be
        tried until its deadline and then end the membership. One that is made anew is read from its beginning."""
        with self._changed:
            for place, held in self._held.items():
                if place.topic in topics:
                    self._held[place] = _HeldRange(
                        0, 0, held.leaving
                    )  # and what a batch has read of it goes with the old

    def take(self, choose: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]) -> TakenRecords:
        """The next micro-batch: of what is owned, from where it stands to where `choose(positions)` says.

        What is being let go is left out, and so is what went while `choose` asked the brokers. Where it says less than
        where a partition stands, its log has lost what was read: reading goes on from there with what comes next.
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
            return self._batch

    def finish(self, timeout_s: float) -> None:
        """The batch that was taken is done: its positions count, and are committed if they are still ours to commit.

        Raises OperationTimeout when the group cannot be told in time, and what ended the membership.
        """
        until = time.monotonic() + timeout_s
        with self._changed:
            if self._batch is not None:
                for one in self._batch.ranges:
                    self._batch_of[one.place].position = one.stop
                self._batch = None
                self._batch_of = {}
                self._changed.notify_all()
                self._wake()
            while self._dirty() or not self._told():
                self._raise()
                if time.monotonic() >= until:
                    raise OperationTimeout("the group could not be told what was read", group=self._options.member_of)
                self._changed.wait(LOOK_S)

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """True if the group assigned something in time; an empty assignment counts."""
        with self._changed:
            self._changed.wait_for(lambda: self._generation >= 0 or self._error is not None, timeout_s)
            self._raise()
            return self._generation >= 0

    def close(self) -> None:
        """Commit what is done, and leave. A batch that is not finished is not committed."""
        with self._changed:
            self._stopping = True
            self._batch, self._batch_of = None, {}
            self._changed.notify_all()
        self._wake()
        self._thread.join(CLOSE_S)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _dirty(self) -> dict[TopicPartition, int]:
        return {p: held.position for p, held in self._held.items() if held.position != held.committed}

    def _told(self) -> bool:
        """Whether what the last hook answered is committed, or refused."""
        since = self._answered_at
        if since is not None and any(entry.at >= since for entry in self._consumer.commit_log()):
            self._answered_at = None
        return self._answered_at is None

    def _wake(self) -> None:
        self._consumer.wakeup()

    # --- the member's thread

    def _live(self) -> None:
        try:
            with self._consumer:
                while not self._stopping:
                    self._commit()
                    with contextlib.suppress(WakeupError):
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
            self._consumer.commit(dirty, allow_rewind=True)
        except (RebalanceInProgress, CommitFailed):
            return  # the next poll says what is still ours
        with self._changed:
            for place, offset in dirty.items():
                held[place].committed = offset
            self._changed.notify_all()

    def on_assigned(self, event: Assigned) -> dict[TopicPartition, int]:
        starts = self._starts(tuple(sorted(event.partitions)))
        with self._changed:
            self._held = {place: held for place, held in self._held.items() if place in event.assignment}
            for place, (start, committed) in starts.items():
                self._held[place] = _HeldRange(start, committed)
            self._generation = event.generation
            self._answered_at = None
            self._changed.notify_all()
        return {place: start for place, (start, _committed) in starts.items()}

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        with self._changed:
            for place in event.partitions & self._held.keys():
                self._held[place].leaving = True
            self._changed.wait_for(lambda: not self._batch_of.keys() & event.partitions, self.wait_s)
            gone = {place: self._held.pop(place) for place in event.partitions if place in self._held}
            untold = {place: held.position for place, held in gone.items() if held.position != held.committed}
            if untold:
                self._answered_at = time.monotonic()
            self._changed.notify_all()
        # A batch that is not done by now goes on, and is not committed: who gets the partition reads it again.
        return untold

    def on_lost(self, event: Lost) -> None:
        with self._changed:
            for place in event.partitions:
                self._held.pop(place, None)
            self._answered_at = None
            self._changed.notify_all()

    def _starts(self, places: tuple[TopicPartition, ...]) -> dict[TopicPartition, tuple[int, int | None]]:
        """Where reading begins and what is committed. Where nothing is, the beginning is committed at once: "latest"
        must not mean another offset to whoever gets the partition next."""
        found = self._consumer.committed(places)
        fresh = tuple(place for place in places if found.get(place) is None)
        begin = (
            LogRange(self._consumer, fresh, has_group=True).resolve(
                self._options.start, "start", self._options.on_late_time
            )
            if fresh
            else {}
        )
        starts: dict[TopicPartition, tuple[int, int | None]] = {}
        for place in places:
            stored = found.get(place)
            start = begin[place] if stored is None else stored.offset
            done = self._before.pop(place, None)
            if done is not None and done.start == start:
                start = done.stop
            starts[place] = (start, None if stored is None else stored.offset)
        return starts
