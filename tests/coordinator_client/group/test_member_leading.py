"""A leader whose assignor, or whose members, do what they must not: it stops rather than harm the group."""

import pytest

from kohort.assignors import GroupView, MemberSubscription, Plan, Rebalance, get
from kohort.coordinator_client.group.leader_assignment import AssignorFailed, make_plan, read_members
from kohort.network.metadata import TopicInfo, TopicsChanged
from kohort.protocol.apis.join_group import JoinGroupResponseMember
from kohort.protocol.membership import (
    CooperativeStickyUserData,
    Subscription,
    TopicPartitions,
    build_cooperative_sticky,
    build_subscription,
    parse_assignment,
)
from tests.coordinator_client.group.member_rig import Rig, as_leader, assert_silent, fatal, said, tps, wire
from tests.support.unprintable_error import UnprintableError


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
def test_a_rogue_assignor_stops_its_leader_and_no_other(plan: object) -> None:
    rig = Rig(Rogue(plan))
    rig.topics(t=2, u=2)
    rig.reach_joining()
    rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))
    assert isinstance(fatal(rig), AssignorFailed)
    assert fatal(rig).place["assignor"] == "range"
    assert not rig.requested("SyncGroup"), "no plan at all, rather than a wrong one"
    (goodbye,) = rig.requested("LeaveGroup")
    assert (goodbye.members[0].member_id, goodbye.members[0].reason) == ("m1", "it failed: AssignorFailed")
    assert rig.state == "FAILED", "without waiting for its response"
    assert_silent(rig)


def test_a_static_leader_whose_plan_fails_keeps_its_place_for_the_next_with_its_instance_id() -> None:
    rig = Rig(Rogue(None), instance_id="pod-1")
    rig.topics(t=2)
    rig.reach_joining("t")
    rig.joined(**as_leader(said("m1", "t")))
    assert isinstance(fatal(rig), AssignorFailed)
    assert not rig.requested("LeaveGroup")


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
        UnprintableError(),
        None,
        MemberSubscription(("t",), user_data="text"),  # type: ignore[arg-type]
        MemberSubscription(("t",), generation_id=2**40),
    ],
    ids=["raises", "exits", "unprintable", "nothing", "no bytes", "no generation"],
)
def test_an_assignor_that_has_nothing_to_say_stops_its_member_and_not_its_driver(says: object) -> None:
    rig = Rig("roundrobin", Speechless(says))
    rig.topics(t=2)
    rig.reach_joining("t")
    assert isinstance(fatal(rig), AssignorFailed)
    assert fatal(rig).place["assignor"] == "range"
    assert not rig.requested("JoinGroup")


GARBAGE = {
    "empty": b"",
    "one byte": b"\x00",
    "version only": b"\x00\x01",
    "cut in a name": b"\x00\x01\x00\x00\x00\x01\x00\x09top",
    "count of topics too high": b"\x00\x00\x7f\xff\xff\xff",
    "negative count of topics": b"\x00\x00\xff\xff\xff\xfb",
    "no UTF-8": b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe\xff\xff\xff\xff",
    "user data longer than the bytes": b"\x00\x00\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",
}
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")


def sees(rig: Rig, generation: int, assignor: str, *members: JoinGroupResponseMember) -> None:
    rig.joined(generation=generation, protocol=assignor, leader=None, members=members)


@pytest.mark.proves("B-20")
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_member_whose_subscription_is_unreadable_gets_nothing_and_the_others_go_on(
    assignor: str, garbage: bytes
) -> None:
    rig = Rig(assignor)
    rig.topics(t=4)
    rig.reach_joining()
    alien = JoinGroupResponseMember(member_id="rdkafka-1a2b", group_instance_id="pod-9", metadata=garbage)
    sees(rig, 7, assignor, said("m1", "t"), said("m2", "t"), alien)
    assert rig.ready.view.fatal is None
    assert rig.state == "SYNCING"
    plan = rig.plan()
    assert plan["rdkafka-1a2b"] == frozenset()
    assert plan["m1"] | plan["m2"] == tps("t-0..3")
    assert not plan["m1"] & plan["m2"]
    (bytes_of_it,) = [one.assignment for one in rig.last("SyncGroup").assignments if one.member_id == "rdkafka-1a2b"]
    assert parse_assignment(bytes_of_it).assigned_partitions == ()
    assert len(bytes_of_it) > 2, "an assignment of nothing, not no assignment"
    (notice,) = [one for one in rig.notices if one.kind == "bad_subscription"]
    for named in ("'rdkafka-1a2b'", "'pod-9'", "'billing'", "generation 7", "unreadable"):
        assert named in notice.text


