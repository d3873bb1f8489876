"""The inputs that a leader waits for before it plans, and its work meanwhile: nothing holds a rebalance up."""

import pytest

from kohort.assignors import GroupView, MemberSubscription, Plan, Rebalance
from kohort.assignors.lag import LagAssignor
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.leader_assignment import AssignorFailed, run_plan
from kohort.coordinator_client.offsets.group_lag import waiting
from kohort.network.group_types import OffsetAndMetadata
from tests.coordinator_client.group.member_rig import Rig, as_leader, fatal, said, tps
from tests.support.unprintable_error import UnprintableError

LAG = {"protocol": "lag"}


def leads(rig: Rig, *others: str, generation: int = 1, partitions: int = 4) -> Rig:
    """m1 leads a generation of itself and `others`, all of them on topic t."""
    rig.topics(t=partitions)
    if generation == 1:
        rig.reach_joining()
    protocol = next(iter(rig.last("JoinGroup").protocols)).name
    rig.joined(generation=generation, protocol=protocol, **as_leader(*(said(name, "t") for name in ("m1", *others))))
    return rig


class Exits:
    """An assignor that ends the interpreter, or means to, or raises `error`."""

    name = "range"
    rebalance = Rebalance.EAGER

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or SystemExit("enough")

    def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
        return MemberSubscription(tuple(topics))  # type: ignore[arg-type]

    def assign(self, group: GroupView) -> Plan:
        raise self.error


# ------------------------------------------------------------------------------------------------------- the backlog


@pytest.mark.proves("G-04")
def test_the_plan_waits_for_the_backlog_and_goes_by_it() -> None:
    rig = leads(Rig("lag"), "m2")
    assert rig.state == "PLANNING"
    assert rig.measure is not None
    assert rig.measure.topics == {"t": 4}
    assert not rig.requested("SyncGroup")
    rig.measured(t_0=3, t_1=3, t_2=200, t_3=3)
    assert rig.state == "SYNCING"
    assert rig.plan() == {"m1": tps("t-2"), "m2": tps("t-0", "t-1", "t-3")}
    assert rig.kinds.count("backlog_unknown") == 0


def test_only_an_assignor_that_requests_it_costs_a_measurement() -> None:
    rig = leads(Rig("cooperative-sticky"), "m2")
    assert rig.state == "SYNCING"
    assert rig.measure is None
    by_hand = leads(Rig(LagAssignor(lambda partitions: dict.fromkeys(partitions, 1))), "m2")
    assert by_hand.state == "SYNCING"
    assert by_hand.measure is None


@pytest.mark.proves("B-24")
def test_a_backlog_that_never_comes_is_planned_without_and_said_so() -> None:
    rig = leads(Rig("lag", session_timeout_ms=12_000), "m2")
    assert rig.ready.wake_at == rig.now + 3.0, "the heartbeat comes first"
    rig.after(3.0)
    assert rig.state == "PLANNING"
    assert len(rig.requested("Heartbeat")) == 1
    rig.beat()
    rig.after(1.0)  # a quarter of the session, and a second of grace
    assert rig.state == "SYNCING"
    assert {len(partitions) for partitions in rig.plan().values()} == {2}
    assert "backlog_unknown" in rig.kinds
    assert "4 partitions" in rig.member.timeline.rebalances[-1].troubles[-1]
    late = rig.sends.copy()
    rig.measured(t_2=200)
    assert rig.sends == late, "what comes now has no effect"


@pytest.mark.proves("B-24")
def test_what_is_known_of_a_backlog_is_used_though_some_of_it_is_not() -> None:
    rig = leads(Rig("lag"), "m2")
    rig.measured(unknown=2, why="no leader", t_0=50, t_1=1)
    assert rig.plan() == {"m1": tps("t-0", "t-3"), "m2": tps("t-1", "t-2")}
    assert "in 2 partitions: no leader" in next(each.text for each in rig.notices if each.kind == "backlog_unknown")


@pytest.mark.proves("G-08")
def test_the_second_round_of_a_plan_goes_by_the_numbers_of_the_first() -> None:
    rig = leads(Rig("lag"), "m2")
    rig.measured(t_0=3, t_1=3, t_2=200, t_3=3)
    rig.synced(assigned=rig.plan()["m1"])
    rig.run_hook()
    rig.measure = None
    rig.heartbeat(27)
    leads(rig, "m2", generation=2)
    assert rig.measure is None
    assert rig.state == "SYNCING"


@pytest.mark.parametrize("change", ["time", "a topic grew", "lost"])
def test_a_backlog_does_not_keep_for_ever(change: str) -> None:
    rig = leads(Rig("lag"), "m2")
    rig.measured(t_0=1)
    rig.synced(assigned=tps("t-0"))
    rig.run_hook()
    rig.measure = None
    if change == "time":
        for _ in range(11):
            rig.heartbeat()
    rig.heartbeat(25 if change == "lost" else 27)
    if change == "lost":
        rig.run_hook()
    leads(rig, "m2", generation=2, partitions=5 if change == "a topic grew" else 4)
    assert rig.state == "PLANNING"
    assert rig.measure is not None


