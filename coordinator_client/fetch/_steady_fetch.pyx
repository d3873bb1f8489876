# cython: freethreading_compatible=True
# cython: language_level=3
"""Fetch requests of a session in its steady state: each follows from the response, without a look at anything else.

The full turn is `Fetcher.on_response` and `Fetcher.ready_requests`. Both lead to the same state.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from kohort.coordinator_client.fetch._fetch_buffer cimport FetchBuffer
from kohort.network._sampled_window cimport SampledWindow

from kohort.common import TopicPartition
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.coordinator_client.fetch.fetch_session import INT32_MAX, OPENING, LogOffsets, RequestedFetch, Wanted
from kohort.fastpath._fetch import fetch_request_topics, fetch_response

cdef object new = tuple.__new__
cdef long long LONGEST_STEP = INT32_MAX

cdef enum:  # of a `PartitionState`
    SERIAL = 1
    OFFSET = 2


@cython.final
cdef class SteadySession:
    """One fetch session from a request of a full turn on, for as long as each request follows from a response."""

    cdef object fetcher, session, request, node, states, names, orders
    cdef dict requested, ahead, ends, last_requested
    cdef FetchBuffer parked
    cdef Py_ssize_t max_partition_bytes, max_buffered_bytes, max_fetch_bytes

    def __init__(self, fetcher, positions, order):
        config = fetcher.config
        self.fetcher, self.request, self.node = fetcher, order.request, order.node
        self.session, self.requested = fetcher.sessions[order.node], fetcher.in_flight[order.node]
        self.states, self.names = positions.states, self.session.names
        self.ahead, self.ends, self.parked = fetcher.ahead, fetcher.ends, fetcher.parked
        self.last_requested, self.orders = fetcher.last_requested, fetcher.orders
        self.max_partition_bytes = config.max_partition_fetch_bytes
        self.max_buffered_bytes = config.max_buffered_bytes
        self.max_fetch_bytes = config.fetch_max_bytes

    cdef bint is_steady(self, view) except -1:
        """True if the next request differs from the last only in the offsets that were fetched."""
        under = self.session.steady_under
        if under is None or self.fetcher.held_back:
            return False
        revision, positions_revision, seen = <tuple>under
        return seen is view and revision == self.fetcher.revision and positions_revision == self.states.revision

    cpdef follow_up(self, frame, int version, view):
        """Buffer the records of a response. Returns the body of the next request, and the number of buffered bytes.

        None if anything is unusual. Then nothing was changed.
        """
        cdef dict requested = self.requested, ahead = self.ahead, partitions
        cdef list found, places = [], changed = []
        cdef Py_ssize_t size, parked_bytes = 0, place
        cdef long long high_watermark
        session, fetcher = self.session, self.fetcher
        until = fetcher.until
        epoch, partitions = session.epoch, session.session_partitions
        if epoch == OPENING or epoch == INT32_MAX or not self.is_steady(view):
            return None
        found = fetch_response(frame, version, session.session_id, len(partitions))
        if found is None:
            return None
        seen = set()
        for one in found:
            topic_id, number, high_watermark, _stable, _start, records, next_offset, _epoch = <tuple>one
            name = self.names.get(topic_id)
            if name is None:
                return None
            partition = new(TopicPartition, (name, number))
            places.append(partition)
            sent, state = requested.get(partition), _of(self.states, partition)
            if sent is None or state is None or partition in seen:
                return None
            serial, offset, _leader_epoch, _leader = <tuple>sent
            if (<tuple>state)[SERIAL] != serial:
                return None
            known = ahead.get(partition)
            fetched = known is not None and (<tuple>known)[0] == serial
            if offset != ((<tuple>known)[1] if fetched else (<tuple>state)[OFFSET]):
                return None
            if records is None:
                continue
            seen.add(partition)
            size = len(records)
            parked_bytes += size
            if high_watermark < 0 or not offset < next_offset <= high_watermark + LONGEST_STEP:
                return None
            if until and next_offset >= until.get(partition, next_offset + 1):
                return None
            if self.parked.bytes_of(partition) + size > self.max_partition_bytes:
                return None
        room = self.max_buffered_bytes - self.parked.total_bytes - parked_bytes
        if room < len(fetcher.in_flight) * self.max_fetch_bytes:
            return None
        # Everything is as usual. From here on it is carried out.
        stale = fetcher.stale_log_offsets
        for place, one in enumerate(found):
            topic_id, number, watermark, stable, start, records, next_offset, last_epoch = <tuple>one
            partition = places[place]
            if stale:
                stale.discard(partition)
            self.ends[partition] = new(LogOffsets, (watermark, stable, start))
            if records is None:
                continue
            serial, offset, leader_epoch, leader = <tuple>requested[partition]
            self.parked.put(
                new(
                    CompletedFetch,
                    (partition, records, offset, next_offset, serial, last_epoch, (), leader_epoch, watermark),
                )
            )
            ahead[partition] = requested[partition] = new(RequestedFetch, (serial, next_offset, leader_epoch, leader))
            topic, _before, wanted_epoch, most_bytes = <tuple>partitions[partition]
            partitions[partition] = new(Wanted, (topic, next_offset, wanted_epoch, most_bytes))
            changed.append((topic_id, number, wanted_epoch, next_offset, most_bytes))
        self.last_requested[self.node] = next(self.orders)
        session.epoch = epoch = epoch + 1
        template = session.template
        if template is None or template.version != version or template.session_id != session.session_id:
            template = session.template_of(self.request, version)
        topics = fetch_request_topics(changed)
        body = b"".join((template.before_epoch, epoch.to_bytes(4, "big"), topics, template.after_topics))
        return body, parked_bytes


@cython.final
cdef class SteadyFetch:
    """The `follow_up` of the Fetch requests to one node, from the request of a full turn on.

    `sent_at` is the time (monotonic s) of the last request.
    """

    cdef SteadySession session
    cdef object metadata, notify, counters
    cdef SampledWindow took_ms, throttle_ms, fetched_bytes
    cdef readonly double sent_at

    def __init__(self, context, SteadySession session, double now):
        sensors = context.sensors
        self.session = session
        self.metadata, self.notify, self.counters = context.metadata, context.notify, context.counters
        self.took_ms, self.fetched_bytes = sensors.fetch_ms, sensors.fetch_bytes
        self.throttle_ms = sensors.fetch_throttle_ms
        self.sent_at = now

    def __call__(self, frame, int version, double now):
        """Handle a response, and return the body of the next request. None if anything is unusual."""
        cdef Py_ssize_t parked_bytes
        found = self.session.follow_up(frame, version, self.metadata.view)
        if found is None:
            return None
        body, parked_bytes = <tuple>found
        counters = self.counters
        counters.requests += 1
        counters.fetches += 1
        counters.fetched_bytes += parked_bytes
        self.took_ms.add((now - self.sent_at) * 1000, now)
        self.throttle_ms.add(0.0, now)
        self.fetched_bytes.add(parked_bytes, now)
        if parked_bytes:
            self.notify()
        self.sent_at = now
        return body


cdef inline object _of(states, partition):
    cdef PyObject *found = PyDict_GetItem(states, partition)
    return None if found == NULL else <object>found
