"""K: offsets inside transactions, and OffsetFetch meanwhile.

With TxnOffsetCommit 5 the group is not added before, and with EndTxn 5 each transaction has an epoch of its own
(KIP-890). So the checks run both versions of transactions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check import CheckKind, Need, Section
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.request_builders import commit, fetch, fetch_offset
from kohort.protocol.errors import ErrorCode, error_name

SECTION = Section("K", "Offsets in transactions", "TxnOffsetCommit")
FETCH_SECTION = Section("G", "OffsetFetch and OffsetDelete", "OffsetFetch")
TOPIC = (Need.TOPIC,)
APIS = ("FindCoordinator 1+", "InitProducerId", "AddOffsetsToTxn", "EndTxn", "OffsetFetch 1+")
_check = partial(SECTION.check, needs=TOPIC, apis=APIS)
TRANSACTION = 1
TIMEOUT_MS = 60_000
READY_S = 30.0
FIRST_IMPLICIT = 5  # of TxnOffsetCommit and EndTxn (KIP-890)
_FENCED = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE")
_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)  # loading, not available, not coordinator, concurrent transactions


@dataclass
class CheckProducer:
    """A scripted transactional producer. Every call returns the broker's response unchanged."""

    scene: CheckContext
    name: str
    node: int | None
    id: int = -1
    epoch: int = -1

    @classmethod
    async def make(cls, scene: CheckContext) -> CheckProducer:
        """Find the coordinator and get a producer id, with retries. Raises Blocked."""
        name = scene.name()
        version = scene.target.version("FindCoordinator", at_most=3)
        find = partial(scene.send, "FindCoordinator", version=version, key=name, key_type=TRANSACTION)
        found = await _required(scene, "FindCoordinator of a transaction", find)
        producer = cls(scene, name, found.node_id if len(scene.target.nodes) > 1 else None)
        await _required(scene, "InitProducerId", producer.begin)
        return producer

    async def begin(self) -> Any:
        values = {"transactional_id": self.name, "transaction_timeout_ms": TIMEOUT_MS}
        response = await self.scene.send("InitProducerId", values, node=self.node)
        if response.error_code == 0:
            self.id, self.epoch = response.producer_id, response.producer_epoch
        return response

    async def add_group(self, **changes: object) -> Any:
        values = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}
        values |= {"group_id": self.scene.group}
        return await self.scene.send("AddOffsetsToTxn", values | changes, node=self.node)

    async def take_in(self) -> None:
        """Add the group to the transaction, which TxnOffsetCommit does itself from version 5 on. Raises Blocked."""
        if self.scene.version_of("TxnOffsetCommit") < FIRST_IMPLICIT:
            await _required(self.scene, "AddOffsetsToTxn", self.add_group)

    async def commit(
        self, offsets: Mapping[tuple[Topic, int], int], metadata: str = "", **changes: object
    ) -> dict[int, int]:
        """Send TxnOffsetCommit. Returns codes by partition number."""
        (topic,) = {topic for topic, _ in offsets}
        partitions = tuple(
            {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
            for (_, index), offset in offsets.items()
        )
        values: dict[str, object] = {
            "transactional_id": self.name,
            "group_id": self.scene.group,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "topics": ({"name": topic.name, "topic_id": topic.id, "partitions": partitions},),
        }
        response = await self.scene.send("TxnOffsetCommit", values | changes)
        return {entry.partition_index: entry.error_code for entry in response.topics[0].partitions}

    async def end(self, committed: bool, **changes: object) -> Any:
        values = {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": committed,
        }
        return await self.scene.send("EndTxn", values | changes, node=self.node)


async def _settled(scene: CheckContext, request: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a request until the coordinator has loaded and has ended the transaction before. Return the response."""
    response: Any = None

    async def is_settled() -> bool:
        nonlocal response
        response = await request()
        return response.error_code not in _NOT_YET

    await scene.until(is_settled, READY_S)
    return response


async def _required(scene: CheckContext, what: str, request: Callable[[], Awaitable[Any]]) -> Any:
    """As `_settled`, of a request of the set-up. Raises Blocked after an error."""
    response = await _settled(scene, request)
    if response.error_code:
        raise Blocked(f"{what} failed: {error_name(response.error_code)}")
    return response


async def _comes(scene: CheckContext, offset: int) -> None:
    """Check that the offset of partition 0 becomes visible after the commit."""

    async def visible() -> bool:
        return await fetch_offset(scene) == offset

    scene.true("the offset after the commit", await scene.until(visible, 20), offset, "another after 20 s")


async def _producer(scene: CheckContext) -> CheckProducer:
    """Return a producer with the group in its transaction, as far as the version needs it. Raises Blocked."""
    producer = await CheckProducer.make(scene)
    await producer.take_in()
    return producer


async def _begun(scene: CheckContext, offset: int, **how: object) -> CheckProducer:
    """Return a producer with an offset of partition 0 in an open transaction. Raises Blocked."""
    producer = await _producer(scene)
    codes = await producer.commit({(scene.topic, 0): offset}, **how)  # type: ignore[arg-type]
    if codes[0]:
        raise Blocked(f"TxnOffsetCommit failed: {error_name(codes[0])}")
    return producer


async def _ended(scene: CheckContext, producer: CheckProducer, *, committed: bool) -> None:
    """End the transaction, and judge the response. From version 5 on it has the next epoch, also if it is repeated."""
    response = await scene.expect(producer.end(committed), "NONE", "EndTxn")
    if scene.version_of("EndTxn") < FIRST_IMPLICIT:
        return
    scene.equal("the next producer epoch in EndTxn", response.producer_epoch, producer.epoch + 1)
    response = await _settled(scene, lambda: producer.end(committed))
    scene.error(response.error_code, "NONE", "EndTxn once more, as after a lost response")
    scene.equal("the next producer epoch in EndTxn once more", response.producer_epoch, producer.epoch + 1)


async def _begin_again(producer: CheckProducer) -> None:
    """Send InitProducerId until the earlier transaction is completed. Raises Blocked."""
    await _required(producer.scene, "the second InitProducerId", producer.begin)


@_check("K1a", "The instance id of another member", versions="3+", source="KIP-447", expected="FENCED_INSTANCE_ID")
async def fenced(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1, instance="i-1")
    codes = await (await _producer(scene)).commit(
        {(scene.topic, 0): 1},
        generation_id_or_member_epoch=leader.generation,
        member_id="other-member",
        group_instance_id="i-1",
    )
    scene.error(codes[0], "FENCED_INSTANCE_ID", "TxnOffsetCommit with another member's instance id")


@_check("K1b", "An unknown member", versions="3+", source="KIP-447", expected="UNKNOWN_MEMBER_ID")
async def unknown_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    codes = await (await _producer(scene)).commit(
        {(scene.topic, 0): 1}, generation_id_or_member_epoch=leader.generation, member_id="unknown-member"
    )
    scene.error(codes[0], "UNKNOWN_MEMBER_ID", "TxnOffsetCommit of a made-up member")


@_check("K1c", "An older generation", versions="3+", source="KIP-447", expected="ILLEGAL_GENERATION")
async def stale(scene: CheckContext) -> None:
    leader, _ = await scene.stable(2)
    codes = await (await _producer(scene)).commit(
        {(scene.topic, 0): 1}, generation_id_or_member_epoch=leader.generation - 1, member_id=leader.id
    )
    scene.error(codes[0], "ILLEGAL_GENERATION", "TxnOffsetCommit of the generation before")


@_check(
    "K1d",
    "A member in its current generation",
    versions="3+",
    source="KIP-447",
    expected="NONE, and visible once the transaction is committed",
)
async def by_member(scene: CheckContext) -> None:
    (leader,) = await scene.stable(1)
    producer = await _begun(scene, 5, generation_id_or_member_epoch=leader.generation, member_id=leader.id)
    await scene.expect(producer.end(True), "NONE", "EndTxn")
    await _comes(scene, 5)


@_check(
    "K2a",
    "A committed transaction",
    source="KIP-98",
    expected="OffsetFetch returns the previous offset until EndTxn, and the new one after it",
)
async def committed(scene: CheckContext) -> None:
    await commit(scene, {(scene.topic, 0): 1})
    producer = await _begun(scene, 2)
    scene.equal("the offset while the transaction is open", await fetch_offset(scene), 1)
    await _ended(scene, producer, committed=True)
    await _comes(scene, 2)


@_check("K2b", "An aborted transaction", source="KIP-98", expected="the offset before stays")
async def aborted(scene: CheckContext) -> None:
    await commit(scene, {(scene.topic, 0): 1})
    producer = await _begun(scene, 2)
    await _ended(scene, producer, committed=False)
    if scene.version >= FIRST_IMPLICIT <= scene.version_of("EndTxn"):
        (code,) = (await producer.commit({(scene.topic, 0): 9})).values()
        late = error_name(code)
        scene.true("a late TxnOffsetCommit of the aborted transaction", late in _FENCED, " or ".join(_FENCED), late)
    await _begin_again(producer)  # a response after the abort completed
    scene.equal("the offset after the abort", await fetch_offset(scene), 1)


@_check(
    "K2c",
    "Several partitions, in two requests of one transaction",
    source="KIP-98",
    expected="after EndTxn each partition has its own offset and metadata",
)
async def several(scene: CheckContext) -> None:
    producer = await _producer(scene)
    codes = await producer.commit({(scene.topic, 0): 5, (scene.topic, 1): 6}, metadata="a")
    codes |= await producer.commit({(scene.topic, 2): 7}, metadata="b")
    scene.equal("the codes of TxnOffsetCommit by partition", codes, {0: 0, 1: 0, 2: 0})
    await _ended(scene, producer, committed=True)
    expected = {0: (5, "a"), 1: (6, "a"), 2: (7, "b")}
    found: dict[object, tuple[int, str | None]] = {}

    async def visible() -> bool:
        response = await fetch(scene, [(scene.topic, index) for index in expected])
        found.update({index: (entry.offset, entry.metadata) for (_, index), entry in response.partitions.items()})
        return found == expected

    scene.true("offset and metadata by partition", await scene.until(visible, 20), expected, found)


@_check(
    "K3",
    "A producer epoch that was superseded",
    source="KIP-98",
    expected="INVALID_PRODUCER_EPOCH or PRODUCER_FENCED, and nothing is stored",
)
async def superseded(scene: CheckContext) -> None:
    producer = await _producer(scene)
    old = producer.epoch
    await _begin_again(producer)
    codes = await producer.commit({(scene.topic, 0): 9}, producer_epoch=old)
    scene.true(
        "TxnOffsetCommit with the epoch before",
        error_name(codes[0]) in _FENCED,
        "INVALID_PRODUCER_EPOCH, PRODUCER_FENCED or an error of the transaction's state",
        error_name(codes[0]),
    )
    scene.equal("the offset", await fetch_offset(scene), -1)


@_check(
    "K4",
    "No member id, in an active group",
    source="KIP-447",
    expected="NONE: producers from before KIP-447 name no member",
)
async def no_member(scene: CheckContext) -> None:
    await scene.stable(1)
    codes = await (await _producer(scene)).commit({(scene.topic, 0): 3})
    scene.error(codes[0], "NONE", "TxnOffsetCommit without a member")


@_check(
    "K5",
    "A partition that is not there, beside one that is",
    source="protocol guide",
    expected="UNKNOWN_TOPIC_OR_PARTITION there, NONE elsewhere",
)
async def unknown_partition(scene: CheckContext) -> None:
    codes = await (await _producer(scene)).commit({(scene.topic, 999): 1, (scene.topic, 0): 2})
    scene.error(codes[999], "UNKNOWN_TOPIC_OR_PARTITION", "partition 999")
    scene.error(codes[0], "NONE", "partition 0")


@SECTION.check(
    "K6",
    "The same producer begins again",
    subject="InitProducerId",
    apis=("FindCoordinator 1+",),
    source="KIP-98",
    expected="the same producer id under a higher epoch",
)
async def begins_again(scene: CheckContext) -> None:
    producer = await CheckProducer.make(scene)
    identity, epoch = producer.id, producer.epoch
    response = await scene.expect(producer.begin(), "NONE", "the second InitProducerId")
    scene.equal("the producer id", response.producer_id, identity)
    scene.true("the epoch", response.producer_epoch > epoch, f"above {epoch}", response.producer_epoch)


def _superseded(row: str, api: str) -> None:
    @SECTION.check(
        row,
        f"{api} with a superseded epoch",
        subject=api,
        kind=CheckKind.VERSIONED,
        source="KIP-588",
        apis=("InitProducerId", "FindCoordinator 1+"),
        expected="PRODUCER_FENCED from version 2 on, INVALID_PRODUCER_EPOCH before",
    )
    async def late(scene: CheckContext) -> None:
        producer = await CheckProducer.make(scene)
        old = producer.epoch
        await scene.expect(producer.begin(), "NONE", "the second InitProducerId")
        response = await (producer.add_group if api == "AddOffsetsToTxn" else partial(producer.end, True))(
            producer_epoch=old
        )
        expected = "PRODUCER_FENCED" if scene.version >= 2 else "INVALID_PRODUCER_EPOCH"
        scene.error(response.error_code, expected, f"{api} with the epoch before")


_superseded("K7a", "AddOffsetsToTxn")
_superseded("K7b", "EndTxn")


@FETCH_SECTION.check(
    "G4b",
    "require_stable while a transaction holds the offset",
    versions="7+",
    needs=TOPIC,
    source="KIP-447",
    apis=("TxnOffsetCommit", *APIS),
    expected="UNSTABLE_OFFSET_COMMIT of that partition only; without require_stable the previous offset",
)
async def unstable(scene: CheckContext) -> None:
    await commit(scene, {(scene.topic, 0): 1, (scene.topic, 1): 1})
    producer = await _begun(scene, 2)
    response = await fetch(scene, [(scene.topic, 0), (scene.topic, 1)], require_stable=True)
    scene.error(
        response.partitions[scene.topic.name, 0].error_code,
        "UNSTABLE_OFFSET_COMMIT",
        "the partition in the transaction",
    )
    scene.error(response.partitions[scene.topic.name, 1].error_code, "NONE", "its neighbour")
    scene.equal("the offset without require_stable", await fetch_offset(scene), 1)
    await producer.end(False)
