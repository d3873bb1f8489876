"""Commits on their way: in order, fenced, held across a rebalance, and never reported as what they were not."""

import gc
import sys
import weakref
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.errors import RebalanceInProgress, TopicRecreated
from kohort.coordinator_client.group.ready import MemberView
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.offsets.fenced_commit_queue import Commit, CommitQueue
from kohort.coordinator_client.subscription_state import AssignedPartitions, Owned
from kohort.network.backoff import Backoff
from kohort.network.errors import AuthorizationFailed, CommitFailed, OperationTimeout, UnknownTopic
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata_refresh import MetadataRefresher, WantedTopics
from kohort.network.offset_requests import plain
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.errors import BrokerError

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ME = ConsumerGroupMetadata("g", 5, "m")
OUTSIDE = ConsumerGroupMetadata("g")
VIEW = MemberView(
    state=MemberState.STABLE,
    since=0.0,
    coordinator=None,
    identity=ME,
    held=ME,
    assignment=AssignedPartitions(1, {P0: Owned(1), P1: Owned(1), U0: Owned(1)}),
    fetchable=frozenset({P0, P1}),
    ownership_deadline=float("inf"),
    commits_open=True,
    last_beat_at=None,
    fatal=None,
)


class Rig:
    def __init__(self) -> None:
        self.metadata = MetadataRefresher(Backoff(100, 1000, 0), 300.0)
        self.committer = CommitQueue("g", Backoff(100, 1000, 0), self.metadata, self.settled)
        self.names: dict[Commit, str] = {}
        self.ended: list[tuple[str, KohortError | None]] = []
        self.now = 0.0
        self.view: MemberView | None = VIEW

    def put(self, name: str, offsets: dict[TopicPartition, int], **more: Any) -> Commit:
        commit = Commit(
            {one: OffsetAndMetadata(to) for one, to in offsets.items()},
            {P0: 1, P1: 1, U0: 1},
            deadline=60.0,
            **more,
        )
        self.names[commit] = name
        self.committer.put(commit)
        return commit

    def settled(self, commit: Commit, error: KohortError | None) -> None:
        self.ended.append((self.names.get(commit, ""), error))

    def request_metadata(self) -> frozenset[str]:
        """Have Metadata requested; the topics that it names."""
        make = self.metadata.next_request(self.now)
        assert make is not None, "no metadata is wanted"
        return frozenset(str(topic.name) for topic in make().topics or ())

    def metadata_came(self, topics: dict[str, tuple[int, int]], **refused: int) -> None:
        """`topics`: name -> (number in the topic id, partitions); `refused`: name -> code."""
        found = tuple(
            MetadataResponseTopic(
                error_code=0,
                name=name,
                topic_id=UUID(int=number),
                partitions=tuple(MetadataResponsePartition(partition_index=one, leader_id=1) for one in range(count)),
            )
            for name, (number, count) in topics.items()
        )
        gone = tuple(MetadataResponseTopic(error_code=code, name=name) for name, code in refused.items())
        brokers = (MetadataResponseBroker(node_id=1, host="b", port=1),)
        self.metadata.on_response(MetadataResponse(brokers=brokers, topics=found + gone), self.now, 0.5)

    def know(self, number: int = 1, count: int = 2) -> None:
        """Topic t is read, and known."""
        self.metadata.set_topics(WantedTopics(frozenset({"t"})))
        self.request_metadata()
        self.metadata_came({"t": (number, count)})

    def owed(self) -> Any:
        return self.committer.ready_requests(self.view, self.now)

    def sent(self) -> dict[TopicPartition, int]:
        request = self.owed()
        assert request is not None, "nothing is owed"
        return {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for topic in request.topics
            for one in topic.partitions
        }

    def respond(self, codes: dict[TopicPartition, int]) -> dict[int, frozenset[TopicPartition]]:
        topics = tuple(
            OffsetCommitResponseTopic(
                name=one.topic,
                partitions=(OffsetCommitResponsePartition(partition_index=one.partition, error_code=code),),
            )
            for one, code in codes.items()
        )
        reported = self.committer.on_response(OffsetCommitResponse(topics=topics))
        self.committer.complete(self.view, self.now, 0.5)
        return reported


