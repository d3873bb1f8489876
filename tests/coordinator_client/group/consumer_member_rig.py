"""One `ConsumerMember` on the bench of `member_rig.py`: the same sentences, over KIP-848's one heartbeat."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.consumer_member import ConsumerMember
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.ready import Ready
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.metadata import TopicInfo, TopicsChanged
from kohort.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinator_client.group.member_rig import GROUP, Rig

API = "ConsumerGroupHeartbeat"
MEMBER_ID = "made-up-here"
INTERVAL_S = 5.0


def topic_id(topic: str, life: int = 0) -> uuid.UUID:
    """The id of a topic; another `life` of it has another one."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{topic}/{life}")


def by_id(partitions: Iterable[TopicPartition], lives: Mapping[str, int] | None = None) -> tuple[TopicPartitions, ...]:
    numbers: dict[uuid.UUID, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic_id(topic, (lives or {}).get(topic, 0)), []).append(number)
    return tuple(TopicPartitions(topic_id=one, partitions=tuple(found)) for one, found in numbers.items())


class EpochRig(Rig):
    """`beat` responds to the heartbeat in flight, `heartbeat` waits for the next one and responds to it."""

    def __init__(self, at: float = 100.0, **settings: Any) -> None:
        super().__init__(at=at)
        self.settings = MemberSettings(group_id=GROUP, member_id=MEMBER_ID, **settings)
        self.member = ConsumerMember(self.settings)  # type: ignore[assignment]
        self.ready = self._take()

    def coordinator_responds(
        self,
        code: int = 0,
        *,
        message: str = "no",
        epoch: int = 1,
        assigned: Iterable[TopicPartition] | None = None,
        lives: Mapping[str, int] | None = None,
    ) -> Ready:
        """The coordinator responds to the heartbeat in flight."""
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            error_message=message if code else None,
            member_id=None,
            member_epoch=0 if code else epoch,
            heartbeat_interval_ms=0 if code else int(INTERVAL_S * 1000),
            assignment=None if assigned is None else Assignment(topic_partitions=by_id(assigned, lives)),
        )
        return self.post(ev.ConsumerGroupHeartbeatResponded(self.waiting(API).serial, response))

    def next_report(self) -> ConsumerGroupHeartbeatRequest:
        """Wait until the next heartbeat goes out, and see what it says."""
        before = len(self.requested(API))
        self.after(INTERVAL_S)
        assert len(self.requested(API)) == before + 1, f"no heartbeat in {self.state}"
        return self.report

    def assign(self, partitions: Iterable[TopicPartition], *, epoch: int) -> Ready:
        """The next heartbeat brings an assignment."""
        self.next_report()
        return self.coordinator_responds(epoch=epoch, assigned=partitions)

    @property
    def report(self) -> ConsumerGroupHeartbeatRequest:
        """The contents of the newest heartbeat."""
        request = self.last(API)
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    def topics(  # type: ignore[override]
        self, complete: bool = False, lives: Mapping[str, int] | None = None, **counts: int
    ) -> Ready:
        infos = {
            topic: TopicInfo(count, topic_id(topic, (lives or {}).get(topic, 0)))
            for topic, count in counts.items()
            if count
        }
        return self.post(TopicsChanged(infos, complete, frozenset(counts)))

    def subscribe_on_broker(self, pattern: str) -> Ready:
        return self.post(ev.Subscribed(Subscription(broker_pattern=pattern)))

    def reach_joining(self, *topics: str) -> Ready:
        names = topics or ("t",)
        self.subscribe(*names)
        self.topics(**dict.fromkeys(names, 8))  # type: ignore[arg-type]
        return self.found()

    def reach_stable(
        self, assigned: Iterable[TopicPartition], *topics: str, generation: int = 1, protocol: str = ""
    ) -> Ready:
        self.reach_joining(*topics)
        self.coordinator_responds(epoch=generation, assigned=assigned)
        self.run_hook()
        self.coordinator_responds(epoch=generation)  # the acknowledgement
        assert self.state == "STABLE"
        return self.ready
