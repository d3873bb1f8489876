"""Judges the history of a share soak."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.soak_share.history import ACCEPT, REJECT, RELEASE, History

Place = tuple[int, int]
SECOND_NS = 1_000_000_000


def violations(
    history: History, ends: dict[int, int], harmed: Sequence[int], *, limit: int, lock_s: float
) -> Iterator[str]:
    """Sentences on broken rules. `ends`: the number of records of each partition. `limit`: of deliveries.

    Two successes for one record are no violation: one below the start offset succeeds without an effect.

    `harmed`: the ends (ns) of kills, freezes, leaves and restarts. Each may hide one delivery of a record, which the
    broker has counted and no poll has returned.
    """
    places = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    most: dict[Place, int] = defaultdict(int)
    seen_at: dict[Place, int] = {}
    for one in history.deliveries:
        place = one.partition, one.offset
        most[place] = max(most[place], one.nth)
        seen_at[place] = max(seen_at.get(place, 0), one.at_ns)
    settles = (ACCEPT, REJECT)
    done: dict[Place, int] = {}
    counts = _counts(history)
    for ack in history.successes:
        place = ack.partition, ack.offset
        if ack.kind in settles:
            done[place] = min(done.get(place, ack.at_ns), ack.at_ns)
    for one in history.deliveries:
        place = one.partition, one.offset
        if place in done and one.at_ns > done[place]:
            late = one.at_ns > done[place] + 2 * lock_s * SECOND_NS
            if late or one.nth >= counts[place]:
                yield f"{place}: delivered (count {one.nth}) after the success of its acknowledgement"
    attempted = {(ack.partition, ack.offset) for ack in history.attempts if ack.kind in settles}
    for place in sorted(places):
        if place not in most:
            yield f"{place}: never delivered"
        elif most[place] > limit:
            yield f"{place}: {most[place]} deliveries, and {limit} are allowed"
        elif place not in done and place not in attempted:
            hidden = sum(at_ns > seen_at[place] for at_ns in harmed)
            if most[place] + hidden < limit:
                yield f"{place}: settled without a cause after {most[place]} deliveries, and {hidden} hidden ones"
    for place in sorted(most.keys() - places):
        yield f"{place}: delivered, and never sent"


def _counts(history: History) -> dict[Place, int]:
    """The delivery count of each record at the time of its successful acknowledgement."""
    returned: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for one in history.deliveries:
        returned[one.partition, one.offset].append((one.at_ns, one.nth))
    found: dict[Place, int] = {}
    for ack in history.successes:
        if ack.kind != RELEASE:
            place = ack.partition, ack.offset
            before = [count for at_ns, count in returned[place] if at_ns <= ack.at_ns]
            found[place] = max(before, default=0)
    return found
