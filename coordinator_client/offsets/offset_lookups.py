"""Lookups of committed offsets, log offsets, leader epochs and topic partitions.

Retriable errors are retried until the deadline of the lookup; others end it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.consumer_metadata import ConsumerMetadata
from kohort.coordinator_client.group.events import CommitRefused
from kohort.coordinator_client.offsets.commit_requests import AutoCommitState
from kohort.coordinator_client.offsets.describe_group import DescribeGroup, GroupMemberDescription
from kohort.coordinator_client.offsets.fenced_commit_queue import NOT_THE_COORDINATOR
from kohort.coordinator_client.offsets.positions import ListOffsetsLookup, Positions
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.error_mapping import (
    UNKNOWN_TOPIC_GRACE_S,
    may_pass,
    offset_error,
    topic_error,
)
from kohort.network.errors import AuthorizationFailed, IllegalState, OperationTimeout, UnknownTopic
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import NO_TOPIC_ID, ClusterView
from kohort.network.offset_requests import (
    BEFORE_TOPIC_IDS,
    CommittedResponse,
    EpochLookup,
    ListedOffset,
    ListFailure,
    committed_offsets,
    epoch_ends,
    list_offsets_request,
    listed_offsets,
    offset_fetch_request,
    offset_for_leader_epoch_request,
)
from kohort.network.promise import Promise
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    ConnectionPurpose,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion

Listed = Mapping[TopicPartition, ListedOffset]


class Lookup:
    """One ListOffsets lookup of a caller.

    `wanted` is the timestamp by partition. `finished` is called with the result or error. `stable`: true if
    `isolation_level` read_committed bounds the result.
    """

    def __init__(
        self,
        wanted: dict[TopicPartition, int],
        deadline: float,
        finished: Callable[[Listed | KohortError], None],
        *,
        stable: bool = True,
    ) -> None:
        self.wanted = wanted
        self.stable = stable
        self.deadline = deadline
        self.finished = finished
        self.found: dict[TopicPartition, ListedOffset] = {}
        self.in_flight: set[TopicPartition] = set()
        self.attempts: Attempts = FRESH

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self.wanted)

    def ready_requests(self, view: ClusterView, now: float) -> dict[int, list[tuple[TopicPartition, int, int]]]:
        """(partition, timestamp, leader epoch) by leader, of partitions not found and not in flight."""
        owed: dict[int, list[tuple[TopicPartition, int, int]]] = {}
        if not self.attempts.may_try(now):
            return owed
        for partition, timestamp in self.wanted.items():
            if partition in self.found or partition in self.in_flight:
                continue
            known, leader = view.partition(partition), view.leader(partition)
            if known is None or leader is None:
                continue
            owed.setdefault(leader.node, []).append((partition, timestamp, known.leader_epoch))
            self.in_flight.add(partition)
        return owed

    def refused_by(self, view: ClusterView) -> KohortError | None:
        """A permanent error in metadata; None if there is none."""
        for partition in self.wanted:
            if view.refused.get(partition.topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return topic_error(partition.topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return None

    def responded(
        self, response: Mapping[TopicPartition, ListedOffset | ListFailure], now: float, backoff: Backoff, chance: float
    ) -> KohortError | None:
        """Handle a response; returns the error if it is not retriable."""
        retry = False
        for partition, got in response.items():
            if partition not in self.wanted:
                continue  # else `complete` would count it
            self.in_flight.discard(partition)
            if isinstance(got, ListedOffset) and got.is_found(self.wanted[partition]):
                self.found[partition] = got
            elif isinstance(got, ListedOffset) or may_pass(got.code):
                retry = True
            else:
                return _refusal(partition, got.code)
        if retry:
            self.attempts = self.attempts.failed(now, backoff, chance)
        return None

    def failed(self, partitions: set[TopicPartition], now: float, backoff: Backoff, chance: float) -> None:
        self.in_flight -= partitions
        self.attempts = self.attempts.failed(now, backoff, chance)

    @property
    def complete(self) -> bool:
        return len(self.found) == len(self.wanted)

    @property
    def respond(self) -> Listed:
        """The offsets found, in the order in which they were wanted."""
        return {partition: self.found[partition] for partition in self.wanted if partition in self.found}

    def expired(self, view: ClusterView) -> KohortError:
        """The error for the time-out, as specific as possible."""
        for partition in self.wanted:
            if partition in self.found:
                continue
            place = partition._asdict()
            if view.brokers and view.partition(partition) is None:
                return UnknownTopic("no such topic or partition", hint="check its name", **place)
            return OperationTimeout("no response to ListOffsets in time", **place)
        return OperationTimeout("no response to ListOffsets in time")


def _refusal(partition: TopicPartition, code: int) -> KohortError:
    place = partition._asdict()
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationFailed("not allowed to read the topic", hint="grant DESCRIBE on it", **place)
    return BrokerError(code, api="ListOffsets", **place)


RETRIED_OFFSET_FETCH = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


STALE_LEADER_ATTEMPTS = 8
"""With the default backoff they take about five seconds, as UNKNOWN_TOPIC_GRACE_S."""


class _CommittedLookup:
    """A caller's lookup of committed offsets."""

    def __init__(
        self,
        partitions: tuple[TopicPartition, ...],
        deadline: float,
        future: "Promise[dict[TopicPartition, OffsetAndMetadata | None]]",
        stable: bool,
    ) -> None:
        self.partitions = partitions
        self.deadline = deadline
        self.future = future
        self.stable = stable
        self.in_flight = False
        self.attempts: Attempts = FRESH


