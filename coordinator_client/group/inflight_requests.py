"""The requests of a member that are in flight, each with the identity it was sent under.

Responses to cancelled requests are dropped: `cancel` removes the request, and `complete` then returns None.
"""

from collections.abc import Iterable
from typing import Any, Final

from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.group.ready import Send
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.group_types import ConsumerGroupMetadata

RESPONSE_GRACE_MS: Final = 2_000
"""Time (ms) after a request's own time-out at which the machine stops waiting.

The driver owes each request an outcome within its time-out. With this limit even a defect of the driver cannot block a
member for ever.
"""

LEAVE_APIS: Final = ("LeaveGroup", "ConsumerGroupHeartbeat")
"""The APIs by which a member leaves."""

HEARTBEAT_APIS: Final = ("Heartbeat", "ConsumerGroupHeartbeat")
"""The APIs by which a member stays."""

OTHER_CONNECTION_APIS: Final = frozenset({"LeaveGroup", "Heartbeat"})
"""Requests that use another connection while a join waits at the coordinator: brokers read nothing behind a request
without a response."""


class InFlightRequest(NamedTuple):
    """A request in flight. Times are monotonic seconds.

    `use_other_connection`: it was sent while a join waited on the coordinator's own connection.
    """

    api: str
    identity: ConsumerGroupMetadata
    sent_at: float
    node_id: int | None
    overdue_at: float
    use_other_connection: bool = False


class InFlightRequests:
    """The requests in flight, and those still to be handed out (`drain_sends`)."""

    __slots__ = ("_distrusted", "_join_on_wire", "_requests", "_sends", "_serial")

    def __init__(self) -> None:
        self._serial = 0
        self._distrusted = False
        self._requests: dict[int, InFlightRequest] = {}
        self._join_on_wire: int | None = None  # also after it was cancelled
        self._sends: list[Send] = []

    def next_serial(self) -> int:
        """A number not used before by this member: one sequence for requests, hook calls and commit orders."""
        self._serial += 1
        return self._serial

    def send(
        self,
        api: str,
        request: Any,
        timeout_ms: int,
        *,
        to: CoordinatorNode | None,
        identity: ConsumerGroupMetadata,
        now: float,
        awaited: bool = True,
    ) -> None:
        """Hand out a request. If it is not `awaited`, its outcome is ignored."""
        serial = self.next_serial()
        aside = api in OTHER_CONNECTION_APIS and self._join_on_wire is not None
        renew = self._distrusted and to is not None and not aside
        self._distrusted = self._distrusted and not renew
        self._sends.append(Send(serial, to, api, request, timeout_ms, aside, renew))
        if api == "JoinGroup":
            self._join_on_wire = serial
        if awaited:
            node_id = None if to is None else to.node_id
            overdue_at = now + (timeout_ms + RESPONSE_GRACE_MS) / 1000
            self._requests[serial] = InFlightRequest(api, identity, now, node_id, overdue_at, aside)

    def use_new_connection_next(self) -> None:
        """Send the next request to a coordinator by a new connection.

        Called when requests on the coordinator's own connection get no response although they should.
        """
        self._distrusted = True

    def drain_sends(self) -> tuple[Send, ...]:
        """The requests added since the last call, in order."""
        sends, self._sends = tuple(self._sends), []
        return sends

    def on_result(self, serial: int | None) -> None:
        """The request of this serial has had its outcome, in flight or cancelled."""
        if self._join_on_wire is not None and serial == self._join_on_wire:
            self._join_on_wire = None

    def complete(self, serial: int) -> InFlightRequest | None:
        """Remove and return the request that an outcome belongs to; None if it is not in flight."""
        return self._requests.pop(serial, None)

    def get(self, serial: int) -> InFlightRequest | None:
        """As `complete`, without removing the request."""
        return self._requests.get(serial)

    def is_in_flight(self, api: str) -> bool:
        return any(requested.api == api for requested in self._requests.values())

    def sent_at(self, api: str) -> float | None:
        """The time (monotonic s) at which the request in flight to this API was sent; None if there is none."""
        return next((requested.sent_at for requested in self._requests.values() if requested.api == api), None)

    def cancel(self, *apis: str) -> None:
        """Forget the requests to these APIs. Their responses will be dropped."""
        self._requests = {
            serial: requested for serial, requested in self._requests.items() if requested.api not in apis
        }

    def overdue(self, now: float) -> list[int]:
        """Serials of the requests that have timed out."""
        return [serial for serial, requested in self._requests.items() if now >= requested.overdue_at]

    def overdue_times(self) -> Iterable[float]:
        """The time (monotonic s) at which each request will have timed out."""
        return (requested.overdue_at for requested in self._requests.values())
