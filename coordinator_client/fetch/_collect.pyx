# cython: freethreading_compatible=True
# cython: language_level=3
"""The usual poll: no hook, callback or error is due, and few small slices are buffered or come. They are settled here, too.

`FetchCollector` collects for all other polls, and `PollLoop` does what else is due in them.

Collecting removes nothing from the buffer, because a signal handler may still raise before the records are handed over.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.time cimport monotonic
from libc.stdint cimport int64_t, uint8_t

from kohort.coordinator_client.fetch._fetch_buffer cimport FetchBuffer, FetcherFields
from kohort.coordinator_client.offsets._partition_states cimport PartitionStates
from kohort.fastpath._byteorder cimport be32, be64
from kohort.fastpath._columns cimport RecordColumns
from kohort.fastpath._tuples cimport new
from kohort.network._guard cimport Bell, Door, Guard, shared_flag
from kohort.network._poller cimport DriverFields, Lease
from kohort.network._samples cimport Counters, PollTimes

from kohort.common import KohortError
from kohort.coordinator_client.errors import CallbackError, ConsumerClosed
from kohort.coordinator_client.fetch.completed_fetch import MOST_AT_ONCE, CollectedFetch, DecodedFetch
from kohort.network.errors import ConcurrentUseError

cdef Py_ssize_t MOST_SLICES = MOST_AT_ONCE
cdef unsigned long NO_TURN = <unsigned long>-1
cdef double LONGEST_DECODE_S = 0.001  # without another look whether the slices may be returned

cdef enum:
    PARTITION = 0  # of a `CompletedFetch`
    START = 2
    SERIAL = 4
    SERIAL_OF_STATE = 1  # of a `PartitionState`
    OFFSET_OF_STATE = 2
    TOPICS = 1  # of a `ClusterView`
    PARTITIONS = 3  # of a `TopicView`
    LEADER_EPOCH = 1  # of a `PartitionView`
    LENGTH_AT = 8  # of a batch
    LENGTH_END = 12
    MAGIC_AT = 16
    NO_EPOCH = -1


@cython.final
cdef class CollectedFetches:
    """The slices that a poll gathers.

    `columns`: for the user. `items`: the sources of `columns`. `kept`: slices that were decoded and kept.
    """

    cdef readonly list columns, items, kept, errors
    cdef public object corrupt

    def __cinit__(self):
        self.columns, self.items, self.kept, self.errors = [], [], [], []
        self.corrupt = 0


@cython.final
cdef class ReturnedFetches:
    """The slices that a poll has returned and that are not settled yet. `settled` items of it are done.

    `outlived`: a settled slice's partition has a new leader. Its end offset is requested before later slices are used.
    """

    cdef readonly tuple items
    cdef readonly Py_ssize_t records
    cdef readonly object corrupt
    cdef public bint outlived
    cdef public Py_ssize_t settled

    def __init__(self, CollectedFetches collected):
        self.items = tuple(collected.items)
        self.settled = 0
        self.records = 0
        for item in self.items:
            self.records += item.records
        self.corrupt = collected.corrupt
        self.outlived = False


cdef class CoreFields:
    """Of a `ConsumerCore`; see `network/_follow_up.pyx`.

    `has_updates`: a waiting poll should look again. `owes_loss`: the hook `on_lost` will follow, but is not due yet.
    """

    cdef public PollTimes polls
    cdef public bint commits_by_poll
    cdef public shared_flag has_updates, owes_loss

    def notify(self):
        """Set `has_updates`. A caller's thread calls it where no signal handler may run (`Lease`)."""
        self.has_updates = 1


cdef class CollectorFields:
    """Of a `FetchCollector`. `most_at_once`: the slices that were looked at under one hold of the lock."""

    cdef public Guard lock
    cdef public Door door
    cdef public FetcherFields fetcher
    cdef public PartitionStates states
    cdef public Counters counters
    cdef public Py_ssize_t most_at_once
    cdef public object driver, config, context, metadata, positions, readable
    cdef public dict decoded, last_timestamps

    cpdef settle(self):
        """Move behind what earlier polls returned: positions, and the slices leave the buffer."""
        cdef ReturnedFetches handed = self.door.current()
        if handed is None:
            return
        while not self.settle_some(handed):
            pass  # heartbeats wait for one step at the longest
        if handed.outlived:
            self.driver.wakeup()

    cdef bint settle_some(self, ReturnedFetches handed) except -1:
        self.lock.acquire()
        try:
            return _settle(self, handed)
        finally:
            self.lock.release()

    def settle_step(self):
        """Settle a part of the last hand-over, by a thread that holds the lock. True if nothing is left of it.

        It may be repeated.
        """
        cdef ReturnedFetches handed = self.door.current()
        return handed is None or _settle(self, handed)


