"""KIP-848 in small scenarios, run on the fake and on a real broker: both must give the same responses."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest

from kohort.protocol.apis.consumer_group_heartbeat import TopicPartitions
from kohort.testing.fake_broker import FakeBroker
from tests.testing.group_client import EpochClient, MemberClient, Stage

Cast = Callable[..., EpochClient]

INVALID_GROUP, UNKNOWN_MEMBER, INCONSISTENT, INVALID_REQUEST, NON_EMPTY, NO_GROUP = 24, 25, 23, 42, 68, 69
FENCED_INSTANCE, FENCED_EPOCH, UNRELEASED_INSTANCE, UNSUPPORTED_ASSIGNOR, STALE_EPOCH = 82, 110, 111, 112, 113
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
HEARTBEAT = 68


@pytest.fixture
def member(stage: Stage) -> Iterator[Cast]:
    """Makes members of the stage's group; all are disconnected at the end."""

    def cast(**options: object) -> EpochClient:
        made = stack.enter_context(EpochClient(stage, **options))
        if HEARTBEAT not in made.ranges:
            pytest.skip("this broker is older than KIP-848, or has it switched off")
        return made

    with ExitStack() as stack:
        yield cast


def settled(*members: EpochClient) -> None:
    """All enter, and beat until they own the three partitions between them under one epoch."""
    for one in members:
        if not one.generation:
            assert one.enter().error_code == 0
    until(lambda: whole(*members))


def whole(*members: EpochClient) -> bool:
    for one in members:
        assert one.acknowledge().error_code == 0
    requested = {"group_ids": (members[0].stage.group,), "include_authorized_operations": False}
    (reported,) = members[0].request("ConsumerGroupDescribe", requested).groups
    # A coordinator may put its next plan off (KIP-1263), so that only it knows whether this is the last.
    done = reported.group_state == "Stable" and {one.generation for one in members} == {reported.group_epoch}
    return done and sorted(number for one in members for number in one.numbers) == [0, 1, 2]


