"""The broker to fetch from, and the effect of a response: sessions, slices, budgets, errors, the barrier."""

import uuid
from types import MappingProxyType
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.errors import FetchFailed
from kohort.coordinator_client.fetch.fetcher import Fetcher, FetchOrder, FetchOutcome
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.coordinator_client.offsets.positions import FetchState, Positions
from kohort.fastpath import CorruptRecord, encode
from kohort.fastpath._fetch import slice_end
from kohort.network.errors import AuthorizationFailed
from kohort.network.metadata import BrokerNode, ClusterView, PartitionView, TopicView
from kohort.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

ID = uuid.UUID(int=1)
P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
WALL = 1_700_000_000_000


def batch(first: int, count: int = 3, size: int = 10) -> bytes:
    return encode(
        ((None, b"v" * size) for _ in range(count)), base_offset=first, timestamp_ms=1, partition_leader_epoch=4
    )


def cluster(leaders: dict[int, int] | None = None, epoch: int = 4) -> ClusterView:
    placed = {0: 1, 1: 1, 2: 2} if leaders is None else leaders
    partitions = {n: PartitionView(node, epoch, (node,), ()) for n, node in placed.items()}
    return ClusterView(
        brokers={n: BrokerNode(n, f"b{n}", 9092, None) for n in (1, 2, 3)},
        topics=MappingProxyType({"t": TopicView("t", ID, False, partitions)}),
    )


class Rig:
    """A fetcher with three partitions at offset 100, all allowed."""

    def __init__(self, policy: str = "earliest", **settings: Any) -> None:
        self.positions = Positions(ResetPolicy.of(policy))
        self.fetcher = Fetcher(ConsumerConfig.of(bootstrap="b:1", **settings), self.positions)
        self.view = cluster()
        self.paused: set[TopicPartition] = set()
        self.now = 0.0
        for partition in (P0, P1, P2):
            self.positions.assign(partition, start=100, has_group=False, wall_ms=WALL)

    def allowed(self, partition: TopicPartition) -> bool:
        return partition not in self.paused

    def owed(self) -> dict[int, FetchOrder]:
        return {one.node: one for one in self.fetcher.ready_requests(self.view, self.allowed, self.now)}

    def respond(self, node: int, *data: PartitionData, session: int = 77, code: int = 0, **more: Any) -> FetchOutcome:
        topics = (FetchableTopicResponse(topic_id=ID, partitions=data),) if data else ()
        response = FetchResponse(error_code=code, session_id=session, responses=topics, **more)
        return self.fetcher.on_response(node, response, self.view, now=self.now, wall_ms=WALL, chance=0.5)

    def take(self) -> Any:
        readable = {P0, P1, P2} - self.paused
        self.fetcher.parked.readmitted(readable)
        for partition in self.fetcher.parked.line():
            if taken := self.fetcher.next_slice(partition, readable):
                self.fetcher.parked.remove(taken, None)
                return taken
        return None


def data(number: int, records: bytes = b"", *, code: int = 0, **more: Any) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=code,
        high_watermark=1000,
        last_stable_offset=900,
        log_start_offset=50,
        records=records,
        **more,
    )


def requested(order: FetchOrder) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.topic, one.partition): one.fetch_offset
        for topic in order.request.topics
        for one in topic.partitions
    }


# --- slices


def test_the_end_of_a_slice_is_read_off_its_last_whole_batch() -> None:
    whole = batch(5) + batch(8, count=2)
    assert slice_end(memoryview(whole)).next_offset == 10
    assert slice_end(memoryview(whole)).leader_epoch == 4
    assert slice_end(memoryview(whole + batch(10)[:-1])).next_offset == 10  # a partial batch is for the next fetch
    assert slice_end(memoryview(batch(5)[:-1])).next_offset is None
    assert slice_end(memoryview(b"")).next_offset is None


