"""Evidence of a region's checkpoints outside its store: the metadata of the group's committed offsets.

A store that was deleted, or replaced by an older copy, has no trace of it. Its region would read on from the committed
offsets with a state that lacks their records, or repeat effects. Each commit of the region therefore names the history
(`lineage`) and the newest checkpoint of the store. A member compares them with the store before it reads a partition.

Offsets that another program committed are no evidence. Brokers delete offsets after `offsets.retention.minutes`.
"""

import re
from collections.abc import Iterable
from typing import Final

from kohort.common.named_tuple import NamedTuple
from kohort.consistent_region.checkpoint_barrier import MembershipView, StorePast
from kohort.consistent_region.errors import StoreLost, StoreWentBack

_MARK: Final = "kohort-region/1"
# Brokers limit an offset's metadata, which has the lineage, to 4,096 bytes.
_MAX_LINEAGES: Final = 8
_LINEAGES: Final = re.compile(r"(?:^|<)([0-9]{1,19}):([^<]*)")
_HINT: Final = "bring the current store back, or accept this one with `kohort region begin --anew`"


class Witness(NamedTuple):
    """The lineage and the newest checkpoint of the store at the time of a commit, 0 before the first checkpoint."""

    lineage: str
    sequence: int

    @property
    def metadata(self) -> str:
        """The form in a committed offset."""
        return f"{_MARK} {self.lineage} {self.sequence}"

    def covers(self, at: "Witness") -> bool:
        """True if this note of the last commit is of checkpoint `at`, or of a later one. It raises no error.

        Two lineages share the checkpoints of an earlier one up to the sequence at which the first of them left it.
        """
        ours, theirs = self._ends, at._ends
        shared = (min(ours[one], theirs[one], self.sequence) for one in ours.keys() & theirs.keys())
        return at.sequence <= max(shared, default=-1)

    def is_related(self, other: "Witness") -> bool:
        """True if both are of one history of a region, up to some checkpoint. It raises no error."""
        return not self._ends.keys().isdisjoint(other._ends)

    @property
    def is_accepted(self) -> bool:
        """True for the lineage of a store that an operator accepted."""
        return "<" in self.lineage

    @property
    def _ends(self) -> dict[str, int]:
        """The last sequence of this lineage, and of each that it names."""
        return {one: int(end) for end, one in _LINEAGES.findall(f"{self.sequence}:{self.lineage}")}


NO_COMMIT: Final = Witness("", 0)
"""The note of a target that has had no commit."""


def continued(before: str, sequence: int, lineage: str) -> str:
    """A new lineage that has the checkpoints of the one `before` up to `sequence`.

    Sinks have notes of commits under older lineages. The text therefore names those, from the newest to the oldest:
    `ID<SEQUENCE:ID<SEQUENCE:ID`.
    """
    return "<".join(f"{lineage}<{sequence}:{before}".split("<")[:_MAX_LINEAGES])


def witness_of(metadata: str | None) -> Witness | None:
    """Parse the metadata of a committed offset. None if a region did not write it."""
    mark, _, rest = (metadata or "").partition(" ")
    lineage, _, number = rest.partition(" ")
    if mark != _MARK or not lineage or not (number.isascii() and number.isdigit()):
        return None
    return Witness(lineage, int(number))


def check_witnesses(witnesses: Iterable[Witness], view: MembershipView) -> None:
    """Raise StoreLost or StoreWentBack if the store is not as new as the evidence. The evidence was read first."""
    past = view.past
    for one in witnesses:
        if one.lineage != past.lineage:
            if not past.accepted:
                raise StoreLost(
                    "the group's offsets are of another history of this region than its store",
                    hint=f'{_HINT}; a coordinator="memory:" ends with its process',
                    sequence=one.sequence,
                    lineage=one.lineage,
                    store_lineage=past.lineage,
                )
        else:
            _check_ahead(one.sequence, view)


def check_term(known: int, term: int) -> None:
    """Raise StoreWentBack if the store's `term` is lower than one that a sink knows, which was read first."""
    if known > term:
        # Its next owners would have terms that the sink takes for those of former ones, and leaves out.
        raise StoreWentBack(
            "the store lacks the start of a task that a sink has: an older copy took its place",
            hint=_HINT,
            term=term,
            known_term=known,
        )


def check_memory(known: StorePast, newest: int, view: MembershipView) -> None:
    """As `check_witnesses`, with the memory of a running member: the store's past, and its newest checkpoint."""
    if known.lineage != view.past.lineage:
        raise StoreLost(
            "the store has another history of this region than before",
            hint=_HINT,
            lineage=known.lineage,
            store_lineage=view.past.lineage,
        )
    _check_ahead(newest, view)


def _check_ahead(sequence: int, view: MembershipView) -> None:
    if sequence > max(view.newest or 0, view.past.voided_up_to):
        raise StoreWentBack(
            "the store lacks a checkpoint that was complete: an older copy took its place",
            hint=_HINT,
            sequence=sequence,
            newest=view.newest or 0,
        )
