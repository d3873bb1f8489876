"""Figures of a region's member."""

import threading
import time
from typing import Any

from kohort import ConsistentRegion, Producer
from kohort.consistent_region import DictState, Periodic
from kohort.consistent_region.store import MemoryStore
from kohort.testing import FakeBroker
from kohort.testing.simulation import SimRecord
from tests.consistent_region.region_hand import P0, P1, Hand, Listed
from tests.consistent_region.running_region import running


def test_tasks_states_and_owed_effects_are_counted() -> None:
    sink = Listed()
    hand = Hand(MemoryStore(), sinks={"out": sink})

    def handle(record: Any, state: DictState) -> None:
        state["n"] = record.offset
        sink.collected.append("x")

    hand.conductor.handler = handle
    hand.assigned(P0, P1)
    hand.reads(P0, 1, 2, 3)
    found = hand.states.metrics()
    assert (found["tasks"], found["tasks_started_total"], found["effects_refused_total"]) == (2, 2, 3)
    assert (found["state_bytes"], found["effects_owed_bytes"]) == (0, 0)
    assert hand.member.metrics["checkpoint_ms_last"] == 0
    hand.member.make_consistent(hand.now)
    hand.until(lambda: hand.states.metrics()["effects_owed_bytes"] > 0)
    assert hand.states.metrics()["effects_owed_bytes"] == len("x,x,x")
    hand.until(lambda: hand.member.base == 1)
    found = hand.states.metrics()
    assert (found["state_bytes"], found["effects_owed_bytes"]) == (len('{"n":3}') + len("{}"), 0)
    assert hand.member.completed_at is not None
    assert sink.rows == [b"x,x,x"]
    hand.lost()
    assert (hand.states.metrics()["tasks"], hand.states.metrics()["state_bytes"]) == (0, 0)


def test_effects_after_a_cut_are_of_the_next_checkpoint() -> None:
    sink = Listed()
    hand = Hand(MemoryStore(), sinks={"out": sink})
    hand.conductor.handler = lambda record, state: sink.collected.append(str(record.offset))
    hand.assigned(P0, P1)
    hand.reads(P0, 1)
    hand.member.make_consistent(hand.now)
    hand.until(lambda: hand.states.metrics()["effects_owed_bytes"] > 0)
    hand.member.checkpoint_requested = False
    hand.consumer.batches.append([SimRecord(*P0, 2)])
    hand.until(lambda: sink.collected == ["2"] and hand.member.base == 1)
    assert sink.rows == [b"1"]
    hand.checkpoint()
    assert sink.rows == [b"1", b"2"]


def test_lag_and_age_are_figures_of_a_running_region() -> None:
    go_on = threading.Event()
    with FakeBroker(topics={"t": 1}) as broker, Producer(broker.bootstrap) as producer:
        for _ in range(50):
            producer.send("t", b"v")
        producer.flush()

        def handle(record: Any, state: DictState) -> None:
            if record.offset == 9:
                go_on.wait(20)

        region = ConsistentRegion(
            "r",
            group="g",
            bootstrap=broker.bootstrap,
            topics=["t"],
            trigger=Periodic(0.1),
            handler=handle,
            start_position="beginning",
        )
        assert (region.metrics()["records_lag"], region.metrics()["checkpoint_age_ms"]) == (0, -1)
        with running(region):
            until = time.monotonic() + 20
            while region.metrics()["records_lag"] != 50:  # they are polled, and under the handler's permit
                assert time.monotonic() < until
                time.sleep(0.02)
            go_on.set()
            while region.metrics()["checkpoint_age_ms"] < 0 or region.metrics()["records_lag"] > 0:
                assert time.monotonic() < until
                time.sleep(0.02)
            assert region.metrics()["checkpoint_age_ms"] < 20_000
            assert region.metrics()["tasks"] == 1
