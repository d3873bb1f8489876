"""Members of a share group in a seeded world: no invariant is violated, and deliberate faults violate one."""

import pytest

from tests.share_consumer.share_faults import FAULTS, Fault
from tests.share_consumer.share_histories import histories

SEEDS_OF_A_FAULT = 60


@pytest.mark.proves("SH-26", "SH-50", "SH-51", "SH-65")
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_history_violates_an_invariant(first: int) -> None:
    assert histories(range(first, first + 20)) > 20 * 24 * 1.2  # faults did cause deliveries that repeat


@pytest.mark.full
@pytest.mark.parametrize("first", range(1_000, 11_000, 1_000))
def test_no_invariant_is_violated_in_ten_thousand_histories(first: int) -> None:
    histories(range(first, first + 1_000))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_violates_an_invariant(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=r"^W\d: "):
        histories(range(SEEDS_OF_A_FAULT))
