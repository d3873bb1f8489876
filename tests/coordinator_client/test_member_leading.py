"""A leader whose assignor, or whose members, do what they must not: it stops rather than harm the group."""

import pytest

from kohort.assignors import GroupView, MemberSubscription, Plan, Rebalance, get
from kohort.coordinator_client.events import TopicInfo
from kohort.coordinator_client.leading import AssignorFailed, MemberUnreadable, make_plan, read_members
from kohort.protocol.apis.join_group import JoinGroupResponseMember
from kohort.protocol.membership import Subscription, TopicPartitions, build_subscription
from tests.coordinator_client.rig import Rig, as_leader, assert_silent, fatal, said, tps


class Rogue:
    """An assignor that does what `plan` does."""

    name = "range"
    rebalance = Rebalance.EAGER

    def __init__(self, plan: object) -> None:
        self.plan = plan

    def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
        return MemberSubscription(tuple(topics))  # type: ignore[arg-type]

    def assign(self, group: GroupView) -> Plan:
        if isinstance(self.plan, Exception):
            raise self.plan
        return self.plan  # type: ignore[return-value]


@pytest.mark.proves("G-04")
@pytest.mark.parametrize(
    "plan",
    [
        RuntimeError("division by cucumber"),
        {"m1": tps("t-0"), "m2": tps("t-0")},
        {"m1": tps("t-9")},
        {"nobody": tps("t-0")},
        {"m2": tps("t-0")},
        None,
    ],
    ids=["raises", "one partition twice", "no such partition", "no such member", "not subscribed", "no plan"],
)
def test_a_rogue_assignor_stops_its_leader_and_nobody_else(plan: object) -> None:
    rig = Rig(Rogue(plan))
    rig.topics(t=2, u=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))
    assert isinstance(fatal(rig), AssignorFailed)
    assert fatal(rig).place["assignor"] == "range"
    assert not rig.asked("SyncGroup"), "no plan at all, rather than a wrong one"
    (goodbye,) = rig.asked("LeaveGroup")
    assert (goodbye.members[0].member_id, goodbye.members[0].reason) == ("m1", "it failed: AssignorFailed")
    assert rig.state == "FAILED", "without waiting for its answer"
    assert_silent(rig)


def test_a_static_leader_whose_plan_fails_keeps_its_place_for_the_next_with_its_instance_id() -> None:
    rig = Rig(Rogue(None), instance_id="pod-1")
    rig.topics(t=2)
    rig.reach_joining("t")
    rig.joined(**as_leader(said("m1", "t")))
    assert isinstance(fatal(rig), AssignorFailed)
    assert not rig.asked("LeaveGroup")


class Speechless(Rogue):
    """An assignor that has `says` to say, or raises it."""

    def __init__(self, says: object) -> None:
        super().__init__(None)
        self.says = says

    def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says  # type: ignore[return-value]


@pytest.mark.proves("G-03")
@pytest.mark.parametrize(
    "says",
    [
        RuntimeError("cucumber"),
        SystemExit(1),
        None,
        MemberSubscription(("t",), user_data="text"),  # type: ignore[arg-type]
        MemberSubscription(("t",), generation_id=2**40),
    ],
    ids=["raises", "exits", "nothing", "no bytes", "no generation"],
)
def test_an_assignor_that_has_nothing_to_say_stops_its_member_and_not_its_driver(says: object) -> None:
    rig = Rig("roundrobin", Speechless(says))
    rig.topics(t=2)
    rig.reach_joining("t")
    assert isinstance(fatal(rig), AssignorFailed)
    assert fatal(rig).place["assignor"] == "range"
    assert not rig.asked("JoinGroup")


@pytest.mark.proves("B-20")
def test_a_member_that_speaks_gibberish_is_named() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(
        leader=None, members=(said("m1", "t"), JoinGroupResponseMember(member_id="alien", metadata=b"\x00\x01\xff"))
    )
    assert isinstance(fatal(rig), MemberUnreadable)
    assert fatal(rig).place["member"] == "alien"


@pytest.mark.proves("B-20")
def test_a_member_whose_extras_are_unreadable_is_read_as_version_0() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    mangled = b"\x00\x03" + said("m2", "t").metadata[2:-4]  # claims version 3 and ends too early
    rig.joined(leader=None, members=(said("m1", "t"), JoinGroupResponseMember(member_id="m2", metadata=mangled)))
    assert rig.plan() == {"m1": tps("t-0"), "m2": tps("t-1")}


@pytest.mark.proves("G-08", "B-20")
def test_a_member_may_name_a_topic_of_what_it_owns_more_than_once() -> None:
    owns = build_subscription(
        Subscription(
            topics=("t", "u"),
            owned_partitions=tuple(
                TopicPartitions(topic=topic, partitions=(number,)) for number in (0, 1) for topic in ("t", "u")
            ),
            generation_id=5,
        )
    )
    members = (JoinGroupResponseMember(member_id="m1", metadata=owns), said("m2", "t", "u"))
    plan = make_plan(
        get("cooperative-sticky"),
        read_members(members, "cooperative-sticky"),
        {"t": TopicInfo(2), "u": TopicInfo(2)},
    )
    assert len(plan["m1"]) == 2
    assert len(plan["m2"]) == 0  # what is to move has a reader until that one lets go
