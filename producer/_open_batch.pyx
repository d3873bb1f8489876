# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records on their way into batches, encoded on the caller's thread: one compiled call for each record.

A record enters the open batch of its partition without a lock, because a batch takes a record, or is closed, in one
step. A record that finds no open batch, or no room in it, takes the slow way: `ProducerCore.append`, under the lock.
Each step is whole or has no effect, whenever a signal handler raises.
"""

import os
from functools import partial

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
cimport cython

from kohort.fastpath._encode cimport Body, body_of, put_varint, varint_size
from kohort.fastpath._memory cimport Block
from kohort.fastpath._rows cimport crc32_of, murmur2_of
from kohort.producer.record_arguments import bytes_refused, callback_refused, header_pairs
from kohort.producer.record_arguments import partition_given, timestamp_given

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int timespec_get(timespec *now, int base) noexcept
    int TIME_UTC

cdef extern from *:
    """
    // A view that has nothing to release.
    static inline void kohort_view_of_bytes(Py_buffer *view, char *data, Py_ssize_t size) {
        view->obj = NULL;
        view->buf = data;
        view->len = size;
    }
    """
    void view_of_bytes "kohort_view_of_bytes"(Py_buffer *view, char *data, Py_ssize_t size) noexcept nogil

cdef enum:
    FULL = -1
    STICKY = -1
    BY_MURMUR2 = 0
    BY_CRC32 = 1
    BY_NOTHING = 2
    FIRST_BLOCK_BYTES = 4096
    OVERHEAD_BYTES = 31  # a record's varints and attributes at their longest, without its number of headers

cdef dict _HASHES = {"murmur2": BY_MURMUR2, "crc32": BY_CRC32, "uniform_sticky": BY_NOTHING}
cdef int _forks = 0


def _forked():
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


cdef inline int64_t stamp_of(timestamp_ms, topic) except -1:
    """A record's time (ms since the epoch); None means now."""
    cdef timespec now
    cdef int64_t stamp
    cdef int overflow
    if timestamp_ms is None:
        timespec_get(&now, TIME_UTC)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
    if PyLong_CheckExact(timestamp_ms):
        stamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if stamp >= 0 and not overflow:
            return stamp
    return timestamp_given(timestamp_ms, topic)


cdef inline int hold(data, Py_buffer *view, str field="value", topic=None) except -1:
    """Get the bytes of a key, a value or a header; the size of None is -1. The caller releases the view."""
    if data is None:
        view_of_bytes(view, NULL, -1)
    elif PyBytes_CheckExact(data):  # the caller has a reference
        view_of_bytes(view, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    else:
        try:
            PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            bytes_refused(field, data, topic)
    return 0


cdef int CO_COROUTINE = 0x80


cdef inline int check_callback(on_delivery, topic) except -1:
    """Nothing would await a coroutine function, and a failure of its record would be reported nowhere."""
    cdef object function, code
    if on_delivery is None:
        return 0
    function = on_delivery
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)  # a method has that of its function
    if code is None:
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)
    if not callable(on_delivery) or (code is not None and code.co_flags & CO_COROUTINE):
        callback_refused(on_delivery, topic)
    return 0


cdef inline uint8_t *put_field(uint8_t *p, const Py_buffer *view) noexcept nogil:
    p = put_varint(p, view.len)
    if view.len > 0:
        memcpy(p, view.buf, view.len)
        p += view.len
    return p


cdef inline Py_ssize_t field_size(const Py_buffer *view) noexcept nogil:
    return varint_size(view.len) + max(view.len, 0)


def encoded_headers(headers, topic=None):
    """Return the headers of a record as bytes: their number, then names and values. None for no headers.

    `headers`: a mapping, or pairs of a name and bytes or None. Raises ValueError for a header without a name, and
    TypeError for other objects, both with the `topic`.
    """
    cdef list pairs = header_pairs(headers, topic)
    cdef list parts = []
    if not pairs:
        return None
    parts.append(_varint(len(pairs)))
    for name, content in pairs:
        parts.append(_field(name, topic))
        parts.append(_field(content, topic))
    return b"".join(parts)


cdef bytes _varint(Py_ssize_t value):
    cdef uint8_t[10] room
    return PyBytes_FromStringAndSize(<char *>room, put_varint(room, value) - room)


cdef bytes _field(content, topic):
    cdef Py_buffer view
    cdef bytes out
    hold(content, &view, "a header's value", topic)
    try:
        out = PyBytes_FromStringAndSize(NULL, field_size(&view))
        put_field(<uint8_t *>PyBytes_AS_STRING(out), &view)
    finally:
        PyBuffer_Release(&view)
    return out


