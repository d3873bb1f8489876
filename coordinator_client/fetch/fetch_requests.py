"""Sends Fetch requests and handles their responses."""

from typing import TYPE_CHECKING

from kohort.coordinator_client.fetch.fetcher import FetchOrder
from kohort.network.request_versions import fit
from kohort.network.requests import ConnectionPurpose, PendingRequest, RequestResult, ResponseReceived, SendFailed

if TYPE_CHECKING:
    from kohort.coordinator_client.consumer_core import ConsumerCore


class FetchRequestManager:
    """Sends the fetcher's requests for one `ConsumerCore`; used under the core's lock."""

    def __init__(self, core: "ConsumerCore") -> None:
        self._core = core

    def poll(self, now: float) -> None:
        """Trim the buffer of paused partitions and send the Fetch requests that are due."""
        core = self._core
        core.fetcher.trim(lambda partition: partition not in core.allowed)
        for order in core.fetcher.ready_requests(
            core.positions, core.metadata.view, lambda partition: partition in core.allowed, now
        ):
            self._ask(order, now)

    def _ask(self, order: FetchOrder, now: float) -> None:
        core = self._core

        def done(outcome: RequestResult, when: float) -> None:
            core.counters.fetches += 1
            if not isinstance(outcome, ResponseReceived):
                core.counters.fetch_failures += 1
                core.fetcher.failed(order.node, now=when, chance=core.chance())
                core.metadata.request_update()
                if isinstance(outcome, SendFailed):
                    core.fail(outcome.error)
                return
            core.meters.fetch_ms.add((when - now) * 1000, when)
            core.meters.fetch_throttle_ms.add(outcome.value.throttle_time_ms, when)
            result = core.fetcher.on_response(
                order.node,
                outcome.value,
                core.positions,
                core.metadata.view,
                now=when,
                wall_ms=core.wall_ms,
                chance=core.chance(),
            )
            core.counters.fetched_bytes += result.parked_bytes
            core.meters.fetch_bytes.add(result.parked_bytes, when)
            core.metadata.view = core.metadata.view.with_brokers(result.brokers).with_leaders(result.leaders)
            if result.stale:
                core.metadata.request_update()
            core.has_updates = True

        timeout_s = core.request_s + core.config.fetch_max_wait_ms / 1000
        ask = PendingRequest("Fetch", lambda version: fit(order.request, version), done, timeout_s, order.at_most)
        core.ask_node(order.node, ConnectionPurpose.DATA, ask, now)
