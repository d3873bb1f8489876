"""Faults that a FaultProxy can inject into a stream: plain values, one class for each kind.

A fault applies to the bytes of one direction or both. It affects every frame or those of one API, for ever or for the
first frames. Several faults may apply to the same bytes.
"""

from dataclasses import dataclass
from enum import Enum
from math import inf


class Direction(Enum):
    """The direction of bytes."""

    TO_BROKER = "to_broker"
    TO_CLIENT = "to_client"


BOTH = frozenset(Direction)
TO_BROKER = frozenset({Direction.TO_BROKER})
TO_CLIENT = frozenset({Direction.TO_CLIENT})


@dataclass(frozen=True, slots=True)
class Latency:
    """Delivers everything later by `delay_ms` plus up to `jitter_ms`, in order; throughput stays what it was."""

    delay_ms: float
    jitter_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Lets `bytes_per_s` through."""

    bytes_per_s: float

    def __post_init__(self) -> None:
        if not 0 < self.bytes_per_s < inf:
            raise ValueError(f"{self.bytes_per_s} bytes a second is no rate; what lets nothing through is a BlackHole")


@dataclass(frozen=True, slots=True)
class Slice:
    """Delivers in pieces of `max_bytes`, each its own segment, with `pause_ms` after each."""

    max_bytes: int = 1
    pause_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ValueError(f"pieces of {self.max_bytes} bytes: a piece has one at least")


@dataclass(frozen=True, slots=True)
class Reset:
    """Lets `after_bytes` of the frame through, then ends both connections with a TCP reset.

    Towards the broker with 0 bytes, a request is never seen. Towards the client, it is carried out and its response
    lost.
    """

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """Lets `after_bytes` of the frame through, then closes both connections in order (FIN)."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Lets `after_bytes` of the frame through, then closes this direction only and drops what else comes."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BlackHole:
    """Takes bytes and delivers none; connections stay open. In one direction it is a one-way partition."""


Fault = Latency | Bandwidth | Slice | Reset | Limit | HalfClose | BlackHole
