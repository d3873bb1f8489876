"""Totals by key that survive kill -9: every record counts exactly once, in each process of a region.

    python examples/region_totals.py localhost:9092 payments &
    python examples/region_totals.py localhost:9092 payments &

Each process is a member. Kill one, and start it again. The records since the last checkpoint are counted again, and
none of them twice. `kohort region status sqlite:///totals.db` shows the region. A partition has a state of its own,
which goes with it to any member. The totals of a checkpoint are the sum of its tasks' states.
"""

import sys
from typing import Any

from kohort import ConsistentRegion
from kohort.consistent_region import DictState, Periodic


def count(record: Any, totals: DictState) -> None:
    """Count the record's key. A handler changes nothing but the state."""
    key = record.key.decode() if record.key is not None else ""
    totals[key] = totals.get(key, 0) + 1


def region(bootstrap: str, topic: str, coordinator: str, **settings: Any) -> ConsistentRegion:
    """A member of the region "totals"."""
    return ConsistentRegion(
        "totals",
        group=f"totals-{topic}",
        topics=[topic],
        bootstrap=bootstrap,
        coordinator=coordinator,
        start_position="beginning",
        state=DictState,
        handler=count,
        **{"trigger": Periodic(1.0)} | settings,
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bootstrap, topic = sys.argv[1:]
    region(bootstrap, topic, "sqlite:///totals.db").run()