def test_a_commit_carries_its_member_and_ends_well() -> None:
    rig = Rig()
    rig.put("one", {P0: 7})
    request = rig.owed()
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 5, "m")
    assert rig.owed() is None  # one at a time
    rig.respond({P0: 0})
    assert rig.ended == [("one", None)]
    assert rig.committer.ledger[-1].offsets == {P0: OffsetAndMetadata(7)}
    assert rig.committer.ledger[-1].generation == 5


@pytest.mark.proves("E-05")
def test_what_is_retried_goes_out_as_the_member_that_it_is_then() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.respond({P0: 14})
    rig.view, rig.now = VIEW._replace(identity=ME._replace(generation=6)), 0.2
    assert rig.owed().generation_id_or_member_epoch == 6


@pytest.mark.proves("E-05")
def test_what_the_member_ordered_is_retried_though_it_has_gone_meanwhile() -> None:
    rig = Rig()
    rig.put("ordered", {P0: 1}, identity=ME, order=1)
    assert rig.sent() == {P0: 1}
    rig.view = None
    rig.respond({P0: 14})
    rig.now = 0.2
    assert rig.owed().generation_id_or_member_epoch == ME.generation


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("fatal", [None, KohortError("another has the instance id")], ids=["alive", "failed"])
@pytest.mark.parametrize("code", [12, 82])
def test_a_fenced_commit_ends_with_what_ended_the_member(code: int, fatal: KohortError | None) -> None:
    rig = Rig()
    rig.put("one", {P0: 7})
    rig.sent()
    rig.view = VIEW._replace(fatal=fatal)
    rig.respond({P0: code})
    ((_, error),) = rig.ended
    if code == 82 and fatal is not None:
        assert error is fatal
    else:
        assert isinstance(error, BrokerError)
        assert error.code == code


@pytest.mark.proves("S-08")
def test_commits_end_in_the_order_in_which_they_were_made() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    assert rig.sent() == {P0: 1}
    rig.put("two", {P0: 2})
    rig.respond({P0: 14})  # the first has to be tried again; the second may not overtake it
    assert rig.owed() is None
    rig.now = 0.2
    assert rig.sent() == {P0: 1}
    rig.respond({P0: 0})
    assert rig.sent() == {P0: 2}
    rig.respond({P0: 0})
    assert rig.ended == [("one", None), ("two", None)]


@pytest.mark.proves("E-05", "B-21")
@pytest.mark.parametrize("code", [3, 14, 15, 16, 7])
def test_what_a_retry_cures_is_retried(code: int) -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    assert rig.respond({P0: code}) == {code: {P0}}
    rig.now = 0.2
    assert rig.sent() == {P0: 1}
    assert rig.ended == []


@pytest.mark.proves("B-23")
def test_a_lost_response_is_requested_again_and_at_the_deadline_is_unknown_not_success() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.committer.unanswered(0.0, 0.5)
    rig.now = 0.2
    rig.sent()
    rig.committer.expire(60.0)
    ((_, error),) = rig.ended
    assert isinstance(error, OperationTimeout)
    assert "unknown" in str(error)
    assert rig.committer.on_response(OffsetCommitResponse()) == {}  # what still comes has no owner


@pytest.mark.proves("E-05")
@pytest.mark.parametrize(
    ("code", "kind"), [(12, BrokerError), (28, BrokerError), (29, AuthorizationFailed), (30, AuthorizationFailed)]
)
def test_what_no_retry_cures_is_raised_with_its_partition(code: int, kind: type[KohortError]) -> None:
    rig = Rig()
    rig.put("one", {P0: 1, P1: 2})
    rig.sent()
    rig.respond({P0: 0, P1: code})
    ((_, error),) = rig.ended
    assert type(error) is kind
    assert error.place["partition"] == 1
    assert [entry.offsets for entry in rig.committer.ledger] == [{P0: OffsetAndMetadata(1)}, {}]


@pytest.mark.proves("E-05", "S-12")
@pytest.mark.parametrize("code", [22, 25])
def test_a_group_that_went_on_without_us_fails_the_commit_for_good(code: int) -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(identity=OUTSIDE, state=MemberState.LOSING)
    rig.respond({P0: code})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert not isinstance(error, RebalanceInProgress)


