"""Is this consumer well? A snapshot for probes: an idle standby is healthy, a member that cannot rejoin is not."""

from typing import TYPE_CHECKING

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.group.states import REBALANCING, MemberState

if TYPE_CHECKING:
    from kohort.coordinator_client.consumer_core import ConsumerCore


class Health(NamedTuple):
    """The health of a consumer.

    `state`: the member's state ("assigned by hand" without membership), since `for_s` seconds. `healthy`: no fatal
    error, not closed, a broker responds, and no rebalance takes longer than allowed. `reason`: the reason if it is not
    healthy.

    `last_heartbeat_s`: seconds since the last heartbeat with a successful response was sent, None before the first.
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


def health_of(core: "ConsumerCore", now: float, *, crashed: bool, closed: bool) -> Health:
    """The health of this consumer."""
    view = core.view
    state = view.state if view is not None else None
    for_s = max(now - view.since, 0.0) if view is not None and view.since > 0 else 0.0
    error = core.fatal or (view.fatal if view is not None else None)
    unreachable = core.cluster.no_broker_available(now) or not core.endpoints.ever_responded
    reason = ""
    if crashed:
        reason = "the driver's thread ended by a defect"
    elif error is not None:
        reason = str(error)
    elif closed:
        reason = "the consumer is closed"
    elif unreachable and core.endpoints.last_error is not None:
        reason = f"no broker responds: {core.endpoints.last_error}"
    elif state is MemberState.STALLED:
        reason = state.value
    elif state in REBALANCING and for_s > core.config.max_poll_interval_ms / 1000:
        reason = f"{state.value}, for {for_s:.0f} s"
    coordinator = core.cluster.coordinator()
    beat = view.last_beat_at if view is not None else None
    return Health(
        healthy=not reason,
        reason=reason,
        state=state.value if state is not None else "assigned by hand",
        for_s=for_s,
        generation=view.identity.generation if view is not None else -1,
        member_id=view.identity.member_id if view is not None else "",
        owned=core.visible,
        coordinator=str(coordinator.endpoint) if coordinator is not None else None,
        last_heartbeat_s=None if beat is None else max(now - beat, 0.0),
        error=error,
    )
