"""Thousands of partitions: each step of a consumer's core costs in proportion to them, and no step more than that."""

import random
import sys
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.offsets.positions import FetchState
from kohort.fastpath import encode
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import ClusterView
from kohort.network.requests import PendingRequest, ResponseReceived
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.support.sent_requests import sent

PER_TOPIC = 5
FEW, MANY = 200, 400  # partitions
UNSTABLE_OFFSET_COMMIT = 88
BATCH = encode([(None, b"v" * 10)], base_offset=0, timestamp_ms=1, partition_leader_epoch=1)


class Name(str):
    """A topic's name whose comparisons are calls, so that they are counted."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class Wide:
    """A core that reads `count` partitions of two brokers. `steps` has the calls of each step."""

    def __init__(self, count: int, **settings: Any) -> None:
        self.names = [Name(f"t{number:05d}") for number in range(count // PER_TOPIC)]
        self.partitions = [TopicPartition(name, number) for name in self.names for number in range(PER_TOPIC)]
        self.core = ConsumerCore(
            ConsumerConfig.of(bootstrap="b:1", auto_offset_reset="earliest", **settings),
            (),
            chance=lambda: 0.5,
            started=0.0,
        )
        self.core.endpoints.ever_responded = True
        self.all_pending: list[PendingRequest] = []
        self.now = 0.0
        self.steps: dict[str, int] = {}

    def step(self, name: str, what: Callable[[], object]) -> None:
        self.steps[name] = calls(what)

    def turn(self) -> None:
        self.now += 1.0
        self.all_pending += [one.request for one in sent(self.core.poll(self.now, 0))]

    def settle(self, api: str, value: object) -> Callable[[], None]:
        found = next(pending for pending in self.all_pending if pending.api == api)
        self.all_pending.remove(found)
        return lambda: found.done(ResponseReceived(value, 12), self.now)

    def metadata(self, *, first_id: int = 1) -> MetadataResponse:
        one = [
            MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=1, replica_nodes=(1, 2))
            for number in range(PER_TOPIC)
        ]
        return MetadataResponse(
            brokers=tuple(MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in (1, 2)),
            cluster_id="c",
            topics=tuple(
                MetadataResponseTopic(
                    error_code=0, name=name, topic_id=uuid.UUID(int=first_id + number), partitions=tuple(one)
                )
                for number, name in enumerate(self.names)
            ),
        )

    def fetched(self, **more: Any) -> FetchResponse:
        """A response of all partitions, with topic ids and without names."""
        data: dict[str, Any] = {"high_watermark": 10, "last_stable_offset": 10, "log_start_offset": 0} | more
        partitions = tuple(PartitionData(partition_index=number, **data) for number in range(PER_TOPIC))
        return FetchResponse(
            error_code=0,
            session_id=7,
            responses=tuple(
                FetchableTopicResponse(topic_id=uuid.UUID(int=1 + number), partitions=partitions)
                for number in range(len(self.names))
            ),
        )


def calls(what: Callable[[], object]) -> int:
    """The number of functions, of Python or of C, that `what` calls."""
    count = 0

    def seen(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        what()
    finally:
        sys.setprofile(before)
    return count


def a_life(count: int) -> dict[str, int]:
    wide = Wide(count)
    wide.step("assign", lambda: wide.core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {}))
    wide.turn()
    wide.step("Metadata response", wide.settle("Metadata", wide.metadata()))
    wide.step("first Fetch request", wide.turn)
    wide.step("Fetch response", wide.settle("Fetch", wide.fetched(records=BATCH)))
    wide.step("next Fetch request", wide.turn)
    wide.step("idle turn", wide.turn)
    wide.step("snapshot", wide.core.positions.snapshot)
    for partition in wide.partitions:
        wide.core.seek(partition, 1)  # what is parked is void, and nothing delays a request to the new leader
    wide.settle("Fetch", wide.fetched())()
    wide.turn()
    leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=2)
    wide.step("leaders moved", wide.settle("Fetch", wide.fetched(error_code=6, current_leader=leader)))
    assert {wide.core.metadata.view.partition(one).leader for one in wide.partitions} == {2}  # type: ignore[union-attr]
    wide.step("request to the new leader", wide.turn)
    wide.step("pause", lambda: wide.core.pause(frozenset(wide.partitions[::2]), (), None))
    wide.settle("Fetch", wide.fetched())()
    wide.step("request with forgotten topics", wide.turn)
    wide.settle("Metadata", wide.metadata(first_id=100_000))()
    wide.step("topics created again", wide.turn)
    assert all(wide.core.positions.state(one).phase is FetchState.FAILED for one in wide.partitions)
    return wide.steps


def test_each_step_costs_in_proportion_to_the_partitions() -> None:
    few, many = a_life(FEW), a_life(MANY)
    ratios = {name: many[name] / max(few[name], FEW // 10) for name in few}
    assert max(ratios.values()) < 2.2, ratios


@pytest.mark.parametrize("paused", [False, True])
def test_a_turn_without_changes_looks_at_no_partition(paused: bool) -> None:
    counts = []
    for count in (FEW, 10 * FEW):
        wide = Wide(count, group="g", enable_auto_commit=True, auto_commit_interval_ms=600_000)
        core = wide.core
        core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {})
        wide.turn()
        wide.settle("Metadata", wide.metadata())()
        wide.turn()
        wide.settle("Fetch", wide.fetched(records=BATCH))()
        if paused:
            core.pause(None, (), None)
        core.polled(wide.now, handled=True)
        wide.turn()
        wide.turn()
        wide.step("idle", wide.turn)
        core.positions.consumed(wide.partitions[0], core.positions.state(wide.partitions[0]).serial, 1)
        wide.step("one record was returned", wide.turn)
        counts.append(wide.steps)
    few, many = counts
    # Topics are compared as sets of names, each comparison being one call for each topic.
    by_topic = 8 * (10 - 1) * FEW / PER_TOPIC
    assert many["idle"] - few["idle"] <= by_topic, counts
    assert many["one record was returned"] - few["one record was returned"] <= by_topic, counts


def test_a_turn_behind_a_change_of_one_partition_looks_at_no_other() -> None:
    """A caller may pause, resume and move thousands of partitions one by one."""
    counts = []
    for count in (FEW, 10 * FEW):
        wide = Wide(count)
        core = wide.core
        core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {})
        wide.turn()
        wide.settle("Metadata", wide.metadata())()
        wide.turn()
        wide.turn()
        first = frozenset(wide.partitions[:1])
        wide.step("a pause", partial(core.pause, first, (), None))
        wide.step("behind a pause", wide.turn)
        wide.step("a resume", partial(core.resume, first, (), None))
        wide.step("behind a resume", wide.turn)
        core.seek(wide.partitions[1], 3)
        wide.step("behind a seek", wide.turn)
        session, beside = [pending for pending in wide.all_pending if pending.api == "Fetch"]
        beside.done(ResponseReceived(FetchResponse(error_code=0, session_id=0), 12), wide.now)
        wide.step("behind the response to a resume", wide.turn)
        session.done(ResponseReceived(wide.fetched(), 12), wide.now)
        wide.step("behind a response of the session", wide.turn)
        counts.append(wide.steps)
    few, many = counts
    by_topic = 8 * (10 - 1) * FEW / PER_TOPIC
    last = "behind a response of the session"
    assert many[last] - few.pop(last) > by_topic, "the test shows a look at each partition"
    # Equal but for collisions of hashes, which are compared.
    assert all(many[name] - few[name] < FEW for name in ("a pause", "a resume")), counts
    assert all(many[name] - few[name] <= by_topic for name in few), counts


def test_a_turn_without_commits_and_look_ups_does_not_search_for_them() -> None:
    wide = Wide(FEW, group="g", enable_auto_commit=True, auto_commit_interval_ms=600_000)
    core = wide.core
    core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {})
    wide.turn()
    wide.settle("Metadata", wide.metadata())()
    core.polled(wide.now, handled=True)
    wide.turn()
    wide.turn()  # positions that this turn has compared with the metadata
    assert calls(lambda: core.commits.poll(wide.now)) <= 12
    assert calls(lambda: core.lookups.poll(wide.now)) <= 7


def test_committed_offsets_that_are_requested_again_are_sorted_out_in_proportion() -> None:
    counts = []
    for count in (FEW, MANY):
        wide = Wide(count, group="g")
        wide.core.assign(frozenset(wide.partitions), {}, {})
        wide.turn()
        wide.settle("FindCoordinator", FindCoordinatorResponse(error_code=0, node_id=1, host="b1", port=9092))()
        wide.settle("Metadata", wide.metadata())()
        wide.turn()
        topics = tuple(
            OffsetFetchResponseTopic(
                name=name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=UNSTABLE_OFFSET_COMMIT
                    )
                    for number in range(PER_TOPIC)
                ),
            )
            for name in wide.names
        )
        wide.step("all to be sent again", wide.settle("OffsetFetch", OffsetFetchResponse(error_code=0, topics=topics)))
        assert all(wide.core.positions.state(one).phase is FetchState.NEEDS_COMMITTED for one in wide.partitions)
        counts.append(wide.steps["all to be sent again"])
    assert counts[1] / counts[0] < 2.2


def test_an_iteration_takes_note_of_what_each_step_moved_only() -> None:
    """A step hands over one slice. With auto-commit, the step after it marks that slice as handled."""
    counts = []
    for count in (FEW, MANY):
        wide = Wide(count, group="g", enable_auto_commit=True)
        core = wide.core
        core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {})
        core.polled(0.0, handled=True)

        def iterate(core: ConsumerCore = core, partitions: list[TopicPartition] = wide.partitions) -> None:
            for partition in partitions:
                core.positions.consumed(partition, core.positions.state(partition).serial, 1)
                core.polled(0.0, handled=True)

        wide.step("iteration", iterate)
        assert core.book.uncommitted() == {one: OffsetAndMetadata(1) for one in wide.partitions}
        counts.append(wide.steps["iteration"])
    assert counts[1] / counts[0] < 2.2


def test_what_auto_commit_notes_is_what_a_copy_of_all_positions_would_be() -> None:
    chance = random.Random(7)
    core = Wide(FEW, group="g", enable_auto_commit=True).core
    partitions = [TopicPartition("t", number) for number in range(5)]
    for step in range(2_000):
        partition = chance.choice(partitions)
        owned = list(core.positions)
        match chance.randrange(7):
            case 0:
                core.assign(frozenset(chance.sample(partitions, 3)), {partition: step}, {})
            case 1 if partition in owned:
                core.seek(partition, step)
            case 2 if partition in owned:
                core.seek_by_time(partition, -1)
            case 3 if partition in owned:
                core.positions.fail(partition, KohortError("gone"), adrift=bool(step % 2))
            case 4 if partition in owned:
                core.positions.invalidate(partition)
            case 5:
                core.polled(0.0, handled=False)
            case _ if partition in owned:
                core.positions.consumed(partition, core.positions.state(partition).serial, step)
        if step % 3 == 0:
            core.polled(0.0, handled=True)
            assert core.book.uncommitted() == core.positions.snapshot()


@pytest.mark.parametrize("place", ["changes", "on_poll", "noted"])
def test_a_poll_that_is_interrupted_while_it_takes_note_takes_note_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = Wide(FEW, group="g", enable_auto_commit=True)
    core = wide.core
    core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 3), {})
    owner = core.book if place == "on_poll" else core.positions

    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            core.polled(0.0, handled=True)
    core.polled(0.0, handled=True)
    assert core.book.uncommitted() == {one: OffsetAndMetadata(3) for one in wide.partitions}
    assert core.positions.changes() == {}


def test_the_leaders_of_one_response_are_one_change_of_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a dictionary is no call, so copies of the view are counted here."""
    wide = Wide(FEW)
    wide.core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {})
    wide.turn()
    wide.settle("Metadata", wide.metadata())()
    wide.turn()
    changes, change = [], ClusterView.with_leaders
    monkeypatch.setattr(ClusterView, "with_leaders", lambda *args: changes.append(1) or change(*args))  # type: ignore[func-returns-value]
    leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=2)
    wide.settle("Fetch", wide.fetched(error_code=6, current_leader=leader))()
    assert len(changes) == 1


def test_paused_bytes_are_given_up_and_no_more_of_them_than_needed() -> None:
    wide = Wide(FEW, max_buffered_bytes=1000)
    wide.core.assign(frozenset(wide.partitions), dict.fromkeys(wide.partitions, 0), {})
    wide.turn()
    wide.settle("Metadata", wide.metadata())()
    wide.turn()
    wide.settle("Fetch", wide.fetched(records=BATCH))()
    parked = wide.core.fetcher.parked
    assert parked.total_bytes == sum(map(parked.bytes_of, parked)) == FEW * len(BATCH)
    wide.core.pause(frozenset(wide.partitions), (), None)
    wide.turn()
    assert parked.total_bytes == sum(map(parked.bytes_of, parked))
    assert 2000 - len(BATCH) < parked.total_bytes <= 2000
