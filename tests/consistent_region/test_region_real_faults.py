"""The faults of a region that a real broker can be made to have, each once."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from kohort import ConsistentRegion, Consumer, TopicPartition
from kohort.consistent_region import DictState, Periodic
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import StrangerError, TopicRecreatedError, UnreadError
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.open_store import open_store
from kohort.testing import RealPostgres
from kohort.testing.topics import create_topic
from tests.consistent_region.running_region import on_thread
from tests.support.broker_selection import SelectedBroker


def count(record: Any, state: DictState) -> None:
    key = f"{record.partition}"
    state[key] = state.get(key, 0) + 1


class Several:
    """Members of one region, each on a thread of its own; `url` is their coordinator."""

    def __init__(self, bootstrap: str, topic: str, url: str) -> None:
        self.bootstrap, self.topic, self.url = bootstrap, topic, url
        self.region = RegionCoordinator(open_store(url), "several", f"several-{topic}")
        self.ended: dict[str, BaseException] = {}

    @contextmanager
    def member(self, name: str, **changes: Any) -> Iterator[ConsistentRegion]:
        given: dict[str, Any] = {
            "group": f"several-{self.topic}",
            "bootstrap": self.bootstrap,
            "topics": [self.topic],
            "member": name,
            "coordinator": self.url,
            "trigger": Periodic(0.3),
            "handler": count,
            "start_position": "beginning",
            "drain_timeout_s": 2.0,
            "reset_timeout_s": 2.0,
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 300,
            "lease_s": 3.0,
        }
        made = ConsistentRegion("several", **{**given, **changes})
        with on_thread(made, partial(self.ended.__setitem__, name)):
            yield made

    def produce(self, records: int, topic: str | None = None) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            producer.produce(topic or self.topic, value=b"x", partition=number % 2)
        assert producer.flush(120) == 0

    def totals(self) -> tuple[int, Counter[str]]:
        """The newest checkpoint, and what all members together counted."""
        newest = (self.region.checkpoints() or (0,))[-1]
        totals: Counter[str] = Counter()
        for cut in self.region.manifest(newest).tasks if newest else ():
            totals.update(json.loads(self.region.state(cut.state)))
        return newest, totals

    def wait(self, reached: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not reached():
            assert time.monotonic() < deadline, f"{what}: {self.totals()} {self.ended}"
            time.sleep(0.05)


@pytest.fixture
def several(broker: SelectedBroker, make_topic: Callable[..., str], tmp_path: Path) -> Iterator[Several]:
    made = Several(broker.bootstrap, make_topic(2), f"sqlite:///{tmp_path}/region.db")
    yield made
    made.region.store.close()


@pytest.mark.broker
@pytest.mark.proves("CR-87")
def test_another_client_in_the_group_ends_the_region_and_is_named(several: Several) -> None:
    several.produce(100)
    with several.member("one"):
        several.wait(lambda: several.totals()[1] == {"0": 50, "1": 50}, "counted")
        stranger = confluent_kafka.Consumer(
            {
                "bootstrap.servers": several.bootstrap,
                "group.id": f"several-{several.topic}",
                "client.id": "a-report",
                "partition.assignment.strategy": "range",
            }
        )
        stranger.subscribe([several.topic])

        def ended() -> bool:
            stranger.poll(0.1)
            return "one" in several.ended

        several.wait(ended, "the stranger was not noticed")
        stranger.close()
    assert isinstance(several.ended["one"], StrangerError)
    assert "a-report at /" in str(several.ended["one"].place["strangers"])


@pytest.mark.broker
@pytest.mark.proves("A10", "B-41", "F-16")
def test_a_topic_that_a_pattern_matches_later_is_read_whole_and_missed_when_it_goes(several: Several) -> None:
    later = f"{several.topic}-later"
    pattern = {"topics": None, "pattern": f"{several.topic}.*", "start_position": "end", "metadata_max_age_ms": 1_000}
    with several.member("one", **pattern):
        several.wait(lambda: several.totals()[0] > 0, "no checkpoint")
        create_topic(several.bootstrap, later, partitions=2)
        several.produce(100, later)  # before it is known
        several.wait(lambda: several.totals()[1] == {"0": 50, "1": 50}, "read from its end")
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": several.bootstrap})
        admin.delete_topics([later])[later].result(120)
        several.wait(lambda: "one" in several.ended, "no member missed the topic")
    error = several.ended.pop("one")
    assert isinstance(error, UnreadError)
    assert error.place["partitions"] == f"{later}-0, {later}-1"
    assert several.region.forget([later]) == (TopicPartition(later, 0), TopicPartition(later, 1))
    with several.member("one", **pattern):
        several.produce(20)
        # The tasks of the topic are gone with it.
        several.wait(lambda: several.totals()[1] == {"0": 10, "1": 10}, "did not go on without the topic")
    assert several.ended == {}


@pytest.mark.broker
@pytest.mark.proves("CR-74", "B-39")
def test_a_topic_created_again_is_named_at_the_next_start(several: Several) -> None:
    several.produce(100)
    with several.member("one"):
        several.wait(lambda: several.totals()[1] == {"0": 50, "1": 50}, "counted")
    positions = several.region.manifest(several.totals()[0]).offsets
    assert {at.topic_id.int for at in positions.values()} != {0}
    assert {at.leader_epoch for at in positions.values()} == {0}
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": several.bootstrap})
    admin.delete_topics([several.topic])[several.topic].result(120)
    time.sleep(1.0)
    create_topic(several.bootstrap, several.topic, partitions=2)
    several.produce(200)  # so that the old offsets exist in it
    with several.member("one"):
        several.wait(lambda: "one" in several.ended, "it went on")
    error = several.ended.pop("one")
    assert isinstance(error, TopicRecreatedError)
    assert error.place["topic"] == several.topic
    several.region.forget([several.topic])
    with several.member("one"):
        several.wait(lambda: several.totals()[1] == {"0": 150, "1": 150}, "did not read the new topic")
    assert several.ended == {}


class Slow(DictState):
    """A state whose first snapshot takes longer than a member may be silent."""

    slept = 0.0

    def snapshot(self, offsets: Positions) -> bytes:
        if not Slow.slept and self:
            Slow.slept = 9.0
            time.sleep(self.slept)
        return super().snapshot(offsets)


@pytest.mark.broker
@pytest.mark.proves("CR-47", "CR-27", "B-34")
def test_a_drain_longer_than_the_poll_interval_costs_the_membership_and_nothing_else(several: Several) -> None:
    several.produce(100)
    with several.member("one", state=Slow, checkpoint_timeout_s=2.0) as member:
        several.wait(lambda: several.totals()[1] == {"0": 50, "1": 50}, "counted")
        assert member.metrics()["resets_total"] >= 1
        several.produce(100)
        several.wait(lambda: several.totals()[1] == {"0": 100, "1": 100}, "counted again")
    assert several.ended == {}


@pytest.mark.broker
@pytest.mark.proves("CR-85", "I1")
def test_on_postgresql_one_member_leaves_for_good_and_its_counts_stay(
    broker: SelectedBroker, make_topic: Callable[..., str], postgres: RealPostgres
) -> None:
    several = Several(broker.bootstrap, make_topic(2), postgres.fresh())
    several.produce(100)
    with several.member("one"):
        with several.member("two"):
            several.wait(lambda: len(several.region.members()) == 2, "both registered")
            several.wait(lambda: sum(several.totals()[1].values()) == 100, "counted")
            several.wait(
                lambda: all(one.owned == 1 for one in several.region.record().members.values()), "one partition each"
            )
            several.produce(100)
            several.wait(lambda: sum(several.totals()[1].values()) == 200, "counted by both")
            both = several.region.manifest(several.totals()[0])
        before = several.totals()[0]
        several.produce(100)
        several.wait(lambda: sum(several.totals()[1].values()) == 300, "without the one that left")
        newest = several.region.manifest(several.totals()[0])
        assert newest.sequence > before
        assert newest.members == ("one",)
    assert both.members == ("one", "two")
    assert several.ended == {}
    assert several.totals()[1] == {"0": 150, "1": 150}
    with Consumer(broker.bootstrap) as reader:
        ends = reader.end_offsets([TopicPartition(several.topic, number) for number in range(2)])
    assert {one: at.offset for one, at in newest.offsets.items()} == ends
    several.region.store.close()
