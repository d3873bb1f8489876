"""Sends Fetch requests and handles their responses."""

from collections.abc import Callable

from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.fetch._steady_fetch import SteadyFetch, SteadySession
from kohort.coordinator_client.fetch.fetcher import Fetcher, FetchOrder
from kohort.network.request_manager import earliest
from kohort.network.request_versions import fit
from kohort.network.requests import (
    ConnectionPurpose,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
    was_called,
)


class FetchRequestManager:
    """Sends the fetcher's requests; used under the driver's lock.

    `is_fetchable` is true for an assigned partition that is not paused.
    """

    def __init__(
        self, context: ConsumerContext, fetcher: Fetcher, is_fetchable: Callable[[TopicPartition], bool]
    ) -> None:
        self._context = context
        self._fetcher = fetcher
        self._is_fetchable = is_fetchable

    def poll(self, now: float) -> PollResult:
        """Trim the buffer of paused partitions, and return the Fetch requests that are due."""
        self._fetcher.trim(self._is_fetchable)
        view = self._context.metadata.view
        orders = self._fetcher.ready_requests(view, self._is_fetchable, now)
        requests = tuple(request for order in orders for request in self._request(order, now))
        return PollResult(requests, earliest(now, self._fetcher.next_poll_at()))

    def _request(self, order: FetchOrder, now: float) -> tuple[UnsentRequest, ...]:
        context = self._context
        steady = None
        if not order.is_sessionless:
            steady = SteadyFetch(context, SteadySession(self._fetcher, order), now)

        def done(outcome: RequestResult, when: float) -> None:
            if not isinstance(outcome, ResponseReceived):
                called = was_called(outcome)
                context.counters.fetches += called
                context.counters.fetch_failures += called
                if order.is_sessionless:
                    self._fetcher.sessionless_ended(order.node)
                else:
                    self._fetcher.failed(order.node, now=when, chance=context.chance())
                context.metadata.request_update()
                if isinstance(outcome, SendFailed):
                    context.fail(outcome.error)
                return
            context.counters.fetches += 1
            result = self._fetcher.on_response(
                order.node,
                outcome.value,
                context.metadata.view,
                now=when,
                wall_ms=context.wall_ms(),
                chance=context.chance(),
                is_sessionless=order.is_sessionless,
            )
            context.counters.fetched_bytes += result.parked_bytes
            took_ms = (when - (now if steady is None else steady.sent_at)) * 1000
            context.sensors.fetched(took_ms, outcome.value.throttle_time_ms, result.parked_bytes, when)
            context.metadata.update_leaders(result.brokers, result.leaders)
            if result.stale:
                context.metadata.request_update()
            context.notify()

        timeout_s = context.request_s + order.request.max_wait_ms / 1000
        request = PendingRequest(
            "Fetch",
            lambda version: fit(order.request, version),
            done,
            timeout_s,
            order.at_most,
            follow_up=steady,
        )
        # The session's request waits at the broker, and would delay the other one on its connection.
        purpose = ConnectionPurpose.CONTROL if order.is_sessionless else ConnectionPurpose.DATA
        return context.to_node(order.node, purpose, request, now)
