"""Fault rates of a simulated world, and the store that suffers from them."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from kohort.consistent_region.errors import CoordinatorUnavailable
from kohort.consistent_region.store import Key, MemoryStore


class Killed(BaseException):
    """kill -9, at this very line."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The fault rates of this seed's world; drawn from the seed."""

    kill: float
    stop: float
    cut: float
    store_before: float
    store_after: float
    kill_in_store: float
    kill_in_handler: float
    outage: float
    add_partition: float
    ghost: float
    gone: float
    leave: float
    sink_kill: float
    sink_refused: float
    operator: float
    store_back: float
    store_clock: float
    broker: float
    commit_late: float
    truncate: float
    recreate: float
    static: bool
    interleaved: bool

    @classmethod
    def drawn(cls, chance: random.Random) -> "Faults":
        """Each kind none, some or much; chances are those of one step, or of one call."""

        def rate(most: float) -> float:
            return chance.choice([0.0, most / 4, most])

        return cls(
            kill=rate(0.02),
            stop=rate(0.02),
            cut=rate(0.02),
            store_before=rate(0.05),
            store_after=rate(0.05),
            kill_in_store=rate(0.01),
            kill_in_handler=rate(0.02),
            outage=rate(0.005),
            add_partition=chance.choice([0.0, 0.005]),
            ghost=rate(0.01),
            gone=chance.choice([0.0, 0.0, 0.002]),
            leave=rate(0.02),
            sink_kill=rate(0.05),
            sink_refused=rate(0.05),
            operator=chance.choice([0.0, 0.0, 0.006]),
            store_back=chance.choice([0.0, 0.0, 0.05]),
            store_clock=chance.choice([0.0, 0.0, 0.005]),
            broker=rate(0.02),
            commit_late=rate(0.3),
            truncate=chance.choice([0.0, 0.0, 0.01]),
            recreate=chance.choice([0.0, 0.0, 0.0, 0.002]),
            static=chance.random() < 0.3,
            interleaved=chance.random() < 0.7,
        )

    def without_faults(self) -> "Faults":
        """The same world while nothing breaks."""
        kept = {"static", "interleaved"}
        none: dict[str, Any] = {one.name: 0.0 for one in fields(self) if one.name not in kept}
        return replace(self, **none)


class StoreWorld(Protocol):
    """The parts of a world that its store uses."""

    faults: Faults
    chance: random.Random
    now: float
    outage_until: float

    def count_fault(self, event: str) -> None: ...
    def requested(self, *, failed: bool = False) -> None: ...
    def interleave(self) -> None: ...
    def check_store(self) -> None: ...


class FlakyStore(MemoryStore):
    """Refuses, loses a response, or kills the calling node."""

    def __init__(self, world: StoreWorld) -> None:
        super().__init__()
        self.world = world

    @contextmanager
    def transaction(self) -> Iterator["FlakyStore"]:
        self._before()
        with super().transaction():
            yield self
        self.world.check_store()
        faults, chance = self.world.faults, self.world.chance
        if chance.random() < faults.kill_in_store:
            self._count("killed at the store")
            raise Killed
        if chance.random() < faults.store_after:
            self._count("store's response lost")
            raise CoordinatorUnavailable("the response was lost")

    @contextmanager
    def read(self) -> Iterator["FlakyStore"]:
        self._before()
        with super().read():
            yield self

    def replaced(self, values: dict[Key, bytes]) -> dict[Key, bytes]:
        """Put other values in place, as a restored copy would. Returns the former ones."""
        former, self._values = self._values, dict(values)
        return former

    def copy(self) -> dict[Key, bytes]:
        return dict(self._values)

    def calm(self) -> MemoryStore:
        """The same values, without faults, for an operator and for checks."""
        calm = MemoryStore()
        calm._values, calm._lock = self._values, self._lock
        return calm

    def _count(self, event: str) -> None:
        self.world.requested(failed=True)
        self.world.count_fault(event)

    def _before(self) -> None:
        self.world.interleave()
        faults, chance = self.world.faults, self.world.chance
        if chance.random() < faults.kill_in_store:
            self._count("killed at the store")
            raise Killed
        self.world.requested()
        if self.world.now < self.world.outage_until:
            self.world.requested(failed=True)
            raise CoordinatorUnavailable("locked")
        if chance.random() < faults.store_before:
            self._count("store refused")
            raise CoordinatorUnavailable("locked")
