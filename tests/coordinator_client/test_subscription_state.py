"""Subscription, Assignment and PauseMarks as values; KIP-822's table (K-01 to K-13) played through real machines."""

import re
from typing import Any

import pytest

from kohort.assignors import get
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.hooks import Assigned, Lost, Revoked, Start
from kohort.coordinator_client.subscription_state import (
    AssignedPartitions,
    Owned,
    PauseMarks,
    PauseReason,
    Subscription,
)
from kohort.network.errors import IllegalState
from tests.coordinator_client.group.consumer_member_rig import EpochRig
from tests.coordinator_client.group.member_rig import Rig, tps
from tests.coordinator_client.group.test_member_cooperative import Cooperative

P, Q, R = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
BOTH = frozenset({P, Q})


class Caller:
    """The caller's side of a member: visible assignment and pause marks, laid as `coordinator_client/group/ready.py`
    requires of a driver."""

    def __init__(self, mode: str) -> None:
        self.protocol = "gentle" if mode == "COOPERATIVE" else "range"
        self.rig = self.made_rig(mode)
        self.marks = PauseMarks()
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.rig.reach_joining("t")

    def made_rig(self, mode: str) -> Rig:
        return Rig(Cooperative() if mode == "COOPERATIVE" else get("range"))

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self.marks.paused(self.assignment))

    def fetched(self) -> frozenset[TopicPartition]:
        """The offset that a fetch would request."""
        return self.rig.ready.view.fetchable - self.paused()

    def pause(self, *partitions: TopicPartition) -> None:
        self.marks = self.marks.pause(partitions, self.assignment)

    def resume(self, *partitions: TopicPartition) -> None:
        self.marks = self.marks.resume(partitions)

    def poll(self, inside: object = None) -> list[object]:
        """Run every hook that is due; `inside` is called in each with its event, as user code would be."""
        seen: list[object] = []
        while self.rig.ready.hook is not None:
            call = self.rig.start_hook()
            self.assignment = call.before
            self.marks = self.marks.settled(call)
            seen.append(call.event)
            if callable(inside):
                inside(call.event)
            self.assignment = call.after
            self.rig.end_hook(call)
        return seen

    def receive(self, *partitions: TopicPartition, generation: int) -> None:
        """The join in flight gets its response, and so does the sync."""
        self.rig.again(partitions, generation=generation, protocol=self.protocol)

    def requested(self) -> None:
        """The coordinator requests a rebalance."""
        self.rig.heartbeat(27)

    def failed(self, generation: int) -> None:
        """The rebalance under way comes to nothing."""
        self.rig.joined(generation=generation, protocol=self.protocol)
        self.rig.synced(27)

    def expelled(self) -> None:
        self.rig.heartbeat(25)

    def beat(self) -> None:
        self.rig.heartbeat()

    def rebalance(self, *partitions: TopicPartition, generation: int, inside: object = None) -> list[object]:
        self.requested()
        seen = self.poll(inside)
        self.receive(*partitions, generation=generation)
        return seen + self.poll(inside)


class EpochCaller(Caller):
    """The same under KIP-848, where a rebalance is a heartbeat's response."""

    rig: EpochRig

    def made_rig(self, mode: str) -> Rig:
        return EpochRig()

    def receive(self, *partitions: TopicPartition, generation: int) -> None:
        self.rig.coordinator_responds(epoch=generation, assigned=partitions)

    def requested(self) -> None:
        if not self.rig.member._in_flight.is_in_flight("ConsumerGroupHeartbeat"):
            self.rig.next_report()

    def failed(self, generation: int) -> None:
        self.rig.coordinator_responds(14)
        self.rig.after(5.0)

    def expelled(self) -> None:
        self.requested()
        self.rig.coordinator_responds(25)

    def beat(self) -> None:
        self.requested()
        self.rig.coordinator_responds(epoch=max(self.rig.ready.view.identity.generation, 1))


def caller_of(mode: str) -> Caller:
    return EpochCaller(mode) if mode == "CONSUMER" else Caller(mode)


