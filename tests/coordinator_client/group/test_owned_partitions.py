"""The partitions that a member may fetch; a look costs nothing while nothing changes."""

from kohort.coordinator_client.group.member_context import NOTHING, OwnedPartitions
from kohort.coordinator_client.hooks import Assigned, RebalanceCause, RebalanceReason, Revoked
from tests.coordinator_client.group.member_rig import tps

OWNED = tps("t-0..3")
CAUSE = RebalanceCause(RebalanceReason.ENFORCED)


def holding() -> OwnedPartitions:
    one = OwnedPartitions()
    one.newly_assigned = OWNED
    one.accept(1)
    return one


def test_what_may_be_fetched_is_made_again_for_each_change_only() -> None:
    one = holding()
    whole = one.fetchable(alive=True)
    assert whole == OWNED
    assert one.fetchable(alive=True) is whole
    assert one.fetchable(alive=False) == NOTHING
    assert one.fetchable(alive=True) == OWNED
    going = tps("t-1")
    one.call(7, Revoked(going, OWNED, 1, CAUSE), OWNED, OWNED - going)
    without = one.fetchable(alive=True)
    assert without == OWNED - going
    assert one.fetchable(alive=True) is without
    assert one.ended(7) is not None
    assert one.fetchable(alive=True) == OWNED
    one.drop(going)
    assert one.fetchable(alive=True) == OWNED - going


def calls(one: OwnedPartitions) -> tuple[bool, bool]:
    """True if a call is due, and true if it runs."""
    return one.hook is not None, one.callback_running


def test_a_call_runs_from_its_start_to_its_end() -> None:
    one = holding()
    assert calls(one) == (False, False)
    one.call(7, Assigned(OWNED, OWNED, 1, CAUSE), NOTHING, OWNED)
    assert not one.started(6)
    assert calls(one) == (True, False)
    assert one.started(7)
    assert one.ended(6) is None
    assert calls(one) == (True, True)
    assert one.ended(7) is not None
    assert calls(one) == (False, False)
    assert one.ended(7) is None
