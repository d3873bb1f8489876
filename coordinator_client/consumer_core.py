"""The core of a consumer: everything except its sockets, thread and clock. It connects the parts.

The driver's thread calls `poll` after each event, and sends the returned requests. It also makes the caller's changes
(`Driver.execute`). The caller's thread only reads, and settles what was handed over. It does so in repeatable steps,
because a signal handler may raise after any call. Both hold the driver's lock meanwhile, and do nothing slow: no I/O,
no decoding, no user code.

A turn follows the dependencies: the group's machine, its assignment, commits, offsets, fetches, metadata. Each part is
a `RequestManager`, and receives a `ConsumerContext`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Set
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from kohort.assignors import Assignor
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.consumer_metadata import ConsumerMetadata
from kohort.coordinator_client.errors import RebalanceInProgress
from kohort.coordinator_client.fetch._collect import CoreFields, readable
from kohort.coordinator_client.fetch.completed_fetch import written_ms
from kohort.coordinator_client.fetch.fetch_requests import FetchRequestManager
from kohort.coordinator_client.fetch.fetcher import Fetcher, recreated
from kohort.coordinator_client.group.classic_member import ClassicMember
from kohort.coordinator_client.group.events import (
    RESPONSE_EVENTS,
    CloseRequested,
    Disconnected,
    Event,
    HookDone,
    HookStarted,
    Polled,
    PollEnded,
    RebalanceEnforced,
    RequestFailed,
    Subscribed,
    Unsubscribed,
)
from kohort.coordinator_client.group.leader_assignment import run_plan
from kohort.coordinator_client.group.member_base import MemberBase
from kohort.coordinator_client.group.ready import MemberView, Ready, Send
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.hooks import Assigned, HookCall, Revoked, Start, meaning
from kohort.coordinator_client.log_events import LogEvents
from kohort.coordinator_client.offset_reset import OffsetReset, ResetKind, ResetPolicy
from kohort.coordinator_client.offsets.commit_requests import AutoCommitState, CommitRequestManager
from kohort.coordinator_client.offsets.group_lag import GroupLag
from kohort.coordinator_client.offsets.offset_lookups import OffsetsRequestManager
from kohort.coordinator_client.offsets.positions import Position, Positions
from kohort.coordinator_client.sensors import Sensors
from kohort.coordinator_client.subscription_state import AssignedPartitions, PauseMarks, Subscription
from kohort.fastpath import CorruptRecord
from kohort.network._guard import Door
from kohort.network._samples import Counters
from kohort.network.backoff import Backoff
from kohort.network.connection_states import ConnectionStates
from kohort.network.error_mapping import is_of_others
from kohort.network.errors import ConcurrentUseError, IllegalState
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.metadata import NO_EPOCH, NO_TOPIC_ID, ClusterView
from kohort.network.metadata_refresh import MetadataRefresher, WantedTopics
from kohort.network.notices import Notice
from kohort.network.process_exit import EXIT_S
from kohort.network.request_manager import RequestManager, earliest, poll_all
from kohort.network.request_versions import fit
from kohort.network.requests import (
    BackgroundJob,
    ConnectionPurpose,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.network.telemetry.telemetry_reporter import TelemetryContext, TelemetryReporter

if TYPE_CHECKING:
    from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics

T = TypeVar("T")


class ConsumerCore(CoreFields):
    """The core of one consumer; see the module. `chance` returns random numbers in [0, 1)."""

    def __init__(
        self, config: ConsumerConfig, assignors: tuple[Assignor, ...], *, chance: Callable[[], float], started: float
    ) -> None:
        self.config = config
        self.chance = chance
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.endpoints = ConnectionStates.of(config, chance)
        self.metadata = MetadataRefresher(
            self.backoff, config.metadata_max_age_ms / 1000, config.allow_auto_create_topics
        )
        self.book = AutoCommitState(config.auto_commit_interval_ms / 1000 if config.enable_auto_commit else None)
        self.positions = Positions(ResetPolicy.of(config.auto_offset_reset), gone=lambda p: self.commits.log_gone(p))
        self.fetcher = Fetcher(config, self.positions)
        self.marks = PauseMarks()
        self.subscription: Subscription | None = None
        self.may_read = False  # true after subscribe or assign, even with an empty list
        self.member: MemberBase | None = None
        self.view: MemberView | None = None
        self.visible: frozenset[TopicPartition] = frozenset()
        self.door = Door(_elsewhere)
        self.reports_gaps = False
        self.unreported: deque[OffsetReset] = deque()
        self.notices: deque[Any] = deque(maxlen=1_000)
        self._assignors = assignors
        self.started = started
        self.manual = AssignedPartitions()
        self._hook: HookCall | None = None
        self._hook_taken = -1
        self._hook_over = -1
        self._starting: set[TopicPartition] = set()  # those of on_assigned that were not sought, while it runs
        self._caller_events: list[Event] = []
        self._seen_begun = self._seen_ended = 0  # polls whose begin and end the machine has seen
        self._socket_events: list[Event] = []
        self.topic_ids: dict[str, UUID] = {}
        self.counters = Counters()
        self.sensors = Sensors()
        self.polls, self.commits_by_poll = self.sensors.polls, config.enable_auto_commit
        self.log_events = LogEvents(config, lambda: self.view)
        context = ConsumerContext(
            config=config,
            request_s=config.request_timeout_ms / 1000,
            backoff=self.backoff,
            metadata=self.metadata,
            counters=self.counters,
            sensors=self.sensors,
            chance=chance,
            view=lambda: self.view,
            fatal=lambda: self._fatal,
            closing=lambda: self.closing,
            wall_ms=lambda: self.wall_ms,
            offsets_purpose=self._offsets_purpose,
            post_event=self.post_event,
            notify=self.notify,
            fail=self.fail,
            put_error=self.put_error,
        )
        self.cluster = ConsumerMetadata(self, context, self.named_topics, lambda: self.manual, self._needs_coordinator)
        self.lookups = OffsetsRequestManager(
            context, self.cluster, self.positions, self.book, self._partitions_being_committed
        )
        self.group_lag = GroupLag(
            self.lookups, self.post_event, reads_old=self.positions.policy.kind is not ResetKind.LATEST
        )
        self.metadata.partitions = lambda: (*self.assignment, *self.lookups.partitions)
        self.commits = CommitRequestManager(
            context,
            self.cluster,
            self.book,
            self.positions,
            topic_ids=self.topic_ids,
            assignment=lambda: self.assignment,
            membership=lambda: self.membership,
            is_quiet=self._is_quiet,
            report=self._report,
        )
        self.fetches = FetchRequestManager(context, self.fetcher, lambda partition: partition in self.allowed)
        self.telemetry = TelemetryReporter(
            TelemetryContext(
                client="consumer",
                enabled=config.enable_metrics_push,
                request_s=context.request_s,
                endpoints=self.endpoints,
                chance=chance,
                wall_ms=context.wall_ms,
                metrics=self.metrics,
                labels=self._labels,
                notify=self.notify,
            )
        )
        self.context = context
        self._managers: tuple[RequestManager, ...] = (self.commits, self.lookups, self.fetches, self.telemetry)
        self.log_fields = self.log_events.log_fields  # the logging context of the driver's thread
        self._polls_at = -inf  # the time of the next poll, unless something happens before
        self._member_due_at: float | None = -inf  # without events, the member has nothing to do until then
        self._job: BackgroundJob | None = None
        self._errors: deque[KohortError] = deque()
        self._fatal: KohortError | None = None
        self._aligned: AssignedPartitions | None = None
        self._watched: tuple[AssignedPartitions | None, ClusterView | None] = (None, None)
        self.allowed: frozenset[TopicPartition] = frozenset()
        self._allowed_for: tuple[object, object, PauseMarks | None] = (None, None, None)
        self.wall_ms = 0
        self.closing = False
        self.retired: Callable[[], None] | None = None  # dropped unclosed: called once the group was left

    # ------------------------------------------------------------------ the driver's side

    def poll(self, now: float, wall_ms: int) -> PollResult:
        """Process all events, and return the requests to send."""
        self.wall_ms = wall_ms
        fatal = self._fatal
        self.cluster.bootstrap_failed(now)
        if self.retired is not None:
            self._wind_up(now)
        member = self._poll_member(now)
        self._align()
        others = poll_all(self._managers, now)
        cluster = self.cluster.poll(now)  # last, since the others request updates and coordinators
        self._note_gaps()
        if self.retired is not None and self.left:
            self.retired()
        job, self._job = self._job, None
        # The machine steps at once what a part has settled, and commits fail at once by a fatal error.
        again = bool(self._socket_events) or self._fatal is not fatal or (self.retired is not None and self.hook_is_due)
        next_poll_at = now if again else earliest(now, (member.next_poll_at, cluster.next_poll_at, others.next_poll_at))
        self._polls_at = inf if next_poll_at is None else next_poll_at
        return PollResult(member.requests + cluster.requests + others.requests, next_poll_at, job)

    def poll_added(self, now: float, wall_ms: int) -> PollResult:
        """As `poll`, where only new commits have come. Only they are polled, unless they have to wait for others."""
        if self._polls_at <= now or not self._is_quiet():
            return self.poll(now, wall_ms)
        self.wall_ms = wall_ms
        commits = self.commits.poll(now)
        if not commits.requests or not self._is_quiet():
            everything = self.poll(now, wall_ms)
            return everything._replace(requests=commits.requests + everything.requests)
        self._polls_at = min(self._polls_at, inf if commits.next_poll_at is None else commits.next_poll_at)
        return PollResult(commits.requests, self._polls_at)

    def is_at_rest(self) -> bool:
        """Never: each response may lead to a request."""
        return False

    def _is_quiet(self) -> bool:
        """True if no event, hook, lookup, error or end of the consumer has yet to be dealt with."""
        waits = self._caller_events or self._socket_events or self._hook is not None or self.lookups.is_waiting
        return not (waits or self.closing or self.retired is not None or self._fatal is not None)

    def _wind_up(self, now: float) -> None:
        """Leave without the user: no hook is called, and nothing is committed that a hook may have yet to save."""
        if not self.closing:
            self.request_close(now, now + EXIT_S)
        elif (call := self._hook) is not None and self.hook_is_due:
            self._hook_over = call.serial
            self._caller_events += [HookStarted(call.serial, now), HookDone(call.serial, now, {}, {}, None)]

    # --- the group's machine

    def _poll_member(self, now: float) -> PollResult:
        if self.member is None:
            if self.commits.queue.has_response:
                self.commits.queue.complete(None, now, self.chance())
            self._polls([], now)
            self._caller_events.clear()
            self._socket_events.clear()
            return PollResult((), None)
        # The caller acted on an older view, so its events go first.
        events = self._polls(self._caller_events, now) + self._socket_events
        self._caller_events, self._socket_events = [], []
        for event in events:
            self.member.step(event, now)
        before = self.view
        if self.commits.queue.has_response:
            if events:
                self.view = self.member.view()  # how an error is handled depends on what the member made of it
            self.commits.queue.complete(self.view, now, self.chance())
            settled, self._socket_events = self._socket_events, []
            for event in settled:  # a join that waits for this commit begins in this turn
                self.member.step(event, now)
            events += settled
        if not events and self._hook is None and (self._member_due_at is None or now < self._member_due_at):
            return PollResult((), self._member_due_at)
        ready = self.member.ready(now)
        self._member_due_at = ready.wake_at
        held_up_since = min(self.metadata.held_up_since, now)
        self.metadata.held_up_since = held_up_since if self.member.is_held_up else inf
        view = ready.view
        if (
            before is None
            or view.state is not before.state
            or view.fatal is not None
            or ready.hook != self._hook
            or before.ownership_deadline <= now < view.ownership_deadline  # what was kept back may be shown again
        ):
            self.has_updates = True
        self.view, self._hook = view, ready.hook
        self.owes_loss = view.state is MemberState.STALLED
        if any(notice.kind == "rebalance_ended" for notice in ready.notices):
            self.sensors.rebalanced(self.member.timeline.rebalances)
        return PollResult(self._carry_out(ready, now), ready.wake_at)

    def _carry_out(self, ready: Ready, now: float) -> tuple[UnsentRequest, ...]:
        """Pass on what the machine has ordered, and return its requests."""
        # The partitions are owned until the hook has run, and the coordinator accepts their commits. Only without a
        # coordinator must the caller not wait for a commit, because the hook waits for the caller.
        hook_waits = ready.hook is not None and ready.hook.serial != self._hook_taken
        if hook_waits and ready.view.coordinator is None:
            self.commits.queue.release_blocked(
                RebalanceInProgress("the group is rebalancing", hint="poll, then commit again what is still owned"), now
            )
        if ready.commit is not None:
            self.commits.order(ready.commit)
        requests = tuple(request for send in ready.sends for request in self._request(send, now))
        if ready.backlog is not None:
            self.group_lag.measure(ready.backlog)
        if ready.error is not None:
            self.put_error(ready.error)
        if ready.plan is not None:
            self._job = BackgroundJob("kohort-assignor", partial(run_plan, ready.plan), self.post_event)
        if self.subscription is not None:
            self.metadata.set_topics(ready.wanted)
        self.notices.extend(ready.notices)
        self.log_events.notices(ready.notices, ready.view.identity)
        return requests

    def _polls(self, events: list[Event], now: float) -> list[Event]:
        """`events` with the last poll's begin and end, where the machine has not seen them: what a poll does comes
        between them."""
        polls = self.polls
        if polls.begun and not self.door.depth and polls.ended_at < polls.began_at:
            polls.end(now)  # an interrupt came before the caller did it
        first: list[Event] = [Polled(polls.began_at)] if polls.begun != self._seen_begun else []
        last: list[Event] = [PollEnded(polls.ended_at)] if polls.ended != self._seen_ended else []
        self._seen_begun, self._seen_ended = polls.begun, polls.ended
        if polls.ended and polls.ended_at < polls.began_at:
            return [*last, *first, *events]
        return [*first, *events, *last]

    def _request(self, send: Send, requested_at: float) -> tuple[UnsentRequest, ...]:
        def done(outcome: RequestResult, now: float) -> None:
            match outcome:
                case ResponseReceived(value):
                    self.sensors.requested[send.api].add((now - requested_at) * 1000, now)
                    self._socket_events.append(RESPONSE_EVENTS[send.api](send.serial, value))
                case SendFailed(error):
                    self._socket_events.append(RequestFailed(send.serial, error))
                case NoResponse(error, timed_out):
                    node = send.to.node_id if send.to else None
                    self._socket_events.append(
                        Disconnected(send.serial, node, "timeout" if timed_out else error.message)
                    )

        request = send.request
        pending = PendingRequest(send.api, lambda version: fit(request, version), done, send.timeout_ms / 1000)
        if send.to is None:
            self.cluster.send_to_any(pending, requested_at)
            return ()
        purpose = ConnectionPurpose.CONTROL if send.use_other_connection else ConnectionPurpose.GROUP
        return (UnsentRequest(purpose, send.to.endpoint, pending, send.use_new_connection),)

    def _offsets_purpose(self) -> ConnectionPurpose:
        """The coordinator connection for OffsetCommit and OffsetFetch requests.

        They use the group connection, unless a join or sync is in flight there. Brokers process the requests of a
        connection in order, and a join may take minutes.
        """
        held_up = self.member is not None and self.member.is_held_up
        return ConnectionPurpose.CONTROL if held_up else ConnectionPurpose.GROUP

    # --- what is assigned

    @property
    def assignment(self) -> AssignedPartitions:
        if self.subscription is not None or (self.member is not None and not self.manual):
            return self.view.assignment if self.view is not None else AssignedPartitions()
        return self.manual

    @property
    def membership(self) -> MemberView | None:
        """The membership that fences a commit; None without one.

        After unsubscribe(), a member keeps it until its partitions are revoked.
        """
        parting = self.view is not None and self.view.identity.generation >= 0 and not self.manual
        return self.view if self.subscription is not None or parting else None

    def _align(self) -> None:
        """Make positions follow the assignment: what left is forgotten, what came begins."""
        assignment = self.assignment
        if assignment is not self._aligned:
            before = self._aligned or AssignedPartitions()
            self._aligned = assignment
            for partition in [one for one in self.positions if before.moved(one, assignment)]:
                self.positions.drop(partition)
                self.fetcher.forget(partition)
                self.book.drop(partition)
            for partition, owned in assignment.items():
                if partition not in self.positions:
                    offset, epoch = (None, NO_EPOCH) if owned.start is None else owned.start
                    has_group = self.config.group is not None
                    self.positions.assign(
                        partition, start=offset, epoch=epoch, has_group=has_group, wall_ms=self.wall_ms
                    )
                elif owned.start is not None and before.get(partition) is not owned:
                    # Each start that is given makes a new `Owned`, also one that equals the last: it seeks each time.
                    self.seek(partition, *owned.start)
            if self.metadata.view.lacking(assignment):  # the leader or the coordinator has newer metadata
                self.metadata.request_update()
            self.has_updates = True
        self.refresh_allowed()
        self._watch_topic_ids()

    def refresh_allowed(self) -> None:
        """After marks or the view changed: which partitions are fetched and shown."""
        assignment = self.assignment
        of_group = self.view if assignment is not self.manual else None
        fetchable = assignment.partitions if of_group is None else of_group.fetchable
        before = self._allowed_for
        if before[0] is assignment and before[1] is fetchable and before[2] is self.marks:
            return
        allowed = fetchable.difference(self.marks.covered(assignment))
        self._allowed_for = (assignment, fetchable, self.marks)
        if allowed == self.allowed:
            return
        began, self.allowed = allowed - self.allowed, allowed
        self.fetcher.change_allowed(began)
        self.fetcher.stale_log_offsets |= began
        self.fetcher.parked.readmitted(began)

    def _watch_topic_ids(self) -> None:
        """Fail the positions in topics that were deleted and created again (KIP-516)."""
        seen = (self.assignment, self.metadata.view)
        if seen[0] is self._watched[0] and seen[1] is self._watched[1]:
            return
        self._watched = seen
        before: dict[str, UUID] = {}
        for topic in {partition.topic for partition in self.assignment}:
            now_id = self.metadata.view.topic_id(topic)
            if now_id == NO_TOPIC_ID:
                continue
            known = self.topic_ids.setdefault(topic, now_id)
            if known != now_id:
                before[topic], self.topic_ids[topic] = known, now_id
        if not before:
            return
        for partition in [one for one in self.positions if one.topic in before]:
            state, topic = self.positions.state(partition), partition.topic
            if state.offset < 0:
                self.positions.invalidate(partition)  # responses in flight may be about the old topic
                continue
            self.fetcher.drop(partition)
            error = recreated(partition, before[topic], self.topic_ids[topic], state.offset)
            self.positions.fail(partition, error, adrift=True)
            self.has_updates = True

    def named_topics(self) -> frozenset[str]:
        """The topics that the user has named."""
        if self.subscription is not None:
            return self.subscription.topics
        return frozenset(partition.topic for partition in self.manual)

    def _needs_coordinator(self) -> bool:
        return len(self.commits.queue) > 0 or self.lookups.needs_coordinator or self.positions.needs_committed

    def _partitions_being_committed(self) -> Set[TopicPartition]:
        """Partitions whose committed offset must not be read yet, since a commit is not settled.

        With manual assignment a partition may be removed and assigned again at once. Not used for a group member. Its
        commit may wait for the next generation, and fails if the partition was revoked meanwhile.
        """
        return self.commits.queue.partitions if self.manual else frozenset()

    def _report(self, notice: Notice) -> None:
        self.notices.append(notice)
        self.log_events.noticed(notice)

    def batch_skipped(self, partition: TopicPartition, skipped: CorruptRecord) -> None:
        """Report a corrupt batch that was skipped."""
        text = f"batch skipped: {skipped}; reading continues at offset {skipped.resumed_at}"
        self.notices.append(Notice("batch_skipped", text))
        self.log_events.batch_skipped(partition, text)

    def post_event(self, event: Event) -> None:
        """An event for the group's machine, from a broker or from the assignor."""
        if self.member is not None:
            self._socket_events.append(event)

    def fail(self, error: KohortError) -> None:
        self._fatal = error
        self.has_updates = True
        self.lookups.fail(error)

    @property
    def request_s(self) -> float:
        return self.context.request_s

    @property
    def bootstrap_s(self) -> float:
        """Time (s) at the start after which the client ends if no broker was reached."""
        return self.context.config.bootstrap_timeout_ms / 1000

    def _labels(self) -> Mapping[str, str | None]:
        """The labels of pushed metrics."""
        config, view = self.config, self.view
        return {
            "client_rack": config.rack,
            "group_id": config.group,
            "group_instance_id": config.group_instance_id,
            "group_member_id": view.identity.member_id if view is not None else None,
        }

    def metrics(self, now: float) -> "ConsumerMetrics":
        """All metrics at `now`."""
        from kohort.coordinator_client.metrics.metrics_table import MetricsSources, metrics_of  # for other threads

        sources = MetricsSources(
            self.context,
            self.fetcher,
            self.positions,
            rebalances=self.member.timeline.rebalances if self.member is not None else (),
            visible=self.visible,
            paused=len(self.marks.paused(self.visible)),
            commits_waiting=len(self.commits.queue),
        )
        return metrics_of(sources, now)

    # ------------------------------------------------------------------ the caller's side

    def subscribe(self, subscription: Subscription) -> None:
        if self.config.group is None:
            raise IllegalState("subscribing needs a group", hint='use Consumer(..., group="..."), or assign()')
        if self.manual:
            raise IllegalState("partitions are assigned by hand", hint="unsubscribe() first")
        if subscription.broker_pattern is not None and self.config.protocol != "consumer":
            raise IllegalState(
                "only the coordinator of a consumer group matches patterns",
                hint="use Consumer(..., protocol='consumer'), or pattern= instead of broker_pattern=",
            )
        if self.member is None:
            self.member = make_member(self.config, self._assignors, self.chance)
        self.subscription = subscription
        self.may_read = True
        self.marks = self.marks.resubscribed(subscription)
        self.cluster.forget_missing()
        self._caller_events.append(Subscribed(subscription))

    def unsubscribe(self) -> None:
        if self.subscription is not None:
            self.subscription = None
            self._caller_events.append(Unsubscribed())
            self._hook = None  # withdraws a call that was not taken: it may not be taken before the unsubscribe
        if self.manual:
            self.visible = frozenset()  # at once; the assignment of a subscription changes at hook calls
        # Under a new epoch, so that a partition that is assigned again starts again.
        self.manual = self.manual.replaced(())
        self.marks = self.marks.resubscribed(None)
        self.metadata.set_topics(WantedTopics())
        self.may_read = False

    def assign(
        self,
        partitions: frozenset[TopicPartition],
        starts: Mapping[TopicPartition, int],
        until: Mapping[TopicPartition, int],
    ) -> None:
        if self.subscription is not None:
            raise IllegalState("this consumer is subscribed", hint="unsubscribe() first")
        self.manual = self.manual.replaced(partitions).started({one: Start(at) for one, at in starts.items()})
        self.may_read = True
        self.visible = partitions
        self.marks = self.marks.kept_on(partitions)
        topics = frozenset(partition.topic for partition in partitions)
        self.metadata.set_topics(WantedTopics(topics))
        for topic in self.topic_ids.keys() - topics:
            del self.topic_ids[topic]
        self._align()  # now, not at the next turn: a seek may follow at once
        moved = [one for one in partitions if self.fetcher.until.get(one) != until.get(one)]
        self.fetcher.until = dict(until)
        for partition in moved:
            self.fetcher.refetch(partition)  # what was cut off at the old end has been fetched already

    def polled(self, now: float, handled: bool) -> None:
        """A poll begins, after everything that was handed over is settled. `handled`: the user comes back for more."""
        self.polls.begin(now)
        if handled and self.commits_by_poll:
            changes = self.positions.changes()
            self.book.on_poll(changes)
            self.positions.noted(changes)

    def enforce_rebalance(self, reason: str) -> None:
        if self.subscription is None:
            raise IllegalState("not subscribed")
        self._caller_events.append(RebalanceEnforced(reason))

    def before_leave(self, deadline: float) -> None:
        """Commit handled offsets of a manual assignment, which has no on_revoked to commit them.

        They include unchanged offsets that were not stored recently, because brokers expire offsets by their age.
        """
        unsaved = self.book.unrenewed()
        self.book.pause()
        if self.subscription is None and unsaved:
            self.commits.put(unsaved, deadline=deadline, allow_rewind=True, late_at=deadline)

    def request_close(self, now: float, deadline: float) -> None:
        self.closing = True
        self.telemetry.close(now, deadline)
        if self.member is not None:
            self._caller_events.append(CloseRequested(deadline))
            self._hook = None  # as when unsubscribing

    @property
    def out(self) -> bool:
        """True if no subscription is left or being ended."""
        settled = (MemberState.OUT, MemberState.CLOSED, MemberState.FAILED)
        queued = any(isinstance(event, Unsubscribed) for event in self._caller_events)
        return self.member is None or (self.view is not None and self.view.state in settled and not queued)

    @property
    def left(self) -> bool:
        """True if the group's machine has ended."""
        if self._fatal is not None and not self.endpoints.ever_responded:
            return True
        member_ended = self.member is None or (self.view is not None and self.view.state is MemberState.CLOSED)
        return member_ended and not len(self.commits.queue) and self.telemetry.ended

    # --- hooks

    @property
    def hook_is_due(self) -> bool:
        """A hook call is due, and no outcome of it is here."""
        return self._hook is not None and self._hook.serial != self._hook_over

    def take_hook(self, now: float) -> HookCall | None:
        """The hook call that is due, taken: `hook_done` must follow. It is given again to a caller that was interrupted
        before it ran."""
        call = self._hook
        if call is None or not self.hook_is_due:
            return None
        if call.serial != self._hook_taken:
            if isinstance(call.event, Revoked) and not self.closing and readable(self, now) is None:
                return None  # it may be expelled (B-33): after the next heartbeat this call is due, or on_lost
            self._hook_taken = call.serial
            self.counters.hooks += 1
            self.sensors.hook_began(now)
            self._starting = set(call.event.partitions) if isinstance(call.event, Assigned) else set()
        self._caller_events.append(HookStarted(call.serial, now))
        self._show(call.before)
        if not self.manual:
            self.marks = self.marks.settled(call)
        self.refresh_allowed()
        return call

    def hook_done(self, call: HookCall, result: object, error: BaseException | None, now: float) -> None:
        """Pass the result of the user's hook to the machine, once. Raises an error if the result is invalid."""
        if call.serial == self._hook_over:
            return
        self._hook_over = call.serial
        self.sensors.hook_ended(type(call.event).__name__, now)
        meant = meaning(call, result if error is None else None, self.book.uncommitted())
        self.positions.clear_error(meant.start)
        self._start_at_commits(self._starting.difference(meant.start))
        self._show(call.after)
        self._caller_events.append(HookDone(call.serial, now, meant.commit, meant.start, error or meant.wrong))
        if meant.wrong is not None:
            raise meant.wrong

    def _start_at_commits(self, partitions: Set[TopicPartition]) -> None:
        """Let those of `partitions` that on_assigned has committed start there.

        The committed offset was requested before the hook was called.
        """
        self._starting = set()
        for partition in partitions:
            state, committed = self.positions.get(partition), self.book.committed(partition)
            if state is not None and committed not in (None, state.offset):
                self.positions.drop(partition)
                self.positions.assign(partition, start=None, has_group=True, wall_ms=self.wall_ms)

    def _show(self, partitions: frozenset[TopicPartition]) -> None:
        # The hook belongs to an ended subscription, and must not change the manual assignment.
        if not self.manual:
            self.visible = partitions

    # --- errors

    def take_error(self) -> KohortError | None:
        """The next error to raise from poll: fatal ones every time."""
        if self._fatal is not None:
            return self._fatal
        if self.view is not None and self.view.fatal is not None and self.subscription is not None:
            return self.view.fatal
        while self._errors:
            known = self.named_topics() | {partition.topic for partition in self.assignment}
            if not is_of_others(error := self._errors.popleft(), known, self.assignment):
                return error
        if not self.may_read:
            return IllegalState(
                "not subscribed to any topics or assigned any partitions",
                hint="subscribe([...]) or assign([...]) first",
            )
        return self.positions.take_error()

    def put_error(self, error: KohortError) -> None:
        """Make the next poll raise the error, once, for any number of occurrences before that poll."""
        if not any(type(one) is type(error) and one.message == error.message for one in self._errors):
            self._errors.append(error)
        self.has_updates = True

    @property
    def fatal(self) -> KohortError | None:
        return self._fatal

    def _note_gaps(self) -> None:
        gaps = self.positions.take_gaps()
        if gaps:
            self.counters.resets += len(gaps)
            self.log_events.gaps(gaps)
            if self.reports_gaps:
                self.unreported.extend(gaps)
                self.has_updates = True

    # --- pausing

    def pause(self, partitions: frozenset[TopicPartition] | None, topics: tuple[str, ...], pattern: str | None) -> None:
        """Set pause marks; without arguments, on the whole consumer."""
        marks = self.marks.pause(partitions or (), self.visible).pause_topics(topics, self.subscription)
        if partitions is None and not topics and pattern is None:
            marks = marks.pause_all()
        if pattern is not None:
            marks = marks.pause_pattern(pattern, self.subscription)
        self.mark(marks)

    def resume(
        self, partitions: frozenset[TopicPartition] | None, topics: tuple[str, ...], pattern: str | None
    ) -> None:
        marks = self.marks.resume(partitions or ()).resume_topics(topics)
        if partitions is None and not topics and pattern is None:
            marks = marks.resume_all()
        if pattern is not None:
            marks = marks.resume_pattern(pattern)
        self.mark(marks)

    def mark(self, marks: PauseMarks) -> None:
        self.marks = marks
        self.refresh_allowed()
        self.has_updates = True

    # --- positions

    def position(self, partition: TopicPartition) -> int | None:
        """The position; None while it is not known. Raises a fatal error, and that of a position without an offset."""
        return self._known_or_raise(partition, self.positions.known_position)

    def position_of(self, partition: TopicPartition) -> Position | None:
        """As `position`, with epoch and topic id."""
        view = self.metadata.view
        return self._known_or_raise(partition, lambda one: self.positions.position_with_epoch(one, view))

    def _known_or_raise(self, partition: TopicPartition, look: Callable[[TopicPartition], T | None]) -> T | None:
        not_yet = partition not in self.positions and partition in self.assignment
        known = None if not_yet else look(partition)
        error = self._fatal or (self.positions.failures.get(partition) if known is None else None)
        if error is not None:
            raise error
        return known

    def waiting_since_ms(self, partition: TopicPartition) -> int | None:
        """The time (ms) at which the next record was written; None if it is not known.

        It is read from the head of what is fetched. Without that it is the timestamp of the last record that was
        returned, which is not later.
        """
        first = self.fetcher.parked.first(partition)
        if first is not None and first.start == self.positions.known_position(partition):
            return written_ms(first.records)
        last = self.positions.last_timestamps.get(partition, -1)
        return last if last >= 0 else None  # -1: the record has none

    @property
    def identity(self) -> ConsumerGroupMetadata:
        """The group identity of this consumer, present or last.

        Without a member id a broker does not fence (KIP-447).
        """
        if self.config.group is None:
            raise IllegalState("there is no group", hint='use Consumer(..., group="...")')
        if self.view is not None and not self.manual:
            return self.view.held
        return ConsumerGroupMetadata(self.config.group, instance_id=self.config.group_instance_id)

    def seek(self, partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        self.positions.seek(partition, offset, epoch)
        self._sought(partition)

    def seek_by_time(self, partition: TopicPartition, timestamp: int) -> None:
        self.positions.seek_by_time(partition, timestamp)
        self._sought(partition)

    def _sought(self, partition: TopicPartition) -> None:
        self._starting.discard(partition)
        self.fetcher.drop(partition)


def _elsewhere() -> ConcurrentUseError:
    return ConcurrentUseError(
        "another thread is using this consumer", hint="only wakeup() may be called from other threads"
    )


def make_member(config: ConsumerConfig, assignors: tuple[Assignor, ...], chance: Callable[[], float]) -> MemberBase:
    """Return the member for `config.protocol`. `chance` returns random numbers in [0, 1).

    They are for a jitter, and for the id that a member of a KIP-848 group generates (KIP-1082).
    """
    if config.protocol == "classic":
        return ClassicMember(config.for_member(chance()), assignors)
    # Imported on demand: most consumers are members of classic groups, and start faster without it.
    from kohort.coordinator_client.group.consumer_member import ConsumerMember

    unique = "".join(f"{int(chance() * 2**32):08x}" for _ in range(4))
    return ConsumerMember(config.for_member(chance(), f"{config.client_id}-{unique}"))