@pytest.mark.proves("E-05")
def test_a_commit_that_a_rebalance_overtook_is_held_and_sent_again_for_what_is_kept() -> None:
    rig = Rig()
    rig.put("one", {P0: 1, P1: 2})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.respond({P0: 27, P1: 27})
    assert rig.owed() is None
    assert rig.ended == []
    moved = AssignedPartitions(2, {P0: Owned(1)})  # P1 went to another member
    rig.view = VIEW._replace(identity=ME._replace(generation=6), assignment=moved)
    request = rig.owed()
    assert request.generation_id_or_member_epoch == 6
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in request.topics] == [("t", [0])]
    rig.respond({P0: 0})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert error.place["partition"] == 1


@pytest.mark.proves("S-08", "E-05")
def test_what_a_rebalance_overtook_is_sent_again_in_the_order_in_which_it_was_made() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.respond({P0: 22})
    rig.put("two", {P0: 2})
    while rig.owed() is not None:
        rig.respond({P0: 22})
    rig.view = VIEW._replace(identity=ME._replace(generation=6))
    assert rig.sent() == {P0: 1}
    rig.respond({P0: 0})
    assert rig.sent() == {P0: 2}  # and not the older one for the last word
    rig.respond({P0: 0})
    assert rig.ended == [("one", None), ("two", None)]


@pytest.mark.proves("E-05")
def test_what_was_never_ours_was_not_given_away() -> None:
    rig = Rig()
    rig.put("mistyped", {TopicPartition("tt", 0): 1})
    assert rig.committer.ready_requests(VIEW, 0.0) is None
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert "the partition is not this member's (topic=tt, partition=0)" in str(error)


def test_a_commit_that_passed_a_held_one_does_not_stay_before_it() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.respond({P0: 22})
    rig.put("two", {P0: 2}, blocking=True)  # a wait for it holds up the rebalance that the held one waits for
    assert rig.sent() == {P0: 2}
    rig.respond({P0: 14})
    rig.now = 0.2
    rig.view = VIEW._replace(identity=ME._replace(generation=6))
    assert rig.sent() == {P0: 1}
    rig.respond({P0: 0})
    assert rig.sent() == {P0: 2}


@pytest.mark.proves("E-05")
def test_a_wait_for_a_commit_is_not_held_up_by_a_rebalance() -> None:
    rig = Rig()
    rig.put("one", {P0: 1}, blocking=True)
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.respond({P0: 27})
    ((_, error),) = rig.ended
    assert isinstance(error, RebalanceInProgress)


def test_commits_wait_while_the_coordinator_would_refuse_them() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.view = VIEW._replace(commits_open=False, state=MemberState.SYNCING)
    assert rig.owed() is None
    rig.view = VIEW
    assert rig.sent() == {P0: 1}


def test_a_partition_given_away_and_taken_again_is_not_committed_for_its_first_time() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.view = VIEW._replace(assignment=AssignedPartitions(3, {P0: Owned(3)}))
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)


@pytest.mark.proves("S-12")
def test_a_commit_whose_answer_was_lost_with_its_partition_is_not_said_to_have_failed() -> None:
    rig = Rig()
    rig.put("one", {P0: 1, P1: 1})
    rig.sent()
    rig.committer.unanswered(0.0, 0.5)
    rig.now = 1.0
    rig.view = VIEW._replace(assignment=AssignedPartitions(1, {P1: Owned(1)}))
    assert rig.sent() == {P1: 1}
    rig.respond({P1: 0})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert "before it was known whether its offset was committed" in str(error)


@pytest.mark.proves("S-12", "B-34")
@pytest.mark.parametrize("state", [MemberState.LOSING, MemberState.STALLED, MemberState.JOINING])
def test_what_is_lost_is_not_committed_although_its_hook_has_not_run_yet(state: MemberState) -> None:
    """Without a generation the request would look like one of a consumer with manual assignment. An empty group
    accepts those, so an offset of a lost partition would be stored."""
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.view = VIEW._replace(identity=OUTSIDE, state=state)
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)


