"""The position of each partition: the walk from assigned to fetching, resets, validation, and the barrier."""

import uuid
from types import MappingProxyType

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client.errors import NoOffset, OffsetOutOfRange, Truncation
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.coordinator_client.offsets.commit_requests import AutoCommitState
from kohort.coordinator_client.offsets.positions import OUTSIDE, FetchState, ListOffsetsLookup, Positions
from kohort.network.backoff import FRESH, Backoff
from kohort.network.errors import IllegalState
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import BrokerNode, ClusterView, PartitionView, TopicView
from kohort.network.offset_requests import EARLIEST, LATEST, EpochLookup, ListedOffset, list_offsets_request
from kohort.protocol.errors import UnsupportedVersion

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
WALL = 1_700_000_000_000


def cluster(epoch: int = 3, leader: int = 1) -> ClusterView:
    partitions = {n: PartitionView(leader, epoch, (leader,), ()) for n in (0, 1)}
    return ClusterView(
        brokers={1: BrokerNode(1, "a", 1, None), 2: BrokerNode(2, "b", 2, None)},
        topics=MappingProxyType({"t": TopicView("t", uuid.UUID(int=1), False, partitions)}),
    )


def positions(policy: str = "earliest") -> Positions:
    return Positions(ResetPolicy.of(policy))


def fetching(policy: str = "earliest", offset: int = 10, epoch: int = 3) -> Positions:
    """P0 is read at `offset`, the last record read being of leader epoch `epoch`."""
    one = positions(policy)
    one.assign(P0, start=offset, has_group=True, wall_ms=WALL)
    one.owed_validations(cluster(epoch), 0.0)
    one.consumed(P0, one.state(P0).serial, offset, epoch)
    return one


def only_list(one: Positions, now: float = 0.0) -> ListOffsetsLookup:
    ((node, lookups),) = one.owed_lists(cluster(), now).items()
    assert node == 1
    (lookup,) = lookups
    return lookup


@pytest.mark.proves("S-01", "G-11")
def test_a_member_starts_where_the_group_committed() -> None:
    one = positions()
    one.assign(P0, start=None, has_group=True, wall_ms=WALL)
    assert one.owed_committed(cluster(), 0.0) == {P0: one.state(P0).serial}
    assert one.owed_committed(cluster(), 0.0) == {}  # requested once
    assert one.point(P0) is None
    one.committed(P0, OffsetAndMetadata(42), WALL)
    assert one.known_position(P0) == 42
    point = one.point(P0)
    assert point is not None
    assert point.offset == 42


@pytest.mark.proves("G-11")
@pytest.mark.parametrize(
    ("policy", "timestamp"), [("earliest", EARLIEST), ("latest", LATEST), ("by_duration:PT1S", WALL - 1000)]
)
def test_nothing_committed_goes_by_policy_and_is_reported(policy: str, timestamp: int) -> None:
    one = positions(policy)
    one.assign(P0, start=None, has_group=True, wall_ms=WALL)
    one.owed_committed(cluster(), 0.0)
    one.committed(P0, None, WALL)
    lookup = only_list(one)
    assert lookup.timestamp == timestamp
    one.listed(lookup, ListedOffset(7, -1, 3))
    assert one.known_position(P0) == 7
    (gap,) = one.take_gaps()
    assert (gap.partition, gap.wanted, gap.start) == (P0, None, 7)


@pytest.mark.proves("G-11")
def test_policy_none_raises_and_rests_until_a_seek() -> None:
    one = positions("none")
    one.assign(P0, start=None, has_group=True, wall_ms=WALL)
    one.owed_committed(cluster(), 0.0)
    one.committed(P0, None, WALL)
    error = one.take_error()
    assert isinstance(error, NoOffset)
    assert (error.place["topic"], error.place["partition"]) == ("t", 0)
    assert one.state(P0).phase is FetchState.FAILED
    assert one.owed_lists(cluster(), 9.0) == {}
    assert one.take_error() is None
    one.seek(P0, 5)
    assert one.known_position(P0) == 5


