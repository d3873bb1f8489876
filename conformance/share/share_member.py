"""A scripted member of a share group, its session, and topics with records, for the checks of `share_groups.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from kohort.conformance.broker_client import BrokerClient
from kohort.conformance.broker_under_test import RESPONSE_TIMEOUT_S, Topic
from kohort.conformance.check_context import STATE_TIMEOUT_S, CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.group_steps import ScriptedMember
from kohort.fastpath import encode
from kohort.protocol.errors import ErrorCode, error_name

ASSIGNED_S = 15.0
GROUP_RESOURCE, SET = 32, 0
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""The types of an acknowledgement."""
Range = tuple[int, int, Sequence[int]]  # first offset, last offset, types


class ScriptedShareMember(ScriptedMember):
    """A scripted member. `epoch` is the member's, `session_epoch` the next one of its share session."""

    heartbeat = "ShareGroupHeartbeat"

    def __init__(self, scene: CheckContext, topic: Topic | None = None) -> None:
        super().__init__(scene)
        self.topic = topic or scene.topic
        self.session_epoch = 0
        self.node: int | None = None
        self._connection: BrokerClient | None = None

    async def join(self, **changes: object) -> Any:
        """Send the first heartbeat."""
        return await super().join(**{"subscribed_topic_names": (self.topic.name,)} | changes)

    async def joined(self) -> Self:
        """Join, and send heartbeats until every partition is assigned. Raises Blocked."""
        found = assigned(await self.enter())

        async def has_all() -> bool:
            found.update(assigned(await self.beat()))
            return len(found) == self.topic.partitions

        if len(found) < self.topic.partitions and not await self.scene.until(has_all, ASSIGNED_S):
            raise Blocked(f"{len(found)} of {self.topic.partitions} partitions assigned after {ASSIGNED_S:g} s")
        return self

    # -- the share session, on a connection of its own

    async def fetch(self, acks: Sequence[Range] = (), **changes: object) -> Any:
        """Send ShareFetch for partition 0 in the next epoch of the session."""
        opens = self.session_epoch == 0
        partition = {"partition_index": 0, "acknowledgement_batches": _batches(acks)}
        values: dict[str, object] = {
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": ({"topic_id": self.topic.id, "partitions": (partition,)},) if opens or acks else (),
            "forgotten_topics_data": (),
        }
        return await self._in_session("ShareFetch", values | changes)

    async def acknowledge(self, acks: Sequence[Range], **changes: object) -> Any:
        """Send ShareAcknowledge for partition 0 in the next epoch of the session."""
        partition = {"partition_index": 0, "acknowledgement_batches": _batches(acks)}
        values: dict[str, object] = {
            "share_session_epoch": self.session_epoch,
            "topics": ({"topic_id": self.topic.id, "partitions": (partition,)},) if acks else (),
        }
        return await self._in_session("ShareAcknowledge", values | changes)

    async def acquire(self, count: int) -> list[tuple[int, int, int]]:
        """Fetch until so many records are acquired. Returns (first, last, delivery count) of each range.

        Raises Blocked if fewer are acquired in time.
        """
        found = await self.acquired(count, ASSIGNED_S)
        if sum(last - first + 1 for first, last, _count in found) < count:
            raise Blocked(f"acquired {found}, and not {count} records, after {ASSIGNED_S:g} s")
        return found

    async def acquired(self, count: int, timeout_s: float = STATE_TIMEOUT_S) -> list[tuple[int, int, int]]:
        """As `acquire`, with fewer records after `timeout_s`."""
        found: list[tuple[int, int, int]] = []

        async def enough() -> bool:
            response = await self.fetch()
            if response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND:
                # The broker has noticed the end of an earlier connection, and with it has ended the new session.
                self.session_epoch = 0
            found.extend(ranges_of(response))
            return sum(last - first + 1 for first, last, _count in found) >= count

        await self.scene.until(enough, timeout_s)
        return found

    async def disconnect(self) -> None:
        """Close the connection of the session."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
            self.session_epoch = 0

    async def _in_session(self, api: str, values: dict[str, object]) -> Any:
        if self._connection is None:
            self.node = await leader_of(self.scene, self.topic)
            self._connection = await self.scene.connection(self.node, fresh=True)
        body = {"group_id": self.scene.group, "member_id": self.id} | values
        response = await self._connection.send(api, self.scene.version_of(api), body, RESPONSE_TIMEOUT_S)
        if response.error_code == 0:
            epoch = body["share_session_epoch"]
            assert isinstance(epoch, int)
            self.session_epoch = 0 if epoch < 0 else epoch + 1
        return response


def assigned(response: Any) -> set[tuple[object, int]]:
    """The (topic id, partition) pairs of a heartbeat response."""
    if response.assignment is None:
        return set()
    return {(one.topic_id, index) for one in response.assignment.topic_partitions for index in one.partitions}


def ranges_of(response: Any) -> list[tuple[int, int, int]]:
    """(first, last, delivery count) of each acquired range of a ShareFetch response."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for one in topic.partitions
        for each in one.acquired_records
    ]


