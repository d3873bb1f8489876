"""A committed offset that no log can hold: an error or the reset policy, for a consumer and for a region's member."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import ConsistentRegion, Consumer, TopicPartition
from kohort.common import KohortError
from kohort.consistent_region import Periodic
from kohort.consistent_region.errors import TruncationError
from kohort.testing.fake_broker import Alter, Call, FakeBroker
from tests.consistent_region.running_region import on_thread

P = TopicPartition("t", 0)
RECORDS = 20
GIVE_UP_S = 60
OFFSETS = [-(1 << 63), -2, RECORDS + 1, 1 << 40, (1 << 63) - 1]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1}) as broker:
        broker.produce("t", 0, [(b"k", b"%d" % number) for number in range(RECORDS)])
        yield broker


def committed(broker: FakeBroker, offset: int, metadata: str = "") -> None:
    """Every response to OffsetFetch has these."""

    def lying(response: Any) -> Any:
        topics = [
            topic._replace(
                partitions=tuple(
                    one._replace(committed_offset=offset, committed_leader_epoch=-1, metadata=metadata, error_code=0)
                    for one in topic.partitions
                )
            )
            for topic in response.groups[0].topics
        ]
        return response._replace(groups=(response.groups[0]._replace(topics=tuple(topics)),))

    def control(call: Call) -> Alter:
        assert call.version >= 8
        return Alter(lying)

    broker.control("OffsetFetch", control)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_consumer_resets_or_raises(broker: FakeBroker, offset: int, policy: str) -> None:
    committed(broker, offset)
    with Consumer(broker.bootstrap, group="g", auto_offset_reset=policy, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        read, until = list[int](), time.monotonic() + GIVE_UP_S
        error: KohortError | None = None
        while time.monotonic() < until and error is None and len(read) < (RECORDS if policy == "earliest" else 1):
            try:
                read += [record.offset for columns in consumer.poll(0.2) for record in columns]
                if policy == "latest" and P in consumer.assignment and consumer.position(P) == RECORDS:
                    broker.produce("t", 0, [(b"k", b"new")])
            except KohortError as raised:
                error = raised
        if policy == "none":
            assert error is not None
            assert error.place["topic"] == "t"
            assert read == []
        else:
            assert error is None
            assert read[0] == (0 if policy == "earliest" else RECORDS)


def test_the_longest_metadata_that_a_string_can_be_is_read_past(broker: FakeBroker) -> None:
    committed(broker, 5, "\x1b[31m" + "m" * ((1 << 15) - 6))
    with Consumer(broker.bootstrap, group="g", auto_offset_reset="none", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        read, until = list[int](), time.monotonic() + GIVE_UP_S
        while not read and time.monotonic() < until:
            read += [record.offset for columns in consumer.poll(0.2) for record in columns]
        assert read[0] == 5


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_region_that_starts_by_default_raises_or_takes_it_for_no_commit(broker: FakeBroker, offset: int) -> None:
    committed(broker, offset)
    handled, errors = threading.Event(), list[BaseException]()
    region = ConsistentRegion(
        "r", group="g", topics=["t"], bootstrap=broker.bootstrap, member="a", trigger=Periodic(0.1),
        handler=lambda *_: handled.set(),
    )  # fmt: skip
    until = time.monotonic() + GIVE_UP_S
    with on_thread(region, errors.append) as thread:
        while thread.is_alive() and not handled.is_set() and time.monotonic() < until:
            thread.join(0.05)
    if offset < 0:
        assert handled.is_set()
        assert errors == []
    else:
        (error,) = errors
        assert isinstance(error, TruncationError)
        assert error.place["offset"] == offset
        assert not handled.is_set()