def test_no_record_as_late_as_a_time_means_the_end() -> None:
    one = positions("by_duration:PT1S")
    one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    lookup = only_list(one)
    one.listed(lookup, ListedOffset(-1, -1, -1))
    assert only_list(one).timestamp == LATEST


@pytest.mark.proves("B-40", "E-07")
def test_out_of_range_resets_by_policy_and_says_what_was_skipped() -> None:
    one = fetching("nearest", offset=10)
    one.out_of_range(P0, one.state(P0).serial, 10, 100, WALL)
    lookup = only_list(one)
    assert lookup.timestamp == EARLIEST
    one.listed(lookup, ListedOffset(100, -1, 3))
    (gap,) = one.take_gaps()
    assert gap.skipped == 90
    assert "below" in gap.reason


@pytest.mark.proves("E-07")
@pytest.mark.parametrize(("log", "start"), [((100, 200), 100), ((0, 7), 7)])
def test_nearest_finds_the_side_by_itself_where_the_broker_does_not_say(log: tuple[int, int], start: int) -> None:
    one = fetching("nearest", offset=10)
    one.out_of_range(P0, one.state(P0).serial, 10, None, WALL)
    for _ in range(2):
        if one.known_position(P0) is None:
            lookup = only_list(one)
            one.listed(lookup, ListedOffset(log[0] if lookup.timestamp == EARLIEST else log[1], -1, 3))
    assert one.known_position(P0) == start


@pytest.mark.proves("E-07")
@pytest.mark.parametrize(
    ("log_start", "requested", "reason"),
    [
        (None, EARLIEST, OUTSIDE),
        (-1, EARLIEST, OUTSIDE),
        (0, LATEST, "the position is above the log's end"),
        (10, LATEST, "the position is above the log's end"),
        (11, EARLIEST, "the position is below the log's start"),
    ],
)
def test_the_logs_start_says_on_which_side_a_position_lies(log_start: int | None, requested: int, reason: str) -> None:
    one = fetching("nearest", offset=10)
    one.out_of_range(P0, one.state(P0).serial, 10, log_start, WALL)
    lookup = only_list(one)
    assert (lookup.timestamp, one.state(P0).reason) == (requested, reason)


@pytest.mark.parametrize(
    ("offset", "timestamp", "is_one"),
    [
        (0, EARLIEST, True),
        (7, LATEST, True),
        (7, WALL, True),
        (-1, EARLIEST, False),
        (-1, LATEST, False),
        (-1, WALL, True),
    ],
)
def test_only_a_time_may_have_no_offset(offset: int, timestamp: int, is_one: bool) -> None:
    assert ListedOffset(offset, -1, -1).is_found(timestamp) is is_one


@pytest.mark.proves("E-07")
def test_out_of_range_is_ignored_when_the_position_has_moved() -> None:
    one = fetching(offset=10)
    serial = one.state(P0).serial
    one.seek(P0, 20)
    one.out_of_range(P0, serial, 10, 100, WALL)
    assert one.known_position(P0) == 20


@pytest.mark.proves("E-07")
def test_out_of_range_without_policy_is_an_error_with_its_offset() -> None:
    one = fetching("none", offset=10)
    one.out_of_range(P0, one.state(P0).serial, 10, 100, WALL)
    error = one.take_error()
    assert isinstance(error, OffsetOutOfRange)
    assert error.place["offset"] == 10


def test_what_was_requested_before_a_seek_is_void() -> None:
    one = positions("earliest")
    one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    lookup = only_list(one)
    one.seek(P0, 99)
    one.listed(lookup, ListedOffset(0, -1, 3))
    assert one.known_position(P0) == 99
    one.assign(P1, start=None, has_group=True, wall_ms=WALL)
    one.owed_committed(cluster(), 0.0)
    one.seek(P1, 5)
    one.committed(P1, OffsetAndMetadata(1), WALL)
    assert one.known_position(P1) == 5


