"""A group member written out step by step, for scenarios that are played to the fake and to the real broker alike."""

import select
import socket
import time
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID, uuid4

from kohort.common.topic_partition import TopicPartition
from kohort.protocol.apis.api_versions import ApiVersionsRequest
from kohort.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.protocol.apis.heartbeat import HeartbeatRequest
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.protocol.apis.leave_group import MemberIdentity
from kohort.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.protocol.catalogue import API, choose_version
from kohort.protocol.membership import Subscription, build_subscription
from kohort.protocol.wire import WireConnection

_UNKNOWN_MEMBER_ID = 25


def reported(note: bytes = b"") -> bytes:
    """A subscription that carries `note`. A real coordinator reads it: bytes that are none leave 4.3.1 hanging."""
    return build_subscription(Subscription(topics=("topic",), user_data=note))


class Connection:
    """One socket; `request` sends and waits, `send` and `receive` do either alone."""

    def __init__(self, address: str, client_id: str = "scenario") -> None:
        host, _, port = address.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=8)
        self._wire = WireConnection(client_id)
        self._responses: list[Any] = []
        self.ranges: dict[int, tuple[int, int]] = {}
        for api in self.request("ApiVersions", ApiVersionsRequest(), version=0).api_keys:
            self.ranges[api.api_key] = api.min_version, api.max_version

    def send(self, api: str, request: Any, *, version: int | None = None, at_most: int | None = None) -> None:
        chosen = choose_version(api, self.ranges, at_most) if version is None else version
        _, data = self._wire.send(API[api].key, chosen, request)
        self.socket.sendall(data)

    def receive(self) -> Any:
        while not self._responses:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("closed by the broker")
            self._responses += [response.value for response in self._wire.receive(data)]
        return self._responses.pop(0)

    def request(self, api: str, request: Any, *, version: int | None = None, at_most: int | None = None) -> Any:
        self.send(api, request, version=version, at_most=at_most)
        return self.receive()

    @property
    def is_waiting(self) -> bool:
        """Nothing has come, and nothing comes for a moment."""
        return not self._responses and not select.select([self.socket], [], [], 0.15)[0]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stage(NamedTuple):
    """The surroundings of a scenario."""

    bootstrap: str
    topic: str
    group: str