@pytest.mark.proves("B-08")
@pytest.mark.parametrize("length", [-1, 0, 3, 2**31 - 1])
def test_lying_lengths_end_the_walk_and_not_the_process(length: int) -> None:
    lie = bytearray(batch(5))
    lie[8:12] = length.to_bytes(4, "big", signed=True)
    assert slice_end(memoryview(lie)).next_offset is None


# --- requests


def test_one_request_a_leader_with_what_is_known() -> None:
    rig = Rig()
    orders = rig.owed()
    assert {node: requested(order) for node, order in orders.items()} == {1: {P0: 100, P1: 100}, 2: {P2: 100}}
    assert rig.owed() == {}  # one in flight per broker
    one = orders[1].request.topics[0].partitions[0]
    assert (one.current_leader_epoch, one.partition_max_bytes) == (4, 8 << 20)
    assert orders[1].at_most is None


def test_without_topic_ids_the_version_is_capped() -> None:
    rig = Rig()
    nameless = TopicView("t", uuid.UUID(int=0), False, rig.view.topics["t"].partitions)
    rig.view = ClusterView(rig.view.brokers, {"t": nameless})
    assert rig.owed()[1].at_most == 12


def test_the_next_request_goes_on_behind_what_is_parked_before_it_is_decoded() -> None:
    rig = Rig()
    rig.owed()
    outcome = rig.respond(1, data(0, batch(100)))
    assert outcome.parked_bytes == len(batch(100))
    order = rig.owed()[1]
    assert requested(order) == {P0: 103}  # in the session only what changed is said
    taken = rig.take()
    assert (taken.partition, taken.start, taken.end, taken.leader_epoch) == (P0, 100, 103, 4)
    assert rig.take() is None


def test_partitions_take_turns() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)), data(1, batch(100)))
    rig.owed()
    rig.respond(1, data(0, batch(103)))
    assert [rig.take().partition for _ in range(3)] == [P0, P1, P0]


def test_without_a_session_what_brought_records_is_requested_last() -> None:
    """A broker fills its response in the order of the request (KIP-74): P1 would starve behind a busy P0."""
    rig = Rig()
    assert list(requested(rig.owed()[1])) == [P0, P1]
    rig.respond(1, data(0, batch(100)), data(1), session=0)
    assert list(requested(rig.owed()[1]).items()) == [(P1, 100), (P0, 103)]
    rig.respond(1, data(1, batch(100)), data(0, batch(103)), session=0)
    assert list(requested(rig.owed()[1]).items()) == [(P1, 103), (P0, 106)]
    rig.respond(1, session=0)
    assert list(requested(rig.owed()[1]).items()) == [(P1, 103), (P0, 106)]


def test_a_partition_that_has_enough_keeps_its_broker_waiting_and_no_other() -> None:
    rig = Rig(max_partition_fetch_bytes=100)
    rig.owed()
    rig.respond(1, data(0, batch(100, size=200)))
    assert rig.owed() == {}  # a request for P1 alone would wait at the broker while P0 runs dry
    rig.respond(2)
    assert set(rig.owed()) == {2}
    rig.take()
    assert requested(rig.owed()[1]) == {P0: 103}


@pytest.mark.proves("I13")
def test_the_budget_bounds_what_is_parked_and_in_flight() -> None:
    rig = Rig(max_buffered_bytes=1000, fetch_max_bytes=600, max_partition_fetch_bytes=600)
    assert len(rig.owed()) == 1  # 600 of 1000 are spoken for
    rig.respond(1, data(0, batch(100, size=150)))
    assert rig.owed() == {}  # 500 parked, 600 more would not fit
    rig.take()
    assert len(rig.owed()) == 1


@pytest.mark.proves("I13")
def test_a_budget_smaller_than_one_fetch_still_reads() -> None:
    rig = Rig(max_buffered_bytes=1, fetch_max_bytes=600)
    assert len(rig.owed()) == 1