def test_consumed_moves_only_under_its_serial_and_never_back() -> None:
    one = fetching(offset=10)
    serial = one.state(P0).serial
    assert one.consumed(P0, serial, 15, 3)
    assert one.known_position(P0) == 15
    assert one.consumed(P0, serial, 12, 3)
    assert one.known_position(P0) == 15
    one.seek(P0, 3)
    assert not one.consumed(P0, serial, 99, 3)
    assert one.known_position(P0) == 3
    one.drop(P0)
    assert not one.consumed(P0, serial, 99, 3)


def test_a_retry_waits_for_its_backoff() -> None:
    one = positions("earliest")
    one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    only_list(one)
    one.lookup_failed([P0], FRESH.failed(1.0, Backoff(100, 100, 0), 0.5))
    assert one.owed_lists(cluster(), 1.05) == {}
    assert one.next_poll_at() == [1.1]
    assert only_list(one, 1.1).partition == P0


def test_partitions_without_a_leader_wait() -> None:
    one = positions("earliest")
    one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    assert one.owed_lists(cluster(leader=9), 0.0) == {}
    assert only_list(one).partition == P0


def test_only_assigned_partitions_have_a_state() -> None:
    with pytest.raises(IllegalState):
        positions().seek(P0, 1)
    with pytest.raises(IllegalState):
        positions().known_position(P0)


# --- KIP-320


def only_epoch(one: Positions, view: ClusterView) -> EpochLookup:
    ((_node, lookups),) = one.owed_validations(view, 0.0).items()
    (lookup,) = lookups
    return lookup


@pytest.mark.proves("B-38", "E-08")
def test_a_new_leader_gets_the_request_and_agreement_reads_on() -> None:
    one = fetching(offset=10, epoch=3)
    assert one.owed_validations(cluster(epoch=3), 0.0) == {}
    lookup = only_epoch(one, cluster(epoch=4, leader=2))
    assert (lookup.epoch, lookup.leader_epoch) == (3, 4)
    assert one.point(P0) is None  # nothing is fetched meanwhile
    one.validated(lookup, 10, 3, WALL)
    assert one.known_position(P0) == 10
    assert one.point(P0) is not None
    assert one.owed_validations(cluster(epoch=4, leader=2), 0.0) == {}


@pytest.mark.proves("B-38", "E-08")
def test_a_shorter_log_is_truncation_by_policy_or_error() -> None:
    by_policy = fetching("earliest", offset=10)
    by_policy.validated(only_epoch(by_policy, cluster(epoch=4)), 6, 3, WALL)
    assert by_policy.known_position(P0) == 6
    (gap,) = by_policy.take_gaps()
    assert (gap.wanted, gap.start) == (10, 6)
    strict = fetching("none", offset=10)
    strict.validated(only_epoch(strict, cluster(epoch=4)), 6, 3, WALL)
    error = strict.take_error()
    assert isinstance(error, Truncation)
    assert (error.place["offset"], error.place["diverges_at"]) == (10, 6)
    assert error.message == "the log was cut behind the position"


@pytest.mark.proves("B-38", "E-08")
@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_what_was_committed_behind_a_truncation_counts_no_more(policy: str) -> None:
    book = AutoCommitState(5.0)
    book.known({P0: OffsetAndMetadata(10)})
    book.on_poll({P0: OffsetAndMetadata(11)})
    one = Positions(ResetPolicy.of(policy), gone=book.drop)
    one.assign(P0, start=10, has_group=True, wall_ms=WALL)
    one.diverged(P0, one.state(P0).serial, 6, 2, 3, WALL)
    assert book.backward_commits({P0: OffsetAndMetadata(7)}) == {}
    assert book.uncommitted() == {}


