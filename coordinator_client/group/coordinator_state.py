"""The coordinator's own small machine: its address, and the time of the next search. See `CoordinatorState`."""

from kohort.coordinator_client.group.member_settings import MemberSettings
from kohort.coordinator_client.group.states import CoordinatorState, CoordinatorTrigger, coordinator_after
from kohort.network.find_coordinator import CoordinatorNode


def coordinator_partition(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` for a group. Its leader is the group's coordinator.

    It is Java's String.hashCode over UTF-16 units, then Kafka's Utils.abs. Utils.abs maps Integer.MIN_VALUE to 0.
    Masking the sign instead would give other partitions.
    """
    data = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code & 0x8000_0000 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


class CoordinatorSearch:
    """Finds the coordinator again and again, with a growing pause while that fails.

    A FindCoordinator response does not end the failure by itself: a cluster names a dead broker until it has noticed.
    Only a response *from* the coordinator does (`proved`). Otherwise a member would send requests to both in turn
    without a pause.
    """

    __slots__ = ("_settings", "coordinator", "failures", "retry_at", "state")

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.state = CoordinatorState.UNKNOWN
        self.coordinator: CoordinatorNode | None = None
        self.failures = 0
        self.retry_at = 0.0

    def due(self, now: float) -> bool:
        """True if a FindCoordinator is to be sent now."""
        return self.state is CoordinatorState.UNKNOWN and now >= self.retry_at

    def requested(self) -> None:
        self.state = coordinator_after(self.state, CoordinatorTrigger.SENT)

    def found(self, coordinator: CoordinatorNode) -> None:
        self.state = coordinator_after(self.state, CoordinatorTrigger.FOUND)
        self.coordinator = coordinator

    def not_found(self, now: float) -> None:
        self.state = coordinator_after(self.state, CoordinatorTrigger.NOT_FOUND)
        self.failures += 1
        self.retry_at = now + self._settings.backoff_s(self.failures)

    def gone(self, now: float) -> None:
        """The coordinator is dead or is not the coordinator.

        The first search after a success starts at once.
        """
        self.state = coordinator_after(self.state, CoordinatorTrigger.GONE)
        self.coordinator = None
        self.retry_at = now + (self._settings.backoff_s(self.failures) if self.failures else 0.0)
        self.failures += 1

    def proved(self) -> None:
        """The coordinator responded as one."""
        self.failures = 0
