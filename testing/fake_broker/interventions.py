"""Actions of a test on a call before the fake's response: observe, delay, hold, replace, alter, bend, drop, close.

A control is a function of a Call, registered with `FakeBroker.control(api, fn)`. It returns an action of this
module, or None to let the call proceed. It runs on the fake's thread and must not block. It may call the fake's own
methods. An exception in it ends the connection, and is in `FakeBroker.faults`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kohort.protocol.schema import Request, Response


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came. `number` counts calls of its API from 0; `node` got it; `connection` is its number."""

    api_key: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    request: Request
    node: int
    connection: int
    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this response, and do nothing else; the state stays as it was. `correlation_id` may be wrong."""

    response: Response
    correlation_id: int | None = None


@dataclass(frozen=True, slots=True)
class Alter:
    """Do the work, then send `change(response)`."""

    change: Callable[[Any], Response]


@dataclass(frozen=True, slots=True)
class Instead:
    """Handle this request of the same API in its place, and send its response."""

    request: Request


@dataclass(frozen=True, slots=True)
class Raw:
    """Write these bytes instead of a response. A frame needs its own length. The state is unchanged."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Send no response; `after_work` decides whether the work is done all the same. The connection stays open."""

    after_work: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection in place of a response; a TCP reset with `reset`."""

    after_work: bool = False
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait, then do the work and respond."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until `release()`, then do the work and respond (or only respond, with `after_work`).

    `reached` is set once a call waits here, so that a test needs no sleeping.
    """

    after_work: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let every call that waits here, or will, go on; callable from any thread."""
        self.released.set()


Action = Answer | Alter | Instead | Raw | Drop | Close | Delay | Hold | None
ControlFunction = Callable[[Call], Action]


@dataclass(eq=False, slots=True)
class Control:
    """A registered function; `calls` counts the calls that it acted on."""

    api_key: int
    function: ControlFunction
    times: int | None
    calls: int = 0
    _list: list[Control] = field(default_factory=list, repr=False)

    def remove(self) -> None:
        """Remove it: it is not called any more."""
        if self in self._list:
            self._list.remove(self)

    def send(self, call: Call) -> Action:
        """Its action for `call`, counted unless it is None; None once it has acted `times` times."""
        if call.api_key != self.api_key or (self.times is not None and self.calls >= self.times):
            return None
        action = self.function(call)
        if action is not None:
            self.calls += 1
        return action