@pytest.mark.proves("S-12")
def test_a_held_commit_of_a_membership_that_is_gone_ends_at_once() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.respond({P0: 27})
    assert rig.owed() is None
    assert rig.ended == []
    rig.view = VIEW._replace(identity=OUTSIDE, state=MemberState.LOSING)
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)


@pytest.mark.proves("S-12")
@pytest.mark.parametrize("code", [27, 14])
def test_a_commit_that_was_sent_as_a_member_is_not_sent_by_one_that_has_left(code: int) -> None:
    """A group without members would store it, though others may have committed meanwhile."""
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.respond({P0: code})
    rig.view = None
    rig.now = 1.0
    rig.put("by hand", {P0: 5})
    assert rig.sent() == {P0: 5}
    ((name, error),) = rig.ended
    assert name == "one"
    assert isinstance(error, CommitFailed)


def test_an_order_of_the_machine_goes_first_under_its_own_identity() -> None:
    rig = Rig()
    rig.put("mine", {P0: 1})
    rig.put("order", {P1: 2}, order=9, identity=ME._replace(generation=4))
    request = rig.owed()
    assert request.generation_id_or_member_epoch == 4
    assert request.topics[0].partitions[0].partition_index == 1


@pytest.mark.proves("B-26", "E-05")
@pytest.mark.parametrize("code", [7, 14, 16, 113])
@pytest.mark.parametrize(
    ("now", "state"),
    [
        (ConsumerGroupMetadata("g"), MemberState.JOINING),  # lost
        (ConsumerGroupMetadata("g", 9, "m"), MemberState.STABLE),  # lost, and in the group again by the id it had
    ],
)
def test_an_order_is_not_sent_again_by_a_member_that_owns_nothing_of_it(
    code: int, now: ConsumerGroupMetadata, state: MemberState
) -> None:
    rig = Rig()
    rig.put("order", {P0: 1}, order=3, identity=ME)
    rig.sent()
    rig.view = VIEW._replace(identity=now, state=state, assignment=AssignedPartitions())
    rig.respond({P0: code})
    rig.now = 0.2
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)


def test_a_hook_that_waits_for_the_caller_ends_what_the_caller_waits_for() -> None:
    rig = Rig()
    rig.put("waits", {P0: 1}, blocking=True)
    rig.put("does not", {P1: 1})
    rig.committer.release_blocked(RebalanceInProgress("poll"), 0.0)
    assert [name for name, _ in rig.ended] == ["waits"]
    assert rig.sent() == {P1: 1}


def test_without_membership_the_group_alone_is_named() -> None:
    rig = Rig()
    rig.view = None
    rig.put("one", {P0: 1})
    request = rig.owed()
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    rig.respond({P0: 25})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert "the group has members" in str(error)


def test_what_users_write() -> None:
    assert plain({P0: 1, P1: (2, 3, "note")}) == {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(2, 3, "note")}
    with pytest.raises(ValueError, match="not negative"):
        plain({P0: -1})
    for impossible in (2**63, (1, 2**31), (1, 2, "x" * 32_768), (1, 2, "\ud800")):
        with pytest.raises(ValueError, match=r"63 bits|leader epoch|metadata"):
            plain({P0: impossible})
    for wrong in (True, "1", 1.0, None):
        with pytest.raises(TypeError):
            plain({P0: wrong})


# --- topics that are gone


def test_a_commit_ends_once_metadata_requested_after_the_refusal_lacks_the_topic() -> None:
    rig = Rig()
    rig.know()
    rig.put("one", {P0: 7, U0: 8})
    rig.sent()
    rig.respond({P0: 3, U0: 0})
    assert rig.owed() is None
    rig.now = 0.1
    assert "t" in rig.request_metadata()
    rig.metadata_came({}, t=3)
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, UnknownTopic)
    assert (error.place["topic"], error.place["partition"], error.place["offset"]) == ("t", 0, 7)
    (dropped,) = rig.committer.drain_dropped()
    assert (dropped.partition, dropped.offset.offset) == (P0, 7)
    assert rig.committer.drain_dropped() == []
    assert rig.committer.partitions == set()


