"""The judge of share soaks, and a small run: the full ones are `make soak-share`."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.soak_share.conductor import LIMIT, ROOT, Conductor
from tests.soak_share.history import ACCEPT, REJECT, RELEASE, Acknowledged, Delivery, History, Writer, read
from tests.soak_share.judge import violations

SECOND = 1_000_000_000


@dataclass
class HandMade:
    """A history of one partition with one record, made by hand; times are in s."""

    history: History = field(default_factory=lambda: History([], [], []))

    def deliver(self, at: int, nth: int, offset: int = 0) -> "HandMade":
        self.history.deliveries.append(Delivery(at * SECOND, 0, offset, nth))
        return self

    def attempt(self, at: int, kind: int) -> "HandMade":
        self.history.attempts.append(Acknowledged(at * SECOND, 0, 0, kind))
        return self

    def succeed(self, at: int, kind: int) -> "HandMade":
        self.history.successes.append(Acknowledged(at * SECOND, 0, 0, kind))
        return self.attempt(at, kind)

    def judged(self, *harmed: int) -> list[str]:
        return list(violations(self.history, {0: 1}, [at * SECOND for at in harmed], limit=3, lock_s=5))


def test_a_record_that_ends_accepted_rejected_or_at_its_limit_is_fine() -> None:
    assert HandMade().deliver(1, 1).succeed(2, ACCEPT).judged() == []
    assert HandMade().deliver(1, 1).succeed(2, RELEASE).deliver(3, 2).succeed(4, REJECT).judged() == []
    assert HandMade().deliver(1, 1).deliver(2, 2).deliver(3, 3).judged() == []
    assert HandMade().deliver(1, 1).attempt(2, ACCEPT).judged() == []  # killed before its outcome was seen
    assert HandMade().deliver(1, 2).judged(5) == []  # the last delivery was to a member that was killed


def test_broken_rules_are_found() -> None:
    accepted = HandMade().deliver(1, 1).succeed(2, ACCEPT)
    assert "after the success" in accepted.deliver(3, 2).judged()[0]
    assert "after the success" in HandMade().deliver(1, 1).succeed(2, ACCEPT).deliver(60, 1).judged()[0]
    assert HandMade().deliver(1, 2).succeed(2, ACCEPT).deliver(3, 1).judged() == []  # an older delivery, seen late
    assert "never delivered" in HandMade().judged()[0]
    assert "4 deliveries" in HandMade().deliver(1, 4).judged()[0]
    assert "without a cause" in HandMade().deliver(1, 1).succeed(2, RELEASE).judged(5)[0]
    assert "never sent" in HandMade().deliver(1, 1).deliver(1, 1, 7).succeed(2, ACCEPT).judged()[0]


def test_a_history_is_read_without_its_torn_line(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "ours-1.history"))
    writer.delivered([(0, 5, 1), (0, 6, 1)], {0: {5: ACCEPT, 6: RELEASE}})
    writer.succeeded({0: {5: ACCEPT}, 1: {}})
    with (tmp_path / "ours-1.history").open("a") as torn:
        torn.write("D 17 0 1 9")
    found = read(tmp_path)
    assert [(one.offset, one.nth) for one in found.deliveries] == [(5, 1), (6, 1)]
    assert [(one.offset, one.kind) for one in found.attempts] == [(5, ACCEPT), (6, RELEASE)]
    assert [(one.partition, one.offset, one.kind) for one in found.successes] == [(0, 5, ACCEPT)]


@pytest.mark.full
@pytest.mark.broker
@pytest.mark.proves("SH-50", "SH-54", "SH-65")
@pytest.mark.parametrize("version", ["4.2.2", "4.3.1"])
def test_a_share_group_of_three_clients_settles_every_record(version: str) -> None:
    result = Conductor(version, 7, 20_000, ROOT / "out" / "soak-share" / f"test-{version}").run()
    assert result["violations"] == []
    assert (result["records"], LIMIT) == (20_000, 5)
    assert set(result["deliveries_by_kind"]) == {"ours", "java", "rdkafka"}
