"""Commits on their way: in order, fenced, held across a rebalance, and never reported as what they were not."""

from typing import Any

import pytest

from kohort.coordinator_client.commits import Commit, Committer, plain
from kohort.coordinator_client.errors import AuthorizationFailed, CommitFailed, OperationTimeout, RebalanceInProgress
from kohort.coordinator_client.events import Identity, OffsetToCommit
from kohort.coordinator_client.ready import MemberView
from kohort.coordinator_client.refresh import MetadataKeeper
from kohort.coordinator_client.retry import Backoff
from kohort.coordinator_client.states import CoordinatorState, MemberState
from kohort.coordinator_client.subscription import Assignment, Owned
from kohort.fastpath import KohortError, TopicPartition
from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.errors import BrokerError

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = Identity("g", 5, "m")
OUTSIDE = Identity("g")
VIEW = MemberView(
    state=MemberState.STABLE,
    since=0.0,
    coordinator_state=CoordinatorState.KNOWN,
    coordinator=None,
    identity=ME,
    held=ME,
    leader=False,
    protocol="range",
    assignment=Assignment(1, {P0: Owned(1), P1: Owned(1)}),
    fetchable=frozenset({P0, P1}),
    lease_until=float("inf"),
    commits_open=True,
    rejoin_wanted=False,
    last_beat_at=None,
    cause=None,
    fatal=None,
)


class Rig:
    def __init__(self) -> None:
        self.metadata = MetadataKeeper(Backoff(100, 1000, 0), 300.0)
        self.committer = Committer("g", Backoff(100, 1000, 0), self.metadata)
        self.ended: list[tuple[str, KohortError | None]] = []
        self.now = 0.0
        self.view: MemberView | None = VIEW

    def put(self, name: str, offsets: dict[TopicPartition, int], **more: Any) -> Commit:
        commit = Commit(
            {one: OffsetToCommit(to) for one, to in offsets.items()},
            {P0: 1, P1: 1},
            deadline=60.0,
            finished=lambda error: self.ended.append((name, error)),
            **more,
        )
        self.committer.put(commit)
        return commit

    def owed(self) -> Any:
        return self.committer.owed(self.view, OUTSIDE, self.now)

    def sent(self) -> dict[TopicPartition, int]:
        request = self.owed()
        assert request is not None, "nothing is owed"
        return {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for topic in request.topics
            for one in topic.partitions
        }

    def answer(self, codes: dict[TopicPartition, int]) -> dict[int, frozenset[TopicPartition]]:
        topics = tuple(
            OffsetCommitResponseTopic(
                name=one.topic,
                partitions=(OffsetCommitResponsePartition(partition_index=one.partition, error_code=code),),
            )
            for one, code in codes.items()
        )
        told = self.committer.answered(OffsetCommitResponse(topics=topics))
        self.committer.judge(self.view, self.now, 0.5)
        return told


def test_a_commit_carries_who_commits_and_ends_well() -> None:
    rig = Rig()
    rig.put("one", {P0: 7})
    request = rig.owed()
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 5, "m")
    assert rig.owed() is None  # one at a time
    rig.answer({P0: 0})
    assert rig.ended == [("one", None)]
    assert rig.committer.ledger[-1].offsets == {P0: OffsetToCommit(7)}
    assert rig.committer.ledger[-1].generation == 5


@pytest.mark.proves("S-08")
def test_commits_end_in_the_order_in_which_they_were_made() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    assert rig.sent() == {P0: 1}
    rig.put("two", {P0: 2})
    rig.answer({P0: 14})  # the first has to be tried again; the second may not overtake it
    assert rig.owed() is None
    rig.now = 0.2
    assert rig.sent() == {P0: 1}
    rig.answer({P0: 0})
    assert rig.sent() == {P0: 2}
    rig.answer({P0: 0})
    assert rig.ended == [("one", None), ("two", None)]


@pytest.mark.proves("E-05", "B-21")
@pytest.mark.parametrize("code", [3, 14, 15, 16, 7])
def test_what_a_retry_cures_is_retried(code: int) -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    assert rig.answer({P0: code}) == {code: {P0}}
    rig.now = 0.2
    assert rig.sent() == {P0: 1}
    assert rig.ended == []


@pytest.mark.proves("B-23")
def test_a_lost_answer_is_asked_for_again_and_at_the_deadline_is_unknown_not_success() -> None:
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
    assert rig.committer.answered(OffsetCommitResponse()) == {}  # whatever still comes is nobody's


@pytest.mark.proves("E-05")
@pytest.mark.parametrize(
    ("code", "kind"), [(12, BrokerError), (28, BrokerError), (29, AuthorizationFailed), (30, AuthorizationFailed)]
)
def test_what_no_retry_cures_is_raised_with_its_partition(code: int, kind: type[KohortError]) -> None:
    rig = Rig()
    rig.put("one", {P0: 1, P1: 2})
    rig.sent()
    rig.answer({P0: 0, P1: code})
    ((_, error),) = rig.ended
    assert type(error) is kind
    assert error.place["partition"] == 1
    assert [entry.offsets for entry in rig.committer.ledger] == [{P0: OffsetToCommit(1)}, {}]