cdef class PollFields:
    """Of a `PollLoop`. The visiting thread uses them. Others read `closed`, and set `has_wakeup`."""

    cdef CoreFields core_fields
    cdef DriverFields driver_fields
    cdef CollectorFields collector_fields
    cdef public Door door
    cdef public bint in_hook, in_callback
    cdef public object outcome, error, _callback, _observer
    cdef unsigned long usual_turn  # with nothing unusual in the core behind it
    cdef public shared_flag has_wakeup, closed

    def use(self, DriverFields driver, CoreFields core, CollectorFields collector):
        """Keep the parts that polls use. Python has them as attributes of its own, which it finds sooner than these."""
        self.driver_fields, self.core_fields, self.collector_fields = driver, core, collector
        self.usual_turn = NO_TURN

    def acquire(self, *, bint in_hooks=True, bint when_crashed=False, bint when_closed=False, bint catch_up=True):
        """Enter the consumer, as every public call does. One thread at a time; not in a forked child; not after close.

        Raises ForkError, ConcurrentUseError, ConsumerClosed, and CallbackError where hooks may not call.
        """
        cdef DriverFields driver = self.driver_fields
        if driver.was_forked():
            driver.check_same_process()
        self.door.check()
        if driver.lock.is_mine():
            driver.check_reentry()
        if self.closed and not when_closed:
            raise ConsumerClosed("the consumer is closed")
        if self.in_hook and not in_hooks:
            raise CallbackError("this must not be called inside a hook", hint="return from the hook first")
        if not when_crashed and driver.crashed is not None:
            driver.check()
        if catch_up and driver.orders:
            driver.apply_pending_changes()
        return self.door.visit()

    def poll_begins(self, *, bint handled=True, bint alone=True):
        """Begin a poll. The user's processing time is measured between `poll_ends` and this (KIP-62).

        `handled`: true if this call means that the records returned before are processed, which a close does not mean.
        `alone`: raise ConcurrentUseError inside another call, unless a callback calls. With tasks other calls may wait.
        """
        cdef CoreFields core = self.core_fields
        cdef Guard lock = self.driver_fields.lock
        cdef double now
        if handled and alone and not self.in_callback and self.door._depth > 1:
            raise ConcurrentUseError(
                "poll was called inside poll, as by a signal handler", hint="in a handler call only wakeup()"
            )
        self.collector_fields.settle()
        now = monotonic()
        lock.acquire()
        try:
            if core.commits_by_poll:
                core.polled(now, handled)
            else:
                core.polls.begin(now)
        finally:
            lock.release()
        if core.owes_loss:
            self.driver_fields.wakeup()  # otherwise the machine learns of it at its next turn, which is soon enough
        if handled and self._observer is not None:
            self._observer.poll_began(now)

    def poll_ends(self):
        """See `poll_begins`."""
        cdef Guard lock = self.driver_fields.lock
        lock.acquire()
        try:
            self.core_fields.polls.end(monotonic())
        finally:
            lock.release()

    cdef bint is_usual(self) except -1:
        """Nothing is due but to look for records. Only a turn changes what is due in the core, or an end of the driver. The
        response to a commit counts as a turn."""
        cdef unsigned long turn = self.driver_fields.turns
        if self.has_wakeup or self.closed or self.outcome is not None or self.error is not None:
            return False
        if self._callback is not None or self._observer is not None or self.collector_fields.decoded:
            return False
        if turn == self.usual_turn:
            return True
        core = self.core_fields
        if core.owes_loss or action_is_due(core) or self.driver_fields.crashed is not None:
            return False
        self.usual_turn = turn
        return True


