# cython: freethreading_compatible=True
# cython: language_level=3
"""A record that is sent on the caller's thread, in a Produce request of its own.

Each change of threads takes as long as the rest of a `send`. A record that comes alone does not need the driver's thread
until its response. The twin is a turn: `Sender.poll`, and `BrokerConnection.send`. That of the response is
`Sender.follow_up`.

After a pause, code and data are no longer in the processor's caches. Then each function in Python takes several times as
long as in a loop. So this module calls few of them.

What may fail or run code in Python comes first. From the place in the queue to the socket there is no such code. So a
signal handler that raises leaves a record sent whole, or not at all.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kohort.fastpath._byteorder cimport be32, be64, store32
from kohort.fastpath._encode cimport Body
from kohort.fastpath._memory cimport Pieces
from kohort.fastpath._tuples cimport new
from kohort.fastpath._varint cimport put_uvarint
from kohort.network._follow_up cimport FollowUp
from kohort.network._guard cimport Guard
from kohort.network._poller cimport IdleConnection
from kohort.network._samples cimport Counters, SampledWindow

from kohort.fastpath._encode import sealed
from kohort.network.backoff import FRESH
from kohort.network.requests import NOTHING_FOLLOWS, PendingRequest
from kohort.producer._open_batch import record_size

cdef enum:
    INDEX_BYTES = 4
    LONGEST_VARINT = 5
    MOST_SEQUENCE = 0x7FFFFFFF
    BODY_AT = 8  # after the length and the correlation id
    ERROR_BYTES = 2
    OFFSETS_BYTES = 24  # the offset of the batch, its time in the log, and the first offset of the log


@cython.final
cdef class DirectSends:
    """The state that the direct sends of a producer have in common.

    `in_flight`: the requests in flight by node. `numbered`: brokers read the sequence. `most_bytes`: of a record.
    `lock` and `now` are those of the driver. Without a driver, all records come by `ProducerCore.append`.
    """

    cdef object sender, context, accumulator, transactions
    cdef dict in_flight
    cdef double request_s
    cdef bint numbered
    cdef Py_ssize_t most_bytes
    cdef public Guard lock
    cdef public object now

    def __init__(
        self, sender, context, accumulator, transactions, dict in_flight, bint numbered, Py_ssize_t most_bytes
    ):
        self.sender, self.context, self.accumulator, self.transactions = sender, context, accumulator, transactions
        self.in_flight, self.numbered, self.most_bytes = in_flight, numbered, most_bytes
        self.request_s = context.request_s

    cdef bint is_current(self, DirectRoute route) except -1:
        """The metadata is that of the route, and its connection is open."""
        view, stamp = self.sender.stamped
        return stamp is route.stamp and view is self.context.metadata.view and route.connection.is_open

    cdef bint may_send(self, lane, DirectRoute route) except -1:
        """Nothing else waits, is in flight or is due."""
        cdef dict busy = self.accumulator.busy
        producer = self.transactions.producer
        if len(busy) > 1 or (busy and lane.partition not in busy) or lane.queue or lane.rewrite or lane.failing:
            return False
        if lane.producer != producer or (self.numbered and producer.id < 0):
            return False
        return self.is_current(route) and self.sender.is_plain()

    cdef bint may_settle(self, lane, batch) except -1:
        """The batch is all that there is. Then nothing follows from its response."""
        cdef dict busy = self.accumulator.busy
        if len(busy) != 1 or busy.get(lane.partition) is not lane or lane.rewrite or lane.failing:
            return False
        return len(lane.queue) == 1 and lane.queue[0] is batch and self.sender.is_plain()


@cython.final
cdef class DirectRoute:
    """The way of records of a topic to a broker.

    `head` and `tail` are the request before the partition's number, and after the records. `response_head` and
    `response_tail` are the response after the correlation id, before the partition's number, and after the offsets. The
    version has compact lengths. `stamp` is that of the metadata by which the broker, its `node`, leads partitions of the
    topic. `topic_ids` has the topic's id.
    """

    cdef IdleConnection connection
    cdef bytes head, tail, response_head, response_tail
    cdef readonly object stamp, node, topic_ids

    def __init__(
        self, IdleConnection connection not None, bytes head not None, bytes tail not None,
        bytes response_head not None, bytes response_tail not None, stamp, node, topic_ids,
    ):
        self.connection, self.head, self.tail = connection, head, tail
        self.response_head, self.response_tail = response_head, response_tail
        self.stamp, self.node, self.topic_ids = stamp, node, topic_ids

    @property
    def is_open(self):
        """Its connection can still be used."""
        return self.connection.is_open

    cdef bytes body(self, lane, int partition, Body records, int sequence):
        """The request's body with the records of a partition."""
        cdef Pieces pieces = sealed(
            records, producer_id=lane.producer.id, producer_epoch=lane.producer.epoch, base_sequence=sequence
        )
        cdef bytes sealed_records = bytes(pieces)
        cdef Py_ssize_t head = PyBytes_GET_SIZE(self.head), tail = PyBytes_GET_SIZE(self.tail)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(sealed_records)
        cdef uint8_t[LONGEST_VARINT] length
        cdef Py_ssize_t length_bytes = put_uvarint(length, <uint32_t>size + 1) - length
        cdef bytes made = PyBytes_FromStringAndSize(NULL, head + INDEX_BYTES + length_bytes + size + tail)
        cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(made)
        memcpy(p, PyBytes_AS_STRING(self.head), head)
        p += head
        store32(p, <uint32_t>partition)
        p += INDEX_BYTES
        memcpy(p, length, length_bytes)
        p += length_bytes
        memcpy(p, PyBytes_AS_STRING(sealed_records), size)
        memcpy(p + size, PyBytes_AS_STRING(self.tail), tail)
        return made

    cdef int64_t offset(self, const uint8_t *start, Py_ssize_t size, int partition) noexcept:
        """The offset in a response by which the records of the partition are in the log, and that says nothing else.
        Negative for all other responses."""
        cdef Py_ssize_t head = PyBytes_GET_SIZE(self.response_head), tail = PyBytes_GET_SIZE(self.response_tail)
        cdef const uint8_t *p = start + BODY_AT
        if size != BODY_AT + head + INDEX_BYTES + ERROR_BYTES + OFFSETS_BYTES + tail:
            return -1
        if memcmp(p, PyBytes_AS_STRING(self.response_head), head):
            return -1
        p += head
        if be32(p) != partition or p[INDEX_BYTES] or p[INDEX_BYTES + 1]:
            return -1
        p += INDEX_BYTES + ERROR_BYTES
        if memcmp(p + OFFSETS_BYTES, PyBytes_AS_STRING(self.response_tail), tail):
            return -1
        return be64(p)