def test_metadata_that_was_requested_before_the_refusal_may_be_older_than_the_topic() -> None:
    rig = Rig()
    rig.know()
    rig.put("one", {P0: 7})
    rig.sent()
    rig.metadata.request_update()
    rig.now = 0.2
    rig.request_metadata()
    rig.respond({P0: 3})
    rig.metadata_came({}, t=3)  # its response comes after the refusal
    rig.now = 0.5
    assert rig.sent() == {P0: 7}
    assert rig.ended == []


def test_a_broker_with_old_metadata_makes_no_commit_fail() -> None:
    rig = Rig()
    rig.know()
    rig.put("one", {P0: 7})
    for _ in range(3):
        rig.sent()
        rig.respond({P0: 3})
        rig.now += 0.1
        rig.request_metadata()
        rig.metadata_came({"t": (1, 2)})
        rig.now += 1.0
    assert rig.sent() == {P0: 7}
    rig.respond({P0: 0})
    assert rig.ended == [("one", None)]
    assert rig.committer.drain_dropped() == []


@pytest.mark.parametrize("code", [29, 17, -1])
def test_a_topic_that_metadata_refuses_for_another_reason_is_not_taken_for_deleted(code: int) -> None:
    rig = Rig()
    rig.know()
    rig.put("one", {P0: 7})
    rig.sent()
    rig.respond({P0: 3})
    rig.now = 0.1
    rig.request_metadata()
    rig.metadata_came({}, t=code)
    rig.now = 1.0
    assert rig.sent() == {P0: 7}


@pytest.mark.parametrize("refused", [True, False])
def test_an_offset_is_not_committed_for_another_topic_of_the_same_name(refused: bool) -> None:
    rig = Rig()
    rig.know(number=1)
    rig.put("one", {P0: 7})
    rig.sent()
    rig.respond({P0: 3 if refused else 14})
    rig.metadata.request_update()
    rig.now = 0.2
    rig.request_metadata()
    rig.metadata_came({"t": (2, 2)})
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, TopicRecreated)
    rig.put("of the new one", {P0: 1})
    assert rig.sent() == {P0: 1}


def test_a_topic_that_was_never_seen_may_have_been_created_a_moment_ago() -> None:
    rig = Rig()
    rig.view = None
    rig.put("one", {P0: 7})
    for at in (0.0, 2.0, 4.9):
        rig.now = at
        rig.sent()
        rig.respond({P0: 3})
        rig.request_metadata()
        rig.metadata_came({}, t=3)
        assert rig.owed() is None
        assert rig.ended == []
    rig.now = 5.1
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, UnknownTopic)


def test_metadata_of_a_topic_is_wanted_no_longer_than_its_commit_waits_for_it() -> None:
    rig = Rig()
    rig.put("one", {P0: 7, P1: 7})
    rig.sent()
    rig.respond({P0: 3, P1: 3})
    rig.now = 1.0
    rig.sent()
    rig.respond({P0: 3, P1: 0})
    assert rig.metadata.names == {"t"}
    rig.committer.expire(60.0)
    assert rig.metadata.names == set()
    assert rig.committer.next_poll_at() == []


def test_a_commit_before_a_join_ends_with_its_topic_and_says_so() -> None:
    rig = Rig()
    rig.know()
    rig.view = VIEW._replace(state=MemberState.COMMITTING)
    order = rig.put("order", {P0: 7, U0: 2}, order=9, identity=ME)
    rig.sent()
    rig.respond({P0: 3, U0: 0})
    rig.now = 0.1
    rig.request_metadata()
    rig.metadata_came({}, t=3)
    assert rig.owed() is None
    assert [name for name, _ in rig.ended] == ["order"]
    assert order.refused == {P0: 3}


# --- partitions do not wait for each other


@pytest.mark.proves("S-08")
def test_a_commit_that_is_retried_holds_up_only_later_ones_of_its_partition() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.put("two", {P1: 2})
    rig.put("three", {P0: 3, P1: 4})
    rig.respond({P0: 14})
    assert rig.sent() == {P1: 4}
    rig.respond({P1: 0})
    assert rig.owed() is None
    assert rig.ended == [("two", None)]
    rig.now = 0.2
    assert rig.sent() == {P0: 1}
    rig.respond({P0: 0})
    assert rig.sent() == {P0: 3}
    rig.respond({P0: 0})
    assert rig.ended == [("two", None), ("one", None), ("three", None)]