@pytest.mark.proves("I13", "I14")
def test_brokers_take_turns_where_the_budget_has_no_room_for_all_of_them() -> None:
    rig = Rig(max_buffered_bytes=1200, fetch_max_bytes=600)
    rig.view = cluster({0: 1, 1: 2, 2: 3})
    first = set(rig.owed())
    assert first == {1, 2}
    rig.respond(1)
    assert set(rig.owed()) == {3}
    rig.fetcher.failed(2, now=rig.now, chance=0.5)
    assert set(rig.owed()) == {1}
    rig.now = 1.0
    rig.respond(3)
    assert set(rig.owed()) == {2}, "one that failed gets its turn like any other"


@pytest.mark.proves("I13")
@pytest.mark.parametrize(("budget_mib", "most_mib"), [(4, 1), (12, 2), (96, 8)])
def test_brokers_share_the_budget_so_that_none_waits_for_another(budget_mib: int, most_mib: int) -> None:
    rig = Rig(max_buffered_bytes=budget_mib << 20)
    rig.view = cluster({0: 1, 1: 2, 2: 3})
    assert {node: order.request.max_bytes for node, order in rig.owed().items()} == dict.fromkeys(
        (1, 2, 3), most_mib << 20
    )
    rig.respond(1, data(0, batch(100)))
    assert set(rig.owed()) == {1}, "buffered records leave room for the next request"


@pytest.mark.proves("K-09", "K-02")
def test_paused_data_stays_is_not_shown_and_goes_on_after_resume() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)), data(1, batch(100)))
    rig.paused = {P0}
    assert rig.take().partition == P1
    assert rig.take() is None
    order = rig.owed()[1]
    assert P0 not in requested(order)
    assert [one.partitions for one in order.request.forgotten_topics_data] == [(0,)]
    rig.paused = set()
    taken = rig.take()
    assert (taken.partition, taken.start) == (P0, 100)


@pytest.mark.proves("K-09", "I13")
def test_paused_bytes_are_bounded_too_and_fetched_again() -> None:
    rig = Rig(max_buffered_bytes=100, fetch_max_bytes=100, max_partition_fetch_bytes=100)
    rig.positions.drop(P2)
    rig.owed()
    rig.respond(1, data(0, batch(100, size=300)))
    rig.paused = {P0}
    rig.fetcher.trim(lambda partition: partition not in rig.paused)
    assert rig.fetcher.parked.total_bytes == 0
    rig.paused = set()
    assert rig.owed()[1].request.forgotten_topics_data == ()  # the session still has P0 at 100
    rig.respond(1, data(0, batch(100)))
    assert rig.take().start == 100


@pytest.mark.proves("K-09", "I13")
@pytest.mark.parametrize(("beyond", "kept"), [(0, True), (1, False)])
def test_paused_bytes_may_fill_two_buffers_and_no_byte_more(beyond: int, kept: bool) -> None:
    batches = (batch(100, size=size) for size in (300, 301))  # of an even and an odd number of bytes
    parked = next(one for one in batches if len(one) % 2 == beyond)
    rig = Rig(max_buffered_bytes=len(parked) // 2, fetch_max_bytes=100)
    rig.owed()
    rig.respond(1, data(0, parked))
    rig.fetcher.trim(lambda partition: False)
    assert rig.fetcher.parked.total_bytes == (len(parked) if kept else 0)


@pytest.mark.proves("K-09", "I13")
def test_what_is_not_paused_is_never_given_up_for_what_is() -> None:
    rig = Rig(max_buffered_bytes=100, fetch_max_bytes=100, max_partition_fetch_bytes=100)
    rig.owed()
    rig.respond(1, data(0, batch(100, size=300)), data(1, batch(100, size=300)))
    rig.paused = {P1}
    rig.fetcher.trim(lambda partition: partition not in rig.paused)
    assert [rig.fetcher.parked.bytes_of(one) for one in (P0, P1)] == [len(batch(100, size=300)), 0]


@pytest.mark.proves("K-09", "I12")
def test_what_was_under_way_when_paused_bytes_were_given_up_does_not_come_in_their_place() -> None:
    rig = Rig(max_buffered_bytes=1000, fetch_max_bytes=100)
    rig.owed()
    rig.respond(1, data(0, batch(100, size=200)))
    assert requested(rig.owed()[1]) == {P0: 103}
    rig.respond(2, data(2, batch(100, size=500)))
    rig.paused = {P0}
    rig.fetcher.trim(lambda partition: partition not in rig.paused)
    assert rig.fetcher.parked.bytes_of(P0) == 0
    rig.respond(1, data(0, batch(103)))
    rig.paused = set()
    assert rig.take().partition == P2
    assert rig.take() is None
    assert requested(rig.owed()[1]) == {P0: 100}


@pytest.mark.proves("I11")
def test_the_barrier_voids_what_was_fetched_before_a_seek() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)), data(1, batch(100)))
    rig.owed()
    rig.positions.seek(P0, 500)
    assert rig.take().partition == P1
    assert rig.take() is None  # what was parked of P0 is void
    rig.respond(1, data(0, batch(103)))
    assert rig.take() is None  # and so is what was in flight
    assert requested(rig.owed()[1])[P0] == 500