def until(true: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """A real coordinator takes its time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_members_life(stage: Stage, member: Cast) -> None:
    ada = member()
    entered = ada.enter()
    assert (entered.error_code, entered.member_id) == (0, ada.member_id)
    assert entered.heartbeat_interval_ms > 0
    settled(ada)
    epoch = ada.generation
    said_nothing = ada.beat()
    assert (said_nothing.error_code, said_nothing.member_epoch, said_nothing.assignment) == (0, epoch, None)
    assert ada.commit({0: 5}) == [0]
    assert ada.commit({1: 5}, generation_id_or_member_epoch=epoch + 1) == [STALE_EPOCH]
    assert ada.commit({1: 5}, generation_id_or_member_epoch=-1, member_id="") == [UNKNOWN_MEMBER]
    left = ada.beat(member_epoch=LEAVE)
    assert (left.error_code, left.member_epoch) == (0, LEAVE)
    assert ada.beat(member_epoch=epoch).error_code == UNKNOWN_MEMBER
    assert ada.commit({0: 6}, generation_id_or_member_epoch=epoch) == [UNKNOWN_MEMBER]
    assert ada.commit({0: 6}, generation_id_or_member_epoch=-1, member_id="") == [0]
    assert list(ada.committed(0).values()) == [6]


def test_second_member_is_given_what_the_first_gives_back_and_not_before(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada)
    epoch = ada.generation
    assert ben.enter().error_code == 0
    assert ben.numbers == []
    until(lambda: ada.beat().assignment is not None)
    assert len(ada.numbers) < 3
    assert ada.generation == epoch
    for _ in range(3):
        assert ben.acknowledge().error_code == 0
        assert ada.beat().assignment is None
        assert ben.numbers == []
    settled(ada, ben)
    assert ada.generation > epoch
    assert sorted(map(len, (ada.numbers, ben.numbers))) == [1, 2]


def test_a_member_that_gives_nothing_back_in_time_is_given_up(member: Cast) -> None:
    ada, ben = member(rebalance_timeout_ms=700), member()
    settled(ada)
    assert ben.enter().error_code == 0
    until(lambda: ada.beat().error_code == UNKNOWN_MEMBER)
    settled(ben)
    assert ben.numbers == [0, 1, 2]


def test_a_member_begins_again_under_its_own_id(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada, ben)
    epoch, share = ada.generation, ada.numbers
    assert ada.beat(member_epoch=epoch + 1).error_code == FENCED_EPOCH
    again = ada.enter()
    assert (again.error_code, again.member_epoch) == (0, epoch)
    assert ada.numbers == share
    assert ben.beat().member_epoch == epoch


def test_the_response_to_a_heartbeat_was_lost(member: Cast) -> None:
    ada, ben = member(), member()
    settled(ada)
    epoch = ada.generation
    assert ben.enter().error_code == 0
    until(lambda: ada.acknowledge().member_epoch > epoch)
    assert ada.acknowledge(member_epoch=epoch).error_code == 0
    stranger = (TopicPartitions(topic_id=uuid4(), partitions=(0,)),)
    assert ada.beat(member_epoch=epoch, topic_partitions=stranger).error_code == FENCED_EPOCH
    assert ada.beat(member_epoch=epoch).error_code == FENCED_EPOCH


def test_static_member_leaves_for_a_while_and_another_takes_its_place(member: Cast) -> None:
    ada, ben = member(instance_id="a"), member(instance_id="b")
    settled(ada, ben)
    epoch, share = ada.generation, ada.owned
    assert member(instance_id="a").enter().error_code == UNRELEASED_INSTANCE
    assert ada.beat(member_id=str(uuid4())).error_code == FENCED_INSTANCE
    assert ada.beat(instance_id="c").error_code == UNKNOWN_MEMBER
    left = ada.beat(member_epoch=LEAVE_FOR_A_WHILE)
    assert (left.error_code, left.member_epoch) == (0, LEAVE_FOR_A_WHILE)
    assert ben.beat().assignment is None
    again = member(instance_id="a")
    back = again.enter()
    assert (back.error_code, back.member_epoch) == (0, epoch)
    assert again.owned == share
    assert ben.beat().member_epoch == epoch
    assert ada.beat(member_epoch=epoch).error_code == FENCED_INSTANCE


def test_an_instance_id_is_not_released_by_a_second_join_not_even_of_its_own_member(member: Cast) -> None:
    ada, ben = member(instance_id="a"), member(instance_id="a")
    assert ada.enter().error_code == 0
    assert ada.enter().error_code == UNRELEASED_INSTANCE
    assert ben.enter().error_code == UNRELEASED_INSTANCE
    assert ben.beat(member_epoch=LEAVE_FOR_A_WHILE).error_code == FENCED_INSTANCE
    assert ada.enter().error_code == UNRELEASED_INSTANCE  # the stranger's release released nothing
    released = ada.beat(member_epoch=LEAVE_FOR_A_WHILE)
    assert (released.error_code, released.member_epoch) == (0, LEAVE_FOR_A_WHILE)
    ada.generation = 0
    assert ada.enter().error_code == 0
    settled(ada)


def test_a_release_of_what_is_not_held_is_refused(member: Cast) -> None:
    ada, ben = member(instance_id="a"), member()
    assert ada.beat(member_epoch=LEAVE_FOR_A_WHILE).error_code == NO_GROUP
    settled(ben)
    assert ada.beat(member_epoch=LEAVE_FOR_A_WHILE).error_code == UNKNOWN_MEMBER


def test_a_member_is_waited_for_until_it_reports_what_it_owns_though_it_never_took_what_it_was_given(
    stage: Stage, member: Cast
) -> None:
    ada = member()
    assert ada.enter().error_code == 0
    assert ada.numbers == [0, 1, 2]
    assert ada.beat(subscribed_topic_names=("no-such-topic",)).error_code == 0
    until(lambda: ada.beat().error_code == 0 and ada.numbers == [] and state_of(stage, ada) == "Reconciling")
    epoch = ada.generation
    for _ in range(3):
        unchanged = ada.beat()  # null: as it said before, and that was at its join: nothing
        assert (unchanged.error_code, unchanged.member_epoch, unchanged.assignment) == (0, epoch, None)
        assert state_of(stage, ada) == "Reconciling"
    assert ada.acknowledge().error_code == 0
    until(lambda: ada.acknowledge().error_code == 0 and state_of(stage, ada) == "Stable")
    assert ada.generation > epoch


def state_of(stage: Stage, member: EpochClient) -> str:
    requested = {"group_ids": (stage.group,), "include_authorized_operations": False}
    (reported,) = member.request("ConsumerGroupDescribe", requested).groups
    return str(reported.group_state)


def test_a_static_members_successor_has_its_pattern_until_it_says_that_it_has_none(stage: Stage, member: Cast) -> None:
    if member().ranges[HEARTBEAT][1] < 1:
        pytest.skip("this broker knows no patterns")
    before = member(instance_id="a")
    patterned = {"subscribed_topic_names": None, "subscribed_topic_regex": stage.topic}
    assert before.enter(**patterned).error_code == 0
    until(lambda: before.acknowledge().error_code == 0 and before.numbers == [0, 1, 2])
    assert before.beat(member_epoch=LEAVE_FOR_A_WHILE).error_code == 0
    heir, other = member(instance_id="a"), {"subscribed_topic_names": ("no-such-topic",)}
    assert heir.enter(**other).error_code == 0
    until(lambda: heir.acknowledge().error_code == 0 and heir.numbers == [0, 1, 2])
    assert heir.beat(**other, subscribed_topic_regex="").error_code == 0
    until(lambda: heir.acknowledge().error_code == 0 and heir.numbers == [])


def test_administrators_remove_members(member: Cast) -> None:
    ada, ben, cleo = member(instance_id="a"), member(), member()
    settled(ada, ben, cleo)
    assert ben.leave(member_id="nobody") == [UNKNOWN_MEMBER]
    assert ben.leave(member_id="", group_instance_id="nobody") == [UNKNOWN_MEMBER]
    assert ben.leave(member_id="", group_instance_id="a") == [0]
    assert ada.beat().error_code == UNKNOWN_MEMBER
    assert cleo.leave() == [0]
    assert cleo.beat().error_code == UNKNOWN_MEMBER
    settled(ben)


def test_ranges_are_runs_and_the_majority_has_its_assignor(member: Cast) -> None:
    members = [member() for _ in range(2)]
    for one in members:
        assert one.enter(server_assignor="range").error_code == 0
    settled(*members)
    assert sorted(one.numbers for one in members) == [[0, 1], [2]]


def test_a_member_that_says_everything_is_told_everything(stage: Stage, member: Cast) -> None:
    ada = member()
    settled(ada)
    said = {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": (stage.topic,)}
    reported = ada.acknowledge(**said)
    assert reported.assignment is not None
    assert ada.beat(**said).assignment is None
    assert reported.member_epoch == ada.generation


def test_a_subscription_that_changes_and_a_topic_that_is_not_there(stage: Stage, member: Cast) -> None:
    ada = member()
    settled(ada)
    epoch = ada.generation
    assert ada.beat(subscribed_topic_names=("no-such-topic",)).error_code == 0
    until(lambda: ada.acknowledge().member_epoch > epoch)
    assert ada.numbers == []
    assert ada.beat(subscribed_topic_names=(stage.topic,)).error_code == 0
    settled(ada)


def test_heartbeats_that_can_never_succeed(stage: Stage, member: Cast) -> None:
    ada = member()
    for wrong in (
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"topic_partitions": (TopicPartitions(topic_id=UUID(int=7), partitions=(0,)),)},
        {"member_epoch": -3},
        {"member_epoch": LEAVE_FOR_A_WHILE},
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
    ):
        assert ada.enter(**wrong).error_code == INVALID_REQUEST, wrong
    assert ada.enter(server_assignor="astrology").error_code == UNSUPPORTED_ASSIGNOR
    assert ada.beat(member_epoch=3).error_code == NO_GROUP
    assert ada.beat(member_epoch=LEAVE).error_code == NO_GROUP
    settled(ada)
    ben = member()
    assert ben.beat(member_epoch=3).error_code == UNKNOWN_MEMBER
    assert ben.beat(member_epoch=LEAVE).error_code == UNKNOWN_MEMBER
    assert ada.request("DeleteGroups", {"groups_names": (stage.group,)}).results[0].error_code == NON_EMPTY
    assert ada.beat().error_code == 0


def test_an_empty_group_changes_its_kind_and_its_offsets_stay(stage: Stage, member: Cast) -> None:
    ada = member()
    with MemberClient(stage) as classic:
        assert classic.join().error_code == 0
        assert classic.sync({classic.member_id: b""})[0] == 0
        assert classic.commit({0: 5}) == [0]
        assert classic.leave() == [0]
        settled(ada)
        assert list(ada.committed(0).values()) == [5]
        other = classic.join(member_id="", protocol_type="connect")
        assert other.error_code == INCONSISTENT
        assert ada.commit({0: 6}) == [0]
        assert ada.beat(member_epoch=LEAVE).error_code == 0
        classic.member_id = ""
        assert classic.join().error_code == 0
        assert list(classic.committed(0).values()) == [6]


def test_topics_by_pattern_and_partitions_that_are_added() -> None:
    with FakeBroker(topics={"pay-eu": 1, "pay-us": 1, "other": 3}) as fake:
        with EpochClient(Stage(fake.bootstrap, "pay-eu", "group")) as ada:
            ada.enter(subscribed_topic_names=None, subscribed_topic_regex="pay-.*")
            assert ada.numbers == [0, 0]
            assert ada.enter(subscribed_topic_names=None, subscribed_topic_regex="[").error_code == 128
            fake.create_topic("pay-asia", 2)
            assert ada.beat().member_epoch == 2
            assert ada.numbers == [0, 0, 0, 1]
            fake.add_partitions("pay-us", 3)
            assert ada.beat().member_epoch == 3
            assert len(ada.numbers) == 6
            fake.delete_topic("pay-asia")
            assert len(fake.consumer_group("group").assigned[ada.member_id]) == 6
            until(lambda: ada.acknowledge().member_epoch == 4)
            assert len(ada.numbers) == 4
        assert fake.consumer_group("group").members == {ada.member_id: 4}
        assert fake.faults == []


def test_a_member_that_is_silent_for_a_session_is_given_up() -> None:
    from kohort.testing.fake_broker import ConsumerGroupState, CoordinatorSettings

    settings = CoordinatorSettings(group_consumer_session_timeout_ms=300, group_consumer_max_size=1)
    with FakeBroker(topics={"topic": 1}, settings=settings) as fake:
        stage = Stage(fake.bootstrap, "topic", "group")
        with EpochClient(stage) as ada, EpochClient(stage) as ben:
            assert ada.enter().error_code == 0
            assert ben.enter().error_code == 81
            assert fake.consumer_group("group").state is ConsumerGroupState.STABLE
            until(lambda: fake.consumer_group("group").state is ConsumerGroupState.EMPTY)
            assert ada.beat().error_code == UNKNOWN_MEMBER
            assert ben.enter().error_code == 0
            assert ben.numbers == [0]
