# cython: freethreading_compatible=True
# cython: language_level=3
"""Fetch requests to a broker in a steady state: each follows from the response, without a look at anything else.

A request of a session has the partitions that changed. A broker whose cache of sessions is full opens none, and then
each request has all partitions.

The full turn is `Fetcher.on_response` and `Fetcher.ready_requests`. Both lead to the same state.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from kohort.coordinator_client.fetch._fetch_buffer cimport FetchBuffer, FetcherFields, SessionFields
from kohort.coordinator_client.offsets._partition_states cimport PartitionStates
from kohort.fastpath._fetch cimport ChangedPartition, FetchedSpan, FetchedSpans, fetch_request_body
from kohort.fastpath._memory cimport part_of
from kohort.fastpath._tuples cimport new
from kohort.network._follow_up cimport FollowUp
from kohort.network._samples cimport Counters, SampledWindow

from kohort.common import TopicPartition
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.coordinator_client.fetch.fetch_session import INT32_MAX, NO_SESSION, OPENING
from kohort.coordinator_client.fetch.fetch_session import LogOffsets, RequestedFetch, Wanted

cdef int64_t LONGEST_STEP = INT32_MAX
cdef long long NO_EPOCH = OPENING
cdef long long FIRST_EPOCH = OPENING + 1
cdef long long LAST_EPOCH = INT32_MAX - 1

cdef enum:
    TOPIC_ID_BYTES = 16
    SERIAL = 0  # of a `RequestedFetch`
    REQUESTED_OFFSET = 1
    SERIAL_OF_STATE = 1
    OFFSET_OF_STATE = 2
    TOPIC_ID = 0  # of a `Wanted`
    WANTED_OFFSET = 1
    WANTED_EPOCH = 2
    WANTED_BYTES = 3
    VERSION = 0  # of a `RequestTemplate`
    SESSION_ID = 1


@cython.final
cdef class SteadyPartition:
    """A partition of the session, from its first response on. `sent`: the offset that was requested last.

    `response`: the number of the last response that has records of it.
    """

    cdef object partition
    cdef object sent, wanted
    cdef int64_t offset
    cdef long long response


@cython.final
cdef class SteadySession:
    """One fetch session from a request of a full turn on, for as long as each request follows from a response.

    `topic_ids`: those of all partitions, if the request has no session.
    """

    cdef FetcherFields fetcher
    cdef SessionFields session
    cdef object request, node, names, orders
    cdef dict requested, ahead, ends, last_requested, by_topic
    cdef dict topic_ids
    cdef long long opening_epoch
    cdef PartitionStates states
    cdef FetchBuffer parked
    cdef FetchedSpans found
    cdef Py_ssize_t max_partition_bytes, max_buffered_bytes, max_fetch_bytes
    cdef long long responses

    def __init__(self, fetcher, order):
        config = fetcher.config
        self.fetcher, self.request, self.node = fetcher, order.request, order.node
        self.session, self.requested = fetcher.sessions[order.node], fetcher.in_flight[order.node]
        self.states, self.names = fetcher.positions.states, self.session.names
        self.ahead, self.ends, self.parked = fetcher.ahead, fetcher.ends, fetcher.parked
        self.last_requested, self.orders = fetcher.last_requested, fetcher.orders
        self.max_partition_bytes = config.max_partition_fetch_bytes
        self.max_buffered_bytes = config.max_buffered_bytes
        self.max_fetch_bytes = order.request.max_bytes
        self.by_topic, self.found = {}, FetchedSpans()
        self.responses = 0
        self.opening_epoch = order.request.session_epoch
        has_session = self.opening_epoch > NO_EPOCH or order.request.session_id != NO_SESSION
        self.topic_ids = None
        if not has_session and order.at_most is None:
            self.topic_ids = {
                TopicPartition(topic.topic, one.partition): topic.topic_id.bytes
                for topic in order.request.topics
                for one in topic.partitions
            }

    cdef bint is_steady(self, view) except -1:
        """True if the next request differs from the last only in the offsets that were fetched."""
        under = self.session.steady_under
        if under is None or self.fetcher.held_back:
            return False
        revision, positions_revision, seen = <tuple>under
        return seen is view and <long long>positions_revision == self.states.revision and (
            <long long>revision == self.fetcher.revision
        )

    cdef SteadyPartition known(self, const FetchedSpan *span):
        """A partition of a response; None if it was not requested."""
        cdef bytes topic_id = PyBytes_FromStringAndSize(<const char *>span.topic_id, TOPIC_ID_BYTES)
        cdef PyObject *numbers = PyDict_GetItem(self.by_topic, topic_id)
        cdef PyObject *found
        cdef SteadyPartition made
        number = <object>span.number
        if numbers != NULL:
            found = PyDict_GetItem(<object>numbers, number)
            if found != NULL:
                return <SteadyPartition>found
        name = self.names.get(topic_id)
        if name is None:
            return None
        partition = new(TopicPartition, (name, number))
        sent = self.requested.get(partition)
        if sent is None:
            return None
        made = SteadyPartition.__new__(SteadyPartition)
        made.partition, made.sent, made.wanted = partition, sent, self.session.session_partitions[partition]
        made.offset, made.response = (<tuple>sent)[REQUESTED_OFFSET], 0
        self.by_topic.setdefault(topic_id, {})[number] = made
        return made

    cdef bint is_expected(self, SteadyPartition one) except -1:
        """The response begins where reading goes on."""
        cdef PyObject *known = PyDict_GetItem(self.ahead, one.partition)
        cdef PyObject *state
        if known != NULL and <object>known is one.sent:
            return True
        state = PyDict_GetItem(self.states, one.partition)
        if state == NULL or (<tuple>state)[SERIAL_OF_STATE] != (<tuple>one.sent)[SERIAL]:
            return False
        if known != NULL and (<tuple>known)[SERIAL] == (<tuple>one.sent)[SERIAL]:
            return (<tuple>known)[REQUESTED_OFFSET] == (<tuple>one.sent)[REQUESTED_OFFSET]
        return (<tuple>state)[OFFSET_OF_STATE] == (<tuple>one.sent)[REQUESTED_OFFSET]

    def follow_up(self, frame, int version, view):
        """Buffer the records of a response. Returns the body of the next request, and the number of buffered bytes.

        None if anything is unusual. Then nothing was changed.
        """
        cdef Py_ssize_t parked_bytes
        cdef const uint8_t[::1] seen = frame
        body = self.next_body(frame, &seen[0], len(seen), version, view, &parked_bytes)
        return None if body is None else (body, parked_bytes)

    cdef bytes next_body(
        self, frame, const uint8_t *start, Py_ssize_t size, int version, view, Py_ssize_t *parked_bytes
    ):
        cdef dict partitions = self.session.session_partitions
        cdef long long epoch = self.session.epoch
        cdef bint has_session = epoch != NO_EPOCH
        cdef FetchedSpans found = self.found
        cdef FetchedSpan *span
        cdef SteadyPartition one
        cdef list usual = []
        cdef Py_ssize_t place, room
        cdef dict until = self.fetcher.until
        parked_bytes[0] = 0
        if has_session and not FIRST_EPOCH <= epoch <= LAST_EPOCH:
            return None
        if not has_session and self.topic_ids is None:
            return None
        if not self.is_steady(view):
            return None
        if not found.read(start, size, version, self.session.session_id, len(partitions)):
            return None
        self.responses += 1
        for place in range(found.count):
            span = &found.spans[place]
            one = self.known(span)
            if one is None or one.response == self.responses or not self.is_expected(one):
                return None
            usual.append(one)
            if not span.records_size:
                continue
            one.response = self.responses
            parked_bytes[0] += span.records_size
            if span.high_watermark < 0 or not one.offset < span.next_offset or (
                span.next_offset - LONGEST_STEP > span.high_watermark
            ):
                return None
            if until and span.next_offset >= until.get(one.partition, span.next_offset + 1):
                return None
            if self.parked.bytes_of(one.partition) + span.records_size > self.max_partition_bytes:
                return None
        room = self.max_buffered_bytes - self.parked.total_bytes - parked_bytes[0]
        if room < len(self.fetcher.in_flight) * self.max_fetch_bytes:
            return None
        # Everything is as usual. From here on it is carried out.
        return self.carried_out(frame, start, version, partitions, usual)

    cdef bytes carried_out(self, frame, const uint8_t *start, int version, dict partitions, list usual):
        cdef FetchedSpan *span
        cdef SteadyPartition one
        cdef SessionFields session = self.session
        cdef bint has_session = session.epoch != NO_EPOCH
        cdef long long epoch = session.epoch + 1 if has_session else self.opening_epoch
        cdef Py_ssize_t place, count = 0
        cdef Py_ssize_t most = len(usual) if has_session else len(partitions)
        cdef set stale = self.fetcher.stale_log_offsets
        cdef bytes id_of_topic
        cdef ChangedPartition *changed = <ChangedPartition *>PyMem_Malloc(max(most, 1) * sizeof(ChangedPartition))
        if changed == NULL:
            raise MemoryError("no memory for the partitions of a request")
        try:
            for place in range(len(usual)):
                span = &self.found.spans[place]
                one = usual[place]
                partition = one.partition
                if stale:
                    stale.discard(partition)
                self.ends[partition] = new(LogOffsets, (span.high_watermark, span.last_stable, span.log_start))
                if not span.records_size:
                    continue
                serial, offset, leader_epoch, leader = <tuple>one.sent
                topic_id, _before, wanted_epoch, most_bytes = <tuple>one.wanted
                next_offset = <object>span.next_offset
                records = part_of(frame, start + span.records_at, span.records_size)
                self.parked.put(
                    new(
                        CompletedFetch,
                        (
                            partition,
                            records,
                            offset,
                            next_offset,
                            serial,
                            span.leader_epoch,
                            (),
                            leader_epoch,
                            span.high_watermark,
                        ),
                    )
                )
                one.offset = span.next_offset
                one.sent = new(RequestedFetch, (serial, next_offset, leader_epoch, leader))
                one.wanted = new(Wanted, (topic_id, next_offset, wanted_epoch, most_bytes))
                self.ahead[partition] = self.requested[partition] = one.sent
                if not has_session:  # as `FetchSession.move_back`
                    del partitions[partition]
                partitions[partition] = one.wanted
                if has_session:
                    changed[count] = ChangedPartition(
                        span.topic_id, span.number, wanted_epoch, span.next_offset, most_bytes
                    )
                    count += 1
            self.last_requested[self.node] = next(self.orders)
            if has_session:
                session.epoch = epoch
            else:
                for partition, wanted in partitions.items():
                    _id, next_offset, wanted_epoch, most_bytes = <tuple>wanted
                    id_of_topic = self.topic_ids[partition]
                    changed[count] = ChangedPartition(
                        <const uint8_t *>PyBytes_AS_STRING(id_of_topic),
                        <int>(<tuple>partition)[1],
                        wanted_epoch,
                        next_offset,
                        most_bytes,
                    )
                    count += 1
            template = session.template
            if template is None or <int>(<tuple>template)[VERSION] != version or (
                <long long>(<tuple>template)[SESSION_ID] != session.session_id
            ):
                template = session.template_of(self.request, version)
            _version, _id, before_epoch, after_topics = <tuple>template
            return fetch_request_body(before_epoch, epoch, changed, count, after_topics)
        finally:
            PyMem_Free(changed)


@cython.final
cdef class SteadyFetch(FollowUp):
    """The `follow_up` of the Fetch requests to one node, from the request of a full turn on.

    `sent_at` is the time (monotonic s) of the last request.
    """

    cdef SteadySession session
    cdef object metadata, notify
    cdef Counters counters
    cdef SampledWindow took_ms, throttle_ms, fetched_bytes
    cdef readonly double sent_at

    def __init__(self, context, SteadySession session, double now):
        sensors = context.sensors
        self.session = session
        self.metadata, self.notify, self.counters = context.metadata, context.notify, context.counters
        self.took_ms, self.fetched_bytes = sensors.fetch_ms, sensors.fetch_bytes
        self.throttle_ms = sensors.fetch_throttle_ms
        self.sent_at = now

    cdef bytes next_body(self, frame, const uint8_t *start, Py_ssize_t size, int version, double now):
        cdef Py_ssize_t parked_bytes
        cdef bytes body = self.session.next_body(frame, start, size, version, self.metadata.view, &parked_bytes)
        if body is None:
            return None
        self.counters.requests += 1
        self.counters.fetches += 1
        self.counters.fetched_bytes += parked_bytes
        self.took_ms.add((now - self.sent_at) * 1000, now)
        self.throttle_ms.add(0.0, now)
        self.fetched_bytes.add(parked_bytes, now)
        if parked_bytes:
            self.notify()
        self.sent_at = now
        return body