@pytest.mark.proves("I11")
def test_the_barrier_voids_what_was_fetched_for_a_partition_let_go_and_taken_again() -> None:
    rig = Rig()
    rig.owed()
    rig.positions.drop(P0)
    rig.fetcher.forget(P0)
    rig.positions.assign(P0, start=100, has_group=False, wall_ms=WALL)
    rig.respond(1, data(0, batch(100)))
    assert rig.take() is None


# --- responses


def test_ends_are_remembered_for_lag() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0))
    assert rig.fetcher.ends[P0] == (1000, 900, 50)


@pytest.mark.proves("S-02")
@pytest.mark.parametrize(("level", "end"), [("read_uncommitted", 1000), ("read_committed", 900)])
def test_the_end_that_lag_is_measured_to_is_the_last_that_can_be_read(level: str, end: int) -> None:
    rig = Rig(isolation_level=level)
    rig.owed()
    rig.respond(1, data(0))
    assert rig.fetcher.known_ends([P0, P1]) == {P0: end}
    assert rig.fetcher.fresh_ends({P0, P1}) == {P0: end}


@pytest.mark.proves("S-02")
def test_an_end_is_not_fresh_while_a_full_buffer_delays_the_next_request() -> None:
    rig = Rig(max_partition_fetch_bytes=100)
    rig.owed()
    rig.respond(2, data(2))
    rig.respond(1, data(0, batch(100, size=200)), data(1))
    assert set(rig.owed()) == {2}
    assert rig.fetcher.fresh_ends({P0, P1, P2}) == {P2: 1000}
    rig.take()
    assert set(rig.owed()) == {1}
    assert rig.fetcher.fresh_ends({P0, P1, P2}) == {P0: 1000, P1: 1000, P2: 1000}


@pytest.mark.proves("S-02")
def test_an_end_is_not_fresh_while_records_of_an_older_leader_delay_the_next_request() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)), data(1))
    rig.view = cluster(epoch=5)
    rig.owed()
    assert rig.fetcher.fresh_ends({P0, P1}) == {P1: 1000}
    taken = rig.take()
    assert rig.positions.consumed(P0, taken.serial, 103, taken.leader_epoch, taken.leader_epoch_at_fetch)
    rig.respond(1)
    rig.owed()
    assert rig.fetcher.fresh_ends({P0, P1}) == {P0: 1000, P1: 1000}


@pytest.mark.proves("S-02")
@pytest.mark.parametrize(("stable", "end"), [(-1, 1000), (0, 0), (1, 1)])
def test_a_broker_that_names_no_stable_end_is_measured_to_the_high_watermark(stable: int, end: int) -> None:
    rig = Rig(isolation_level="read_committed")
    rig.owed()
    rig.respond(1, data(0)._replace(last_stable_offset=stable))
    assert rig.fetcher.known_ends([P0]) == {P0: end}


