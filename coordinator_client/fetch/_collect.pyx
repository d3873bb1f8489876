# cython: freethreading_compatible=True
# cython: language_level=3
"""The usual poll: no hook, callback or error is due, and few small slices are buffered or come. They are settled here, too.

`FetchCollector` collects for all other polls, and `PollLoop` does what else is due in them.

Collecting removes nothing from the buffer, because a signal handler may still raise before the records are handed over.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kohort.coordinator_client.fetch._fetch_buffer cimport FetchBuffer
from kohort.coordinator_client.offsets._partition_states cimport PartitionStates
from kohort.fastpath._columns cimport RecordColumns
from kohort.fastpath._tuples cimport new
from kohort.network._samples cimport Counters
from kohort.network._guard cimport Bell, Door, Guard
from kohort.network._poller cimport Lease

from kohort.common import KohortError
from kohort.coordinator_client.fetch.completed_fetch import CollectedFetch, DecodedFetch

cdef Py_ssize_t MOST_SLICES = 64

cdef enum:  # of a `CompletedFetch` and of a `PartitionState`
    PARTITION = 0
    START = 2
    SERIAL = 4
    SERIAL_OF_STATE = 1
    OFFSET_OF_STATE = 2


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


def collect_usual(Guard guard, collector, decode, Py_ssize_t most, Py_ssize_t most_bytes):
    """The slices of a poll, at most `most`. None if something is unusual. Nothing has changed then, but for
    `collector.decoded`.

    Usual are slices of fewer than `most_bytes` in all, which are decoded whole, without an error and within the limits.
    """
    cdef FetchBuffer parked = collector.fetcher.parked
    cdef CollectedFetches collected
    cdef RecordColumns columns_of_slice
    cdef list slices, columns
    cdef Py_ssize_t place
    guard.acquire()
    try:
        slices = _next_slices(collector, parked, most) if parked.total_bytes < most_bytes else None
    finally:
        guard.release()
    if not slices:
        return None
    columns = _decoded(collector, decode, slices)
    if columns is None:
        return None
    guard.acquire()
    try:
        allowed = collector.readable(collector.now())
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


cdef list _next_slices(collector, FetchBuffer parked, Py_ssize_t most):
    """The slices in turn, each with the offset to decode from; None if one of them is unusual."""
    cdef list found = []
    cdef PartitionStates states = collector.states
    fetcher = collector.fetcher
    allowed, line, until = collector.readable(collector.now()), parked._line, fetcher.until
    if allowed is None or min(len(line), most) > MOST_SLICES or fetcher.held_back:
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


cdef list _decoded(collector, decode, list slices):
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


def settle(Guard guard, collector, Door door, ReturnedFetches handed, Py_ssize_t most):
    """Settle at most `most` handed-over slices, under the lock. True if that was all. It may be repeated.

    Positions move behind the slices, and the slices leave the buffer.
    """
    guard.acquire()
    try:
        return _settle(collector, door, handed, most)
    finally:
        guard.release()


def settle_step(collector, Door door, Py_ssize_t most):
    """As `settle`, by a thread that holds the lock."""
    handed = door.current()
    return handed is None or _settle(collector, door, handed, most)


cdef bint _settle(collector, Door door, ReturnedFetches handed, Py_ssize_t most) except -1:
    cdef Py_ssize_t stop, count = len(handed.items)
    cdef Counters counters = collector.context.counters
    cdef tuple items
    if door.current() is not handed:
        return True
    stop = min(handed.settled + most, count)
    items = handed.items if count <= most else handed.items[handed.settled : stop]
    if len(items) > <Py_ssize_t>collector.most_at_once:
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


cdef int _settle_slices(tuple items, collector, ReturnedFetches handed) except -1:
    cdef PartitionStates states = collector.states
    cdef PyObject *found
    fetcher, positions, view = collector.fetcher, collector.positions, collector.context.metadata.view
    cdef FetchBuffer parked = fetcher.parked
    topics = view.topics
    for item in items:
        slice_, rest, next_offset, last_ms, _records, misled = <tuple>item
        partition, _fetched, _start, _end, serial, epoch, _aborted, leader_epoch, _watermark = <tuple>slice_
        topic = topics.get((<tuple>partition)[0])
        known = None if topic is None else topic.partitions.get((<tuple>partition)[1])
        if known is not None and leader_epoch < known.leader_epoch:
            handed.outlived = True
        found = PyDict_GetItem(states, partition)
        if found != NULL:
            state = <object>found
            if (<tuple>state)[SERIAL_OF_STATE] == serial:
                if next_offset > (<tuple>state)[OFFSET_OF_STATE]:
                    states.consumed(partition, serial, next_offset, epoch, leader_epoch)
                if last_ms is not None:
                    (<dict>positions.last_timestamps)[partition] = last_ms
                if misled:
                    fetcher.refetch(partition, positions)
        parked.remove(slice_, rest)
    return 0


cdef bint _is_due(core) except -1:
    hook = core._hook
    if hook is not None and hook.serial != core._hook_over:
        return True
    if core.commits.callbacks or core.unreported or core._errors or core.positions.errors:
        return True
    if core._fatal is not None or not core.may_read:
        return True
    view = core.view
    return view is not None and view.fatal is not None and core.subscription is not None


def action_is_due(core):
    """A poll has more to do than to look for records: a hook, a callback or an error."""
    return _is_due(core)


def readable(core, double now):
    """As `ConsumerCore.readable`."""
    view = core.view
    if view is None or core.subscription is None or now < <double>view.ownership_deadline:
        return core.allowed
    return None


cdef bint _is_unusual(session, core, driver, collector) except -1:
    if session.outcome is not None or session._callback is not None or session.error is not None:
        return True
    if session._observer is not None or collector.decoded:
        return True
    return core.owes_loss or _is_due(core)


cdef bint _is_ending(session, driver) except -1:
    return session._wakeup or session.closed or driver.crashed is not None


def usual_look(session, Py_ssize_t most):
    """As `usual_poll`, without waiting: what is buffered, which may be nothing. None if anything else is due or unusual."""
    core, driver, collector = session.core, session.driver, session.collector
    cdef FetchBuffer buffered = core.fetcher.parked
    core.has_updates = False
    if _is_ending(session, driver) or _is_unusual(session, core, driver, collector):
        return None
    return collector.collect_usual(most) if buffered.has_slices() else CollectedFetches()


def usual_poll(session, double until, Py_ssize_t most):
    """Wait until records come, and collect at most `most` slices.

    None at the time `until` (monotonic s), and if anything else is due or unusual. The poll goes on in `PollLoop` then,
    which looks at everything again. Only a turn of the driver changes what is due, apart from a wake-up and a close.
    The driver's sockets in their steady state are served here meanwhile.
    """
    core, driver, collector = session.core, session.driver, session.collector
    cdef Bell bell = driver.bell
    cdef Lease lease = driver.lease
    cdef FetchBuffer buffered = core.fetcher.parked
    cdef unsigned long seen
    cdef long long turns = -1, turns_now
    cdef double left
    cdef bint looked = False
    while True:
        seen = bell._rings
        core.has_updates = False
        if _is_ending(session, driver):
            lease.give_back()
            return None
        turns_now = driver.turns
        if turns_now != turns:  # only a turn changes the rest
            if _is_unusual(session, core, driver, collector):
                lease.give_back()
                return None
            turns = turns_now
        if buffered.has_slices():
            collected = collector.collect_usual(most)
            if collected is None:
                lease.give_back()
            return collected
        left = until - <double>driver.now()
        if left <= 0 and (looked or not lease.count):
            return None
        looked = left <= 0
        if not core.has_updates:
            lease.wait(seen, left)