def test_what_the_machine_ordered_holds_up_what_users_queued_of_its_partitions_alone() -> None:
    rig = Rig()
    rig.view = VIEW._replace(state=MemberState.COMMITTING)
    rig.put("order", {P0: 2}, order=9, identity=ME)
    rig.sent()
    rig.put("one", {P0: 1, P1: 1})
    rig.respond({P0: 14})
    assert rig.sent() == {P1: 1}
    rig.respond({P1: 0})
    rig.now = 0.2
    assert rig.sent() == {P0: 2}


@pytest.mark.proves("S-08")
def test_commits_that_wait_are_settled_together_by_the_last_in_order() -> None:
    rig = Rig()
    rig.put("0", {P0: 0})
    rig.sent()
    for number in range(1, 5):
        rig.put(str(number), {P0: number} | ({P1: number} if number % 2 else {}))
    rig.respond({P0: 0})
    assert rig.sent() == {P0: 4, P1: 3}
    rig.respond({P0: 0, P1: 0})
    assert rig.ended == [(str(number), None) for number in range(5)]
    assert [entry.offsets.get(P0) for entry in rig.committer.ledger][1:] == [OffsetAndMetadata(n) for n in range(1, 5)]
    assert {entry.generation for entry in rig.committer.ledger} == {5}


@pytest.mark.proves("S-08")
def test_what_a_broker_cannot_store_at_once_is_sent_in_turn() -> None:
    """Two commits that are stored alone may be too much together."""
    rig, metadata = Rig(), "\u00fc" * 2_000
    partitions = [TopicPartition("t", number) for number in range(400)]
    rig.view = None

    def put(offset: int, those: list[TopicPartition]) -> None:
        rig.committer.put(Commit({one: OffsetAndMetadata(offset, metadata=metadata) for one in those}, {}, 60.0))

    put(1, partitions[:200])
    put(1, partitions[200:])
    first = rig.sent()
    assert 200 < len(first) < (1 << 20) // 4_000
    put(2, partitions)
    rig.respond(dict.fromkeys(first, 0))
    second = rig.sent()
    assert set(partitions) - first.keys() < second.keys()
    rig.respond(dict.fromkeys(second, 0))
    third = rig.sent()
    assert second.keys() | third.keys() == set(partitions)
    rig.respond(dict.fromkeys(third, 0))
    assert [error for _name, error in rig.ended] == [None] * 3


def test_commits_that_store_other_metadata_are_sent_one_by_one() -> None:
    rig = Rig()
    for number, text in enumerate("aab"):
        rig.committer.put(Commit({P0: OffsetAndMetadata(number, metadata=text)}, {P0: 1}, 60.0))
    assert rig.sent() == {P0: 1}
    rig.respond({P0: 12})
    assert rig.sent() == {P0: 2}


def test_a_commit_of_one_ownership_is_not_settled_with_one_of_the_next() -> None:
    rig = Rig()
    rig.put("first", {P0: 9})
    rig.committer.put(Commit({P0: OffsetAndMetadata(1)}, {P0: 3}, 60.0))
    rig.view = VIEW._replace(assignment=AssignedPartitions(3, {P0: Owned(3)}))
    assert rig.sent() == {P0: 1}
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    rig.respond({P0: 0})
    assert rig.ended[1:] == [("", None)]


def test_a_refusal_is_of_all_that_were_settled_together() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.put("two", {P0: 2})
    rig.sent()
    rig.put("three", {P0: 3})
    rig.respond({P0: 29})
    assert [(name, type(error)) for name, error in rig.ended] == [
        ("one", AuthorizationFailed),
        ("two", AuthorizationFailed),
    ]
    assert rig.sent() == {P0: 3}


def test_one_of_those_settled_together_may_end_at_its_deadline() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.put("two", {P0: 2}).deadline = 0.5
    rig.committer._deadlines = sorted((one.deadline, number, one) for number, one in enumerate(rig.committer._open))
    rig.committer.expire(0.5)
    assert [name for name, _ in rig.ended] == ["two"]
    assert rig.sent() == {P0: 1}
    rig.respond({P0: 0})
    assert rig.ended[1:] == [("one", None)]


