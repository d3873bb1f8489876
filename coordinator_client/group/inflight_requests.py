"""The requests of a member that are under way, each with the identity it was sent under.

An answer to a request that is not waited for any more is nobody's business: whoever gives one up has it forgotten here,
and `answered` then knows nothing of it.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kohort.coordinator_client.group.ready import Send
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.group_types import ConsumerGroupMetadata

RESPONSE_GRACE_MS: Final = 2_000
"""Whoever sends our requests owes each of them an outcome within its timeout. After this much more we stop waiting, so
that not even a defect there makes a member wait for ever."""

LEAVE_APIS: Final = ("LeaveGroup", "ConsumerGroupHeartbeat")
"""The APIs by which a member leaves."""

HEARTBEAT_APIS: Final = ("Heartbeat", "ConsumerGroupHeartbeat")
"""The APIs by which a member stays."""

OTHER_CONNECTION_APIS: Final = frozenset({"LeaveGroup", "Heartbeat"})
"""What is asked while a join waits at the coordinator goes by another connection: brokers read nothing behind a request
that they have not answered."""


class InFlightRequest(NamedTuple):
    """A request that is waited for. Times are monotonic seconds. `aside`: sent while a join waited there."""

    api: str
    identity: ConsumerGroupMetadata
    sent_at: float
    node_id: int | None
    overdue_at: float
    use_other_connection: bool = False


class InFlightRequests:
    """The requests without a response, and the requests that are still to be handed out (`drain_sends`)."""

    __slots__ = ("_distrusted", "_join_on_wire", "_requests", "_sends", "_serial")

    def __init__(self) -> None:
        self._serial = 0
        self._distrusted = False
        self._requests: dict[int, InFlightRequest] = {}
        self._join_on_wire: int | None = None  # also one that nobody waits for any more
        self._sends: list[Send] = []

    def next_serial(self) -> int:
        """A number that nothing of this member has had: one sequence for requests, hook calls and commit orders."""
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
        """Hand out a request. One that is not `awaited` goes out too, but nothing hangs on its outcome."""
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
        """Send the next request to a coordinator over a new connection, since the present one brings no responses."""
        self._distrusted = True

    def drain_sends(self) -> tuple[Send, ...]:
        """The requests since the last call, in their order."""
        sends, self._sends = tuple(self._sends), []
        return sends

    def on_result(self, serial: int | None) -> None:
        """The request of this serial has had its outcome, waited for or not."""
        if self._join_on_wire is not None and serial == self._join_on_wire:
            self._join_on_wire = None

    def complete(self, serial: int) -> InFlightRequest | None:
        """The request that an outcome belongs to, which is waited for no longer; None if nobody waits for it."""
        return self._requests.pop(serial, None)

    def get(self, serial: int) -> InFlightRequest | None:
        """As `answered`, but it is still waited for."""
        return self._requests.get(serial)

    def is_in_flight(self, api: str) -> bool:
        return any(asked.api == api for asked in self._requests.values())

    def sent_at(self, api: str) -> float | None:
        """The time at which the request of this API in flight was sent; None if there is none."""
        return next((asked.sent_at for asked in self._requests.values() if asked.api == api), None)

    def cancel(self, *apis: str) -> None:
        """Whatever is answered to these is nobody's business any more."""
        self._requests = {serial: asked for serial, asked in self._requests.items() if asked.api not in apis}

    def overdue(self, now: float) -> list[int]:
        """Serials of the requests whose outcome is owed for too long."""
        return [serial for serial, asked in self._requests.items() if now >= asked.overdue_at]

    def overdue_times(self) -> Iterable[float]:
        """The time at which each of them is overdue."""
        return (asked.overdue_at for asked in self._requests.values())
