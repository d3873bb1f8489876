"""Tables that hold all transitions of a state machine: `TABLE[state][trigger]` is the next state.

The code of a machine decides on triggers, and its table on states. So a reader finds every transition in the table. A
pair that it lacks is a defect of this library.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from kohort.common.errors import KohortError

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)


class IllegalTransition(KohortError):
    """A transition that the table does not have: a defect of this library, never of the user."""


class _Row(dict[T, S]):
    __slots__ = ("state",)

    def __init__(self, state: S, row: Mapping[T, S]) -> None:
        super().__init__(row)
        self.state = state

    def __missing__(self, trigger: T) -> S:
        raise IllegalTransition(
            "the table has no such transition",
            hint="this is a bug in kohort: please report it",
            state=self.state.name,
            trigger=trigger.name,
        )


def state_table(rows: Mapping[S, Mapping[T, S]]) -> Mapping[S, Mapping[T, S]]:
    """A table of these rows. `TABLE[state][trigger]` raises IllegalTransition for a pair that it lacks."""
    return {state: _Row(state, row) for state, row in rows.items()}