def record_size(key, value, bytes headers=None):
    """The largest size of a record in a batch, in bytes. `headers`: those of `encoded_headers`."""
    cdef Py_buffer key_view, value_view
    cdef Py_ssize_t size = OVERHEAD_BYTES + (1 if headers is None else len(headers))
    hold(key, &key_view)
    try:
        hold(value, &value_view)
        size += max(key_view.len, 0) + max(value_view.len, 0)
        PyBuffer_Release(&value_view)
    finally:
        PyBuffer_Release(&key_view)
    return size


@cython.final
cdef class BufferedBytes:
    """The bytes of records that are not settled, and their limit."""

    cdef readonly Py_ssize_t used, limit

    def __init__(self, Py_ssize_t limit):
        self.limit = limit

    @cython.critical_section
    cdef bint take(self, Py_ssize_t size) except -1:
        """Count `size` more bytes; False if there is no room. An empty buffer has room for any record."""
        if self.used and self.used + size > self.limit:
            return False
        self.used += size
        return True

    @cython.critical_section
    cdef int give_back(self, Py_ssize_t size) except -1:
        """Count `size` bytes less."""
        self.used -= size
        return 0


cdef class OpenBatch:
    """The records of one partition, which are sent together. It takes records until it is closed.

    `count`, `size`: its records, and their bytes before compression. `body`: the records of a closed batch. `done`: it
    is acknowledged or has failed. `on_delivery`: the callback of records without one of their own.
    """

    cdef readonly BufferedBytes buffered
    cdef Block block
    cdef Py_ssize_t limit
    cdef int64_t first_timestamp_ms, max_timestamp_ms
    cdef readonly Py_ssize_t count, size
    cdef readonly bint closed
    cdef readonly Body body
    cdef public bint done
    cdef object on_delivery
    cdef list callbacks  # lists of an index and a callback
    cdef Py_ssize_t called  # the number of records, or of `callbacks`, whose turn is over

    def __init__(self, BufferedBytes buffered not None, Py_ssize_t limit, on_delivery=None):
        self.buffered = buffered
        self.limit = limit
        self.on_delivery = on_delivery
        self.block = Block(FIRST_BLOCK_BYTES)

    @cython.critical_section
    cdef Py_ssize_t add(
        self, const Py_buffer *key, const Py_buffer *value, bytes headers, int64_t timestamp_ms, on_delivery,
        put,
    ) except -2:
        """Add a record, and call `put` with the batch if that is not None. Returns the index of the record, or FULL.

        What the garbage collector tracks is allocated first. A collection may run code in Python, and so other threads.
        """
        cdef list entry = None, fresh
        if on_delivery is not None:
            entry, fresh = [0, on_delivery], []
            if self.callbacks is None:
                self.callbacks = fresh
        cdef int64_t since = timestamp_ms - self.first_timestamp_ms if self.count else 0
        cdef Py_ssize_t headers_size = 1 if headers is None else len(headers)
        cdef Py_ssize_t size = (
            1 + varint_size(since) + varint_size(self.count) + field_size(key) + field_size(value) + headers_size
        )
        cdef Py_ssize_t whole = varint_size(size) + size
        cdef uint8_t *p
        if self.closed or (self.count and self.size + whole > self.limit):
            return FULL
        if self.size + whole > self.block.size:
            self.block.resize(max(self.size + whole, min(2 * self.block.size, self.limit)))
        if not self.buffered.take(whole):
            return FULL
        try:
            if entry is not None:
                entry[0] = self.count
                self.callbacks.append(entry)
            if put is not None:
                put(self)
        except BaseException:
            self.buffered.give_back(whole)
            raise
        p = put_varint(<uint8_t *>self.block.data + self.size, size)
        p[0] = 0  # attributes
        p = put_varint(p + 1, since)
        p = put_varint(p, self.count)
        p = put_field(p, key)
        p = put_field(p, value)
        if headers is None:
            p[0] = 0
        else:
            memcpy(p, PyBytes_AS_STRING(headers), headers_size)
        if self.count == 0:
            self.first_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.size += whole
        self.count += 1
        return self.count - 1

    def append(self, key, value, bytes headers, timestamp_ms, on_delivery=None, put=None):
        """Append a record, and call `put` with the batch in the same step. `put` is the `append` of its queue.

        Returns its Delivery; None if the batch is closed or full, or the buffer is. `headers`: those of
        `encoded_headers`. `timestamp_ms`: None means now. `on_delivery`: the record's own callback.
        """
        cdef Py_buffer key_view, value_view
        cdef Py_ssize_t index
        cdef int64_t stamp = stamp_of(timestamp_ms, None)
        check_callback(on_delivery, None)
        hold(key, &key_view, "key")
        try:
            hold(value, &value_view)
            try:
                index = self.add(&key_view, &value_view, headers, stamp, on_delivery, put)
            finally:
                PyBuffer_Release(&value_view)
        finally:
            PyBuffer_Release(&key_view)
        return None if index == FULL else delivery_of(self, index)

    @cython.critical_section
    def enqueue(self, Body body not None, put):
        """Take encoded records, close, and call `put` with the batch, in one step. Returns False if there is no room.
        """
        cdef Py_ssize_t size = len(body)
        if not self.buffered.take(size):
            return False
        try:
            put(self)
        except BaseException:
            self.buffered.give_back(size)
            raise
        self.closed = True
        self.body, self.count, self.size, self.block = body, body.count, size, None
        return True

    @cython.critical_section
    def close(self):
        """Take no more records, and make the body. The batch is closed first: to make a body may run other threads."""
        if self.closed:
            return
        self.closed = True
        try:
            self.block.resize(self.size)
            if self.count:
                self.body = body_of(
                    self.block, "none", None, self.count, 0, self.count - 1, self.first_timestamp_ms,
                    self.max_timestamp_ms,
                )
        except BaseException:
            self.closed = False
            raise
        self.block = None

    @cython.critical_section
    def compressed_to(self, Body body not None):
        """Replace the body by a compressed one, unless the batch is settled."""
        if self.body is not None:
            self.body = body

    @property
    def has_callbacks(self):
        """True if a record has a callback that has yet to be called."""
        return self.called < (self.count if self.on_delivery is not None else len(self.callbacks or ()))

    @property
    def calls_back_all(self):
        """True if each record has a callback."""
        return self.on_delivery is not None or len(self.callbacks or ()) == self.count

    def call_back(self):
        """Call the callbacks of the records, in order. Returns the number of calls.

        Each is called once: one that raises ends this call, and the next call goes on with the one behind it.
        """
        cdef Py_ssize_t calls = 0, index
        cdef list own = self.callbacks or []
        cdef Py_ssize_t own_at = 0
        while self.has_callbacks:
            if self.on_delivery is None:
                index, callback = own[self.called]
            else:
                index, callback = self.called, self.on_delivery
                while own_at < len(own) and <Py_ssize_t>own[own_at][0] < index:
                    own_at += 1
                if own_at < len(own) and <Py_ssize_t>own[own_at][0] == index:
                    callback = own[own_at][1]
            self.called += 1
            calls += 1
            callback(delivery_of(self, index))
        self.callbacks = None  # it may have references to deliveries
        return calls

    @cython.critical_section
    def adopt(self, Body body not None):
        """Take records whose bytes are counted with another batch, and close."""
        self.closed = True
        self.body, self.count, self.block = body, body.count, None

    @cython.critical_section
    def free(self):
        """Drop the records. Their bytes are still counted."""
        self.closed = True
        self.block = self.body = None

    @cython.critical_section
    def release(self):
        """Drop the records of a settled batch; deliveries may keep the batch."""
        self.closed = True
        self.block = self.body = None
        self.buffered.give_back(self.size)


