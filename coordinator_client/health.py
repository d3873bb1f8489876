"""Is this consumer well? A snapshot for probes: an idle standby is healthy, a member that cannot rejoin is not."""

from typing import NamedTuple

from kohort.coordinator_client.group.states import REBALANCING, MemberState
from kohort.fastpath import KohortError, TopicPartition


class Health(NamedTuple):
    """`state`: where it stands ("assigned by hand" without membership), for `for_s` seconds now. `healthy`: nothing has
    failed for good, it was not closed, a broker answers, and a rebalance under way is not older than it may be.
    `reason`: why not.

    `last_heartbeat_s`: seconds since the last heartbeat that was answered well was sent, None before the first.
    """

    healthy: bool
    reason: str
    state: str
    for_s: float
    generation: int
    member_id: str
    owned: frozenset[TopicPartition]
    coordinator: str | None
    last_heartbeat_s: float | None
    error: KohortError | None


def judged(
    *,
    state: MemberState | None,
    for_s: float,
    rebalance_timeout_s: float,
    crashed: bool,
    closed: bool,
    error: KohortError | None,
    unreachable: KohortError | None,
) -> str:
    """What is wrong, as a sentence; "" if nothing is."""
    if crashed:
        return "the driver's thread ended by a defect"
    if error is not None:
        return str(error)
    if closed:
        return "the consumer is closed"
    if unreachable is not None:
        return f"no broker answers: {unreachable}"
    if state is MemberState.STALLED:
        return str(state.value)
    if state in REBALANCING and for_s > rebalance_timeout_s:
        return f"{state.value}, for {for_s:.0f} s"
    return ""
