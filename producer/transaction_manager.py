"""The producer id, and the requests of transactions (KIP-98, KIP-360, KIP-447, KIP-890).

One request is in flight at a time. An idempotent producer only requests an id, from any broker. With an id, the
`TransactionVersion` is chosen for as long as that id and its epochs come from the same InitProducerId. `ERROR_CLASSES`
maps error codes to their classes (KIP-1050). A code that is not in the table is retried if Kafka marks it as retriable.
Otherwise it fails the transaction if the request adds to its contents, and ends the producer if not.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, Final

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.common.topic_partition import grouped
from kohort.network.backoff import FRESH
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S
from kohort.network.errors import AuthorizationFailed, CommitFailed, IllegalState, OperationTimeout
from kohort.network.find_coordinator import CoordinatorFinder, CoordinatorKind
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.offset_requests import Offsets, since, stored_at_once
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.producer.errors import ProducerFenced, TransactionAborted
from kohort.producer.producer_batch import NO_PRODUCER_ID, PartitionQueue, ProducerId
from kohort.producer.producer_context import ProducerContext
from kohort.producer.record_accumulator import RecordAccumulator
from kohort.producer.transaction_states import TRANSITIONS, TxnState, TxnTrigger
from kohort.producer.transaction_version import ANY, NO_TRANSACTIONS, V1, Limits, agreed
from kohort.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kohort.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kohort.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kohort.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion, error_name, is_retriable
from kohort.protocol.schema import first_version

log = logger("kohort.producer")

LAST_EPOCH = 32_767
FIRST_WITH_OWN_ID = first_version(InitProducerIdRequest, "producer_id")  # KIP-360
FIRST_WITH_MEMBER = first_version(TxnOffsetCommitRequest, "member_id")  # KIP-447


class TransactionErrorClass(Enum):
    """The class of an error code (KIP-1050), and what the producer does. Codes of `FATAL` are in none of KIP-1050."""

    RETRIABLE = "retry after a backoff"
    REFRESH_RETRIABLE = "send FindCoordinator, then retry"
    ABORTABLE = "the transaction has failed"
    APPLICATION_RECOVERABLE = "the transaction has failed; its abort shows if a newer producer runs"
    INVALID_CONFIGURATION = "the producer fails for good, until its rights are mended"
    FATAL = "the producer fails for good"


_C = TransactionErrorClass

ERROR_CLASSES: Final[Mapping[int, TransactionErrorClass]] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _C.REFRESH_RETRIABLE,
    ErrorCode.NOT_COORDINATOR: _C.REFRESH_RETRIABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _C.RETRIABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS: _C.RETRIABLE,  # the previous one is not completed yet
    ErrorCode.TRANSACTION_ABORTABLE: _C.ABORTABLE,
    ErrorCode.INVALID_PRODUCER_EPOCH: _C.APPLICATION_RECOVERABLE,
    ErrorCode.PRODUCER_FENCED: _C.APPLICATION_RECOVERABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _C.APPLICATION_RECOVERABLE,  # the coordinator does not know the id any more
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _C.INVALID_CONFIGURATION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _C.INVALID_CONFIGURATION,
    ErrorCode.INVALID_TXN_STATE: _C.FATAL,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: _C.FATAL,
}
FAILS_TRANSACTION = frozenset({_C.ABORTABLE, _C.APPLICATION_RECOVERABLE})
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# Requests that add to a transaction, before its outcome is decided.
FILLING = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"})
ENDING = frozenset({TxnState.COMMITTING, TxnState.ABORTING})
NOTHING_OPEN = frozenset({ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE})  # after EndTxn of an abort in version 1
MAY_FAIL = frozenset({TxnState.OPEN, *ENDING})
# Another member owns the partitions, or the group is rebalancing.
GROUP_WENT_ON = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


# The error message of a call whose time is over, and its hint.
_ABORT_OVERDUE = ("the transaction is not aborted yet", "abort() again waits for it")
OVERDUE: Final[Mapping[TxnState, tuple[str, str]]] = {
    **dict.fromkeys(TxnState, ("not settled in time", "wait again, since it may still succeed")),
    TxnState.IDENTIFYING: ("no producer id in time", "call it again, or check that brokers can be reached"),
    TxnState.COMMITTING: (
        "the outcome of the commit is unknown",
        "commit() or begin() waits for it; until then, do not send the records again",
    ),
    TxnState.ABORTING: _ABORT_OVERDUE,
    TxnState.FAILING: _ABORT_OVERDUE,
}


@dataclass(slots=True, eq=False)
class OffsetsOrder:
    """A group's offsets, to be committed with the transaction.

    `parts`: those that are not committed yet, in parts of one request each. `missing_since`: the time (monotonic s)
    since which the coordinator does not know a topic of theirs.
    """

    parts: deque[Offsets]
    group: ConsumerGroupMetadata
    done: bool = False
    error: KohortError | None = None
    missing_since: float = inf


@dataclass(slots=True)
class _Contents:
    """The contents of a transaction, as known to its coordinator."""

    partitions: set[TopicPartition] = field(default_factory=set)
    wanted: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)

    @property
    def any(self) -> bool:
        return bool(self.partitions or self.groups)


@dataclass(slots=True, eq=False)
class TransactionEnd:
    """The end of one transaction, for the calls that wait for it. `error`: the reason, unless it has ended well.

    Other threads may abort the failed transaction, or begin the next one, before a call that waits is awake.
    """

    over: bool = False
    error: KohortError | None = None


class TransactionManager:
    """The transactions of one `ProducerCore`; used under its lock."""

    def __init__(self, context: ProducerContext, accumulator: RecordAccumulator) -> None:
        self._context = context
        self._accumulator = accumulator
        self.transactional_id = context.config.transactional_id
        self.state = TxnState.IDENTIFYING
        self.producer = NO_PRODUCER_ID
        self.version = V1
        self.cause: KohortError | None = None
        self.coordinators = CoordinatorFinder(
            context.send_to_any, context.request_s, context.backoff, context.chance, self._no_coordinator
        )
        self._contents = _Contents()
        self._orders: list[OffsetsOrder] = []
        self._requested = False
        self._attempts = FRESH
        self._new_epoch = False  # true if the outcome of a request is unknown, which could still be processed later
        self._dropped: KohortError | None = None
        self._aborted = False  # true if nothing of a failed transaction is open, so that InitProducerId is safe
        self.unreported: TxnTrigger | None = None  # the last begin, commit or abort, until its call has returned
        self._end = TransactionEnd()  # of the current transaction

    # --- called by the user's thread

    def begin(self) -> None:
        """Open a transaction.

        A transaction that an interrupted call opened (`unreported`) is taken over. Raises IllegalState, or the error
        that ended the producer.
        """
        self._need_id()
        self.raise_cause()
        if self.state is TxnState.OPEN and self.unreported is TxnTrigger.BEGUN:
            return
        if self.state is not TxnState.IDLE:
            raise IllegalState(f"a transaction cannot begin now: {self.state.value}", hint="commit() or abort() first")
        self.unreported = TxnTrigger.BEGUN
        self._go(TxnTrigger.BEGUN)

    def may_take_records(self) -> None:
        """Raise an error if no records may be sent now."""
        if self.transactional_id is not None and self.state is not TxnState.OPEN:
            self.raise_cause()
            raise IllegalState("a transactional producer sends within a transaction", hint="begin() first")

    def commit(self) -> None:
        """Start a commit, or continue it; `settled` is true when it is over."""
        self._need_id()
        if self.state is TxnState.OPEN:
            self._accumulator.close_batches()
            self.unreported = TxnTrigger.COMMIT_REQUESTED
            self._go(TxnTrigger.COMMIT_REQUESTED)
        elif self.state is not TxnState.COMMITTING and not self._came_about(TxnTrigger.COMMIT_REQUESTED):
            self.raise_cause()
            raise IllegalState("there is no transaction to commit", hint="begin() first")

    def abort(self) -> None:
        """Start an abort, or continue it."""
        self._need_id()
        if self.state in (TxnState.OPEN, TxnState.FAILED):
            was_open = self.state is TxnState.OPEN
            self.unreported = TxnTrigger.ABORT_REQUESTED
            self._go(TxnTrigger.ABORT_REQUESTED)
            if was_open:
                self._drop(TransactionAborted("the transaction was aborted", transactional_id=self.transactional_id))
        elif self.state is TxnState.COMMITTING:
            raise IllegalState("the transaction is being committed", hint="commit() again waits for it")
        elif self.state not in (TxnState.ABORTING, TxnState.FAILING) and not self._came_about(
            TxnTrigger.ABORT_REQUESTED
        ):
            self.raise_cause()
            raise IllegalState("there is no transaction to abort", hint="begin() first")

    def order(self, offsets: Offsets, group: ConsumerGroupMetadata) -> OffsetsOrder:
        """Queue a group's offsets for commit with the transaction."""
        self._need_id()
        self.may_take_records()
        if not isinstance(group, ConsumerGroupMetadata):
            raise IllegalState("offsets are fenced by the group's metadata", hint="pass consumer.group_metadata()")
        order = OffsetsOrder(deque(stored_at_once(group.group_id, offsets)), group, done=not offsets)
        if offsets:  # under version 2 brokers add no group for none, and refuse to end an empty transaction
            self._orders.append(order)
        return order

    def close(self) -> TransactionEnd | None:
        """Abort an open transaction when the producer is closed; returns the end of one that is being committed."""
        if self.state is TxnState.OPEN:
            self.abort()
        return self._end if self.state is TxnState.COMMITTING else None

    def overdue(self, unreached: str = "", hint_unreached: str = "") -> OperationTimeout:
        """The error of a call that has waited too long. `unreached`: the reason, if no broker has ever responded."""
        what, hint = OVERDUE[self.state]
        return OperationTimeout(
            f"{what}{unreached}", hint=hint_unreached or hint, transactional_id=self.transactional_id
        )

    @property
    def settled(self) -> bool:
        """True if a requested commit or abort is over, with any outcome."""
        return self.state in (TxnState.IDLE, TxnState.FAILED, TxnState.DEAD)

    def request(self, what: Callable[[], None]) -> TransactionEnd:
        """Call `commit` or `abort`. Returns the end of the transaction, which may be over already."""
        what()
        return TransactionEnd(over=True) if self.settled else self._end

    @property
    def at_rest(self) -> bool:
        """True if no transaction has to be ended at its coordinator."""
        if self.transactional_id is None or self.settled:
            return True
        # A request in flight may still add to the transaction.
        may_grow = self._requested and self.state is not TxnState.IDENTIFYING
        return not self._contents.any and not may_grow

    def _came_about(self, requested: TxnTrigger) -> bool:
        """True if the transaction has ended as requested by a call that was interrupted."""
        return self.state is TxnState.IDLE and self.unreported is requested

    def raise_cause(self) -> None:
        """Raise the error that ended the producer, or the transaction."""
        if (fatal := self._context.fatal()) is not None:
            raise fatal
        if self.state in (TxnState.FAILING, TxnState.FAILED):
            raise self._failure()

    def _failure(self) -> TransactionAborted:
        error = TransactionAborted(
            "the transaction has failed", hint="abort(), then begin() again", transactional_id=self.transactional_id
        )
        error.__cause__ = self.cause
        return error

    def _need_id(self) -> None:
        if self.transactional_id is None:
            raise IllegalState("this producer has no transactions", hint='use Producer(..., transactional_id="...")')

    # --- called by the sender

    def uses(self, partition: TopicPartition) -> None:
        """Have a partition added to the transaction, since a record waits for it."""
        if self.transactional_id is None or self.version.implicit:
            return
        if partition not in self._contents.partitions:
            self._contents.wanted.add(partition)

    def may_send(self, partition: TopicPartition) -> bool:
        """True if a batch of the partition may be sent now, by an idempotent producer."""
        if self.producer is NO_PRODUCER_ID:
            return False
        if self.transactional_id is None:
            return True
        in_it = self.version.implicit or partition in self._contents.partitions
        return in_it and self.state in (TxnState.OPEN, TxnState.COMMITTING)

    def joined(self, partition: TopicPartition) -> None:
        """A batch of the partition is sent, with which it is a part of the transaction."""
        if self.transactional_id is not None:
            self._contents.partitions.add(partition)

    def limits(self, api: str) -> Limits:
        """The versions of a request that may be used."""
        return (NO_TRANSACTIONS if self.transactional_id is None else self.version.limits).get(api, ANY)

    def lost_count(self, lane: PartitionQueue, code: int) -> None:
        """Handle a broker that does not know the sequence of a partition."""
        if self.transactional_id is not None:
            self.failed(BrokerError(code, api="Produce", **lane.partition._asdict()))
        else:
            log.warning("%s: %s, going on under a new epoch", lane.partition, error_name(code))
            lane.rewrite = True

    def recount(self, lane: PartitionQueue) -> None:
        """Renumber a queue that has no batch in flight (KIP-360)."""
        if lane.producer == self.producer and self.producer is not NO_PRODUCER_ID:
            if self.producer.epoch < LAST_EPOCH:
                self.producer = ProducerId(self.producer.id, self.producer.epoch + 1)
            else:
                self.producer = NO_PRODUCER_ID
                self._go(TxnTrigger.FAILED)
        lane.renumber()

    def batch_failed(self, error: KohortError) -> None:
        """Handle a failed batch."""
        if self.transactional_id is not None and self.state in (TxnState.OPEN, TxnState.COMMITTING):
            self.failed(error)

    def failed(self, error: KohortError) -> None:
        """Fail the transaction; it can only be aborted."""
        if self.state not in MAY_FAIL:
            return
        self._go(TxnTrigger.FAILED)
        self.cause = error
        self._attempts = FRESH
        dropped = TransactionAborted("the transaction has failed", transactional_id=self.transactional_id)
        dropped.__cause__ = error
        self._drop(dropped)

    def die(self, error: KohortError) -> None:
        """End the producer with a fatal error."""
        if self.state is not TxnState.DEAD:
            self._end.error = error
            self._go(TxnTrigger.DIED)
            self._context.fail(error)
            self._end_orders(error)

    def _drop(self, error: KohortError) -> None:
        """Drop unsent batches of this transaction.

        Batches in flight are awaited, since their responses settle them. Those that would be retried are dropped then.
        """
        self._dropped = error
        self._new_epoch = self._accumulator.give_up(error) or self._new_epoch
        self._end_orders(error)

    def _end_orders(self, error: KohortError) -> None:
        for order in self._orders:
            order.done, order.error = True, error
        self._orders.clear()

    def _go(self, trigger: TxnTrigger) -> None:
        self.state = TRANSITIONS[self.state][trigger]
        self._context.updated()
        if self.state is TxnState.FAILED:
            self._end.error = self._failure()
        if self.settled:
            self._end.over, self._end = True, TransactionEnd()
        if self.state in (TxnState.IDLE, TxnState.FAILED):
            self._contents = _Contents()
            self._new_epoch, self._dropped, self._aborted = False, None, False
        if self.state is TxnState.FAILED:
            self.unreported = None
        if self.state is TxnState.IDLE:
            self.cause = None
            if self.transactional_id is not None:
                self._accumulator.failures.clear()  # reported by the outcome of the transaction

    # --- requests

    def poll(self, now: float) -> PollResult:
        """Return the request that is due."""
        request = self._due_request(now)
        retry_at = self._attempts.not_before if self._attempts.failures else None
        return PollResult(
            () if request is None else (request,), earliest(now, (retry_at, *self.coordinators.next_poll_at()))
        )

    def _due_request(self, now: float) -> UnsentRequest | None:
        if self._requested or not self._attempts.may_try(now) or self._context.fatal() is not None:
            return None
        match self.state:
            case TxnState.IDENTIFYING if self._context.config.idempotent:
                return self._owe_identity(now)
            case TxnState.FAILING if self._await_responses():
                return self._owe_recovery(now)
            case TxnState.OPEN | TxnState.COMMITTING:
                return self._owe_contents(now)
            case TxnState.ABORTING:
                return self._owe_abort(now)
        return None

    def _owe_recovery(self, now: float) -> UnsentRequest | None:
        """The request that aborts a failed transaction, or then brings the next epoch.

        EndTxn is first, as in Java's client: with any epoch, InitProducerId fences the producer whose transaction is
        open. That is this producer, or its successor.
        """
        return self._owe_identity(now) if self._aborted else self._owe_end(now, committed=False)

    def _owe_identity(self, now: float) -> UnsentRequest | None:
        if self.transactional_id is not None and self._coordinator(now) is None:
            return None
        again = self.state is TxnState.FAILING
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._context.config.transaction_timeout_ms,
            producer_id=self.producer.id if again else -1,
            producer_epoch=self.producer.epoch if again else -1,
        )

        def made(version: int) -> InitProducerIdRequest:
            if again and version < FIRST_WITH_OWN_ID:
                # Without the current id, a zombie would not be fenced, and would fence its successor.
                why = "a response was lost" if self.cause is None else self.cause.message
                raise UnsupportedVersion(
                    f"the transaction failed ({why}); recovery requires broker 2.5 or newer (KIP-360)",
                    hint="create another producer with the same transactional id, which aborts the transaction",
                    api="InitProducerId",
                    version=version,
                    least=FIRST_WITH_OWN_ID,
                ) from self.cause
            return request

        return self._send("InitProducerId", made, self._identified, now)

    def _identified(self, response: InitProducerIdResponse, now: float) -> None:
        code = response.error_code
        if code in FENCED:
            self.die(self._fenced(code))
        elif self._went_well("InitProducerId", code, now):
            self.producer = ProducerId(response.producer_id, response.producer_epoch)
            self.version = agreed(self._context.features())
            self._go(TxnTrigger.IDENTIFIED)

    def _owe_contents(self, now: float) -> UnsentRequest | None:
        if self._contents.wanted:
            return self._owe_partitions(now)
        if self._orders:
            return self._owe_offsets(self._orders[0], now)
        if self.state is TxnState.COMMITTING and self._accumulator.idle:
            return self._owe_end(now, committed=True)
        return None

    def _owe_partitions(self, now: float) -> UnsentRequest | None:
        wanted = frozenset(self._contents.wanted)
        request = AddPartitionsToTxnRequest(
            transactions=(),
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer.id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(numbers))
                for name, numbers in grouped(sorted(wanted)).items()
            ),
        )

        def responded(response: AddPartitionsToTxnResponse, when: float) -> None:
            codes = {
                TopicPartition(topic.name, one.partition_index): one.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            }
            # OPERATION_NOT_ATTEMPTED is caused by the error of another partition.
            bad = {place: code for place, code in codes.items() if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)}
            if not bad:
                if self._leaves_out("AddPartitionsToTxn", wanted, codes.keys()):
                    return
                self._attempts = FRESH
                self._contents.partitions |= wanted
                self._contents.wanted -= wanted
                return
            if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in bad.values():
                self._context.metadata.request_update()  # it shows a deleted topic
            # Of several codes, one that is not retriable decides, since a retry would fail again.
            place, code = min(bad.items(), key=lambda one: is_retriable(one[1]))
            self._went_well("AddPartitionsToTxn", code, when, **place._asdict())

        return self._send("AddPartitionsToTxn", request, responded, now)

    def _owe_offsets(self, order: OffsetsOrder, now: float) -> UnsentRequest | None:
        group = order.group
        if group.group_id not in self._contents.groups and not self.version.implicit:
            return self._owe_group(group.group_id, now)
        coordinator = self.coordinators.of(CoordinatorKind.GROUP, group.group_id, now)
        if coordinator is None:
            return None
        where, part = coordinator.endpoint, order.parts[0]
        self._contents.groups.add(group.group_id)

        def committed(response: TxnOffsetCommitResponse, when: float) -> None:
            codes = {
                TopicPartition(topic.name, one.partition_index): one.error_code
                for topic in response.topics
                for one in topic.partitions
            }
            code = min(filter(None, codes.values()), key=is_retriable, default=0)  # as for partitions
            if code or order not in self._orders or not self._leaves_out("TxnOffsetCommit", part, codes.keys()):
                self._offsets_committed(order, code, where, when)

        made = since(
            # Without the member id, offsets of a member that has lost the partitions would be stored too.
            FIRST_WITH_MEMBER if group.member_id else 0,
            self._offset_commit(group, part),
            "committing offsets in a transaction with member fencing requires broker 2.5 or newer (KIP-447)",
            hint="upgrade the broker to 2.5 or newer",
            api="TxnOffsetCommit",
            group=group.group_id,
        )
        return self._send("TxnOffsetCommit", made, committed, now, where)

    def _owe_group(self, group: str, now: float) -> UnsentRequest | None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            group_id=group,
        )

        def responded(response: AddOffsetsToTxnResponse, when: float) -> None:
            if self._went_well("AddOffsetsToTxn", response.error_code, when, group=group):
                self._contents.groups.add(group)

        return self._send("AddOffsetsToTxn", request, responded, now)

    def _offset_commit(self, group: ConsumerGroupMetadata, offsets: Offsets) -> TxnOffsetCommitRequest:
        topics = grouped(
            (
                topic,
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=to.offset,
                    committed_leader_epoch=to.leader_epoch,
                    committed_metadata=to.metadata,
                ),
            )
            for (topic, partition), to in sorted(offsets.items())
        )
        return TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=group.group_id,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            generation_id_or_member_epoch=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=tuple(TxnOffsetCommitRequestTopic(name=n, partitions=tuple(p)) for n, p in topics.items()),
        )

    def _offsets_committed(self, order: OffsetsOrder, code: int, where: Endpoint, now: float) -> None:
        group = order.group.group_id
        is_missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        order.missing_since = min(order.missing_since, now) if is_missing else inf
        is_gone = now - order.missing_since >= UNKNOWN_TOPIC_GRACE_S
        if code in GROUP_WENT_ON or is_gone:
            if order not in self._orders:
                return  # dropped by an abort meanwhile
            why = "a topic of the offsets does not exist" if is_gone else "the group has gone on without this member"
            error = CommitFailed(
                f"{why}: {error_name(code)}",
                hint="abort(), and poll the consumer before sending again",
                group=group,
                generation=order.group.generation,
            )
            order.done, order.error = True, error
            self._orders.remove(order)
            self.failed(error)
        elif ERROR_CLASSES.get(code) is TransactionErrorClass.REFRESH_RETRIABLE:
            self.coordinators.lost(where)
            self._attempts = self._context.failed(self._attempts, now)
        elif self._went_well("TxnOffsetCommit", code, now, group=group) and order in self._orders:
            order.parts.popleft()
            if not order.parts:
                order.done = True
                self._orders.remove(order)
                self._context.updated()

    def _await_responses(self) -> bool:
        if self._accumulator.in_flight:
            return False
        if self._dropped is not None:
            self._drop(self._dropped)
        return True

    def _owe_abort(self, now: float) -> UnsentRequest | None:
        if not self._await_responses():
            return None
        if self._new_epoch and not self.version.implicit:
            # The outcome of a sent batch is unknown: a new epoch prevents that it is written later.
            self._go(TxnTrigger.FAILED)
            return self._owe_recovery(now)
        return self._owe_end(now, committed=False)

    def _owe_end(self, now: float, *, committed: bool) -> UnsentRequest | None:
        if not self._contents.any and (self.version.implicit or self.state is not TxnState.FAILING):
            self._go(TxnTrigger.ENDED)  # empty: its coordinator does not have it
            return None
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            committed=committed,
        )
        return self._send("EndTxn", request, self._ended, now)

    def _ended(self, response: EndTxnResponse, now: float) -> None:
        code = response.error_code
        if self.state is TxnState.FAILING and code in FENCED:
            self.die(self._fenced(code))
        elif self.state is TxnState.FAILING and (
            code == ErrorCode.INVALID_PRODUCER_ID_MAPPING or (code in NOTHING_OPEN and not self.version.implicit)
        ):
            self._aborted, self._attempts = True, FRESH
        elif self.state is TxnState.COMMITTING and code == ErrorCode.INVALID_TXN_STATE and self.version.implicit:
            # An epoch is one transaction's. So this one is not committed: the coordinator has aborted it by time-out.
            self.failed(BrokerError(code, api="EndTxn", transactional_id=self.transactional_id))
        elif self._went_well("EndTxn", code, now):
            if response.producer_id >= 0:
                self.producer = ProducerId(response.producer_id, response.producer_epoch)
            self._go(TxnTrigger.ENDED)

    # --- sending and error handling

    @property
    def _name(self) -> str:
        return self.transactional_id or ""

    def _coordinator(self, now: float) -> Endpoint | None:
        coordinator = self.coordinators.of(CoordinatorKind.TRANSACTION, self._name, now)
        return None if coordinator is None else coordinator.endpoint

    def _send(
        self, api: str, request: Any, responded: Callable[[Any, float], None], now: float, where: Endpoint | None = None
    ) -> UnsentRequest | None:
        if where is None and self.transactional_id is not None:
            where = self._coordinator(now)
            if where is None:
                return None
        state = self.state

        def done(outcome: RequestResult, when: float) -> None:
            self._requested = False
            self._context.updated()
            match outcome:
                case ResponseReceived(value):
                    # Responses to requests of an earlier state are ignored.
                    if self.state is state or (state is TxnState.OPEN and self.state in ENDING):
                        responded(value, when)
                case SendFailed(error):
                    self.die(error)
                case NoResponse():
                    if where is not None:
                        self.coordinators.lost(where)
                    self._attempts = self._context.failed(self._attempts, when)
                    # A partition may have been added or not. On an abort, a new epoch ends either.
                    self._new_epoch = True

        self._requested = True
        pending = PendingRequest(api, request, done, self._context.request_s, *self.limits(api))
        if where is None:
            self._context.send_to_any(pending, now)  # InitProducerId: an extra id is harmless
            return None
        return UnsentRequest(ConnectionPurpose.GROUP, where, pending)

    def _went_well(self, api: str, code: int, now: float, **place: Any) -> bool:
        """True if `code` is 0; otherwise handle the error."""
        if code == 0:
            self._attempts = FRESH
            return True
        error = BrokerError(code, api=api, transactional_id=self.transactional_id, **place)
        match self._class(api, error):
            case TransactionErrorClass.RETRIABLE:
                self._attempts = self._context.failed(self._attempts, now)
            case TransactionErrorClass.REFRESH_RETRIABLE:
                where = self._coordinator(now)
                if where is not None:
                    self.coordinators.lost(where)
                self._attempts = self._context.failed(self._attempts, now)
            case TransactionErrorClass.ABORTABLE | TransactionErrorClass.APPLICATION_RECOVERABLE:
                self.failed(error)
            case TransactionErrorClass.INVALID_CONFIGURATION | TransactionErrorClass.FATAL:
                self.die(_forbidden(error))
        return False

    def _leaves_out(self, api: str, requested: Iterable[TopicPartition], found: Container[TopicPartition]) -> bool:
        """True if a response has no result for a partition. The transaction has failed then."""
        left_out = min((one for one in requested if one not in found), default=None)
        if left_out is not None:
            self.failed(KohortError(f"the {api} response lacks a partition", api=api, **left_out._asdict()))
        return left_out is not None

    def _class(self, api: str, error: BrokerError) -> TransactionErrorClass:
        """The class of an error here and now: what cannot fail a transaction any more is fatal."""
        known = ERROR_CLASSES.get(error.code)
        if known in FAILS_TRANSACTION and self.state not in MAY_FAIL:
            return TransactionErrorClass.FATAL
        if known is not None:
            return known
        if error.retriable:
            return TransactionErrorClass.RETRIABLE
        return TransactionErrorClass.ABORTABLE if api in FILLING else TransactionErrorClass.FATAL

    def _no_coordinator(self, kind: CoordinatorKind, key: str, error: KohortError) -> None:
        if kind is CoordinatorKind.GROUP and isinstance(error, BrokerError):
            # A lookup may outlive its transaction.
            if any(order.group.group_id == key for order in self._orders):
                self.failed(error)
        else:
            self.die(_forbidden(error))

    def _fenced(self, code: int) -> ProducerFenced:
        late = "" if self.version.implicit else ", or the transaction took longer than transaction_timeout_ms"
        why = f"a newer producer has this transactional id{late}: {error_name(code)}"
        return ProducerFenced(why, hint="close this producer", transactional_id=self.transactional_id)


def _forbidden(error: KohortError) -> KohortError:
    if isinstance(error, BrokerError) and error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return AuthorizationFailed("not allowed to use the transactional id", hint="grant WRITE on it", **error.place)
    if isinstance(error, BrokerError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return AuthorizationFailed(
            "not allowed to write idempotently",
            hint="grant IDEMPOTENT_WRITE on the cluster, or WRITE on the topic",
            **error.place,
        )
    return error
