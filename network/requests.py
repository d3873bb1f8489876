"""What the core hands to the driver: requests, which connection they go by, and when to come back."""

from enum import Enum
from typing import NamedTuple

from kohort.coordinator_client.group.leader_assignment import PlanOrder
from kohort.network.broker_connection import Ask, Endpoint


class Line(Enum):
    """Which of a broker's connections a request goes by. The coordinator's is its own (G-02), and so are those that
    fetch: a Fetch that waits at the broker holds up everything behind it. So would metrics, if the plugin that takes
    them is slow."""

    CONTROL = "control"
    GROUP = "group"
    DATA = "data"
    TELEMETRY = "telemetry"


class Outgoing(NamedTuple):
    """A request, the connection it goes by, and where that leads; None: any broker. `renew`: by a new connection, while
    the one that is there is closed."""

    line: Line
    endpoint: Endpoint | None
    ask: Ask
    renew: bool = False


class Turn(NamedTuple):
    """What the driver has to do: send these in order, have `plan` run where it holds nothing up, and come back at
    `wake_at` (s, monotonic) if nothing happens."""

    outgoing: tuple[Outgoing, ...]
    wake_at: float | None
    plan: PlanOrder | None = None
