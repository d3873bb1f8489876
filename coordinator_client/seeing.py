"""Health of a core: a snapshot, taken under its lock."""

from typing import TYPE_CHECKING

from kohort.coordinator_client.health import Health, judged

if TYPE_CHECKING:
    from kohort.coordinator_client.consumer_core import Core


def health_of(core: "Core", now: float, *, crashed: bool, closed: bool) -> Health:
    """How this consumer is."""
    view = core.view
    state = view.state if view is not None else None
    for_s = max(now - view.since, 0.0) if view is not None and view.since > 0 else 0.0
    error = core.fatal or (view.fatal if view is not None else None)
    unreachable = core.cluster.starving(now) or not core.endpoints.ever_answered
    reason = judged(
        state=state,
        for_s=for_s,
        rebalance_timeout_s=core.config.max_poll_interval_ms / 1000,
        crashed=crashed,
        closed=closed,
        error=error,
        unreachable=core.endpoints.last_error if unreachable else None,
    )
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
        coordinator=f"{coordinator.host}:{coordinator.port}" if coordinator is not None else None,
        last_heartbeat_s=None if beat is None else max(now - beat, 0.0),
        error=error,
    )
