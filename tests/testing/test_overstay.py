"""A cut of `python -m tests.testing.overstay`: no public call outlives its timeout by more than a second."""

from tests.testing.overstay import FACES, run


def test_no_call_outlives_its_timeout_under_faults() -> None:
    tally = run(calls=1_000, seed=7)
    assert tally.overran == []
    assert tally.broken == []
    assert tally.calls.total() >= 1_000
    assert set(tally.calls) == {f"{name}.{call}" for name, face in FACES.items() for call in (*face.calls, "close")}
    assert tally.errors.total() > 0, "the faults were not felt"
