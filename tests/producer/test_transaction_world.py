"""Transactions of both versions in the seeded world: seen together or never, each record once and in order."""

import os

import pytest

from tests.producer.transaction_world import TransactionWorld

SEEDS = int(os.environ.get("KOHORT_TXN_SEEDS", "25"))


@pytest.mark.parametrize(("version", "late"), [(1, False), (2, False), (2, True)])
def test_what_is_committed_is_seen_once_and_in_order_under_any_faults(version: int, late: bool) -> None:
    committed = aborted = failed = 0
    for seed in range(SEEDS):
        world = TransactionWorld(seed, version, late=late)
        world.run(900)
        world.calm()
        assert world.seen() == world.expected(), f"seed {seed}"
        assert world.offset() == world.expected_offset(), f"seed {seed}"
        assert world.core.accumulator.buffered == 0, f"seed {seed}"
        committed += sum(one.committed is True for one in world.begun)
        aborted += sum(not one.commits for one in world.begun)
        failed += sum(one.commits and one.committed is False for one in world.begun)
        if version == 2:
            assert not {"AddPartitionsToTxn", "AddOffsetsToTxn"} & set(world.requested)
    assert committed > 3 * SEEDS
    assert aborted
    assert failed  # the faults did happen