@pytest.mark.proves("B-38", "E-08")
@pytest.mark.parametrize("response", [(12, 3), (-1, -1)])
def test_a_response_about_an_epoch_that_was_left_meanwhile_is_no_truncation(response: tuple[int, int]) -> None:
    one = fetching("none", offset=10, epoch=3)
    first = only_epoch(one, cluster(epoch=5))
    assert first.epoch == 3
    # 12 to 15 are of epoch 4, and had been fetched before the leader of epoch 5 was known.
    assert one.consumed(P0, one.state(P0).serial, 16, 4)
    one.validated(first, *response, WALL)
    assert one.take_error() is None
    assert one.known_position(P0) == 16
    assert one.point(P0) is None  # epoch 4 has not been requested yet
    again = only_epoch(one, cluster(epoch=5))
    assert again.epoch == 4
    one.validated(again, 16, 4, WALL)
    assert one.point(P0) is not None


@pytest.mark.proves("B-38", "E-08")
def test_what_is_read_on_into_the_new_leaders_epoch_needs_no_response() -> None:
    one = fetching("none", offset=10, epoch=3)
    lookup = only_epoch(one, cluster(epoch=5))
    assert one.consumed(P0, one.state(P0).serial, 16, 5)
    one.validated(lookup, 12, 3, WALL)
    assert one.owed_validations(cluster(epoch=5), 0.0) == {}
    assert one.point(P0) is not None
    assert one.take_error() is None


@pytest.mark.proves("B-38")
@pytest.mark.parametrize("response", [(9, 3), (10, 3)], ids=["one record less", "as many records"])
def test_a_log_that_is_shorter_by_exactly_one_record_is_truncation(response: tuple[int, int]) -> None:
    one = fetching("earliest", offset=10)
    one.validated(only_epoch(one, cluster(epoch=4)), *response, WALL)
    assert one.known_position(P0) == response[0]
    assert len(one.take_gaps()) == 10 - response[0]


@pytest.mark.proves("B-38", "G-11")
@pytest.mark.parametrize("response", [(-1, -1), (-1, 3), (7, -1)])
@pytest.mark.parametrize(
    ("policy", "timestamp"),
    [("earliest", EARLIEST), ("latest", LATEST), ("nearest", EARLIEST), ("by_duration:PT1S", WALL - 1000)],
)
def test_an_epoch_that_the_leader_does_not_know_is_reset_by_policy(
    policy: str, timestamp: int, response: tuple[int, int]
) -> None:
    gone: list[TopicPartition] = []
    one = Positions(ResetPolicy.of(policy), gone=gone.append)
    one.assign(P0, start=None, has_group=True, wall_ms=WALL)
    one.owed_committed(cluster(), 0.0)
    one.committed(P0, OffsetAndMetadata(10, 7), WALL)
    one.validated(only_epoch(one, cluster(epoch=3)), *response, WALL)
    assert one.take_error() is None
    assert gone == [P0], "what was committed in the other log may be committed over"
    lookup = only_list(one)
    assert lookup.timestamp == timestamp
    one.listed(lookup, ListedOffset(2, -1, 3))
    assert one.known_position(P0) == 2, "nothing is skipped where nothing is known"
    (gap,) = one.take_gaps()
    assert (gap.wanted, gap.start) == (10, 2)
    assert "epoch" in gap.reason


@pytest.mark.proves("B-38", "G-11")
def test_an_epoch_that_the_leader_does_not_know_is_truncation_without_a_policy() -> None:
    one = fetching("none", offset=10)
    one.validated(only_epoch(one, cluster(epoch=4)), -1, -1, WALL)
    error = one.take_error()
    assert isinstance(error, Truncation)
    assert (error.place["offset"], error.place["leader_epoch"]) == (10, 3)
    assert "diverges_at" not in error.place
    assert error.message == "the leader's log does not contain the leader epoch of the position"
    assert one.known_position(P0) is None
    one.seek(P0, 4)
    assert one.point(P0) is not None


# --- epochs that brokers name beside an offset are kept, so that the next truncation is found