@pytest.mark.proves("E-05", "S-12")
@pytest.mark.parametrize("code", [22, 25])
def test_a_group_that_went_on_without_us_fails_the_commit_for_good(code: int) -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(identity=OUTSIDE, state=MemberState.LOSING)
    rig.answer({P0: code})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert not isinstance(error, RebalanceInProgress)


@pytest.mark.proves("E-05")
def test_a_commit_that_a_rebalance_overtook_is_held_and_sent_again_for_what_is_kept() -> None:
    rig = Rig()
    rig.put("one", {P0: 1, P1: 2})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.answer({P0: 27, P1: 27})
    assert rig.owed() is None
    assert rig.ended == []
    moved = Assignment(2, {P0: Owned(1)})  # P1 went to somebody else
    rig.view = VIEW._replace(identity=ME._replace(generation=6), assignment=moved)
    request = rig.owed()
    assert request.generation_id_or_member_epoch == 6
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in request.topics] == [("t", [0])]
    rig.answer({P0: 0})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert error.place["partition"] == 1


@pytest.mark.proves("S-08", "E-05")
def test_what_a_rebalance_overtook_is_sent_again_in_the_order_in_which_it_was_made() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.answer({P0: 22})
    rig.put("two", {P0: 2})
    while rig.owed() is not None:
        rig.answer({P0: 22})
    rig.view = VIEW._replace(identity=ME._replace(generation=6))
    assert rig.sent() == {P0: 1}
    rig.answer({P0: 0})
    assert rig.sent() == {P0: 2}  # and not the older one for the last word
    rig.answer({P0: 0})
    assert rig.ended == [("one", None), ("two", None)]


@pytest.mark.proves("E-05")
def test_what_was_never_ours_was_not_given_away() -> None:
    rig = Rig()
    rig.put("mistyped", {TopicPartition("tt", 0): 1})
    assert rig.committer.owed(VIEW, OUTSIDE, 0.0) is None
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert "the partition is not this member's (topic=tt, partition=0)" in str(error)


def test_who_passed_a_held_commit_does_not_stay_before_it() -> None:
    rig = Rig()
    rig.put("one", {P0: 1})
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.answer({P0: 22})
    rig.put("two", {P0: 2}, blocking=True)  # whoever waits for it holds up the rebalance that the held one waits for
    assert rig.sent() == {P0: 2}
    rig.answer({P0: 14})
    rig.now = 0.2
    rig.view = VIEW._replace(identity=ME._replace(generation=6))
    assert rig.sent() == {P0: 1}
    rig.answer({P0: 0})
    assert rig.sent() == {P0: 2}


@pytest.mark.proves("E-05")
def test_whoever_waits_for_a_commit_is_not_held_up_by_a_rebalance() -> None:
    rig = Rig()
    rig.put("one", {P0: 1}, blocking=True)
    rig.sent()
    rig.view = VIEW._replace(state=MemberState.JOINING)
    rig.answer({P0: 27})
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
    rig.view = VIEW._replace(assignment=Assignment(3, {P0: Owned(3)}))
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
    rig.view = VIEW._replace(assignment=Assignment(1, {P1: Owned(1)}))
    assert rig.sent() == {P1: 1}
    rig.answer({P1: 0})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert "before it was known whether its offset was committed" in str(error)


@pytest.mark.proves("S-12", "B-34")
@pytest.mark.parametrize("state", [MemberState.LOSING, MemberState.STALLED, MemberState.JOINING])
def test_what_is_lost_is_not_committed_although_its_hook_has_not_run_yet(state: MemberState) -> None:
    """Without a generation the request would look like one of somebody who assigns by hand, and an empty group lets
    those in: an offset of a partition that is lost would be stored."""
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
    rig.answer({P0: 27})
    assert rig.owed() is None
    assert rig.ended == []
    rig.view = VIEW._replace(identity=OUTSIDE, state=MemberState.LOSING)
    assert rig.owed() is None
    ((_, error),) = rig.ended
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
        (Identity("g"), MemberState.JOINING),  # lost
        (Identity("g", 9, "m"), MemberState.STABLE),  # lost, and in the group again by the id it had
    ],
)
def test_an_order_is_not_sent_again_as_somebody_who_owns_nothing_of_it(
    code: int, now: Identity, state: MemberState
) -> None:
    rig = Rig()
    rig.put("order", {P0: 1}, order=3, identity=ME)
    rig.sent()
    rig.view = VIEW._replace(identity=now, state=state, assignment=Assignment())
    rig.answer({P0: code})
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
    rig.answer({P0: 25})
    ((_, error),) = rig.ended
    assert isinstance(error, CommitFailed)
    assert "the group has members" in str(error)


def test_what_users_write() -> None:
    assert plain([(P0, 1), (("t", 1), (2, 3, "note"))]) == {P0: OffsetToCommit(1), P1: OffsetToCommit(2, 3, "note")}
    with pytest.raises(ValueError, match="not negative"):
        plain([(P0, -1)])
    for wrong in (True, "1", 1.0, None):
        with pytest.raises(TypeError):
            plain([(P0, wrong)])
