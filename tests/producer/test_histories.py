"""Some histories of each kind; `python -m tests.producer.histories` runs many."""

from collections import Counter

import pytest

from tests.producer.histories import KINDS, lived

SEEDS = {"splits": 60, "alone": 60, "version-1": 25, "version-2": 25, "version-2-late": 25}
HAPPENS = {
    "alone": {"alone": 300, "splits": 20, "acknowledged": 1_000},
    "splits": {"splits": 60, "expired": 6, "acknowledged": 1_000},
    "version-1": {"splits": 25, "committed": 75, "aborted": 1, "failed": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_or_out_of_order_and_each_callback_is_called_once_in_order(kind: str) -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS[kind]):
        events += lived(kind, seed)
    least = HAPPENS.get(kind, HAPPENS["version-1"])
    assert all(events[event] >= times for event, times in least.items()), events
