"""Revoked, kept and added partitions, as set arithmetic; and the protocol of a list of assignors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.assignors import Rebalance, get
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.membership import after_sync, before_join, mode_of, strangers
from kohort.coordinator_client.subscription_state import Subscription
from tests.coordinator_client.group.member_rig import tps
from tests.coordinator_client.group.test_member_cooperative import Cooperative

partitions = st.frozensets(st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 3)))


@pytest.mark.proves("G-15")
@given(owned=partitions, topics=st.frozensets(st.sampled_from("tuv")))
def test_eager_lets_everything_go_before_a_join(owned: frozenset[TopicPartition], topics: frozenset[str]) -> None:
    assert before_join(Rebalance.EAGER, owned, topics) == owned


@pytest.mark.proves("G-08")
@given(owned=partitions, topics=st.frozensets(st.sampled_from("tuv")))
def test_cooperative_lets_go_exactly_what_is_no_longer_subscribed(
    owned: frozenset[TopicPartition], topics: frozenset[str]
) -> None:
    gone = before_join(Rebalance.COOPERATIVE, owned, topics)
    assert all(each.topic not in topics for each in gone)
    assert all(each.topic in topics for each in owned - gone)


@pytest.mark.proves("G-08")
@given(owned=partitions, assigned=partitions)
def test_a_sync_splits_into_what_goes_stays_and_comes(
    owned: frozenset[TopicPartition], assigned: frozenset[TopicPartition]
) -> None:
    moves = after_sync(owned, assigned)
    assert moves.revoked | moves.kept == owned
    assert moves.kept | moves.added == assigned
    assert not moves.revoked & moves.kept
    assert not moves.kept & moves.added
    assert not moves.revoked & moves.added


def test_strangers_are_of_no_topic_we_know_or_match() -> None:
    assigned = tps("t-0", "u-0", "v-0")
    assert strangers(assigned, Subscription.of(["t"]), frozenset({"t"})) == tps("u-0", "v-0")
    assert strangers(assigned, Subscription.matching("[tu]"), frozenset({"t"})) == tps("v-0")
    assert strangers(assigned, Subscription.matching(".*"), frozenset()) == frozenset()


@pytest.mark.proves("G-08")
def test_one_eager_assignor_makes_the_member_eager() -> None:
    eager, gentle = get("range"), Cooperative()
    assert mode_of([gentle]) is Rebalance.COOPERATIVE
    assert mode_of([gentle, eager]) is Rebalance.EAGER
    assert mode_of([eager, gentle]) is Rebalance.EAGER
    assert mode_of([eager]) is Rebalance.EAGER
