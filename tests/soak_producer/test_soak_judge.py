"""The judge of the kills finds each fault in a log."""

import pytest

from tests.soak_producer.judge import Verdict, of_acknowledged, of_committed, of_leaders
from tests.soak_producer.writers import PARTITIONS

FINE = Verdict(0, 0, 0, 0)
SEEN = {1: [(0, 1), (1, 1 + PARTITIONS), (3, 1 + 2 * PARTITIONS)], 2: [(0, 2)]}
OFFSETS = {1: 0, 1 + PARTITIONS: 1, 1 + 2 * PARTITIONS: 3, 2: 0}


def test_a_log_with_all_that_was_acknowledged_and_more_is_fine() -> None:
    assert of_acknowledged(SEEN, OFFSETS) == FINE
    assert of_acknowledged(SEEN | {3: [(0, 3)]}, OFFSETS) == FINE  # its outcome was unknown


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({2: []}, FINE._replace(missing=1)),
        ({2: [(0, 2), (1, 2)]}, FINE._replace(doubled=1, unwanted=1)),
        ({1: [(0, 1), (1, 1 + 2 * PARTITIONS), (3, 1 + PARTITIONS)]}, FINE._replace(disordered=1, unwanted=2)),
        ({2: [(7, 2)]}, FINE._replace(unwanted=1)),
        ({2: [], 3: [(0, 2)]}, FINE._replace(unwanted=1)),
    ],
    ids=["missing", "doubled", "out of order", "another offset", "another partition"],
)
def test_each_fault_is_found(change: dict[int, list[tuple[int, int]]], verdict: Verdict) -> None:
    assert of_acknowledged(SEEN | change, OFFSETS) == verdict


def test_of_transactions_exactly_the_committed_records_are_seen() -> None:
    assert of_committed(SEEN, list(OFFSETS)) == FINE
    assert of_committed(SEEN | {3: [(0, 3)]}, list(OFFSETS)) == FINE._replace(unwanted=1)
    assert of_committed(SEEN | {2: []}, list(OFFSETS)) == FINE._replace(missing=1)


def test_what_leaders_lose_and_repeat_is_counted_and_the_order_of_firsts_is_judged() -> None:
    again = {1: [(0, 1), (1, 7), (2, 1), (3, 7), (4, 13)], 2: []}
    assert of_leaders(again, {1: 0, 7: 1, 13: 4, 2: 0}) == Verdict(missing=1, doubled=2, disordered=0, unwanted=0)
    assert of_leaders({1: [(0, 7), (1, 1)]}, {}).disordered == 1