@pytest.mark.proves("S-02")
def test_aborted_transactions_go_with_their_slice() -> None:
    rig = Rig(isolation_level="read_committed")
    assert rig.owed()[1].request.isolation_level == 1
    rig.respond(1, data(0, batch(100), aborted_transactions=(AbortedTransaction(producer_id=9, first_offset=100),)))
    assert rig.take().aborted == ((9, 100),)


@pytest.mark.proves("E-07")
@pytest.mark.parametrize("code", [6, 9, 56, 74, 78, 3, 100, 103])
def test_stale_metadata_is_refreshed_and_the_partition_waits(code: int) -> None:
    rig = Rig()
    rig.owed()
    assert rig.respond(1, data(0, code=code), data(1, batch(100))).stale
    assert P0 not in requested(rig.owed()[1])
    rig.respond(1)
    (rig.now,) = rig.fetcher.next_poll_at()
    assert requested(rig.owed()[1])[P0] == 100


@pytest.mark.proves("E-07")
@pytest.mark.parametrize("code", [75, -1])
def test_what_only_time_cures_is_asked_again_without_fresh_metadata(code: int) -> None:
    rig = Rig()
    rig.owed()
    assert not rig.respond(1, data(0, code=code)).stale
    assert rig.fetcher.next_poll_at() == [pytest.approx(0.1)]


@pytest.mark.proves("E-07")
def test_out_of_range_is_settled_by_the_policy() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, code=1))
    assert rig.positions.state(P0).phase is FetchState.NEEDS_RESET


@pytest.mark.proves("E-07", "I14")
@pytest.mark.parametrize("polled", [False, True], ids=["parked", "at the user's"])
def test_out_of_range_ahead_of_the_position_waits_for_it_and_is_no_spin(polled: bool) -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)))
    if polled:
        rig.take()
    rig.owed()
    assert not rig.respond(1, data(0, code=1)).stale
    assert rig.positions.state(P0).phase is FetchState.FETCHING
    assert P0 not in requested(rig.owed()[1]), "another request at once brings the same"
    rig.positions.consumed(P0, rig.positions.state(P0).serial, 103)
    rig.respond(1)
    rig.now = 1.0
    assert requested(rig.owed()[1])[P0] == 103
    rig.respond(1, data(0, code=1))
    assert rig.positions.state(P0).phase is FetchState.NEEDS_RESET


@pytest.mark.proves("E-07")
@pytest.mark.parametrize(
    ("code", "kind"), [(2, CorruptRecord), (29, AuthorizationFailed), (87, FetchFailed), (9999, FetchFailed)]
)
def test_what_no_retry_cures_names_partition_and_offset_and_others_go_on(code: int, kind: type[Exception]) -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, code=code), data(1, batch(100)))
    error = rig.positions.take_error()
    assert type(error) is kind
    assert {"topic": "t", "partition": 0, "offset": 100}.items() <= error.place.items()
    assert rig.take().partition == P1
    assert P0 not in requested(rig.owed()[1])  # never a spin


@pytest.mark.proves("E-07", "B-46")
@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_session_that_the_broker_lost_is_opened_again(code: int) -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)))
    rig.owed()
    outcome = rig.respond(1, code=code)
    assert not outcome.stale
    order = rig.owed()[1]
    # The broker forgets an old session that it still has (KIP-227).
    assert (order.request.session_id, order.request.session_epoch) == (0 if code == 70 else 77, 0)
    assert requested(order) == {P0: 103, P1: 100}


@pytest.mark.proves("B-46")
@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_broker_that_refuses_every_session_gets_no_requests_in_a_spin(code: int) -> None:
    rig = Rig()
    rig.owed()
    assert not rig.respond(1, code=code).stale
    assert 1 not in rig.owed(), "a new session was refused: a request for another at once would bring the same"
    rig.now = 0.2
    assert rig.owed()[1].request.session_epoch == 0
    rig.respond(1, data(0, batch(100)))
    rig.owed()
    rig.respond(1, code=code)
    assert rig.owed()[1].request.session_epoch == 0, "one that was given and lost costs no time"


