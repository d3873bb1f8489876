"""The meter of `python -m benchmarks light`, on stamped records without a client."""

import json
from typing import Any

import pytest

from benchmarks import light_meter
from benchmarks.light_meter import PROBE, STAMP, VALUE_BYTES, Meter, Usage, stamped

NOW_NS = 1_000_000_000_000


class World:
    """A clock and a counter of CPU and wake-ups that the test moves."""

    def __init__(self) -> None:
        self.now_ns = NOW_NS
        self.used = Usage(1.0, 100)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr("time.time_ns", lambda: made.now_ns)
    monkeypatch.setattr(light_meter, "usage", lambda: made.used)
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_stamp_has_the_size_of_a_record_and_the_time_of_its_making(world: World) -> None:
    value = stamped(3, 10, 7)
    assert len(value) == VALUE_BYTES
    assert STAMP.unpack_from(value) == (3, 10, 7, NOW_NS)


def test_a_client_is_ready_once_with_a_probe_of_each_partition(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Meter(2)
    meter.delivered([stamped(PROBE, 0, 1), stamped(PROBE, 0, 1)])
    assert not meter.ready
    meter.delivered([stamped(PROBE, 0, 0)])
    meter.delivered([stamped(PROBE, 0, 0)])
    assert lines(capsys) == [{"ready": True}]


def test_cost_is_counted_from_the_first_delivery_to_the_last_and_latency_for_every_record(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Meter(1)
    values = [stamped(1, 5, 0) for _ in range(5)]
    world.now_ns += 1_000_000
    meter.delivered(values[:1])
    world.used, world.now_ns = Usage(1.004, 110), NOW_NS + 3_000_000
    meter.delivered([])
    meter.delivered(values[1:3])
    assert lines(capsys) == []
    meter.delivered(values[3:])
    (facts,) = lines(capsys)
    assert facts["phase"] == meter.finished == 1
    assert facts["deliveries"] == 3
    assert facts["cpu_us"] == pytest.approx(1000.0)  # 4 ms for four records
    assert facts["wake_ups"] == 5.0  # 10 for the two deliveries after the first
    assert (facts["p50_ms"], facts["p99_ms"]) == (3.0, 3.0)


def test_late_records_of_a_finished_phase_change_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter(1)
    for _ in range(3):
        meter.delivered([stamped(1, 2, 0)])
    meter.delivered([stamped(2, 2, 0), stamped(2, 2, 0)])
    assert [facts["phase"] for facts in lines(capsys)] == [1, 2]
