# cython: freethreading_compatible=True
# cython: language_level=3
"""A record that is sent on the caller's thread, in a Produce request of its own.

Each change of threads takes as long as the rest of a `send`. A record that comes alone does not need the driver's thread
until its response. The twin is a turn: `Sender.poll`, and `BrokerConnection.send`.

What may fail or run code in Python comes first. From the place in the queue to the socket there is no such code. So a
signal handler that raises leaves a record sent whole, or not at all.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from kohort.fastpath._byteorder cimport store32
from kohort.fastpath._encode cimport Body
from kohort.fastpath._memory cimport Pieces
from kohort.fastpath._varint cimport put_uvarint
from kohort.network._poller cimport IdleConnection

from kohort.fastpath._encode import sealed

cdef enum:
    INDEX_BYTES = 4
    LONGEST_VARINT = 5
    MOST_SEQUENCE = 0x7FFFFFFF


@cython.final
cdef class DirectSend:
    """Sends records of a topic to a broker, each on its own.

    `head` and `tail` are the request before the partition's number, and after the records. Its version has compact
    lengths. `stamp` is that of the metadata by which the broker, its `node`, leads partitions of the topic. `topic_ids`
    has the topic's id.
    """

    cdef IdleConnection connection
    cdef bytes head, tail
    cdef readonly object stamp, node, topic_ids

    def __init__(
        self, IdleConnection connection not None, bytes head not None, bytes tail not None, stamp, node, topic_ids
    ):
        self.connection, self.head, self.tail = connection, head, tail
        self.stamp, self.node, self.topic_ids = stamp, node, topic_ids

    @property
    def is_open(self):
        """Its connection can still be used."""
        return self.connection.is_open

    def append(
        self, lane, batch, request, dict in_flight, bint numbered, double now, key, value, headers, timestamp_ms,
        on_delivery,
    ):
        """Send a record as `batch`, the only one of `lane`, and return its Delivery. None: nothing has changed.

        `request`: the PendingRequest. `in_flight`: the requests in flight by node. `numbered`: brokers read the sequence.
        """
        cdef int sequence = lane.next_sequence
        if not self.connection.enter(now, request.timeout_s):
            return None
        try:
            delivery = batch.append(key, value, headers, timestamp_ms, on_delivery)
            if delivery is None:
                return None
            try:
                batch.close()
                body = self.body(lane, batch.body, sequence if numbered else -1)
            except BaseException:
                batch.release()
                raise
            batch.sequence, batch.in_flight = sequence, True
            lane.queue.append(batch)
            lane.in_flight = 1
            lane.next_sequence = 0 if sequence == MOST_SEQUENCE else sequence + 1
            in_flight[self.node] = in_flight.get(self.node, 0) + 1
            self.connection.send(request, now, body)
        finally:
            self.connection.leave()
        return delivery

    cdef bytes body(self, lane, Body records, int sequence):
        """The request's body with the records of a partition."""
        cdef int partition = lane.partition.partition
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