@cython.final
cdef class DirectSend:
    """Sends records of a partition, its `lane`, each on its own."""

    cdef DirectSends shared
    cdef readonly DirectRoute route
    cdef object lane
    cdef int partition

    def __init__(self, DirectSends shared not None, lane, DirectRoute route not None):
        self.shared, self.lane, self.route, self.partition = shared, lane, route, lane.partition.partition

    def __call__(self, key, value, bytes headers, timestamp_ms, on_delivery):
        """As `append`, without the lock. It waits for nothing."""
        cdef DirectSends shared = self.shared
        if shared.lock is None or not shared.lock.try_acquire():
            return None
        try:
            size = record_size(key, value, headers)
            return self.append(shared.now(), size, key, value, headers, timestamp_ms, on_delivery)
        finally:
            shared.lock.release()

    def append(self, double now, Py_ssize_t size, key, value, bytes headers, timestamp_ms, on_delivery):
        """Send a record of at most `size` bytes, and return its Delivery. None: nothing has changed."""
        cdef DirectSends shared = self.shared
        cdef DirectRoute route = self.route
        cdef DirectResponse response = DirectResponse.__new__(DirectResponse)
        cdef int sequence
        lane, accumulator, sensors = self.lane, shared.accumulator, shared.context.sensors
        if size > shared.most_bytes or not shared.may_send(lane, route):
            return None
        sequence = lane.next_sequence
        batch = accumulator.new_batch(lane, now)
        response.direct, response.batch, response.producer, response.sent_at = self, batch, lane.producer, now
        request = new(PendingRequest, ("Produce", None, response.done, shared.request_s, None, None, response, True))
        if not route.connection.enter(now, shared.request_s):
            return None
        try:
            delivery = batch.append(key, value, headers, timestamp_ms, on_delivery)
            if delivery is None:
                return None
            try:
                batch.close()
                body = route.body(lane, self.partition, batch.body, sequence if shared.numbered else -1)
            except BaseException:
                batch.release()
                raise
            batch.sequence, batch.in_flight = sequence, True
            accumulator.busy[lane.partition] = lane
            lane.queue.append(batch)
            lane.in_flight = 1
            lane.next_sequence = 0 if sequence == MOST_SEQUENCE else sequence + 1
            shared.in_flight[route.node] = shared.in_flight.get(route.node, 0) + 1
            route.connection.send(request, now, body)
        finally:
            route.connection.leave()
        sensors.request_records.add(1, now)
        sensors.sent(batch, now)
        topic = accumulator.open.topic(lane.partition.topic)
        if topic is not None:
            topic.stick_to(-1)  # for another choice, as by the end of each batch
        return delivery