def truncated_again(one: Positions, *, from_epoch: int, requested: int) -> None:
    """A leader of `from_epoch + 1` has a log that is cut further: the request to it is for the epoch `requested`."""
    before = one.known_position(P0)
    assert before is not None
    lookup = only_epoch(one, cluster(epoch=from_epoch + 1))
    assert (lookup.epoch, lookup.leader_epoch) == (requested, from_epoch + 1)
    assert one.point(P0) is None, "nothing is fetched before the leader has responded"
    one.validated(lookup, before - 1, requested, WALL)
    assert one.known_position(P0) == before - 1
    assert one.take_gaps()[-1][1:3] == (before, before - 1)


@pytest.mark.proves("B-38", "E-08")
def test_a_truncation_that_follows_a_truncation_is_found() -> None:
    one = fetching("latest", offset=120, epoch=5)
    one.validated(only_epoch(one, cluster(epoch=6)), 110, 4, WALL)
    assert one.position_with_epoch(P0, cluster(epoch=6))[:2] == (110, 4)  # type: ignore[index]
    assert one.owed_validations(cluster(epoch=6), 0.0) == {}, "this leader has said already"
    truncated_again(one, from_epoch=6, requested=4)
    truncated_again(one, from_epoch=7, requested=4)


@pytest.mark.proves("B-38", "E-08")
def test_a_truncation_that_follows_a_diverging_epoch_is_found() -> None:
    one = fetching("latest", offset=120, epoch=5)
    one.owed_validations(cluster(epoch=5), 0.0)
    one.diverged(P0, one.state(P0).serial, 110, 4, 5, WALL)
    assert one.known_position(P0) == 110
    truncated_again(one, from_epoch=5, requested=4)


@pytest.mark.proves("B-38", "E-08")
@pytest.mark.parametrize("how", ["no offset", "out of range", "seek"])
@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST, WALL - 1000])
def test_a_truncation_that_follows_a_reset_is_found(how: str, timestamp: int) -> None:
    policy = {EARLIEST: "earliest", LATEST: "latest"}.get(timestamp, "by_duration:PT1S")
    one = fetching(policy, offset=10)
    if how == "seek":
        one.seek_by_time(P0, timestamp)
    elif how == "out of range":
        one.out_of_range(P0, one.state(P0).serial, 10, None, WALL)
    else:
        one.drop(P0)
        one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    lookup = only_list(one)
    assert lookup.timestamp == timestamp
    one.listed(lookup, ListedOffset(50, -1, 2))
    assert one.snapshot() == {P0: OffsetAndMetadata(50, 2)}, "and the next owner finds it by the commit"
    truncated_again(one, from_epoch=3, requested=2)


def test_an_offset_that_a_leader_named_is_not_validated_by_that_leader() -> None:
    one = positions("earliest")
    one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    one.listed(only_list(one), ListedOffset(50, -1, 2))
    assert one.owed_validations(cluster(epoch=3), 0.0) == {}
    assert one.point(P0) is not None


def test_an_offset_that_a_broker_names_without_an_epoch_is_read_without_validation() -> None:
    """Brokers before 2.1."""
    one = positions("earliest")
    one.assign(P0, start=None, has_group=False, wall_ms=WALL)
    one.listed(only_list(one), ListedOffset(50, -1, -1))
    assert one.owed_validations(cluster(epoch=4), 0.0) == {}
    assert one.point(P0) is not None


@pytest.mark.proves("B-38", "E-08")
def test_a_truncation_that_follows_a_committed_offset_is_found() -> None:
    one = positions("latest")
    one.assign(P0, start=None, has_group=True, wall_ms=WALL)
    one.owed_committed(cluster(), 0.0)
    one.committed(P0, OffsetAndMetadata(42, 2), WALL)
    one.validated(only_epoch(one, cluster(epoch=3)), 42, 2, WALL)
    assert one.point(P0) is not None
    truncated_again(one, from_epoch=3, requested=2)