def test_a_backlog_of_an_earlier_generation_is_not_taken_for_this_one() -> None:
    rig = leads(Rig("lag"), "m2")
    old = rig.measure
    assert old is not None
    rig.heartbeat(25)
    leads(rig, "m2", generation=2)
    rig.post(ev.LagKnown(old.serial, {TopicPartition("t", 0): 9}))
    assert rig.state == "PLANNING"


@pytest.mark.parametrize(
    ("reads_old", "expected"), [(True, {"t-0": 6, "t-1": 7, "t-2": 7}), (False, {"t-0": 6, "t-1": 0, "t-2": 8})]
)
def test_what_waits_counts_from_the_committed_offset(reads_old: bool, expected: dict[str, int]) -> None:
    zero, one, two, three = (TopicPartition("t", number) for number in range(4))
    committed = {zero: OffsetAndMetadata(4), one: None, two: OffsetAndMetadata(2), three: OffsetAndMetadata(1)}
    ends = dict.fromkeys((zero, one, two), 10)  # the last one was not reported
    beginnings = dict.fromkeys((zero, one, two), 3) if reads_old else {}
    lag = waiting(committed, ends, beginnings, reads_old=reads_old)
    assert {f"{partition.topic}-{partition.partition}": records for partition, records in lag.items()} == expected


# ---------------------------------------------------------------------------------------------------------- the plan


@pytest.mark.proves("F-02", "F-04")
def test_heartbeats_go_on_while_the_assignor_runs() -> None:
    rig = Rig()
    rig.plans_by_itself = False
    leads(rig, "m2")
    assert rig.state == "PLANNING"
    for _ in range(5):
        rig.heartbeat()
    assert not rig.requested("SyncGroup")
    rig.planned()
    assert rig.state == "SYNCING"
    assert rig.plan() == {"m1": tps("t-0..1"), "m2": tps("t-2..3")}


@pytest.mark.proves("G-12")
def test_a_leader_that_loses_its_coordinator_while_it_plans_joins_again() -> None:
    """A SyncGroup without a coordinator would go to any broker, and nothing would send it again."""
    rig = Rig()
    rig.plans_by_itself = False
    leads(rig, "m2")
    rig.post(ev.Disconnected(None, 1, "connection reset"))
    rig.planned()
    assert (rig.state, rig.requested("SyncGroup")) == ("JOINING", [])
    rig.after(1)
    rig.found(node=2, host="two")
    assert rig.last("JoinGroup").member_id == "m1"
    leads(rig, "m2", generation=2)
    rig.planned()
    assert rig.waiting("SyncGroup").to.endpoint.host == "two"
    assert rig.last("SyncGroup").generation_id == 2


@pytest.mark.proves("G-12")
def test_a_plan_is_used_if_the_coordinator_is_found_again_before_it_is_made() -> None:
    rig = Rig()
    rig.plans_by_itself = False
    leads(rig, "m2")
    rig.post(ev.Disconnected(None, 1, "connection reset"))
    rig.after(1)
    rig.found(node=2, host="two")
    rig.planned()
    assert rig.state == "SYNCING"
    assert rig.waiting("SyncGroup").to.endpoint.host == "two"
    assert len(rig.requested("JoinGroup")) == 1


def test_a_plan_for_an_earlier_generation_is_dropped() -> None:
    rig = Rig()
    rig.plans_by_itself = False
    leads(rig, "m2")
    old = rig.plan_order
    assert old is not None
    rig.heartbeat(25)
    leads(rig, generation=2)
    rig.post(run_plan(old))
    assert rig.state == "PLANNING"
    rig.planned()
    assert rig.plan() == {"m1": tps("t-0..3")}


@pytest.mark.proves("G-13")
def test_topics_that_change_while_the_assignor_runs_request_another_plan() -> None:
    rig = Rig()
    rig.plans_by_itself = False
    leads(rig)
    rig.topics(t=6)
    rig.planned()
    rig.synced(assigned=rig.plan()["m1"])
    rig.run_hook()
    assert rig.owned == tps("t-0..3")
    assert rig.state == "REVOKING"


def test_an_assignor_that_never_ends_is_an_error_in_the_end() -> None:
    rig = Rig(max_poll_interval_ms=20_000)
    rig.plans_by_itself = False
    leads(rig)
    rig.post(ev.Polled(rig.now))
    for _ in range(6):
        rig.heartbeat()
    rig.after(3)
    assert isinstance(fatal(rig), AssignorFailed)
    assert fatal(rig).place["assignor"] == "range"
    assert rig.state == "FAILED"


def test_an_assignor_that_exits_leaves_no_thread_waiting() -> None:
    rig = leads(Rig(Exits()))
    assert isinstance(fatal(rig), AssignorFailed)
    assert "SystemExit: enough" in str(fatal(rig))
    unprintable = leads(Rig(Exits(UnprintableError())))
    assert isinstance(fatal(unprintable), AssignorFailed)
    assert "it raised UnprintableError" in str(fatal(unprintable))


@pytest.mark.proves("B-36")
def test_close_does_not_wait_for_the_assignor() -> None:
    rig = Rig()
    rig.plans_by_itself = False
    leads(rig)
    rig.post(ev.CloseRequested(rig.now + 5))
    assert rig.state == "LEAVING"
    rig.planned()
    rig.left()
    assert rig.state == "CLOSED"
