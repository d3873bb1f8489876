"""The soak's checker can fail; and a short soak, so that the long one (`make soak-region`) always runs."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.testing import RealCluster
from tests.soak_region.seen import Seen, differences, whole
from tests.soak_region.soak import soak
from tests.soak_region.store_host import SqliteHost


class Rec(NamedTuple):
    partition: int
    offset: int
    key: bytes


def seen(*records: Rec) -> Seen:
    state = Seen()
    for one in records:
        state.add(one)
    return state


LOG = [Rec(number % 3, number // 3, b"k%d" % (number % 7)) for number in range(50_000)]


def test_parts_add_up_to_the_log_and_survive_a_snapshot() -> None:
    chance = random.Random(1)
    shares: list[list[Rec]] = [[], [], []]
    for one in LOG:
        chance.choice(shares).append(one)
    states = []
    for share in shares:
        state = Seen()
        state.restore(seen(*share).snapshot({}), {})
        states.append(state)
    assert differences(whole(states), seen(*LOG)) == []
    states[0].reset_initial()
    assert differences(states[0], seen()) == []


def test_each_way_to_be_wrong_is_reported() -> None:
    wanted = seen(*LOG)
    once_more = whole([seen(*LOG), seen(LOG[7])])
    assert differences(once_more, wanted) == [
        "1 effects came twice",
        "totals of 1 keys differ, k0 is 7144 of 7143",
    ]
    assert differences(seen(*LOG, LOG[0]), wanted)[0] == "1 effects came twice"
    assert differences(seen(*LOG[:-1]), wanted)[0] == "partition 1: 1 records took no effect"
    assert differences(seen(*LOG, Rec(9, 9, b"k0")), wanted)[0] == "partition 9: 1 effects are of no record"
    other_key = [*LOG[:-1], LOG[-1]._replace(key=b"k0")]
    assert [text.split(" differ")[0] for text in differences(seen(*other_key), wanted)] == ["totals of 2 keys"]


@contextmanager
def closing(host: SqliteHost) -> Iterator[SqliteHost]:
    try:
        yield host
    finally:
        host.close()


@pytest.mark.broker
@pytest.mark.proves("I1", "B-26", "B-33")
def test_a_short_soak_counts_every_record_once(cluster3: RealCluster, tmp_path: Path) -> None:
    with closing(SqliteHost(tmp_path)) as host:
        outcome = soak(cluster3, host, tmp_path, seed=5, kills=4, records=20_000, every_s=1.0)
    assert outcome.differences == ()
    assert outcome.exit_codes == (0, 0, 0, 0)
    assert outcome.records == 20_000
    assert sum(outcome.harms.values()) == 4
    assert outcome.checkpoints >= 2
