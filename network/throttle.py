"""Client-side throttling (KIP-219): requests wait for the `throttle_time_ms` of the last response.

Since KIP-219 a broker responds at once and reads nothing more from the connection until the time has passed. A request
sent meanwhile only fills buffers and times out. Group membership is the exception. A heartbeat in the broker's socket
is read when the broker reads again, but one that waits in the client may come too late.
"""

from typing import Any, Final

from kohort.common.log_context import logger

log = logger("kohort.connections")

LONGEST_S: Final = 30.0
"""The maximum throttle time. Brokers request a few quota windows of a second, so a longer time is a defect."""

NEVER_HELD: Final = frozenset(
    {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"}
)


class Throttle:
    """Of one connection. `until`: monotonic seconds."""

    def __init__(self) -> None:
        self.until = float("-inf")
        self._reported = False

    def on_response(self, response: Any, now: float, broker: object) -> None:
        """Handles a response that came from `broker`."""
        wanted_s = max(getattr(response, "throttle_time_ms", 0), 0) / 1000
        if wanted_s:
            self.until = max(self.until, now + min(wanted_s, LONGEST_S))
        if wanted_s > LONGEST_S and not self._reported:
            self._reported = True
            log.warning("%s requested a throttle time of %.0f s, limited to %.0f s", broker, wanted_s, LONGEST_S)

    def holds(self, api: str, now: float) -> bool:
        """True if a request has to wait."""
        return now < self.until and api not in NEVER_HELD