@cython.final
@cython.no_gc  # a cycle through the callbacks of a batch ends when they are called
@cython.freelist(256)
cdef class Delivery:
    """The result of a sent record; thread-safe."""

    cdef readonly OpenBatch batch
    cdef readonly Py_ssize_t index

    def __init__(self):
        raise TypeError("deliveries are made by send only")

    def done(self):
        """True if the record is acknowledged or has failed."""
        return self.batch.done

    def result(self, timeout_s=None):
        """Wait until the record is acknowledged, and return its position.

        Raises its error (BrokerError, DeliveryTimeout, TransactionAborted, ...), and OperationTimeout after `timeout_s`
        seconds (None: `delivery_timeout_ms` ends the wait).
        """
        return (<object>self.batch).outcome(self.index, timeout_s)

    def exception(self, timeout_s=None):
        """Wait as `result`, and return the error of the record; None if it is acknowledged."""
        return (<object>self.batch).failure(self.index, timeout_s)


cdef inline Delivery delivery_of(OpenBatch batch, Py_ssize_t index):
    cdef Delivery made = Delivery.__new__(Delivery)
    made.batch = batch
    made.index = index
    return made


@cython.final
cdef class TopicBatches:
    """The open batches of a topic, by partition, and the partition of records without a key (`sticky`; -1: none)."""

    cdef readonly int partitions
    cdef readonly int sticky
    cdef int hashing
    cdef list batches, directs

    def __init__(self, int partitions, str hashing):
        self.partitions = partitions
        self.sticky = STICKY
        self.hashing = _HASHES[hashing]
        self.batches = [None] * partitions

    cdef int chosen(self, const Py_buffer *key) noexcept nogil:
        """The partition of a record with this key; STICKY if any will do."""
        if key.len < 0 or self.hashing == BY_NOTHING or (key.len == 0 and self.hashing == BY_CRC32):
            return STICKY
        if self.hashing == BY_MURMUR2:
            return (murmur2_of(<const uint8_t *>key.buf, key.len) & 0x7FFFFFFF) % <uint32_t>self.partitions
        return crc32_of(<const uint8_t *>key.buf, key.len) % <uint32_t>self.partitions

    @cython.critical_section
    cdef Py_ssize_t find(self, const Py_buffer *key, partition):
        """The partition for a record; -1 if none is chosen, or there is no such partition."""
        cdef Py_ssize_t number
        cdef int overflow
        if partition is None:
            number = self.chosen(key)
            if number == STICKY:
                number = self.sticky
        else:
            number = PyLong_AsLongAndOverflow(partition, &overflow)  # -1 if it is too large
        return number if 0 <= number < self.partitions else -1

    @cython.critical_section
    cdef OpenBatch batch(self, Py_ssize_t number):
        return self.batches[number]

    @cython.critical_section
    cdef object direct(self, Py_ssize_t number):
        return None if self.directs is None else self.directs[number]

    def choose(self, key):
        """The partition of a record with this key; -1 if any will do."""
        cdef Py_buffer view
        hold(key, &view)
        try:
            return self.chosen(&view)
        finally:
            PyBuffer_Release(&view)

    @cython.critical_section
    def open(self, int partition, OpenBatch batch):
        """Let records of a partition enter `batch`."""
        self.batches[partition] = batch

    @cython.critical_section
    def send_alone(self, int partition, direct):
        """Let records of a partition without an open batch be sent by `direct`, a `DirectSend`."""
        if self.directs is None:
            self.directs = [None] * self.partitions
        self.directs[partition] = direct

    @cython.critical_section
    def stick_to(self, int partition):
        """Let records without a key go to `partition`; -1 for another choice, if there is one."""
        self.sticky = 0 if self.partitions == 1 else partition


