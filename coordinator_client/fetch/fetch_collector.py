"""Collects the buffered records for a poll: on the caller's thread, decoded without the lock.

A signal handler may raise on the caller's thread after any call. Collecting therefore removes nothing from the buffer.
Slices stay there until the poll has handed them over (`Visit.handed`), and are settled later, in repeatable steps.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.fetch._collect import (
    CollectedFetches,
    CollectorFields,
    ReturnedFetches,
    collect_usual,
)
from kohort.coordinator_client.fetch.completed_fetch import MOST_AT_ONCE, CollectedFetch, CompletedFetch, DecodedFetch
from kohort.coordinator_client.fetch.fetcher import Fetcher
from kohort.fastpath import CorruptRecord, decode
from kohort.network._guard import Door
from kohort.network.network_client import Driver

SIDE_BY_SIDE_BYTES: Final = 1 << 18
"""Fewer bytes are decoded before another thread has woken up."""


class FetchCollector(CollectorFields):
    """Collects slices for the caller, and settles those that were handed over.

    `readable` returns the partitions that may be returned at a time. None: membership is uncertain, because a process
    that slept may own nothing any more (B-33). `on_skipped` is called for a corrupt batch that was skipped.
    """

    def __init__(
        self,
        driver: Driver[Any],
        context: ConsumerContext,
        fetcher: Fetcher,
        door: Door,
        *,
        readable: Callable[[float], Container[TopicPartition] | None],
        on_skipped: Callable[[TopicPartition, CorruptRecord], None],
    ) -> None:
        self.driver = driver
        self.lock = driver.lock
        self._run = driver.lock.run
        self.config = context.config
        self.context = context
        self.metadata = context.metadata
        self.counters = context.counters
        self.fetcher = fetcher
        self.states = fetcher.positions.states
        self.now = driver.now
        self.positions = fetcher.positions
        self.last_timestamps = fetcher.positions.last_timestamps
        self.door = door
        self.readable = readable
        self._on_skipped = on_skipped
        self.decoded = {}  # not handed over yet

    # --- on the caller's thread, without the lock

    def collect(self, most: int) -> CollectedFetches:
        """Return the slices of this poll, at most `most` slices and `max_poll_records`, decoded without the lock.

        A batch that cannot be decoded is an error at its position, and the valid batches before it are handed over
        first. Its error is raised by this call, or by a later poll if there are records to return.
        """
        if not self.fetcher.parked:
            self.decoded = {}
            return CollectedFetches()
        if not self.decoded:
            usual = self.collect_usual(most)
            if usual is not None:
                return usual
        run, now = self._run, self.now
        collected = CollectedFetches()
        room = float(self.config.max_poll_records or "inf")
        for chunk in self._line(most):
            slices = run(self._next_slices, chunk, most - len(collected.columns), now())
            if not slices:
                continue
            if self.fetcher.held_back:
                self.driver.wakeup()  # room for the next fetch, which is sent while these slices are decoded
            room = run(self._select, self._decode(slices), collected, most, room, now())
            if room <= 0 or len(collected.columns) >= most or most == 1:
                break
        if collected.kept or self.decoded:
            self.decoded = {one.slice_.partition: one for one in collected.kept}
        if collected.errors:
            self._refuse(collected)
        return collected

    def collect_usual(self, most: int) -> CollectedFetches | None:
        """As `collect`, in one compiled step. None if something is unusual."""
        return collect_usual(self.lock, self, decode, most, SIDE_BY_SIDE_BYTES)

    def skip_batch(self, collected: CollectedFetches) -> None:
        """Move behind slices without records for the user: control batches, records of aborted transactions."""
        self.door.handed = ReturnedFetches(collected)
        self.settle()

    def _line(self, most: int) -> Iterator[list[TopicPartition]]:
        """Yield the partitions with slices, in turn, in chunks that are examined under one hold of the lock.

        For one slice the order is not copied: a partition that may not be returned is set aside when it is examined.
        """
        run, parked = self._run, self.fetcher.parked
        if most > 1:
            line = run(parked.line)
            for at in range(0, len(line), MOST_AT_ONCE):
                yield line[at : at + MOST_AT_ONCE]
            return
        before: list[TopicPartition] = []
        while (line := run(parked.line, MOST_AT_ONCE)) != before:
            yield line
            before = line

    def _decode(self, slices: Sequence[tuple[CompletedFetch, int]]) -> list[DecodedFetch]:
        """Decode each slice to columns or an error. Large slices are decoded in parallel, because decoding releases the
        GIL.
        """
        decoded = {
            slice_.partition: one
            for slice_, _offset in slices
            if (one := self.decoded.get(slice_.partition)) is not None and one.slice_ is slice_
        }
        due = [(slice_, offset) for slice_, offset in slices if slice_.partition not in decoded]
        jobs = [partial(_decode, slice_, offset, self.config) for slice_, offset in due]
        if len(jobs) > 1 and sum(len(slice_.records) for slice_, _offset in due) >= SIDE_BY_SIDE_BYTES:
            fresh = self.driver.run_parallel(jobs)
        else:
            fresh = [job() for job in jobs]
        for done in fresh:
            decoded[done.slice_.partition] = done
            if done.corrupt and done.columns is not None:
                for skipped in done.columns.corrupt:
                    self._on_skipped(done.slice_.partition, skipped)
        return [decoded[slice_.partition] for slice_, _offset in slices]

    def _refuse(self, collected: CollectedFetches) -> None:
        """A slice that cannot be decoded is fetched again, and its error raised, now or by the next poll."""
        first = collected.errors[0].error
        assert first is not None

        def refetch(_core: object) -> None:
            for one in collected.errors:
                if self.fetcher.parked.first(one.slice_.partition) is one.slice_:
                    self.fetcher.refetch(one.slice_.partition)
            if collected.columns:
                self.context.put_error(first)

        self.driver.execute(refetch)
        if not collected.columns:
            raise first

    # --- under the lock

    def _next_slices(
        self, partitions: Sequence[TopicPartition], most: int, now: float
    ) -> list[tuple[CompletedFetch, int]]:
        """Return the next slice of each of these partitions, up to `most` slices, with the offset to decode from.

        At most `MOST_AT_ONCE` partitions are examined. None is returned once membership is uncertain. The slices stay
        buffered until they are settled.
        """
        found: list[tuple[CompletedFetch, int]] = []
        allowed = self.readable(now)
        if allowed is None:
            return found
        self._looks_at(len(partitions))
        for partition in partitions:
            slice_ = self.fetcher.next_slice(partition, allowed)
            if slice_ is not None:
                found.append((slice_, max(slice_.start, self.positions.state(partition).offset)))
                if len(found) == most:
                    break
        return found

    def _looks_at(self, slices: int) -> None:
        if slices > self.most_at_once:
            self.most_at_once = slices

    def _select(
        self, decoded: Sequence[DecodedFetch], collected: CollectedFetches, most: int, room: float, now: float
    ) -> float:
        """Add to `collected` the slices of these that may be handed over, and return the remaining room.

        At most `MOST_AT_ONCE` slices are examined. It has no other effect: other slices stay buffered, because fetches
        continue behind them, and dropped records would be skipped.
        """
        self._looks_at(len(decoded))
        allowed = self.readable(now) or ()
        for one in decoded:
            slice_ = one.slice_
            if room <= 0 or len(collected.columns) >= most or not self._is_next(slice_, allowed):
                collected.kept.append(one)
                continue
            if one.columns is None:
                collected.errors.append(one)
                continue
            part, rest = one.columns, None
            end = self.fetcher.until.get(slice_.partition)
            if end is not None and part.next_offset >= end:
                part = part[: bisect_left(part.offsets, end)]
            elif not part.complete:
                rest = slice_._replace(start=part.next_offset)
            if len(part) > room:
                later = part[int(room) :]
                part = part[: int(room)]
                rest = slice_._replace(start=part.next_offset)
                collected.kept.append(DecodedFetch(rest, later))
            last_ms = part.timestamps_ms[-1] if len(part) else None
            misled = rest is None and bool(part.corrupt) and part.next_offset != slice_.end
            collected.items.append(CollectedFetch(slice_, rest, part.next_offset, last_ms, len(part), misled))
            collected.corrupt += one.corrupt
            if len(part) or part.corrupt:
                collected.columns.append(part)
                room -= len(part)
        return room

    def _is_next(self, slice_: CompletedFetch, allowed: Container[TopicPartition]) -> bool:
        """The slice may be shown now: not paused, not voided by a seek or a revocation, and the first of its
        partition."""
        partition = slice_.partition
        return (
            partition in allowed
            and self.positions.is_current(partition, slice_.serial)
            and self.fetcher.parked.first(partition) is slice_
        )


def _decode(slice_: CompletedFetch, offset: int, config: ConsumerConfig) -> DecodedFetch:
    partition = slice_.partition
    try:
        columns = decode(
            slice_.records,
            topic=partition.topic,
            partition=partition.partition,
            from_offset=offset,
            aborted=slice_.aborted,
            on_corrupt=config.on_corrupt,
            high_watermark=slice_.high_watermark,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )
        if slice_.end == slice_.start and not len(columns) and columns.next_offset <= slice_.start:
            raise CorruptRecord(
                "Fetch response contains no complete record batch",
                hint="raise max_partition_fetch_bytes if the batch is larger",
                **partition._asdict(),
                offset=slice_.start,
            )
    except KohortError as error:
        before = error.decoded if isinstance(error, CorruptRecord) else None
        if before is None or before.next_offset <= offset:
            return DecodedFetch(slice_, None, error=error)
        columns = before  # the next poll behind these records raises the error first
    return DecodedFetch(slice_, columns, len(columns.corrupt))