@pytest.mark.parametrize("end_offset", [10, 12])
def test_a_divergence_beyond_the_position_voids_what_was_fetched_and_moves_nothing(end_offset: int) -> None:
    one = fetching("earliest", offset=10)
    serial = one.state(P0).serial
    one.diverged(P0, serial, end_offset, 3, 3, WALL)
    assert one.known_position(P0) == 10
    assert one.take_gaps() == []
    assert one.state(P0).serial != serial


# --- what comes late


@pytest.mark.proves("I11")
@pytest.mark.parametrize("order", ["old first", "old last"])
def test_a_list_offsets_response_for_an_earlier_seek_is_void(order: str) -> None:
    """`seek_to_end`, then `seek_to_beginning` while the first request is in flight: the same phase under another
    serial."""
    one = fetching("none", offset=10)
    one.seek_by_time(P0, LATEST)
    first = only_list(one)
    one.seek_by_time(P0, EARLIEST)
    second = only_list(one)
    responses = [(first, ListedOffset(500, -1, 3)), (second, ListedOffset(0, -1, 3))]
    for lookup, found in responses if order == "old first" else reversed(responses):
        one.listed(lookup, found)
    assert one.known_position(P0) == 0


@pytest.mark.proves("I11")
def test_a_list_offsets_response_for_an_earlier_seek_leaves_the_later_one_in_flight() -> None:
    one = fetching("none", offset=10)
    one.seek_by_time(P0, LATEST)
    first = only_list(one)
    one.seek_by_time(P0, EARLIEST)
    one.listed(first, ListedOffset(500, -1, 3))
    assert one.known_position(P0) is None
    assert only_list(one).timestamp == EARLIEST


@pytest.mark.proves("B-38", "I11")
def test_a_validation_whose_response_comes_while_a_reset_is_in_flight_changes_nothing() -> None:
    one = fetching("earliest", offset=10)
    lookup = only_epoch(one, cluster(epoch=4))
    one.seek_by_time(P0, LATEST)
    listing = only_list(one)
    one.validated(lookup, 6, 3, WALL)
    assert one.take_gaps() == []
    one.listed(listing, ListedOffset(80, -1, 4))
    assert one.known_position(P0) == 80


def test_a_broker_too_old_to_be_asked_is_read_from_all_the_same() -> None:
    one = fetching(offset=10)
    one.take_as_valid(only_epoch(one, cluster(epoch=4)))
    assert one.point(P0) is not None


def test_a_committed_offset_of_this_very_epoch_needs_no_request() -> None:
    one = positions()
    one.assign(P0, start=None, has_group=True, wall_ms=WALL)
    one.owed_committed(cluster(), 0.0)
    one.committed(P0, OffsetAndMetadata(42, 3), WALL)
    assert one.owed_validations(cluster(epoch=3), 0.0) == {}
    assert one.point(P0) is not None


# --- what brokers support


@pytest.mark.parametrize(("timestamp", "least"), [(LATEST, 1), (EARLIEST, 1), (1_000, 1), (-3, 7), (-4, 8), (-5, 9)])
def test_offsets_are_requested_in_versions_that_know_what_is_meant(timestamp: int, least: int) -> None:
    build = list_offsets_request([(P0, timestamp, -1)], read_committed=False, timeout_ms=1)
    assert build(least).topics[0].partitions[0].timestamp == timestamp
    with pytest.raises(UnsupportedVersion, match="does not support this special timestamp"):
        build(least - 1)


# --- commits


@pytest.mark.proves("S-04")
def test_auto_commit_knows_only_what_earlier_polls_returned() -> None:
    book = AutoCommitState(5.0)
    book.on_poll({P0: OffsetAndMetadata(10)})  # a poll begins: what is in hand up to 10 is handled
    assert book.due(1.0) == {P0: OffsetAndMetadata(10)}
    assert book.due(2.0) == {}  # not yet time
    book.known({P0: OffsetAndMetadata(10)})
    assert book.due(6.0) == {}  # nothing has moved
    book.on_poll({P0: OffsetAndMetadata(20)})
    assert book.due(11.0) == {P0: OffsetAndMetadata(20)}
    book.drop(P0)
    assert book.uncommitted() == {}


