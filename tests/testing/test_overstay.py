"""A cut of `python -m tests.testing.overstay`: no public call outlives its timeout by more than a second."""

from tests.testing.overstay import CALLS, FACES, run


def test_no_call_outlives_its_timeout_under_faults() -> None:
    tally = run(calls=400, seed=7)
    assert tally.overran == []
    assert tally.broken == []
    assert tally.calls.total() >= 400
    faces, names = zip(*(name.split(".") for name in tally.calls), strict=True)
    assert set(faces) == set(FACES)
    assert set(names) == {*CALLS, "close"}
    assert tally.errors.total() > 0, "the faults were not felt"
