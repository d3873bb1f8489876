"""A short turn of the long run (`make soak`), its page, and that a finding is not overlooked."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import RealCluster
from tests.soak.plan import CLASSIC, Act, long_plan
from tests.soak_hours import __main__ as command
from tests.soak_hours.page import page
from tests.soak_hours.turn import Reported, live

SEED, SECONDS = 4, 15.0


def reported(**changes: Any) -> dict[str, Any]:
    samples = [(float(at), who, 7, 30.0, 3, 12) for at in range(20) for who in ("kohort-1", "region-ada")]
    one = Reported(4, 3600.0, group={"records": 7}, faults=[(3.5, "kill broker", "broker 1")], samples=samples)
    return asdict(one) | changes


@pytest.mark.broker
@pytest.mark.full
@pytest.mark.proves("I1", "G-08", "B-33")
def test_a_short_turn_finds_nothing_and_every_part_read_everything(cluster3: RealCluster, tmp_path: Path) -> None:
    acts = {action.act for action in long_plan(SEED, SECONDS).actions}
    assert acts == {Act.STOP, Act.KILL_BROKER, Act.JOIN}
    assert long_plan(SEED, SECONDS).protocol == CLASSIC  # which brokers of every version speak
    try:
        found = live(cluster3, SEED, SECONDS, tmp_path / "turn", print)
    finally:
        cluster3.start()
    assert found.findings == []
    assert found.ledger["committed"] > 5
    assert found.ledger["aborted"] > 0
    assert found.region["records"] == found.spark["rows"] > 0
    assert (found.region["differences"], found.spark["missing"], found.spark["extra"]) == (0, 0, 0)
    assert found.group["records"] > 1000
    assert any(whom.startswith("broker") for _at_s, _what, whom in found.faults)
    assert any(what == "region" for _at_s, what, _whom in found.faults)
    assert {"kohort-1", "kohort-async-2", "region-ada", "region-ben", "spark-driver"} <= {
        one[1] for one in found.samples
    }
    html = page([asdict(found)], "the command", "the machine")
    assert "nothing was found" in html
    assert html.count("data:image/png") == 1


def test_a_page_shows_what_was_found() -> None:
    html = page([reported(findings=["region: 3 effects came twice <&>"])], "the command", "the machine")
    assert "1 findings" in html
    assert "3 effects came twice &lt;&amp;&gt;" in html
    grown = {
        "who": "kohort-1",
        "hours": 1.0,
        "resident_mib": (30.0, 90.0),
        "threads": (3, 3),
        "descriptors": (12, 12),
        "grew": ("memory from 30.0 to 90.0 MiB",),
    }
    assert "memory from 30.0 to 90.0 MiB" in page([reported(growth=[grown])], "the command", "the machine")


def test_hours_are_turns_of_an_hour_and_what_has_passed_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lived: list[tuple[int, float]] = []

    def live_on(_cluster: object, seed: int, seconds: float, _folder: Path, _say: object) -> Reported:
        lived.append((seed, seconds))
        broken = ["group: one owner: ..."] if seed == 4 and len(lived) < 4 else []
        return Reported(**reported(seed=seed, seconds=seconds, findings=broken))

    class Cluster:
        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> "Cluster":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(command, "RealCluster", Cluster)
    monkeypatch.setattr(command, "live", live_on)
    monkeypatch.setattr(command, "page", lambda turns, *_: f"{len(turns)} turns")
    monkeypatch.setattr("sys.argv", ["soak", "--hours", "2.5", "--seed", "3", "--out", str(tmp_path)])
    assert command.main() == 1
    assert lived == [(3, 3600.0), (4, 3600.0), (5, 1800.0)]
    assert command.main() == 0
    assert lived[3:] == [(4, 3600.0)]
    assert command.main() == 0
    assert len(lived) == 4
    assert "2.50 hours, 21 records, 3 faults, 0 findings" in capsys.readouterr().out.splitlines()[-1]
    assert (tmp_path / "page.html").read_text() == "3 turns"