class _TopicLookup:
    """A caller's lookup of one topic's partitions, or (`topic` None) of those of all topics.

    `after`: the number of Metadata requests sent before; only the response to a later one counts. -1: any response
    counts. `unknown_since`: the time (monotonic s) at which the topic was first seen to be unknown.
    """

    def __init__(self, topic: str | None, deadline: float, after: int, future: "Promise[Any]") -> None:
        self.topic = topic
        self.deadline = deadline
        self.after = after
        self.future = future
        self.unknown_since: float | None = None


class OffsetsRequestManager:
    """Handles the offset lookups of a consumer; used under the driver's lock.

    `unsettled` returns the partitions whose committed offset must not be read yet, since a commit is not settled.
    """

    def __init__(
        self,
        context: ConsumerContext,
        cluster: ConsumerMetadata,
        positions: Positions,
        book: AutoCommitState,
        unsettled: Callable[[], Set[TopicPartition]],
    ) -> None:
        self._context = context
        self._cluster = cluster
        self._positions = positions
        self._book = book
        self._unsettled = unsettled
        self._lookups: list[Lookup] = []
        self._committed_lookups: list[_CommittedLookup] = []
        self._topic_lookups: list[_TopicLookup] = []
        self._members = DescribeGroup(context, cluster)

    def poll(self, now: float) -> PollResult:
        """Return the requests that are due, and end lookups that are over."""
        if not self.is_waiting:
            return PollResult((), None)
        requests = [
            *self._committed_requests(now),
            *self._list_requests(now),
            *self._validation_requests(now),
            *self._lookup_requests(now),
        ]
        self._end_topic_lookups(now)
        members = self._members.poll(now) if self._members.waiting else PollResult((), None)
        times = (members.next_poll_at, *self._positions.next_poll_at(), *self._times())
        return PollResult((*requests, *members.requests), earliest(now, times))

    @property
    def is_waiting(self) -> bool:
        """True if a request may be due, or is awaited."""
        return bool(
            self._positions.needs_lookup(self._context.metadata.view)
            or self._lookups
            or self._committed_lookups
            or self._topic_lookups
            or self._members.waiting
        )

    def _times(self) -> Iterator[float]:
        """The times (monotonic s) of the next deadlines and retries."""
        waiting: list[Lookup | _CommittedLookup] = [*self._lookups, *self._committed_lookups]
        for lookup in waiting:
            yield lookup.deadline
            if lookup.attempts.failures:
                yield lookup.attempts.not_before
        for topic in self._topic_lookups:
            yield topic.deadline

    @property
    def needs_coordinator(self) -> bool:
        return bool(self._committed_lookups or self._members.waiting)

    @property
    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions of lookups that go to their leaders."""
        return (partition for lookup in self._lookups for partition in lookup.wanted)

    def fail(self, error: KohortError) -> None:
        """Fail all lookups with a fatal error."""
        for lookup in self._lookups:
            lookup.finished(error)
        for requested in self._committed_lookups:
            requested.future.set_exception(error)
        for one in self._topic_lookups:
            one.future.set_exception(error)
        self._lookups, self._committed_lookups, self._topic_lookups = [], [], []
        self._members.fail(error)

    # --- committed offsets

    def _committed_requests(self, now: float) -> Iterator[UnsentRequest]:
        coordinator = self._cluster.coordinator()
        for lookup in list(self._committed_lookups):
            if now >= lookup.deadline:
                self._committed_lookups.remove(lookup)
                lookup.future.set_exception(OperationTimeout("no response to OffsetFetch in time"))
        if coordinator is None or self._context.config.group is None:
            return
        owed = self._positions.owed_committed(self._context.metadata.view, now, self._unsettled())
        if owed:
            yield self._request_of_positions(coordinator, owed)
        for lookup in self._committed_lookups:
            if not lookup.in_flight and lookup.attempts.may_try(now):
                yield self._request_of_lookup(coordinator, lookup)

    def _request_of_positions(
        self, coordinator: CoordinatorNode, serials: Mapping[TopicPartition, int]
    ) -> UnsentRequest:
        def current(partitions: Iterable[TopicPartition] = serials) -> list[TopicPartition]:
            """Those that still have their serial.

            A partition reassigned meanwhile is requested again, since another member may have committed since.
            """
            return [one for one in partitions if self._positions.is_current(one, serials[one])]

        metadata = self._context.metadata
        ids = {topic: metadata.view.topic_id(topic) for topic in {one.topic for one in serials}}

        def is_of_log(partition: TopicPartition) -> bool:
            """False if the topic was created again meanwhile: a commit in it may be below the old offset."""
            return ids[partition.topic] in (NO_TOPIC_ID, metadata.view.topic_id(partition.topic))

        def retry(now: float, partitions: Iterable[TopicPartition] = serials) -> None:
            attempts = FRESH.failed(now, self._context.backoff, self._context.chance())
            self._positions.lookup_failed(current(partitions), attempts)

        def responded(response: CommittedResponse, now: float) -> None:
            # A partition with a pending transaction or without authorization does not delay the others.
            stored = {one: found for one in serials if (found := response.found.get(one)) is not None}
            self._book.known({one: found for one, found in stored.items() if is_of_log(one)})
            requested = current()
            again = {one for one in requested if response.code(one) in RETRIED_OFFSET_FETCH}
            self._committed_known(response, [one for one in requested if one not in again])
            if again:
                retry(now, again)

        return self._offset_fetch(coordinator, serials, responded, retry)

    def _request_of_lookup(self, coordinator: CoordinatorNode, lookup: _CommittedLookup) -> UnsentRequest:
        def retry(now: float) -> None:
            lookup.in_flight = False
            lookup.attempts = lookup.attempts.failed(now, self._context.backoff, self._context.chance())

        def responded(response: CommittedResponse, now: float) -> None:
            if response.codes and response.codes <= RETRIED_OFFSET_FETCH:
                retry(now)
            elif lookup in self._committed_lookups:
                self._committed_lookups.remove(lookup)
                if response.codes:
                    partition, code = next(iter(response.failed.items()), (None, response.error))
                    error = offset_error(partition, code or response.error, self._context.config.group)
                    lookup.future.set_exception(error)
                else:
                    lookup.future.set_result({one: response.found.get(one) for one in lookup.partitions})

        lookup.in_flight = True
        return self._offset_fetch(coordinator, lookup.partitions, responded, retry, stable=lookup.stable)

    def _offset_fetch(
        self,
        coordinator: CoordinatorNode,
        partitions: Iterable[TopicPartition],
        responded: Callable[[CommittedResponse, float], None],
        lost: Callable[[float], None],
        *,
        stable: bool = True,
    ) -> UnsentRequest:
        """An OffsetFetch. `lost` is called if there is no response."""

        def done(outcome: RequestResult, now: float) -> None:
            if not isinstance(outcome, ResponseReceived):
                if isinstance(outcome, SendFailed):
                    self._context.fail(outcome.error)
                else:
                    self._cluster.coordinator_lost(coordinator.endpoint, outcome.error)
                lost(now)
                return
            response = committed_offsets(outcome.value, {topic_id: name for name, topic_id in topic_ids.items()})
            if ErrorCode.UNKNOWN_TOPIC_ID in response.codes:
                self._context.metadata.request_update()  # the metadata of the coordinator or this one is old
            if moved := response.codes & NOT_THE_COORDINATOR:
                self._cluster.finder.lost(coordinator.endpoint)
                if (view := self._context.view()) is not None:
                    self._context.post_event(CommitRefused(moved.pop(), view.identity, frozenset(partitions)))
            responded(response, now)

        view, group = self._context.metadata.view, self._context.config.group or ""
        topic_ids = {topic: view.topic_id(topic) for topic in {one.topic for one in partitions}}
        request = offset_fetch_request(group, sorted(partitions), stable=stable, topic_ids=topic_ids)
        # By name, a broker may give an offset of a deleted topic for one that was created under its name.
        at_most = BEFORE_TOPIC_IDS if NO_TOPIC_ID in topic_ids.values() else None
        pending = PendingRequest("OffsetFetch", request, done, self._context.request_s, at_most)
        return UnsentRequest(self._context.offsets_purpose(), coordinator.endpoint, pending)

    def _committed_known(self, response: CommittedResponse, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if code := response.code(partition):
                self._positions.fail(partition, offset_error(partition, code, self._context.config.group))
                self._context.notify()
                continue
            self._positions.committed(partition, response.found.get(partition), self._context.wall_ms())

    # --- leader epochs (KIP-320)

    def _validation_requests(self, now: float) -> Iterator[UnsentRequest]:
        for node, lookups in self._positions.owed_validations(self._context.metadata.view, now).items():
            yield from self._epochs_request(node, lookups, now)

    def _epochs_request(self, node: int, lookups: list[EpochLookup], sent_at: float) -> tuple[UnsentRequest, ...]:
        by_partition = {lookup.partition: lookup for lookup in lookups}

        def done(outcome: RequestResult, now: float) -> None:
            attempts = FRESH.failed(now, self._context.backoff, self._context.chance())
            if isinstance(outcome, SendFailed) and isinstance(outcome.error, UnsupportedVersion):
                for lookup in by_partition.values():
                    self._positions.take_as_valid(lookup)
                return
            if not isinstance(outcome, ResponseReceived):
                self._context.metadata.request_update()
                self._positions.lookup_failed(by_partition, attempts)
                return
            for partition, (code, epoch, end_offset) in epoch_ends(outcome.value).items():
                if partition not in by_partition:
                    continue
                requested = by_partition.pop(partition)
                is_undefined = code == 0 and (epoch < 0 or end_offset < 0)
                if is_undefined and self._leader_may_be_stale(requested, now):
                    continue
                if code == 0:
                    self._positions.validated(requested, end_offset, epoch, self._context.wall_ms())
                else:
                    self._refused("OffsetForLeaderEpoch", requested, code, attempts)
            self._positions.lookup_failed(by_partition, attempts)
            self._context.notify()

        request = PendingRequest(
            "OffsetForLeaderEpoch", offset_for_leader_epoch_request(lookups), done, self._context.request_s
        )
        return self._context.to_node(node, ConnectionPurpose.CONTROL, request, sent_at)

    def _leader_may_be_stale(self, lookup: EpochLookup, now: float) -> bool:
        """True if the request is repeated: the position's epoch is newer than the leader's.

        Metadata may have a leader that was deposed, and does not know it yet (KIP-320).
        """
        state = self._positions.get(lookup.partition)
        if state is None or state.serial != lookup.serial or lookup.epoch <= lookup.leader_epoch:
            return False
        if state.attempts.failures >= STALE_LEADER_ATTEMPTS:
            return False
        self._context.metadata.request_update()
        attempts = state.attempts.failed(now, self._context.backoff, self._context.chance())
        self._positions.lookup_failed((lookup.partition,), attempts)
        return True

    def _refused(self, api: str, lookup: EpochLookup | ListOffsetsLookup, code: int, attempts: Attempts) -> None:
        """Handle an error code of a leader: retry it, or fail the partition."""
        partition = lookup.partition
        if not self._positions.is_current(partition, lookup.serial):
            return  # the position has changed meanwhile
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._positions.fail(partition, topic_error(partition.topic, code))
        elif may_pass(code):
            self._context.metadata.request_update()
            self._positions.lookup_failed((partition,), attempts)
        else:
            self._positions.fail(partition, BrokerError(code, api=api, **partition._asdict()))

    # --- position lookups

    def _list_requests(self, now: float) -> Iterator[UnsentRequest]:
        for node, lookups in self._positions.owed_lists(self._context.metadata.view, now).items():
            yield from self._list_request(node, lookups, now)

    def _list_request(self, node: int, lookups: list[ListOffsetsLookup], sent_at: float) -> tuple[UnsentRequest, ...]:
        by_partition = {lookup.partition: lookup for lookup in lookups}

        def done(outcome: RequestResult, now: float) -> None:
            attempts = FRESH.failed(now, self._context.backoff, self._context.chance())
            if not isinstance(outcome, ResponseReceived):
                if isinstance(outcome, SendFailed):
                    self._context.fail(outcome.error)
                self._context.metadata.request_update()
                self._positions.lookup_failed(by_partition, attempts)
                return
            for partition, got in listed_offsets(outcome.value).items():
                lookup = by_partition.pop(partition, None)
                if lookup is None:
                    continue
                if isinstance(got, ListedOffset) and not got.is_found(lookup.timestamp):
                    self._positions.lookup_failed((partition,), attempts)
                elif isinstance(got, ListedOffset):
                    self._positions.listed(lookup, got)
                else:
                    self._refused("ListOffsets", lookup, got.code, attempts)
            self._positions.lookup_failed(by_partition, attempts)
            self._context.notify()

        wanted = [(lookup.partition, lookup.timestamp, lookup.leader_epoch) for lookup in lookups]
        request = PendingRequest("ListOffsets", self._list_offsets(wanted), done, self._context.request_s)
        return self._context.to_node(node, ConnectionPurpose.CONTROL, request, sent_at)

    def _list_offsets(self, wanted: list[tuple[TopicPartition, int, int]], *, stable: bool = True) -> Any:
        return list_offsets_request(
            wanted,
            read_committed=stable and self._context.config.isolation_level == "read_committed",
            timeout_ms=self._context.config.request_timeout_ms,
        )

    def _lookup_requests(self, now: float) -> Iterator[UnsentRequest]:
        view = self._context.metadata.view
        for lookup in list(self._lookups):
            error = lookup.refused_by(view)
            if error is None and now >= lookup.deadline:
                error = lookup.expired(view)
            if error is not None:
                self._end_lookup(lookup, error)
                continue
            for node, wanted in lookup.ready_requests(view, now).items():
                yield from self._lookup_request(lookup, node, wanted, now)

    def _lookup_request(
        self, lookup: Lookup, node: int, wanted: list[tuple[TopicPartition, int, int]], sent_at: float
    ) -> tuple[UnsentRequest, ...]:
        partitions = {partition for partition, _timestamp, _epoch in wanted}

        def done(outcome: RequestResult, now: float) -> None:
            if not isinstance(outcome, ResponseReceived):
                self._context.metadata.request_update()
                lookup.failed(partitions, now, self._context.backoff, self._context.chance())
                if isinstance(outcome, SendFailed):
                    self._end_lookup(lookup, outcome.error)
                return
            response = listed_offsets(outcome.value)
            if any(isinstance(got, ListFailure) for got in response.values()):
                self._context.metadata.request_update()
            if left_out := partitions - response.keys():
                lookup.failed(left_out, now, self._context.backoff, self._context.chance())
            error = lookup.responded(response, now, self._context.backoff, self._context.chance())
            if error is not None or lookup.complete:
                self._end_lookup(lookup, error)

        request = PendingRequest(
            "ListOffsets", self._list_offsets(wanted, stable=lookup.stable), done, self._context.request_s
        )
        return self._context.to_node(node, ConnectionPurpose.CONTROL, request, sent_at)

    def _end_topic_lookups(self, now: float) -> None:
        for lookup in list(self._topic_lookups):
            if lookup.topic is None:
                self._end_all_topics(lookup, now)
            elif (found := self._topic_found(lookup, lookup.topic, now)) is not None:
                self._topic_lookups.remove(lookup)
                self._context.metadata.remove_transient((lookup.topic,))
                lookup.future.end(found)

    def _topic_found(
        self, lookup: _TopicLookup, topic: str, now: float
    ) -> tuple[TopicPartition, ...] | KohortError | None:
        """The partitions, or the topic's error; None while neither is known."""
        keeper, over = self._context.metadata, now >= lookup.deadline
        if keeper.last_with_response > lookup.after:
            if partitions := keeper.view.partitions_of(topic):
                return partitions
            code = keeper.view.refused.get(topic)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not over and self._may_appear(lookup, now):
                return None
            if code is not None:
                return topic_error(topic, code)
        return OperationTimeout("no response to Metadata of the topic in time", topic=topic) if over else None

    def _may_appear(self, lookup: _TopicLookup, now: float) -> bool:
        """True if brokers may not know of the topic yet.

        The time counts up to the last Metadata response. Without another response the topic is not given up.
        """
        if lookup.unknown_since is None:
            lookup.unknown_since = now
        return self._context.metadata.responded_at - lookup.unknown_since < UNKNOWN_TOPIC_GRACE_S

    def _end_all_topics(self, lookup: _TopicLookup, now: float) -> None:
        keeper = self._context.metadata
        known = keeper.last_with_response > lookup.after and keeper.has_all_topics
        if not known and now < lookup.deadline:
            return
        self._topic_lookups.remove(lookup)
        keeper.remove_all_topics()
        if not known:
            lookup.future.set_exception(OperationTimeout("no response to Metadata of all topics in time"))
            return
        hidden = self._context.config.exclude_internal_topics
        lookup.future.set_result(
            {
                name: keeper.view.partitions_of(name)
                for name, topic in sorted(keeper.view.topics.items())
                if not (topic.internal and hidden)
            }
        )

    def _end_lookup(self, lookup: Lookup, error: KohortError | None) -> None:
        if lookup in self._lookups:
            self._lookups.remove(lookup)
            self._context.metadata.remove_transient(lookup.topics)
            lookup.finished(lookup.respond if error is None else error)

    def _promise(self) -> "Promise[Any]":
        """The promise of a caller. A fatal error has ended it already."""
        future: Promise[Any] = Promise()
        if (fatal := self._context.fatal()) is not None:
            future.set_exception(fatal)
        return future

    def look_up(
        self, wanted: Mapping[TopicPartition, int], deadline: float, *, stable: bool = True
    ) -> "Promise[Mapping[TopicPartition, ListedOffset]]":
        """Look up offsets by timestamp and partition with ListOffsets; `stable`: see `Lookup`."""
        future = self._promise()
        if not future.done() and not wanted:
            future.set_result({})
        elif not future.done():
            self.put(Lookup(dict(wanted), deadline, future.end, stable=stable))
        return future

    def put(self, lookup: Lookup) -> None:
        """Queue a ListOffsets lookup; `lookup.finished` is called at its end."""
        if (fatal := self._context.fatal()) is not None:
            lookup.finished(fatal)
            return
        self._lookups.append(lookup)
        self._context.metadata.add_transient(lookup.topics)
        if self._context.metadata.view.lacking(lookup.wanted):
            self._context.metadata.request_update(at_once=True)

    def look_up_topic(self, topic: str, deadline: float, *, fresh: bool) -> "Promise[tuple[TopicPartition, ...]]":
        """Look up a topic's partitions; `fresh`: by a Metadata request that starts after this call."""
        if (future := self._promise()).done():
            return future
        keeper = self._context.metadata
        self._topic_lookups.append(_TopicLookup(topic, deadline, keeper.requests_sent if fresh else -1, future))
        keeper.add_transient((topic,))
        if fresh:
            keeper.request_update(at_once=True)
        return future

    def look_up_topics(self, deadline: float) -> "Promise[dict[str, tuple[TopicPartition, ...]]]":
        """Look up the partitions of all topics, with a Metadata request that starts after this call."""
        if (future := self._promise()).done():
            return future
        self._topic_lookups.append(_TopicLookup(None, deadline, self._context.metadata.requests_sent, future))
        self._context.metadata.add_all_topics()
        return future

    def describe_group(self, deadline: float) -> "Promise[tuple[GroupMemberDescription, ...]]":
        """Look up the members of the group."""
        if self._context.config.group is None:
            raise IllegalState("the consumer has no group", hint='use Consumer(..., group="...")')
        future = self._members.describe(deadline)
        if (fatal := self._context.fatal()) is not None:
            self._members.fail(fatal)
        return future

    def look_up_committed(
        self, partitions: Iterable[TopicPartition], deadline: float, *, stable: bool = True
    ) -> "Promise[dict[TopicPartition, OffsetAndMetadata | None]]":
        """Look up committed offsets; the result is in the order of `partitions`.

        `stable`: wait for transactions that may change them (KIP-447).
        """
        if self._context.config.group is None:
            raise IllegalState("committed offsets belong to a group", hint='use Consumer(..., group="...")')
        future, wanted = self._promise(), tuple(dict.fromkeys(partitions))
        if not future.done() and not wanted:
            future.set_result({})
        elif not future.done():
            self._committed_lookups.append(_CommittedLookup(wanted, deadline, future, stable))
        return future