def collect_usual(Guard guard, CollectorFields collector, decode, Py_ssize_t most, Py_ssize_t most_bytes):
    """The slices of a poll, at most `most`. None if something is unusual. Nothing has changed then, but for
    `collector.decoded`.

    What may be returned changes by turns of the driver, or by time: the process may sleep while it decodes (B-33).

    Usual are slices of fewer than `most_bytes` in all, which are decoded whole, without an error and within the limits.
    """
    cdef FetchBuffer parked = collector.fetcher.parked
    cdef CollectedFetches collected
    cdef RecordColumns columns_of_slice
    cdef list slices, columns
    cdef DriverFields driver = collector.driver
    cdef unsigned long turn
    cdef double began = monotonic()
    cdef Py_ssize_t place
    guard.acquire()
    try:
        turn = driver.turns
        slices = _next_slices(collector, parked, most) if parked.total_bytes < most_bytes else None
    finally:
        guard.release()
    if not slices:
        return None
    columns = _decoded(collector, decode, slices)
    if columns is None:
        return None
    if driver.turns != turn or monotonic() - began > LONGEST_DECODE_S:
        guard.acquire()
        try:
            allowed = collector.readable(monotonic())
            for slice_, _offset in slices:
                if _offset_of_next(collector.states, parked, slice_, allowed) is None:
                    return None
        finally:
            guard.release()
    collected = CollectedFetches.__new__(CollectedFetches)
    collected.columns = columns
    for place in range(len(slices)):
        slice_, columns_of_slice = (<tuple>slices[place])[0], <RecordColumns?>columns[place]
        collected.items.append(
            new(
                CollectedFetch,
                (
                    slice_,
                    None,
                    columns_of_slice.next_offset,
                    columns_of_slice.last_timestamp(),
                    columns_of_slice.stop - columns_of_slice.start,
                    False,
                ),
            )
        )
    return collected


cdef list _next_slices(CollectorFields collector, FetchBuffer parked, Py_ssize_t most):
    """The slices in turn, each with the offset to decode from; None if one of them is unusual."""
    cdef list found = []
    cdef PartitionStates states = collector.states
    cdef FetcherFields fetcher = collector.fetcher
    cdef dict until = fetcher.until
    cdef Py_ssize_t waiting = len(parked._line)
    allowed, line = collector.readable(monotonic()), parked._line
    if allowed is None or min(waiting, most) > MOST_SLICES or fetcher.held_back:
        return None
    for partition in line:
        slice_ = parked.first(partition)
        offset = _offset_of_next(states, parked, slice_, allowed)
        if offset is None or until and partition in until:
            return None
        start = (<tuple>slice_)[START]
        found.append((slice_, start if <int64_t>start > <int64_t>offset else offset))
        if len(found) == most:
            break
    for slice_, _offset in found:
        parked.take_in_hand(slice_)
    return found


cdef object _offset_of_next(PartitionStates states, FetchBuffer parked, slice_, allowed):
    """The position, if the slice may be shown now: not paused, not voided by a seek or a revocation, and the first of
    its partition."""
    cdef PyObject *state
    partition = (<tuple>slice_)[PARTITION]
    if allowed is None or partition not in allowed or parked.first(partition) is not slice_:
        return None
    state = PyDict_GetItem(states, partition)
    if state == NULL or (<tuple>state)[SERIAL_OF_STATE] != (<tuple>slice_)[SERIAL]:
        return None
    return (<tuple>state)[OFFSET_OF_STATE]


cdef list _decoded(CollectorFields collector, decode, list slices):
    """The columns of each slice; None if one has no records or an error, or if this poll may not return them all.

    In the last case they are left in `collector.decoded`.
    """
    cdef list columns = []
    cdef Py_ssize_t count = 0
    config = collector.config
    try:
        for slice_, offset in slices:
            partition, records, _start, _end, _serial, _epoch, aborted, _leader_epoch, high_watermark = <tuple>slice_
            topic, number = partition
            part = decode(
                records,
                topic=topic,
                partition=number,
                from_offset=offset,
                aborted=aborted,
                on_corrupt=config.on_corrupt,
                high_watermark=high_watermark,
                max_decompressed_bytes=config.max_decompressed_bytes,
            )
            if not len(part) or part.corrupt or not part.complete:
                return None
            columns.append(part)
            count += len(part)
    except KohortError:
        return None
    if not config.max_poll_records or count <= config.max_poll_records:
        return columns
    collector.decoded = {
        (<tuple>slice_)[PARTITION]: new(DecodedFetch, (slice_, part, 0, None))
        for (slice_, _offset), part in zip(slices, columns)
    }
    return None


cdef bint _settle(CollectorFields collector, ReturnedFetches handed) except -1:
    cdef Py_ssize_t stop, count = len(handed.items)
    cdef Counters counters = collector.counters
    cdef Door door = collector.door
    cdef tuple items
    if door.current() is not handed:
        return True
    stop = min(handed.settled + MOST_SLICES, count)
    items = handed.items if count <= MOST_SLICES else handed.items[handed.settled : stop]
    if len(items) > collector.most_at_once:
        collector.most_at_once = len(items)
    _settle_slices(items, collector, handed)
    handed.settled = stop
    if stop < count:
        return False
    counters.slices += count
    counters.records += handed.records
    counters.corrupt_batches += handed.corrupt
    door.hand(None)
    return True