def test_a_held_commit_is_superseded_by_a_later_one_that_passed_it() -> None:
    """Sent in the next generation, it would be the last word, and is the older offset."""
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.respond({P0: 22})
    rig.put("two", {P0: 2}, blocking=True)
    assert rig.sent() == {P0: 2}
    rig.respond({P0: 0})
    assert rig.ended == [("one", None), ("two", None)]
    rig.view = VIEW._replace(identity=ME._replace(generation=6))
    assert rig.owed() is None


def test_what_was_put_after_the_log_was_replaced_is_not_settled_with_what_was_put_before() -> None:
    rig = Rig()
    old = rig.put("old", {P0: 50})
    rig.committer.log_gone(P0)
    new = rig.put("new", {P0: 3})
    assert (old.adrift, new.adrift) == ({P0}, set())
    assert rig.sent() == {P0: 50}
    rig.respond({P0: 0})
    assert rig.sent() == {P0: 3}


def lines_run(commits: int) -> int:
    """Lines of the commit code that are run until so many `commit_async` of one record each are settled."""
    rig, lines = Rig(), 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith("coordinator_client/offsets/fenced_commit_queue.py"):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for number in range(commits):
            rig.put(str(number), {(P0, P1)[number % 2]: number})
            if number % 50 == 0 and rig.owed() is not None:
                rig.respond({P0: 0, P1: 0})
            rig.committer.expire(rig.now)
            rig.committer.next_poll_at()
        while len(rig.committer):
            if rig.owed() is not None:
                rig.respond({P0: 0, P1: 0})
    finally:
        sys.settrace(before)
    assert rig.ended == [(str(number), None) for number in range(commits)]
    return lines


def test_the_work_for_commits_grows_with_their_number_and_not_with_its_square() -> None:
    lines_run(10)
    assert lines_run(2_000) < 2.5 * lines_run(1_000)
    assert lines_run(2_000) < 100 * 2_000


def test_a_commit_that_is_under_way_is_not_ended_for_a_hook() -> None:
    rig = Rig()
    rig.put("waits", {P0: 1}, blocking=True)
    rig.sent()
    rig.committer.release_blocked(RebalanceInProgress("poll"), 0.0)
    rig.respond({P0: 0})
    assert rig.ended == [("waits", None)]


def test_deadlines_of_settled_commits_are_forgotten() -> None:
    rig = Rig()
    rig.put("stays", {P1: 1})
    rig.sent()
    rig.respond({P1: 27})
    for number in range(2_000):
        rig.put(str(number), {P0: number})
        rig.sent()
        rig.respond({P0: 0})
        rig.committer.expire(0.0)
    assert len(rig.committer) == 1
    assert len(rig.committer._deadlines) < 200
    assert rig.committer.next_poll_at() == [60.0]


def test_the_last_commit_that_is_settled_is_forgotten() -> None:
    """Its callback may hold anything of the user's."""
    rig = Rig()
    commit = weakref.ref(rig.put("one", {P0: 1}))
    rig.sent()
    rig.respond({P0: 0})
    rig.names.clear()
    gc.collect()
    assert commit() is None


def test_what_is_retried_says_when_to_look_again() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.respond({P0: 14})
    assert rig.committer.next_poll_at() == [60.0, 0.1]
    rig.now = 0.1
    rig.sent()
    assert rig.committer.next_poll_at() == [60.0]


def test_a_request_of_which_every_commit_has_expired_is_not_waited_for() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.committer.expire(60.0)
    rig.put("two", {P0: 2})
    assert rig.sent() == {P0: 2}


def test_a_commit_of_what_was_read_ends_though_metadata_lost_the_topic_before_it_was_put() -> None:
    """Metadata is why the partition is revoked, so it has lost the topic before the commit that follows."""
    rig = Rig()
    known = {P0: UUID(int=1)}
    rig.committer.put(Commit({P0: OffsetAndMetadata(7)}, {}, 60.0, topic_ids=known))
    rig.sent()
    rig.respond({P0: 3})
    rig.request_metadata()
    rig.metadata_came({}, t=3)
    assert rig.owed() is None
    ((_, error),) = rig.ended
    assert isinstance(error, UnknownTopic)