@pytest.fixture(params=["EAGER", "COOPERATIVE", "CONSUMER"])
def caller(request: pytest.FixtureRequest) -> Caller:
    """All protocols, since marks must live alike under all."""
    made = caller_of(request.param)
    made.receive(P, Q, generation=1)
    made.poll()
    assert made.rig.state == "STABLE"
    return made


@pytest.mark.proves("K-01", "K-02", "K-08", "K-13")
def test_a_mark_stays_on_what_is_assigned_again(caller: Caller) -> None:
    caller.pause(P)
    inside: list[frozenset[TopicPartition]] = []
    events = caller.rebalance(P, Q, R, generation=2, inside=lambda event: inside.append(caller.paused()))
    assert isinstance(events[-1], Assigned)
    assert inside[-1] == {P}, "inside on_assigned it is already there"
    assert caller.paused() == {P}
    assert caller.fetched() == {Q, R}


@pytest.mark.proves("K-02", "K-13")
@pytest.mark.parametrize("mode", ["COOPERATIVE", "CONSUMER"])
def test_what_is_kept_keeps_its_epoch_under_the_mark_so_that_its_buffer_stays_good(mode: str) -> None:
    caller = caller_of(mode)
    caller.receive(P, Q, generation=1)
    caller.poll()
    epoch = caller.rig.ready.view.assignment[P].epoch
    caller.pause(P)
    caller.rebalance(P, generation=2)
    assert caller.paused() == {P}
    assert caller.rig.ready.view.assignment[P].epoch == epoch


@pytest.mark.proves("K-01", "K-09")
def test_what_eager_takes_back_comes_under_a_new_epoch_so_that_no_old_buffer_is_shown() -> None:
    caller = Caller("EAGER")
    caller.receive(P, Q, generation=1)
    caller.poll()
    epoch = caller.rig.ready.view.assignment[P].epoch
    caller.pause(P)
    caller.rebalance(P, Q, generation=2)
    assert caller.rig.ready.view.assignment[P].epoch > epoch
    assert caller.rig.ready.view.assignment[P].start is None, "where to go on is the commit's affair"
    assert caller.paused() == {P}


@pytest.mark.proves("K-03", "K-13")
def test_what_goes_to_another_member_is_not_paused_here(caller: Caller) -> None:
    caller.pause(P)
    caller.rebalance(Q, generation=2)
    assert caller.paused() == frozenset()
    assert caller.marks == PauseMarks(), "and no trace of it is kept"


@pytest.mark.proves("K-04")
def test_what_was_away_for_a_generation_comes_back_unpaused(caller: Caller) -> None:
    caller.pause(P)
    caller.rebalance(Q, generation=2)
    if caller.rig.state == "JOINING":  # cooperative: the round that lets others take what we let go
        caller.receive(Q, generation=3)
        caller.poll()
    caller.rebalance(P, Q, generation=4)
    assert caller.assignment == BOTH
    assert caller.paused() == frozenset()


@pytest.mark.proves("K-05")
def test_a_mark_survives_any_number_of_attempts(caller: Caller) -> None:
    caller.pause(P)
    caller.requested()
    caller.poll()
    for generation in (2, 3, 4):
        caller.failed(generation)
        caller.poll()
    caller.receive(P, Q, generation=5)
    caller.poll()
    assert caller.paused() == {P}


@pytest.mark.proves("K-06")
def test_a_mark_survives_a_loss_if_the_partition_comes_right_back(caller: Caller) -> None:
    caller.pause(P)
    caller.expelled()
    events = caller.poll()
    assert isinstance(events[0], Lost)
    assert caller.paused() == frozenset(), "nothing is assigned, so nothing is paused"
    caller.receive(P, Q, generation=2)
    caller.poll()
    assert caller.paused() == {P}


@pytest.mark.proves("K-07")
@pytest.mark.parametrize("last_word", ["pause", "resume"])
def test_what_the_user_says_inside_on_revoked_is_the_last_word(last_word: str) -> None:
    caller = Caller("EAGER")  # elsewhere what is let go does not come back in the same rebalance
    caller.receive(P, Q, generation=1)
    caller.poll()
    if last_word == "resume":
        caller.pause(P)

    def inside(event: object) -> None:
        if isinstance(event, Revoked):
            assert caller.assignment == BOTH, "still ours inside the hook"
            caller.resume(P) if last_word == "resume" else caller.pause(P)

    caller.rebalance(P, Q, generation=2, inside=inside)
    assert caller.paused() == (frozenset() if last_word == "resume" else {P})


