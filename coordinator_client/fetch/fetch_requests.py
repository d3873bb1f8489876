"""Sends Fetch requests and handles their responses."""

from collections.abc import Callable

from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.fetch._steady_fetch import SteadyFetch, SteadySession
from kohort.coordinator_client.fetch.fetcher import Fetcher, FetchOrder, FetchOutcome
from kohort.coordinator_client.offsets.positions import Positions
from kohort.network.request_manager import earliest
from kohort.network.request_versions import fit
from kohort.network.requests import (
    ConnectionPurpose,
    NoResponse,
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
        self,
        context: ConsumerContext,
        fetcher: Fetcher,
        positions: Positions,
        is_fetchable: Callable[[TopicPartition], bool],
    ) -> None:
        self._context = context
        self._fetcher = fetcher
        self._positions = positions
        self._is_fetchable = is_fetchable

    def poll(self, now: float) -> PollResult:
        """Trim the buffer of paused partitions, and return the Fetch requests that are due."""
        self._fetcher.trim(self._is_fetchable)
        view = self._context.metadata.view
        orders = self._fetcher.ready_requests(self._positions, view, self._is_fetchable, now)
        requests = tuple(request for order in orders for request in self._request(order, now))
        return PollResult(requests, earliest(now, self._fetcher.next_poll_at()))

    def _request(self, order: FetchOrder, now: float) -> tuple[UnsentRequest, ...]:
        return self._sessionless(order, now) if order.is_sessionless else self._of_session(order, now)

    def _of_session(self, order: FetchOrder, now: float) -> tuple[UnsentRequest, ...]:
        context = self._context
        steady = SteadyFetch(context, SteadySession(self._fetcher, self._positions, order), now)

        def done(outcome: RequestResult, when: float) -> None:
            if isinstance(outcome, ResponseReceived):
                self._responded(self._fetcher.on_response, order, outcome, steady.sent_at, when)
            else:
                self._fetcher.failed(order.node, now=when, chance=context.chance())
                self._failed(outcome)

        request = PendingRequest(
            "Fetch",
            lambda version: fit(order.request, version),
            done,
            context.request_s + context.config.fetch_max_wait_ms / 1000,
            order.at_most,
            follow_up=steady,
        )
        return context.to_node(order.node, ConnectionPurpose.DATA, request, now)

    def _sessionless(self, order: FetchOrder, now: float) -> tuple[UnsentRequest, ...]:
        context = self._context

        def done(outcome: RequestResult, when: float) -> None:
            if isinstance(outcome, ResponseReceived):
                self._responded(self._fetcher.on_sessionless_response, order, outcome, now, when)
            else:
                self._fetcher.sessionless_failed(order.node)
                self._failed(outcome)

        request = PendingRequest(
            "Fetch", lambda version: fit(order.request, version), done, context.request_s, order.at_most
        )
        # The session's request waits at the broker, and would delay this one on its connection.
        return context.to_node(order.node, ConnectionPurpose.CONTROL, request, now)

    def _failed(self, outcome: NoResponse | SendFailed) -> None:
        context = self._context
        called = was_called(outcome)
        context.counters.fetches += called
        context.counters.fetch_failures += called
        context.metadata.request_update()
        if isinstance(outcome, SendFailed):
            context.fail(outcome.error)

    def _responded(
        self,
        handle: Callable[..., FetchOutcome],
        order: FetchOrder,
        received: ResponseReceived,
        sent_at: float,
        when: float,
    ) -> None:
        context = self._context
        context.counters.fetches += 1
        result = handle(
            order.node,
            received.value,
            self._positions,
            context.metadata.view,
            now=when,
            wall_ms=context.wall_ms(),
            chance=context.chance(),
        )
        context.counters.fetched_bytes += result.parked_bytes
        took_ms = (when - sent_at) * 1000
        context.sensors.fetched(took_ms, received.value.throttle_time_ms, result.parked_bytes, when)
        context.metadata.update_leaders(result.brokers, result.leaders)
        if result.stale:
            context.metadata.request_update()
        context.notify()