def code_of(response: Any) -> int:
    """The error code of partition 0 in a ShareAcknowledge response."""
    return next((one.error_code for topic in response.responses for one in topic.partitions), -1)


async def leader_of(scene: CheckContext, topic: Topic) -> int | None:
    """The node that leads partition 0; None for the only node."""
    if len(scene.target.nodes) < 2:
        return None
    response = await scene.target.describe_topic(topic.name)
    leader: int = next(one.leader_id for one in response.topics[0].partitions if one.partition_index == 0)
    return leader


async def configure(scene: CheckContext, **settings: str) -> None:
    """Set settings of the group; an underscore in a name stands for a dot. Raises Blocked."""
    configs = tuple(
        {"name": name.replace("_", "."), "config_operation": SET, "value": value} for name, value in settings.items()
    )
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": scene.group, "configs": configs}
    response = await scene.send("IncrementalAlterConfigs", {"resources": (resource,), "validate_only": False})
    for one in response.responses:
        if one.error_code:
            raise Blocked(f"IncrementalAlterConfigs failed: {error_name(one.error_code)}: {one.error_message}")


async def produce(scene: CheckContext, topic: Topic, records: int) -> None:
    """Append one batch of so many records to partition 0. Raises Blocked."""
    data = encode([(b"", b"v%d" % number) for number in range(records)])
    version = scene.target.version("Produce", at_most=12)
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": ({"name": topic.name, "partition_data": ({"index": 0, "records": data},)},),
    }
    code = 0

    async def appended() -> bool:
        nonlocal code
        response = await scene.send("Produce", values, version=version, node=await leader_of(scene, topic))
        code = response.responses[0].partition_responses[0].error_code
        return not code

    if not await scene.until(appended):  # a leader may learn of a new topic later than the broker with the metadata
        raise Blocked(f"Produce failed: {error_name(code)}")


async def reader(scene: CheckContext, records: int = 10, **settings: str) -> ScriptedShareMember:
    """A member that has joined, of a group that reads a new topic with so many records from its start."""
    await configure(scene, **{"share_auto_offset_reset": "earliest", **settings})
    topic = await scene.target.make_topic(scene.name().removeprefix(f"{scene.target.prefix}-"), 1)
    member = await ScriptedShareMember(scene, topic).joined()
    if records:
        await produce(scene, topic, records)
    return member


async def holder(scene: CheckContext, **settings: str) -> ScriptedShareMember:
    """As `reader`, with ten records, which it has acquired. Raises Blocked."""
    member = await reader(scene, 10, **settings)
    await member.acquire(10)
    return member


async def another(member: ScriptedShareMember) -> ScriptedShareMember:
    """A second member of the same group, which has joined."""
    return await ScriptedShareMember(member.scene, member.topic).joined()


async def refuses_acknowledgements(scene: CheckContext, acks: Sequence[Range]) -> None:
    """A member of ten acquired records gets INVALID_REQUEST for these acknowledgements."""
    member = await holder(scene)
    scene.error(code_of(await member.acknowledge(acks)), "INVALID_REQUEST", f"the acknowledgements {acks}")


def _batches(acks: Sequence[Range]) -> tuple[dict[str, object], ...]:
    return tuple(
        {"first_offset": first, "last_offset": last, "acknowledge_types": tuple(types)} for first, last, types in acks
    )