@pytest.mark.proves("K-07", "K-08")
def test_what_the_user_says_inside_on_assigned_is_the_last_word(caller: Caller) -> None:
    caller.pause(P)
    caller.rebalance(
        P, Q, R, generation=2, inside=lambda event: caller.resume(P) if isinstance(event, Assigned) else None
    )
    assert caller.paused() == frozenset()


@pytest.mark.proves("K-09")
def test_a_paused_partition_is_never_among_what_may_be_shown(caller: Caller) -> None:
    caller.pause(P)
    shown: list[frozenset[TopicPartition]] = []
    caller.requested()
    shown.append(caller.fetched())
    caller.poll(lambda event: shown.append(caller.fetched()))
    caller.receive(P, Q, generation=2)
    shown.append(caller.fetched())
    caller.poll(lambda event: shown.append(caller.fetched()))
    shown.append(caller.fetched())
    assert all(P not in each for each in shown)
    caller.resume(P)
    assert caller.fetched() == BOTH


@pytest.mark.proves("K-10")
def test_marks_go_with_the_subscription(caller: Caller) -> None:
    caller.pause(P)
    assert caller.marks.resubscribed(Subscription.of(["t", "u"])).paused(BOTH) == {P: PauseReason.PARTITION}
    assert caller.marks.resubscribed(Subscription.of(["u"])) == PauseMarks()
    assert caller.marks.resubscribed(None) == PauseMarks()


@pytest.mark.proves("K-11")
def test_nothing_paused_stays_nothing(caller: Caller) -> None:
    before = caller.marks
    caller.rebalance(P, Q, generation=2)
    assert caller.marks is before
    assert caller.marks.paused(BOTH) == {}


@pytest.mark.proves("K-12")
def test_all_paused_and_polled_is_a_member_of_good_standing(caller: Caller) -> None:
    caller.pause(P, Q)
    limit_s = caller.rig.settings.max_poll_interval_ms / 1000
    started = caller.rig.now
    while caller.rig.now < started + limit_s * 1.2:
        caller.rig.post(ev.Polled(caller.rig.now), ev.PollEnded(caller.rig.now))
        caller.beat()
        assert caller.fetched() == frozenset()
    assert caller.rig.state == "STABLE"


# ------------------------------------------------------------------------------------------------------ beyond KIP-822


@pytest.mark.proves("X-03")
def test_a_paused_topic_covers_what_is_assigned_later() -> None:
    marks = PauseMarks().pause_topics(["t"], Subscription.of(["t", "u"]))
    later = tps("t-0..2", "u-0")
    assert marks.paused(later) == dict.fromkeys(tps("t-0..2"), PauseReason.TOPIC)
    assert marks.kept_on(frozenset()).paused(later) == marks.paused(later), "a rebalance does not touch it"
    assert marks.resume([P]).reason(P) is PauseReason.TOPIC, "a partition's resume does not lift a topic's pause"
    assert marks.resume_topics("t").paused(later) == {}


@pytest.mark.proves("X-03")
def test_a_paused_pattern_covers_topics_that_do_not_exist_yet() -> None:
    marks = PauseMarks().pause_pattern("pay.*", Subscription.matching(".*"))
    assert marks.reason(TopicPartition("payments", 9)) is PauseReason.PATTERN
    assert marks.reason(TopicPartition("repay", 0)) is None, "the whole name must match"
    assert marks.pause_pattern("pay.*", Subscription.matching(".*")) is marks
    assert marks.resume_pattern("pay").reason(TopicPartition("payments", 9)) is PauseReason.PATTERN
    assert marks.resume_pattern("pay.*") == PauseMarks()


@pytest.mark.proves("X-03")
def test_pausing_what_is_not_subscribed_is_refused() -> None:
    with pytest.raises(IllegalState, match="subscribed topic") as caught:
        PauseMarks().pause_topics(["t", "x"], Subscription.of(["t"]))
    assert caught.value.place["topics"] == "x"
    with pytest.raises(IllegalState):
        PauseMarks().pause_topics("t", None)
    with pytest.raises(IllegalState):
        PauseMarks().pause_pattern("t", None)
    with pytest.raises(IllegalState, match="regular expression"):
        PauseMarks().pause_pattern("(", Subscription.of(["t"]))