def test_a_lost_connection_opens_a_new_session_after_a_while() -> None:
    rig = Rig()
    rig.owed()
    rig.fetcher.failed(1, now=0.0, chance=0.5)
    assert 1 not in rig.owed()
    rig.now = 0.2
    assert rig.owed()[1].request.session_epoch == 0


def test_leaders_that_moved_are_reported() -> None:  # KIP-951
    rig = Rig()
    rig.owed()
    outcome = rig.respond(
        1,
        data(0, code=6, current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=5)),
        node_endpoints=(NodeEndpoint(node_id=3, host="b3", port=9092, rack=None),),
    )
    assert outcome.leaders == [(P0, 3, 5)]
    assert outcome.brokers == [BrokerNode(3, "b3", 9092, None)]


@pytest.mark.proves("B-38")
def test_what_an_older_leader_gave_is_read_and_held_against_the_new_ones_log_before_anything_follows_it() -> None:
    rig = Rig()
    state = rig.positions.state(P0)
    assert rig.positions.owed_validations(rig.view, 0.0) == {}
    assert rig.positions.consumed(P0, state.serial, 100, 4, 4)
    rig.owed()
    rig.respond(1, data(0, batch(100)))
    rig.view = cluster(epoch=5)
    ((pending,),) = rig.positions.owed_validations(rig.view, 0.0).values()
    rig.positions.validated(pending, 101, 4, WALL)
    assert rig.positions.state(P0).phase is FetchState.FETCHING, "100 is in both logs"
    assert P0 not in requested(rig.owed()[1]), "103 may be in neither"
    taken = rig.take()
    assert rig.positions.consumed(P0, state.serial, 103, taken.leader_epoch, taken.leader_epoch_at_fetch)
    ((pending,),) = rig.positions.owed_validations(rig.view, 0.0).values()
    rig.positions.validated(pending, 101, 4, WALL)
    assert rig.positions.known_position(P0) == 101
    rig.respond(1)
    assert requested(rig.owed()[1])[P0] == 101


@pytest.mark.proves("E-07")
def test_a_follower_near_by_is_read_and_left_at_its_first_error() -> None:  # KIP-392
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, preferred_read_replica=2), data(1))
    rig.respond(2)
    assert P0 in requested(rig.owed()[2])
    rig.respond(1)
    rig.respond(2, data(0, code=1))
    assert rig.positions.state(P0).phase is FetchState.FETCHING  # only the leader's word counts
    rig.owed()
    rig.respond(1)
    rig.now = 0.2
    assert P0 in requested(rig.owed()[1])


def at_follower(**settings: Any) -> Rig:
    """P0 alone, led by 1, with a Fetch to follower 2 in flight."""
    rig = Rig(**settings)
    rig.positions.drop(P1)
    rig.positions.drop(P2)
    rig.view = led(1, 4)
    rig.owed()
    rig.respond(1, data(0, preferred_read_replica=2))
    assert set(rig.owed()) == {2}
    return rig


def led(leader: int, epoch: int, *offline: int) -> ClusterView:
    before = cluster()
    partitions = {0: PartitionView(leader, epoch, (1, 2, 3), offline)}
    return before._replace(topics={"t": before.topics["t"]._replace(partitions=partitions)})


LEASE_OVER_S = 301.0
REFUSED_BY_FOLLOWER = {
    "out of range": {"code": 1},
    "diverging": {"diverging_epoch": EpochEndOffset(epoch=3, end_offset=60)},
}


