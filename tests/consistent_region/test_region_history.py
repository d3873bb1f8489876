"""A member's timeline: its events as a person would report them, in the order in which they happened."""

import pytest

from kohort import KohortError, TopicPartition
from kohort.consistent_region import events as ev
from kohort.consistent_region.checkpoint_barrier import MembershipView
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.region_history import KEPT_MOMENTS, HistoryEntry, RegionHistory
from kohort.consistent_region.states import RegionState
from kohort.consistent_region.store import MemoryStore
from kohort.coordinator_client.hooks import Assigned
from kohort.network.group_types import OffsetAndMetadata
from tests.consistent_region.region_hand import CAUSE, Hand
from tests.consistent_region.region_rig import P0, P1, P2, Rig, recs


class Watched(Rig):
    """A rig whose history is kept as a driver keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[HistoryEntry] = []
        self.history = RegionHistory(self.received.append)

    def step(self, event: ev.Event) -> object:  # type: ignore[override]
        ready = super().step(event)
        self.history.saw(self.member, self.now, event)
        self.now += 1.0
        return ready

    def reported(self) -> list[tuple[str, str]]:
        return [(one.kind, one.state.name) for one in self.history.timeline]


def test_a_life_with_a_checkpoint_a_rebalance_and_a_loss_is_reported_in_order() -> None:
    rig = Watched()
    rig.reading(*recs(P0, 0, 1, 2))
    rig.handle(3)
    rig.barrier(1)
    rig.step(ev.Contributed(rig.view))
    rig.sees(barrier=None, newest=1)
    rig.step(ev.PartitionsRevoked(5))
    rig.assigned({P0: 3}, generation=6)
    rig.went_back({P0: 3}, epoch=1)
    rig.step(ev.PartitionsLost(6))
    assert rig.reported() == [
        ("state", "EVENT_THREAD_STARTED"),
        ("state", "SUBSCRIBED"),
        ("assigned", "SUBSCRIBED"),
        ("state", "RECORDS_FETCHED"),
        ("checkpoint", "RECORDS_FETCHED"),
        ("revoked", "CR_RESET_PENDING"),
        ("reset_wanted", "CR_RESET_PENDING"),
        ("assigned", "CR_RESET_PENDING"),
        ("went_back", "RESET_COMPLETE"),
        ("lost", "CR_RESET_PENDING"),
        ("reset_wanted", "CR_RESET_PENDING"),
    ]
    assert list(rig.history.timeline) == rig.received
    by_kind = {one.kind: one for one in rig.history.timeline}
    assert by_kind["checkpoint"].checkpoint == 1
    assert by_kind["checkpoint"].records == 3
    assert [one.partitions for one in rig.received if one.kind == "revoked"] == [frozenset({P0, P1})]
    assert by_kind["assigned"].partitions == frozenset({P0})
    assert (by_kind["went_back"].epoch, by_kind["went_back"].checkpoint) == (1, 1)
    assert [one.text for one in rig.received if one.kind == "reset_wanted"] == [
        "partitions moved after records were read",
        "the group went on without this member",
    ]
    assert [one.at_s for one in rig.received] == sorted(one.at_s for one in rig.received)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ev.StateTaken(frozenset({P0, P1, P2}), 6, {}, MembershipView(0, None, None, 0.0)), "have no start"),
        (ev.Dispossessed("another member has started the task"), "another member has started"),
    ],
)
def test_a_member_that_goes_back_alone_gives_its_own_reason(event: ev.Event, reason: str) -> None:
    rig = Watched()
    rig.reading(*recs(P0, 0))
    rig.step(event)
    assert reason in rig.received[-1].text


def test_the_timeline_is_bounded_and_keeps_the_newest() -> None:
    rig = Watched()
    rig.subscribed()
    for generation in range(1, KEPT_MOMENTS + 50):
        starts = {TopicPartition("t", 0): RegionPosition(0)}
        rig.step(ev.PartitionsAssigned(frozenset(starts), generation, starts, rig.view))
    assert len(rig.history.timeline) == KEPT_MOMENTS
    assert rig.history.timeline[-1].generation == KEPT_MOMENTS + 49
    assert rig.member.state is RegionState.SUBSCRIBED


def unheard(hand: Hand, kind: str) -> None:
    """Have the listener of `hand` fail for one kind of moment."""

    def post(moment: HistoryEntry) -> None:
        if moment.kind == kind:
            raise KohortError("nobody listens")

    hand.conductor.history = RegionHistory(post)


@pytest.mark.proves("B-43")
def test_a_hook_that_raises_at_an_assignment_does_not_lose_where_it_is_read_from() -> None:
    hand = Hand(MemoryStore())
    unheard(hand, "assigned")
    # Without these the consumer would go on where the group has committed, and not where the region has read.
    started = hand.conductor.on_assigned(Assigned(frozenset({P0}), frozenset({P0}), 5, CAUSE))
    assert started == {P0: OffsetAndMetadata(0)}
    hand.consumer.assignment = frozenset({P0})
    with pytest.raises(KohortError, match="nobody listens"):
        hand.turn()


@pytest.mark.proves("CR-85")
def test_a_hook_that_raises_at_the_end_does_not_keep_the_member_from_leaving() -> None:
    hand = Hand(MemoryStore())
    unheard(hand, "state")
    hand.conductor.stop()
    assert hand.coordinator.record().members["a"].lease_deadline == hand.now