class MemberClient(Connection):
    """A member of `stage.group`; it knows its id, generation and leader from its last JoinGroup response."""

    def __init__(
        self,
        stage: Stage,
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_timeout_ms: int = 20_000,
        rebalance_timeout_ms: int = 20_000,
    ) -> None:
        super().__init__(stage.bootstrap)
        self.stage = stage
        self.instance_id = instance_id
        self.protocols = protocols or {"range": reported()}
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.protocol = "range"
        self.find_coordinator()

    @property
    def is_new_coordinator(self) -> bool:
        """True for brokers from 4.0 on, and the fake: some of their error codes are newer than the former
        coordinator's."""
        return self.ranges[1][0] >= 4  # 4.0 dropped the oldest versions of Fetch (KIP-896)

    def find_coordinator(self) -> None:
        """Until the broker coordinates the group; a real one makes and loads its offsets topic at the first call."""
        version = choose_version("FindCoordinator", self.ranges)
        request: dict[str, object] = (
            {"coordinator_keys": (self.stage.group,)} if version >= 4 else {"key": self.stage.group}
        )
        while True:
            response = self.request("FindCoordinator", request)
            found = not (response.coordinators[0].error_code if version >= 4 else response.error_code)
            if found and self.heartbeat(generation_id=0, member_id="nobody") == _UNKNOWN_MEMBER_ID:
                return
            time.sleep(0.02)

    def send_join(self, *, at_most: int | None = None, **changes: Any) -> None:
        given: dict[str, Any] = {
            "group_id": self.stage.group,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": tuple(
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()
            ),
        }
        self.send("JoinGroup", JoinGroupRequest(**(given | changes)), at_most=at_most)

    def joined(self) -> JoinGroupResponse:
        response: JoinGroupResponse = self.receive()
        if not response.error_code:
            self.member_id, self.generation, self.leader = response.member_id, response.generation_id, response.leader
            self.protocol = response.protocol_name or ""
        return response

    def join(self, *, at_most: int | None = None, **changes: Any) -> JoinGroupResponse:
        """The response; a first dynamic join is repeated with the id that it is given."""
        self.send_join(at_most=at_most, **changes)
        response = self.joined()
        if response.error_code == 79:
            self.member_id = response.member_id
            self.send_join(at_most=at_most, **changes)
            response = self.joined()
        return response

    def start_join(self) -> None:
        """As `join`, without waiting for the generation to begin."""
        self.send_join()
        if self.instance_id is None and not self.member_id:
            response = self.joined()
            assert response.error_code == 79
            self.member_id = response.member_id
            self.send_join()

    def send_sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> None:
        given: dict[str, Any] = {
            "group_id": self.stage.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": self.protocol,
            "assignments": tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ),
        }
        self.send("SyncGroup", SyncGroupRequest(**(given | changes)))

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> tuple[int, bytes]:
        """(error code, assignment)."""
        self.send_sync(assignments, **changes)
        return self.synced()

    def synced(self) -> tuple[int, bytes]:
        response = self.receive()
        return response.error_code, bytes(response.assignment)

    def heartbeat(self, **changes: Any) -> int:
        given: dict[str, Any] = {
            "group_id": self.stage.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None if "member_id" in changes else self.instance_id,
        }
        return int(self.request("Heartbeat", HeartbeatRequest(**(given | changes))).error_code)

    def leave(self, **changes: Any) -> list[int]:
        member = MemberIdentity(**({"member_id": self.member_id, "group_instance_id": self.instance_id} | changes))
        response = self.request("LeaveGroup", {"group_id": self.stage.group, "members": (member,)})
        return [response.error_code] if response.error_code else [each.error_code for each in response.members]

    def commit(
        self, offsets: dict[int, int], *, metadata: str = "", topic: str = "", at_most: int = 9, **changes: Any
    ) -> list[int]:
        """Error codes in the order of the partitions' numbers; a broker may return them in another one."""
        given: dict[str, Any] = {
            "group_id": self.stage.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": (
                OffsetCommitRequestTopic(
                    name=topic or self.stage.topic,
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata=metadata
                        )
                        for number, offset in offsets.items()
                    ),
                ),
            ),
        }
        response = self.request("OffsetCommit", OffsetCommitRequest(**(given | changes)), at_most=at_most)
        by_number = {each.partition_index: each.error_code for each in response.topics[0].partitions}
        return [by_number[number] for number in sorted(by_number)]

    def committed(self, *partitions: int) -> dict[TopicPartition, int]:
        """Offsets as OffsetFetch gives them; of everything where no partition is named."""
        topics = (OffsetFetchRequestTopic(name=self.stage.topic, partition_indexes=partitions),) if partitions else None
        response = self.request("OffsetFetch", OffsetFetchRequest(group_id=self.stage.group, topics=topics), at_most=7)
        assert response.error_code == 0
        return {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in response.topics
            for each in topic.partitions
        }


class EpochClient(MemberClient):
    """A member of `stage.group` by KIP-848; `generation` is its epoch, `owned` the last assignment that it received."""

    def __init__(self, stage: Stage, **options: Any) -> None:
        super().__init__(stage, **options)
        self.member_id, self.generation = str(uuid4()), 0
        self.owned: dict[UUID, tuple[int, ...]] = {}

    def enter(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat, with all that it has to say."""
        said: dict[str, Any] = {
            "member_epoch": 0,
            "topic_partitions": (),
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "subscribed_topic_names": (self.stage.topic,),
        }
        return self.beat(**(said | changes))

    def acknowledge(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with the owned partitions: those of the last assignment."""
        said = tuple(TopicPartitions(topic_id=topic, partitions=found) for topic, found in self.owned.items())
        return self.beat(**({"topic_partitions": said} | changes))

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with no new fields but `changes`; a good response is remembered."""
        said: dict[str, Any] = {
            "group_id": self.stage.group,
            "member_id": self.member_id,
            "member_epoch": self.generation,
            "instance_id": self.instance_id,
        }
        response: ConsumerGroupHeartbeatResponse
        response = self.request("ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest(**(said | changes)))
        if not response.error_code:
            self.generation = response.member_epoch
            if response.assignment is not None:
                self.owned = {
                    one.topic_id: tuple(sorted(one.partitions)) for one in response.assignment.topic_partitions
                }
        return response

    @property
    def numbers(self) -> list[int]:
        """The numbers of the assigned partitions, whichever their topics are."""
        return sorted(number for found in self.owned.values() for number in found)