@pytest.mark.proves("S-04")
def test_auto_commit_stores_an_unchanged_offset_again_before_brokers_expire_it() -> None:
    book = AutoCommitState(5.0)
    assert book.due(0.0) == {}
    book.known({P0: OffsetAndMetadata(10)})  # of an earlier consumer: its age is unknown
    book.on_poll({P0: OffsetAndMetadata(10), P1: OffsetAndMetadata(4)})
    stored: list[tuple[int, set[TopicPartition]]] = []
    for now in range(5, 1_100, 5):
        book.on_poll({P1: OffsetAndMetadata(4 + now // 200)})
        if due := book.due(float(now)):
            book.renewed(due)
            stored.append((now, set(due)))
    assert [now for now, due in stored if P0 in due] == [300, 900]
    assert [now for now, due in stored if P1 in due] == [5, 200, 400, 600, 800, 1_000]
    book.drop(P0)
    book.on_poll({P0: OffsetAndMetadata(10)})
    book.known({P0: OffsetAndMetadata(10)})
    assert book.unrenewed().keys() == {P0}, "what is assigned again was stored in another place"


@pytest.mark.proves("S-04")
def test_a_commit_of_the_caller_replaces_what_earlier_polls_have_reached() -> None:
    book = AutoCommitState(5.0)
    book.on_poll({P0: OffsetAndMetadata(10)})
    book.on_commit({P0: OffsetAndMetadata(20, 3, "mine"), P1: OffsetAndMetadata(7)})
    assert book.uncommitted() == {P0: OffsetAndMetadata(20, 3)}, "it is due if the caller's commit fails"
    book.renewed({P0: OffsetAndMetadata(20, 3, "mine")})
    assert book.uncommitted() == book.due(1.0) == {}
    book.on_poll({P0: OffsetAndMetadata(15)})  # after a seek
    assert book.uncommitted() == {P0: OffsetAndMetadata(15)}


def test_auto_commit_forgets_a_position_that_is_not_known_any_more() -> None:
    book = AutoCommitState(5.0)
    book.on_poll({P0: OffsetAndMetadata(10), P1: OffsetAndMetadata(4)})
    book.on_poll({P0: None, P1: OffsetAndMetadata(5)})
    assert book.uncommitted() == {P1: OffsetAndMetadata(5)}


def test_changes_are_named_until_they_are_noted() -> None:
    one = Positions(ResetPolicy.of("earliest"))
    one.assign(P0, start=10, has_group=True, wall_ms=WALL)
    one.assign(P1, start=None, has_group=True, wall_ms=WALL)
    for _ in range(2):
        changes = one.changes()
        assert changes == {P0: OffsetAndMetadata(10), P1: None}
    one.noted(changes)
    assert one.changes() == {}
    one.consumed(P0, one.state(P0).serial, 12)
    assert one.changes() == {P0: OffsetAndMetadata(12)}
    one.drop(P0)
    assert one.changes() == {}, "what has left is no change, and takes no memory"


def test_without_auto_commit_nothing_is_committed_by_itself() -> None:
    book = AutoCommitState(None)
    book.on_poll({P0: OffsetAndMetadata(10)})
    assert book.due(99.0) == {}
    assert book.uncommitted() == {}


def test_a_rewind_is_noticed() -> None:
    book = AutoCommitState(None)
    book.known({P0: OffsetAndMetadata(10)})
    assert book.backward_commits({P0: OffsetAndMetadata(9), P1: OffsetAndMetadata(0)}) == {P0: 10}
    assert book.backward_commits({P0: OffsetAndMetadata(10)}) == {}