cdef long long _epoch_before(records, int64_t offset) except? -1:
    """The leader epoch of the last batch that begins before an offset, or NO_EPOCH."""
    cdef const uint8_t[::1] seen = records
    cdef Py_ssize_t at = 0
    cdef long long epoch = NO_EPOCH, length
    while len(seen) - at > MAGIC_AT and be64(&seen[at]) < offset:
        epoch = be32(&seen[at + LENGTH_END]) if seen[at + MAGIC_AT] == 2 else NO_EPOCH
        length = be32(&seen[at + LENGTH_AT])
        if length <= MAGIC_AT - LENGTH_END:
            break
        at += <Py_ssize_t>(LENGTH_END + length)
    return epoch


cdef int _settle_slices(tuple items, CollectorFields collector, ReturnedFetches handed) except -1:
    cdef PartitionStates states = collector.states
    cdef PyObject *found
    cdef FetcherFields fetcher = collector.fetcher
    cdef FetchBuffer parked = fetcher.parked
    cdef dict last_timestamps = collector.last_timestamps
    view = collector.metadata.view
    topics = (<tuple>view)[TOPICS]
    for item in items:
        slice_, rest, next_offset, last_ms, _records, misled = <tuple>item
        partition, fetched, _start, _end, serial, epoch, _aborted, leader_epoch, _watermark = <tuple>slice_
        if rest is not None:  # later batches may have a later epoch
            epoch = _epoch_before(fetched, next_offset)
        topic = topics.get((<tuple>partition)[0])
        known = None if topic is None else (<tuple>topic)[PARTITIONS].get((<tuple>partition)[1])
        if known is not None and <long long>leader_epoch < <long long>(<tuple>known)[LEADER_EPOCH]:
            handed.outlived = True
        found = PyDict_GetItem(states, partition)
        if found != NULL:
            state = <object>found
            if (<tuple>state)[SERIAL_OF_STATE] == serial:
                if next_offset > (<tuple>state)[OFFSET_OF_STATE]:
                    states.consumed(partition, serial, next_offset, epoch, leader_epoch)
                if last_ms is not None:
                    last_timestamps[partition] = last_ms
                if misled:
                    fetcher.refetch(partition)
        parked.remove(slice_, rest)
    return 0


cpdef bint action_is_due(core) except -1:
    """A poll has more to do than to look for records: a hook, a callback or an error."""
    hook = core._hook
    if hook is not None and hook.serial != core._hook_over:
        return True
    if core.commits.callbacks or core.unreported or core._errors or core.positions.errors:
        return True
    if core._fatal is not None or not core.may_read:
        return True
    view = core.view
    return view is not None and view.fatal is not None and core.subscription is not None


def readable(core, double now):
    """The partitions whose records may be returned. None: a process that slept may own nothing any more (B-33)."""
    view = core.view
    if view is None or core.subscription is None or now < <double>view.ownership_deadline:
        return core.allowed
    return None


def usual_look(PollFields session, Py_ssize_t most):
    """As `usual_poll`, without waiting: what is buffered, which may be nothing. None if anything else is due or unusual."""
    cdef CollectorFields collector = session.collector_fields
    session.core_fields.has_updates = 0
    if not session.is_usual():
        return None
    return collector.collect_usual(most) if collector.fetcher.parked.has_slices() else CollectedFetches()


def usual_poll(PollFields session, double until, Py_ssize_t most):
    """Wait until records come, and collect at most `most` slices.

    None at the time `until` (monotonic s), and if anything else is due or unusual. The poll goes on in `PollLoop` then,
    which looks at everything again. The driver's sockets in their steady state are served here meanwhile.
    """
    cdef CoreFields core = session.core_fields
    cdef CollectorFields collector = session.collector_fields
    cdef Bell bell = session.driver_fields.bell
    cdef Lease lease = session.driver_fields.lease
    cdef FetchBuffer buffered = collector.fetcher.parked
    cdef unsigned long seen
    cdef double left
    cdef bint looked = False
    while True:
        seen = bell._rings
        core.has_updates = 0
        if not session.is_usual():
            lease.give_back()
            return None
        if buffered.has_slices():
            collected = collector.collect_usual(most)
            if collected is None:
                lease.give_back()
            return collected
        left = until - monotonic()
        if left <= 0 and (looked or not lease.count):
            return None
        looked = left <= 0
        if not core.has_updates:
            lease.wait(seen, left)
