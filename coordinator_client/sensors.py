"""Counters and samples of a running consumer; none of them is updated per record.

`metrics_table.py` makes the metrics of them. All are written under the driver's lock, by the component that measures.
"""

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING, Final

from kohort.coordinator_client.group.states import MemberState
from kohort.network._samples import PollTimes, SampledWindow

if TYPE_CHECKING:
    from kohort.coordinator_client.group.states import RebalanceRecord

FAILURES: Final = frozenset({MemberState.STALLED, MemberState.FAILED})
"""Outcomes that count as a failed rebalance; leaving the group does not."""


class Sensors:
    """Samples of a consumer.

    `requested`: response times (ms) of the coordinator, by API. `hooks`: callback times (ms), by event.
    """

    def __init__(self) -> None:
        self.fetch_ms = SampledWindow()
        self.fetch_bytes = SampledWindow()
        self.fetch_throttle_ms = SampledWindow()
        self.commit_ms = SampledWindow()
        self.polls = PollTimes()
        self.requested: defaultdict[str, SampledWindow] = defaultdict(SampledWindow)
        self.hooks: defaultdict[str, SampledWindow] = defaultdict(SampledWindow)
        self._hook_began_at = 0.0
        self.rebalances = self.failed_rebalances = 0
        self.rebalancing_s = 0.0
        self._counted_until = -inf

    def fetched(self, took_ms: float, throttle_ms: int, parked_bytes: int, now: float) -> None:
        """Record a Fetch response. `parked_bytes`: bytes of records that were buffered."""
        self.fetch_ms.add(took_ms, now)
        self.fetch_throttle_ms.add(throttle_ms, now)
        self.fetch_bytes.add(parked_bytes, now)

    def hook_began(self, now: float) -> None:
        self._hook_began_at = now

    def hook_ended(self, event: str, now: float) -> None:
        """Record the end of a callback; `event` is the kind of its event."""
        self.hooks[event].add((now - self._hook_began_at) * 1000, now)

    def rebalanced(self, history: "tuple[RebalanceRecord, ...]") -> None:
        """Count rebalances that have ended since the last call.

        It is called at the end of each, so none leaves the history uncounted.
        """
        for one in reversed(history):
            if one.ended_at is None:
                continue
            if one.ended_at <= self._counted_until:
                break
            if one.outcome is MemberState.STABLE:
                self.rebalances += 1
                self.rebalancing_s += one.ended_at - one.started_at
            elif one.outcome in FAILURES:
                self.failed_rebalances += 1
        self._counted_until = max((one.ended_at for one in history if one.ended_at is not None), default=-inf)