@pytest.mark.proves("B-20")
def test_an_unreadable_member_is_noticed_once_in_each_generation() -> None:
    rig = Rig()
    rig.topics(t=2)
    rig.reach_joining()
    alien = JoinGroupResponseMember(member_id="alien", metadata=b"")
    for generation in (1, 2):
        sees(rig, generation, "range", said("m1", "t"), alien)
        rig.synced(assigned=tps("t-0..1"))
        rig.run_hook()
        assert rig.kinds.count("bad_subscription") == generation
        rig.heartbeat()
        rig.post(TopicsChanged({"t": TopicInfo(2)}, False, frozenset({"t"})))
        assert rig.kinds.count("bad_subscription") == generation
        rig.heartbeat(27)
        rig.run_hook()
    sees(rig, 3, "range", said("m1", "t"), said("m2", "t"))
    assert rig.plan() == {"m1": tps("t-0"), "m2": tps("t-1")}
    assert rig.kinds.count("bad_subscription") == 2


@pytest.mark.proves("B-20")
def test_a_static_leader_that_need_not_assign_notices_an_unreadable_member_too() -> None:
    rig = Rig(instance_id="pod-1")
    rig.topics(t=2)
    rig.reach_joining()
    rig.joined(leader=None, skip=True, members=(said("m1", "t"), JoinGroupResponseMember(member_id="a", metadata=b"")))
    assert (rig.state, rig.kinds.count("bad_subscription")) == ("SYNCING", 1)


def as_user_data(generation: int) -> bytes:
    return build_cooperative_sticky(CooperativeStickyUserData(generation=generation))


@pytest.mark.proves("B-20", "G-08")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "lag"])
@pytest.mark.parametrize("claimed", [6, 2**31 - 1])
def test_what_a_member_claims_as_of_a_generation_that_has_not_ended_is_not_believed(
    claimed: int, assignor: str
) -> None:
    """Else the claim outbids the owner, all plans keep the partitions for it, and they have no owner for good."""
    rig = Rig(assignor)
    rig.topics(t=4)
    rig.reach_joining()
    liar = said("liar", "t", owned=tps("t-0..3"), generation=claimed)
    sees(rig, 5, assignor, said("m1", "t", owned=tps("t-0..3"), generation=4), liar)
    if assignor == "lag":
        rig.measured()
    kept = rig.plan()["m1"]
    assert len(kept) == 2
    assert rig.plan()["liar"] == frozenset()  # what is to move has a reader until that one lets go
    assert "bad_subscription" in rig.kinds
    rig.synced(assigned=tps("t-0..3"))
    rig.run_hook()
    rig.heartbeat(27)
    sees(rig, 6, assignor, said("m1", "t", owned=kept, generation=5), liar)
    assert rig.plan() == {"m1": kept, "liar": tps("t-0..3") - kept}


@pytest.mark.parametrize(
    ("assignor", "generation", "believed"),
    [
        ("cooperative-sticky", 4, True),
        ("cooperative-sticky", 5, False),
        ("cooperative-sticky", 2**31 - 1, False),
        ("somebodys-own", 2**31 - 1, True),  # four bytes of an assignor that we do not know may mean anything
    ],
)
def test_a_generation_in_the_user_data_of_an_old_client_is_judged_alike(
    assignor: str, generation: int, believed: bool
) -> None:
    old = build_subscription(
        Subscription(topics=("t",), user_data=as_user_data(generation), owned_partitions=wire(tps("t-0"))), 1
    )
    (read,) = read_members((JoinGroupResponseMember(member_id="m", metadata=old),), assignor, 5).values()
    assert bool(read.subscription.owned_partitions) is believed
    assert read.subscription.user_data == as_user_data(generation)
    assert bool(read.error) is not believed


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
        read_members(members, "cooperative-sticky", 6),
        {"t": TopicInfo(2), "u": TopicInfo(2)},
    )
    assert len(plan["m1"]) == 2
    assert len(plan["m2"]) == 0  # what is to move has a reader until that one lets go
