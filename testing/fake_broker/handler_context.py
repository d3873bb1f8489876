"""The context of a handler: the call, the cluster, and the few operations that need the fake's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kohort.protocol.errors import ErrorCode
from kohort.protocol.schema import Response
from kohort.testing.fake_broker.classic_coordinator import GroupCoordinator
from kohort.testing.fake_broker.cluster import FakeCluster
from kohort.testing.fake_broker.groups import Groups
from kohort.testing.fake_broker.interventions import Call

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class Work:
    """One call's surroundings."""

    call: Call
    cluster: FakeCluster
    versions: Mapping[int, tuple[int, int]]
    loop: asyncio.AbstractEventLoop
    arrived: Callable[[], asyncio.Event]
    wake_fetches: Callable[[], None]
    tick: Callable[[], None]

    @property
    def groups(self) -> Groups:
        return self.cluster.groups

    @property
    def coordinator(self) -> GroupCoordinator:
        """That of the classic groups."""
        return self.cluster.groups.classic

    @property
    def now(self) -> float:
        """Seconds on the clock that the coordinator's deadlines are on."""
        return self.loop.time()

    def group_error(self, group_id: str) -> int:
        """NOT_COORDINATOR where another node has this group, else 0."""
        return ErrorCode.NONE if self.cluster.coordinator_of(group_id) == self.call.node else ErrorCode.NOT_COORDINATOR

    def transaction_error(self, transactional_id: str, producer_id: int, epoch: int) -> int:
        """The error code with which this node refuses the producer's transaction, else 0. Up to version 1 a fenced
        producer gets INVALID_PRODUCER_EPOCH (KIP-588)."""
        error = self.group_error(transactional_id) or self.cluster.transactions.error(
            transactional_id, producer_id, epoch
        )
        return (
            ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED and self.call.version < 2 else error
        )

    async def parked(self, request: Callable[[Callable[[R], None]], None]) -> R:
        """Call `send` with a function that takes the response, and wait until it was called."""
        response: asyncio.Future[R] = self.loop.create_future()

        def reply(value: R) -> None:
            if not response.done():  # the client may be gone, and its task with it
                response.set_result(value)

        request(reply)
        self.tick()
        return await response
