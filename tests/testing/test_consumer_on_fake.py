"""Every kind of request loses its response once, in every way there is; a consumer still reads all, once, and
commits.

The end of a connection concerns only the driver. A malformed response is raised from poll, once, since a retry may
bring the same. The next poll continues without loss.
"""

import struct
import time
from collections.abc import Callable

import pytest

from kohort import Consumer, KohortError
from kohort.common import WireError
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.network.errors import FrameTooLarge
from kohort.testing.fake_broker import Action, Call, Close, Drop, FakeBroker, Raw

RECORDS = 20
BOTH = ("ApiVersions", "Metadata", "FindCoordinator", "OffsetFetch", "ListOffsets", "Fetch", "OffsetCommit")
REQUESTED = [
    *(("classic", api) for api in (*BOTH, "JoinGroup", "SyncGroup", "Heartbeat")),
    *(("consumer", api) for api in (*BOTH, "ConsumerGroupHeartbeat")),
]
FAULTS: dict[str, Callable[[Call], Action]] = {
    "closed before": lambda call: Close(),
    "reset before": lambda call: Close(reset=True),
    "closed after": lambda call: Close(after_work=True),
    "reset after": lambda call: Close(after_work=True, reset=True),
    "never answered": lambda call: Drop(after_work=True),
    "wrong correlation id": lambda call: Raw(struct.pack(">iiiq", 16, call.correlation_id + 7, 0, 0)),
    "frame too long": lambda call: Raw(struct.pack(">i", 2**31 - 1)),
    "frame of nothing": lambda call: Raw(struct.pack(">i", 0)),
    "not a response": lambda call: Raw(struct.pack(">iiq", 12, call.correlation_id, -1)),
}
ENDED = frozenset({"closed before", "reset before", "closed after", "reset after"})
# One without a response is recorded where the next response comes in its place.
BROKEN = FAULTS.keys() - ENDED - {"never answered"}
# ApiVersions is the connection's own request; a commit's response may come when all has been polled.
NOT_ALWAYS_REPORTED = frozenset({"ApiVersions", "OffsetCommit"})


@pytest.mark.proves("B-02", "B-03", "B-25")
@pytest.mark.parametrize(("protocol", "api"), REQUESTED)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_lost_response_costs_time_and_nothing_else(protocol: GroupProtocol, api: str, fault: str) -> None:
    with FakeBroker(topics={"topic": 2}) as fake:
        for number in range(RECORDS):
            fake.produce("topic", number % 2, [(None, b"%d" % number)])
        laid = fake.control(api, FAULTS[fault], times=1)
        got: list[bytes | None] = []
        reported: list[KohortError] = []
        to_report = fault in BROKEN and api not in NOT_ALWAYS_REPORTED
        with Consumer(
            fake.bootstrap,
            group="group",
            protocol=protocol,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=1500,
            max_poll_interval_ms=2000,
            request_timeout_ms=1200,
            fetch_max_wait_ms=100,
            reconnect_backoff_ms=10,
            retry_backoff_ms=10,
        ) as consumer:
            consumer.subscribe(["topic"])
            deadline = time.monotonic() + 120
            while len(set(got)) < RECORDS or not laid.calls or (to_report and not reported):
                assert time.monotonic() < deadline, (len(got), laid.calls, reported, fake.calls[-5:])
                try:
                    slices = consumer.poll(0.2)
                except (FrameTooLarge, WireError) as error:
                    reported.append(error)
                    continue
                for columns in slices:
                    got += [record.value for record in columns]
                    consumer.commit(columns.next_offsets)
        assert sorted(got, key=lambda value: int(value or 0)) == [b"%d" % number for number in range(RECORDS)]
        committed = (fake.group if protocol == "classic" else fake.consumer_group)("group").offsets
        assert {partition: each.offset for partition, each in committed.items()} == {
            TopicPartition("topic", 0): RECORDS // 2,
            TopicPartition("topic", 1): RECORDS // 2,
        }
        assert fake.faults == []
        assert len(reported) <= (fault not in ENDED)
