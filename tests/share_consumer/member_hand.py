"""A share member by hand: its machine, a clock, and responses."""

from typing import Any
from uuid import UUID

from kohort.network.backoff import Backoff
from kohort.protocol.apis.consumer_group_heartbeat import Assignment, TopicPartitions
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_member import ShareMember

TOPIC = UUID(int=7)


class Hand:
    """`beat` lets a heartbeat be sent and get its response."""

    def __init__(self, *, rack: str | None = "r1", max_poll_interval_s: float = 300.0) -> None:
        self.now = 100.0
        interval_ms = int(max_poll_interval_s * 1000)
        config = ShareConsumerConfig.of(bootstrap="h:1", group="jobs", rack=rack, max_poll_interval_ms=interval_ms)
        self.member = ShareMember(config, "member-1", Backoff(100, 1000, 0.0), lambda: 0.5)

    def subscribe(self, *topics: str) -> None:
        self.member.subscribe(frozenset(topics), self.now)

    def request(self) -> tuple[int, ShareGroupHeartbeatRequest]:
        """The heartbeat that is due now."""
        found = self.member.next_request(self.now)
        assert found is not None
        return found

    def none_due(self) -> bool:
        return self.member.next_request(self.now) is None

    def respond(self, serial: int, **fields: Any) -> bool:
        """Respond to the request with this serial number."""
        return self.member.on_response(serial, ShareGroupHeartbeatResponse(**fields), self.now, self.now)

    def beat(self, epoch: int = 2, partitions: tuple[int, ...] | None = None, **fields: Any) -> Any:
        """Send the heartbeat that is due and respond to it. Returns the request."""
        serial, request = self.request()
        assignment = None if partitions is None else assigned(*partitions)
        self.respond(serial, member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment, **fields)
        return request

    def fail(self, code: int) -> bool:
        """Send the heartbeat that is due, and respond with an error code."""
        serial, _request = self.request()
        return self.respond(serial, error_code=code)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


def assigned(*partitions: int) -> Assignment:
    """An assignment of the one topic."""
    if not partitions:
        return Assignment(topic_partitions=())
    return Assignment(topic_partitions=(TopicPartitions(topic_id=TOPIC, partitions=partitions),))