@pytest.mark.proves("X-03")
def test_topic_marks_go_with_the_subscription() -> None:
    marks = PauseMarks().pause_topics(["t", "u"], Subscription.of(["t", "u"]))
    assert marks.resubscribed(Subscription.of(["u"])).topics == {"u"}
    assert marks.resubscribed(None) == PauseMarks()


@pytest.mark.proves("X-04")
def test_a_paused_consumer_returns_nothing_under_any_events(caller: Caller) -> None:
    caller.marks = caller.marks.pause_all()
    assert caller.fetched() == frozenset()
    caller.rebalance(P, Q, generation=2)
    assert caller.marks.paused(caller.assignment) == dict.fromkeys(BOTH, PauseReason.CONSUMER)
    assert caller.rig.state == "STABLE"
    caller.pause(P)
    caller.marks = caller.marks.resume_all()
    assert caller.marks.paused(BOTH) == {P: PauseReason.PARTITION}


@pytest.mark.proves("X-05")
def test_held_partitions_need_not_be_ours_and_only_the_user_releases_them(caller: Caller) -> None:
    elsewhere = TopicPartition("not-yet-created", 3)
    caller.marks = caller.marks.hold([P, elsewhere])
    caller.rebalance(Q, generation=2)
    assert caller.marks.held == {P, elsewhere}
    assert caller.marks.resubscribed(None).held == {P, elsewhere}
    assert caller.marks.resume([P]).reason(P) is PauseReason.HELD
    assert caller.marks.release([P, elsewhere]).reason(P) is None


@pytest.mark.proves("X-05")
def test_pausing_a_partition_that_is_not_assigned_is_refused_with_the_way_out() -> None:
    with pytest.raises(IllegalState, match="assigned") as caught:
        PauseMarks().pause([P, Q], frozenset({P}))
    assert "hold" in str(caught.value)
    assert caught.value.place["partitions"] == "t-1"


# --------------------------------------------------------------------------------------------- subscription, assignment


@pytest.mark.proves("F-16")
def test_subscription_by_name() -> None:
    subscription = Subscription.of(["a", "b", "a"])
    assert subscription.topics == {"a", "b"}
    assert subscription.resolved({}) == {"a", "b"}, "a topic may be subscribed to before it exists"
    assert subscription.matches("a")
    assert not subscription.matches("c")
    assert Subscription.of([]).resolved({"a": False}) == frozenset()


@pytest.mark.parametrize("topics", ["abc", [""], [3]])
def test_subscription_refuses_what_is_no_list_of_topics(topics: object) -> None:
    with pytest.raises(IllegalState):
        Subscription.of(topics)  # type: ignore[arg-type]


@pytest.mark.proves("F-16")
def test_subscription_by_pattern_includes_and_excludes_whole_names() -> None:
    subscription = Subscription.matching("pay.*", "pay-test|pay.*-old")
    known = dict.fromkeys(["pay", "pay-test", "pay-test2", "payx-old", "repay"], False) | {"pay_internal": True}
    assert subscription.resolved(known) == {"pay", "pay-test2"}
    assert "pay_internal" in Subscription.matching("pay.*", internal=True).resolved(known)


def test_a_pattern_matches_whole_names_however_hostile_they_are() -> None:
    hostile = [
        "pay\n",
        "\npay",
        "pay\x00",
        "pay\r",
        "pay\u2028",
        "pay" * 10_000,
        "pay|",
        "(pay",
        "pa.",
        "\u202epay",
        "",
    ]
    known = dict.fromkeys([*hostile, "pay"], False)
    assert Subscription.matching("pay$").resolved(known) == {"pay"}
    assert Subscription.matching("(?m)^pay$").resolved(known) == {"pay"}
    assert Subscription.matching("[a-zA-Z0-9._-]{1,249}").resolved(known) == {"pay", "pa."}
    assert Subscription.matching("(?s).*", "pay").resolved(known) == set(hostile)