@pytest.mark.proves("E-07")
@pytest.mark.parametrize("refusal", REFUSED_BY_FOLLOWER)
@pytest.mark.parametrize(
    "between", ["nothing", "lease over", "offline", "leads now", "leads now, no epochs", "forgotten"]
)
def test_a_follower_never_puts_a_position_out_of_range(between: str, refusal: str) -> None:
    """The request goes to the leader instead, after any change of the follower since it was sent (KIP-392)."""
    rig = at_follower()
    if between == "lease over":
        rig.now = LEASE_OVER_S
    elif between == "offline":
        rig.view = led(1, 4, 2)
    elif between == "leads now":
        rig.view = led(2, 5)
    elif between == "leads now, no epochs":
        rig.view = led(2, 4)  # as brokers before 2.4 are understood: the same epoch, which says nothing
    elif between == "forgotten":
        rig.view = rig.view._replace(topics={})
    on_the_way = set(rig.owed())
    rig.respond(2, data(0, **REFUSED_BY_FOLLOWER[refusal]))  # type: ignore[arg-type]
    state = rig.positions.state(P0)
    assert (state.phase, state.offset) == (FetchState.FETCHING, 100)
    if between == "forgotten":
        return
    rig.now += 1.0
    leader = 2 if between.startswith("leads now") else 1
    assert on_the_way | set(rig.owed()) == {leader}
    rig.respond(leader, data(0, code=1))
    assert rig.positions.state(P0).phase is FetchState.NEEDS_RESET, "the leader's response counts"


@pytest.mark.proves("E-07")
@pytest.mark.parametrize("moved", [(2, 5), (1, 6), (2, 4)], ids=["to another", "away and back", "no epochs"])
def test_out_of_range_from_a_leader_that_has_moved_since_is_for_the_new_leader_to_say(moved: tuple[int, int]) -> None:
    rig = Rig()
    rig.view = led(1, 4)
    rig.owed()
    rig.view = led(*moved)
    rig.respond(1, data(0, code=1))
    assert rig.positions.state(P0).phase is FetchState.FETCHING
    rig.now = 1.0
    assert requested(rig.owed()[moved[0]])[P0] == 100
    rig.respond(moved[0], data(0, code=1))
    assert rig.positions.state(P0).phase is FetchState.NEEDS_RESET


@pytest.mark.proves("E-07")
@pytest.mark.parametrize("code", [2, 29, 87, 9999])
def test_what_a_follower_cannot_read_the_leader_may(code: int) -> None:
    rig = at_follower()
    rig.now = LEASE_OVER_S
    rig.owed()
    rig.respond(2, data(0, code=code))
    assert rig.positions.take_error() is None
    rig.respond(1, data(0, code=code))
    assert rig.positions.take_error() is not None


@pytest.mark.proves("E-07")
def test_a_follower_that_became_leader_and_is_none_any_more_is_left_for_the_new_one() -> None:
    rig = at_follower()
    rig.view = led(2, 5)
    rig.respond(2)
    assert set(rig.owed()) == {2}
    named = LeaderIdAndEpoch(leader_id=3, leader_epoch=6)
    rig.view = rig.view.with_leaders(rig.respond(2, data(0, code=6, current_leader=named)).leaders)
    rig.now = 1.0
    assert set(rig.owed()) == {3}


@pytest.mark.proves("E-07")
@pytest.mark.parametrize(("leader", "epoch", "judged"), [(3, 5, False), (3, 4, True), (1, 5, True), (-1, -1, True)])
def test_out_of_range_from_a_broker_that_names_a_newer_leader_is_not_the_leaders(
    leader: int, epoch: int, judged: bool
) -> None:
    rig = Rig()
    rig.owed()
    named = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    outcome = rig.respond(1, data(0, code=1, current_leader=named))
    assert (rig.positions.state(P0).phase is FetchState.NEEDS_RESET) == judged
    assert outcome.leaders == ([(P0, leader, epoch)] if leader >= 0 else [])


@pytest.mark.proves("B-25")
def test_a_follower_that_does_not_respond_is_left_for_the_leader() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, preferred_read_replica=2), data(1))
    rig.respond(2)
    assert P0 in requested(rig.owed()[2])
    rig.respond(1)
    rig.fetcher.failed(2, now=rig.now, chance=0.5)
    assert P0 in requested(rig.owed()[1])


