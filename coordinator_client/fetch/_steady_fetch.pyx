# cython: freethreading_compatible=True
# cython: language_level=3
"""Fetch requests of a session in its steady state: each follows from the response, without a look at anything else.

The full turn is `Fetcher.on_response` and `Fetcher.ready_requests`. Both lead to the same state.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from kohort.coordinator_client.fetch._fetch_buffer cimport FetchBuffer

from kohort.common import TopicPartition
from kohort.coordinator_client.fetch.completed_fetch import CompletedFetch
from kohort.coordinator_client.fetch.fetch_session import INT32_MAX, OPENING, LogOffsets, RequestedFetch, Wanted
from kohort.fastpath._fetch import fetch_request_topics, fetch_response

cdef object new = tuple.__new__
cdef long long LONGEST_STEP = INT32_MAX


@cython.final
cdef class SteadyFetch:
    """The `follow_up` of the Fetch requests to one node, from the request of a full turn on.

    `sent_at` is the time (monotonic s) of the last request.
    """

    cdef object context, fetcher, positions, node, request
    cdef readonly double sent_at

    def __init__(self, context, fetcher, positions, order, double now):
        self.context = context
        self.fetcher = fetcher
        self.positions = positions
        self.node, self.request = order.node, order.request
        self.sent_at = now

    def __call__(self, frame, int version, double now):
        """Buffer the records of a response, and return the body of the next request.

        None if anything is unusual. Then nothing was changed.
        """
        context = self.context
        view = context.metadata.view
        found = follow_up(self.fetcher, self.node, self.request, frame, version, self.positions, view)
        if found is None:
            return None
        body, parked_bytes = <tuple>found
        counters, sensors = context.counters, context.sensors
        counters.requests += 1
        counters.fetches += 1
        counters.fetched_bytes += parked_bytes
        sensors.fetched((now - self.sent_at) * 1000, 0, parked_bytes, now)
        if parked_bytes:
            context.notify()
        self.sent_at = now
        return body


def follow_up(fetcher, node, request, frame, int version, positions, view):
    """Buffer the records of a response. Returns the body of the next request, and the number of buffered bytes."""
    cdef dict asked = fetcher._in_flight.get(node), ahead = fetcher._ahead, ends = fetcher.ends
    cdef object states = positions.states
    cdef dict partitions
    cdef FetchBuffer parked = fetcher.parked
    cdef list found, places = [], changed = []
    cdef Py_ssize_t size, parked_bytes = 0, place
    cdef long long high_watermark
    session = fetcher._sessions.get(node)
    if session is None or asked is None or fetcher.held_back or not _is_steady(fetcher, session, states, view):
        return None
    epoch, partitions = session.epoch, session.session_partitions
    if epoch == OPENING or epoch == INT32_MAX:
        return None
    found = fetch_response(frame, version, session.session_id, len(partitions))
    if found is None:
        return None
    config, names, seen = fetcher.config, session.names, set()
    for one in found:
        topic_id, number, high_watermark, _stable, _start, records, next_offset, _epoch = <tuple>one
        name = names.get(topic_id)
        if name is None:
            return None
        partition = new(TopicPartition, (name, number))
        places.append(partition)
        ask, state = asked.get(partition), _of(states, partition)
        if ask is None or state is None or state.serial != ask.serial or partition in seen:
            return None
        known = ahead.get(partition)
        if ask.offset != (known.offset if known is not None and known.serial == ask.serial else state.offset):
            return None
        if records is None:
            continue
        seen.add(partition)
        size = len(records)
        parked_bytes += size
        if high_watermark < 0 or not ask.offset < next_offset <= high_watermark + LONGEST_STEP:
            return None
        if parked.bytes_of(partition) + size > config.max_partition_fetch_bytes:
            return None
    if config.max_buffered_bytes - parked.total_bytes - parked_bytes < len(fetcher._in_flight) * config.fetch_max_bytes:
        return None
    # Everything is as usual. From here on it is carried out.
    stale = fetcher.stale_log_offsets
    for place, one in enumerate(found):
        topic_id, number, watermark, stable, start, records, next_offset, last_epoch = <tuple>one
        partition = places[place]
        if stale:
            stale.discard(partition)
        ends[partition] = new(LogOffsets, (watermark, stable, start))
        if records is None:
            continue
        serial, offset, leader_epoch, leader = <tuple>asked[partition]
        parked.put(
            new(
                CompletedFetch,
                (partition, records, offset, next_offset, serial, last_epoch, (), leader_epoch, watermark),
            )
        )
        ahead[partition] = asked[partition] = new(RequestedFetch, (serial, next_offset, leader_epoch, leader))
        topic, _before, wanted_epoch, most_bytes = <tuple>partitions[partition]
        partitions[partition] = new(Wanted, (topic, next_offset, wanted_epoch, most_bytes))
        changed.append((topic_id, number, wanted_epoch, next_offset, most_bytes))
    fetcher._last_asked[node] = next(fetcher._orders)
    session.epoch = epoch = epoch + 1
    template = session.template
    if template is None or template.version != version or template.session_id != session.session_id:
        template = session.template_of(request, version)
    topics = fetch_request_topics(changed)
    return b"".join((template.before_epoch, epoch.to_bytes(4, "big"), topics, template.after_topics)), parked_bytes


cdef bint _is_steady(fetcher, session, states, view) except -1:
    """True if the next request differs from the last only in the offsets that were fetched."""
    under = session.steady_under
    if under is None:
        return False
    revision, positions_revision, seen = <tuple>under
    return seen is view and revision == fetcher._revision and positions_revision == states.revision


cdef inline object _of(states, partition):
    cdef PyObject *found = PyDict_GetItem(states, partition)
    return None if found == NULL else <object>found
