"""Totals by key that survive kill -9: every record counts exactly once, in each process of a region.

    python examples/region_totals.py localhost:9092 payments one &
    python examples/region_totals.py localhost:9092 payments two &

Each process is a member with its own name. Kill one, and start it again under the same name. It counts the records
since the last checkpoint again, and none of them twice. `kohort region status sqlite:///totals.db` shows the region.
The totals of a checkpoint are the sum of its members' states.
"""

import sys
from typing import Any

from kohort import ConsistentRegion
from kohort.consistent_region import DictState, Periodic


def count(record: Any, totals: DictState) -> None:
    """Count the record's key. A handler changes nothing but the state."""
    key = record.key.decode() if record.key is not None else ""
    totals[key] = totals.get(key, 0) + 1


def region(bootstrap: str, topic: str, member: str, coordinator: str, **settings: Any) -> ConsistentRegion:
    """A member of the region "totals"."""
    return ConsistentRegion(
        "totals",
        group=f"totals-{topic}",
        topics=[topic],
        bootstrap=bootstrap,
        member=member,
        coordinator=coordinator,
        start_position="beginning",
        handler=count,
        **{"trigger": Periodic(1.0)} | settings,
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    bootstrap, topic, member = sys.argv[1:]
    region(bootstrap, topic, member, "sqlite:///totals.db").run()