@cython.final
cdef class OpenBatches:
    """The open batches of a producer, by topic.

    It is empty in a forked child, whose producer is not its own.
    """

    cdef dict topics
    cdef int forks

    def __init__(self):
        self.topics = {}
        self.forks = _forks

    @cython.critical_section
    cdef TopicBatches find(self, name):
        # Anything but a string takes the slow way, which refuses it.
        return self.topics.get(name) if self.forks == _forks and isinstance(name, str) else None

    def topic(self, name):
        """The open batches of a topic, or None."""
        return self.find(name)

    @cython.critical_section
    def put(self, str name, TopicBatches batches):
        """Set the open batches of a topic."""
        self.topics[name] = batches

    @cython.critical_section
    def clear(self):
        """Let all records take the slow way again."""
        self.topics.clear()

    def append(self, topic, key, value, bytes headers, partition, timestamp_ms, on_delivery=None):
        """Append a record to the open batch of its partition. Returns its Delivery; None if it has to take the slow
        way. All records come here first: the arguments are checked here, where the error can have the topic."""
        cdef TopicBatches batches = self.find(topic)
        cdef OpenBatch batch
        cdef Py_buffer key_view, value_view
        cdef Py_ssize_t index = FULL, number = -1
        cdef int64_t stamp = stamp_of(timestamp_ms, topic)
        check_callback(on_delivery, topic)
        if partition is not None and not PyLong_CheckExact(partition):
            partition = partition_given(partition, topic)
        hold(key, &key_view, "key", topic)
        try:
            hold(value, &value_view, "value", topic)
            try:
                if batches is not None:
                    number = batches.find(&key_view, partition)
                if number < 0:
                    return None
                batch = batches.batch(number)
                if batch is not None:
                    index = batch.add(&key_view, &value_view, headers, stamp, on_delivery, None)
            finally:
                PyBuffer_Release(&value_view)
        finally:
            PyBuffer_Release(&key_view)
        if index != FULL:
            return delivery_of(batch, index)
        direct = batches.direct(number)
        return None if direct is None else direct(key, value, headers, timestamp_ms, on_delivery)