HOSTILE_NAMES = [
    "a" * 249,
    "a" * 32_767,
    "pay" * 10_000 + "\n",
    "((((a+)+)+)+)+$",
    ".*",
    "(?s).*",
    "pay)|(.*",
    "[",
    "\\",
    "pay\\E",
    "*",
    "\u202epay",
    "\u2066pay\u2069",
    "pay\r\n",
    "\x1b[2J",
    "\ud800",
    "",
    "pay\x00",
    "\uff50\uff41\uff59",
]


def test_a_name_is_text_and_never_a_pattern() -> None:
    """A pattern that means one name finds that one alone, for any name of a topic."""
    known = dict.fromkeys(HOSTILE_NAMES, False)
    assert len(known) == len(HOSTILE_NAMES)
    for name in HOSTILE_NAMES:
        assert Subscription.matching(re.escape(name)).resolved(known) == {name}
        assert Subscription.matching("(?s).*", re.escape(name)).resolved(known) == set(HOSTILE_NAMES) - {name}


@pytest.mark.parametrize("given", ["pay.*", "[a-z]+-orders", "pay|orders"])
def test_nothing_that_could_backtrack_is_put_around_a_pattern(given: str) -> None:
    """So a hostile name costs what the user's own pattern costs: a default one like `pay.*` a step a letter."""
    patterns = Subscription.matching(given, given)._patterns
    assert [pattern and pattern.pattern for pattern in patterns] == [given, given]


def test_each_of_many_topics_is_matched_once() -> None:
    class Counted(dict[str, bool]):
        seen = 0

        def items(self) -> Any:
            for item in super().items():
                self.seen += 1
                yield item

    known = Counted({f"a{number}": False for number in range(100_000)})
    assert len(Subscription.matching("a.*", "a9.*").resolved(known)) == 100_000 - 11_111
    assert known.seen == 100_000


@pytest.mark.proves("F-16")
@pytest.mark.parametrize(
    "pattern",
    [
        re.compile("orders-.*", re.IGNORECASE),
        re.compile("(?i)orders-.*"),
        re.compile("(?i)orders -.* # all of them", re.VERBOSE),
        re.compile("(?i)orders-\\w*", re.ASCII),
    ],
)
def test_a_compiled_pattern_keeps_its_flags(pattern: re.Pattern[str]) -> None:
    with Consumer("127.0.0.1:1", group="group") as consumer:
        consumer.subscribe(pattern=pattern)
        subscription = consumer.subscription
    assert subscription is not None
    assert {name for name in ("orders-1", "Orders-1", "orders-\u00e9", "ORDER") if subscription.matches(name)} == {
        name for name in ("orders-1", "Orders-1", "orders-\u00e9") if pattern.fullmatch(name)
    }


@pytest.mark.parametrize(("include", "exclude"), [("(", None), ("a", "[")])
def test_subscription_refuses_a_pattern_that_is_none(include: str, exclude: str | None) -> None:
    with pytest.raises(IllegalState, match="regular expression"):
        Subscription.matching(include, exclude)


@pytest.mark.proves("S-01")
def test_assignment_is_replaced_never_changed() -> None:
    empty = AssignedPartitions()
    first = empty.brought(tps("t-0..1"))
    second = first.without(tps("t-0")).brought(tps("u-0"))
    assert len(empty) == 0
    assert first == {P: Owned(1), Q: Owned(1)}
    assert second == {Q: Owned(1), TopicPartition("u", 0): Owned(2)}
    assert first.partitions == BOTH
    assert second.started({Q: Start(5), TopicPartition("x", 0): Start(7)})[Q] == Owned(1, Start(5))
    assert TopicPartition("x", 0) not in second.started({TopicPartition("x", 0): Start(7)})


def test_a_manual_assignment_keeps_the_epochs_of_what_stays() -> None:
    first = AssignedPartitions().replaced(tps("t-0..1"))
    second = first.replaced(tps("t-1..2"))
    assert second[Q].epoch == first[Q].epoch
    assert second[TopicPartition("t", 2)].epoch > first[Q].epoch
    assert second.partitions == tps("t-1..2")
    assert second.replaced([]).partitions == frozenset()