@cython.final
cdef class DirectResponse(FollowUp):
    """The end of a request with one record. It settles the record, if the response has nothing unusual."""

    cdef DirectSend direct
    cdef object batch, producer
    cdef double sent_at  # monotonic s

    def sent(self):
        """The request as a `SentRequest`, for an unusual outcome."""
        cdef DirectRoute route = self.direct.route
        sender = self.direct.shared.sender
        return sender.sent(self.direct.lane, self.batch, self.producer, route.node, route.topic_ids, self.sent_at)

    def done(self, outcome, now):
        """As `Sender.done`."""
        self.direct.shared.sender.done(self.sent(), outcome, now)

    cdef bytes next_body(self, frame, const uint8_t *start, Py_ssize_t size, int version, double now):
        cdef DirectSends shared = self.direct.shared
        cdef int64_t offset = self.direct.route.offset(start, size, self.direct.partition)
        if offset < 0 or not shared.may_settle(self.direct.lane, self.batch):
            return shared.sender.follow_up(self.sent(), frame, version, now)
        self.settle(shared, offset, now)
        if self.direct.lane.direct is not self.direct or not shared.is_current(self.direct.route):
            shared.sender.allow_alone(self.direct.lane, self.direct.route.node, version)
        shared.context.updated()
        shared.sender.came_to_rest()
        return NOTHING_FOLLOWS

    cdef int settle(self, DirectSends shared, int64_t offset, double now) except -1:
        cdef dict busy = shared.accumulator.busy
        cdef Counters counters = shared.context.counters
        cdef SampledWindow request_ms = shared.context.sensors.request_ms
        cdef SampledWindow throttle_ms = shared.context.sensors.throttle_ms
        lane, batch = self.direct.lane, self.batch
        counters.requests += 1
        request_ms.add((now - self.sent_at) * 1000, now)
        throttle_ms.add(0, now)
        shared.in_flight[self.direct.route.node] -= 1
        lane.queue.clear()
        lane.in_flight, lane.attempts, lane.waits_since, lane.known = 0, FRESH, INFINITY, True
        busy.clear()
        batch.in_flight, batch.base_offset = False, offset
        batch.release()
        batch.done = True  # last: a caller looks at the others then
        if batch.has_callbacks or lane.settled:
            shared.accumulator.callbacks.extend(lane.due_callbacks(batch))
        return 0
