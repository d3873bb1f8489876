"""Client-side throttling (KIP-219): requests wait for the `throttle_time_ms` of the last response.

Since KIP-219 a broker responds at once and reads nothing more of the connection until the time is up. A request sent
meanwhile only fills buffers and runs into its time-out. Membership is the exception: a heartbeat in the broker's socket
is read when the broker reads again, but one that waits here may come too late.
"""

import logging
from typing import Any, Final

log = logging.getLogger("kohort.connections")

LONGEST_S: Final = 30.0
"""What is believed at most. Brokers ask for a few quota windows of a second; for more only a defect or a lie asks."""

NEVER_HELD: Final = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"})


class Throttle:
    """Of one connection. `until`: monotonic seconds."""

    def __init__(self) -> None:
        self.until = float("-inf")
        self._told = False

    def on_response(self, answer: Any, now: float, broker: object) -> None:
        """Handles a response that came from `broker`."""
        wanted_s = max(getattr(answer, "throttle_time_ms", 0), 0) / 1000
        if wanted_s:
            self.until = max(self.until, now + min(wanted_s, LONGEST_S))
        if wanted_s > LONGEST_S and not self._told:
            self._told = True
            log.warning("%s asks for %.0f s of silence: it gets %.0f s at a time", broker, wanted_s, LONGEST_S)

    def holds(self, api: str, now: float) -> bool:
        """True if a request has to wait."""
        return now < self.until and api not in NEVER_HELD
