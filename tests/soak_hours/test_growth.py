"""Growth is found where there is some, and is not where a process only breathes."""

import os
import random

import pytest

from tests.soak_hours.growth import MIB, Growth, Sample, Sampler, growth, look

HOUR_S = 3600.0


def life(
    who: str = "kohort-1", pid: int = 7, hours: float = 1.0, mib: float = 0, threads: float = 0, fds: float = 0
) -> list[Sample]:
    """400 samples, and how much each measure grows in all. Memory and descriptors go up and down besides."""
    chance = random.Random(1)
    samples = []
    for number in range(400):
        share = number / 400
        samples.append(
            Sample(
                share * hours * HOUR_S,
                who,
                pid,
                60.0 + chance.uniform(-3, 3) + mib * share,
                4 + int(threads * share),
                12 + chance.randint(0, 6) + int(fds * share),
            )
        )
    return samples


def of(samples: list[Sample]) -> Growth:
    (one,) = growth(samples)
    return one


def test_a_process_that_only_breathes_did_not_grow() -> None:
    found = of(life())
    assert found.grew == ()
    assert (found.who, found.pid) == ("kohort-1", 7)
    assert found.hours == pytest.approx(1.0, abs=0.01)
    assert found.threads == (4, 4)
    assert found.resident_mib[0] == pytest.approx(60, abs=1)


@pytest.mark.parametrize(
    ("grown", "reported"),
    [(life(mib=8), "memory from 6"), (life(threads=2), "threads from 4"), (life(fds=12), "descriptors")],
    ids=["memory", "threads", "descriptors"],
)
def test_what_grows_is_reported(grown: list[Sample], reported: str) -> None:
    (text,) = of(grown).grew
    assert text.startswith(reported)


def test_warming_up_is_no_growth() -> None:
    warming = [one._replace(resident_mib=20.0) for one in life()[:60]]
    assert of([*warming, *life()[60:]]).grew == ()


def test_a_short_life_tells_nothing_and_of_several_under_a_name_the_longest_counts() -> None:
    assert growth(life(hours=0.2)) == []
    assert of([*life(pid=1, hours=0.3)[:300], *life(pid=2)]).pid == 2
    assert [one.who for one in growth([*life("b"), *life("a")])] == ["a", "b"]


def test_a_process_is_looked_at_while_it_lives() -> None:
    sampler = Sampler(lambda: [("me", os.getpid()), ("nobody", 0)], 0.01)
    sampler.start()
    while len(sampler.samples) < 3:
        pass
    sampler.stop()
    assert {one.who for one in sampler.samples} == {"me"}
    one = look("me", os.getpid(), 1.0)
    assert one is not None
    assert one.resident_mib * MIB > 5_000_000
    assert one.threads >= 1
    before = one.descriptors
    with open(os.devnull):
        more = look("me", os.getpid(), 2.0)
    assert more is not None
    assert more.descriptors == before + 1