@pytest.mark.proves("E-07", "I14")
def test_a_leader_that_sends_us_to_a_follower_that_sends_us_away_is_no_spin() -> None:
    rig = Rig()
    rig.positions.drop(P1)
    rig.positions.drop(P2)
    requests = 0
    while rig.now < 10.0:
        orders = rig.owed()
        requests += len(orders)
        if 1 in orders:
            rig.respond(1, data(0, preferred_read_replica=2))
        elif 2 in orders:
            rig.respond(2, data(0, code=56))
        else:
            rig.now = min(one for one in rig.fetcher.next_poll_at() if one > rig.now)
        assert requests < 50
    assert requests > 10
    rig.owed()
    rig.respond(1, data(0, batch(100)))
    assert P0 in requested(rig.owed()[1]), "what has worked costs no time"


@pytest.mark.proves("E-07", "I14")
@pytest.mark.parametrize("known", ["not at all", "offline"])
def test_a_follower_that_came_back_unseen_is_asked_about_and_waited_for(known: str) -> None:  # KIP-392
    rig = Rig()
    rig.positions.drop(P1)
    rig.positions.drop(P2)
    seen = rig.view
    if known == "offline":
        rig.view = seen._replace(
            topics={"t": seen.topics["t"]._replace(partitions={0: PartitionView(1, 4, (1, 2), offline=(2,))})}
        )
    else:
        rig.view = seen._replace(brokers={1: seen.brokers[1]})
    requests = 0
    while rig.now < 10.0:
        if 1 in rig.owed():
            requests += 1
            assert rig.respond(1, data(0, preferred_read_replica=2)).stale, "metadata can name its place"
        else:
            rig.now = min(one for one in rig.fetcher.next_poll_at() if one > rig.now)
        assert requests < 50, "the leader names it at once, in any response"
    rig.view = seen
    rig.owed()
    assert not rig.respond(1, data(0, preferred_read_replica=2)).stale
    assert P0 in requested(rig.owed()[2])


def test_a_diverging_epoch_in_the_response_is_truncation() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, diverging_epoch=EpochEndOffset(epoch=3, end_offset=60)))
    assert rig.positions.known_position(P0) == 60
    assert (rig.positions.state(P0).epoch, rig.positions.state(P0).validated) == (3, 4)


@pytest.mark.proves("B-15")
def test_bytes_without_a_whole_batch_are_parked_once_and_not_fetched_again_before_they_are_looked_at() -> None:
    rig = Rig()
    rig.owed()
    rig.respond(1, data(0, batch(100)[:-1]))
    assert 1 not in rig.owed()
    assert rig.take().end == 100


@pytest.mark.proves("I12")
def test_what_was_given_up_costs_no_other_partition_of_the_same_response() -> None:
    rig = Rig(max_buffered_bytes=1000, fetch_max_bytes=100)
    rig.owed()
    rig.respond(1, data(0, batch(100, size=200)))
    assert requested(rig.owed()[1]) == {P0: 103}
    rig.respond(2, data(2, batch(100, size=500)))
    rig.paused = {P0}
    rig.fetcher.trim(lambda partition: partition not in rig.paused)
    rig.respond(1, data(0, batch(103)), data(1, batch(100)))
    assert rig.fetcher.parked.bytes_of(P0) == 0
    assert rig.fetcher.parked.bytes_of(P1) == len(batch(100))


def test_a_session_whose_response_never_came_is_opened_again() -> None:
    rig = Rig()
    opening = rig.owed()[1].request
    rig.respond(1, data(0))
    following = rig.owed()[1].request
    assert (opening.session_epoch, following.session_id, following.session_epoch) == (0, 77, 1)
    rig.fetcher.failed(1, now=0.0, chance=0.5)
    rig.now = 10.0
    again = rig.owed()[1]
    assert again.request.session_epoch == 0
    assert requested(again) == {P0: 100, P1: 100}
    rig.fetcher.failed(99, now=0.0, chance=0.5)  # a node without a session
