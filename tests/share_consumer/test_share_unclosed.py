"""A share consumer that is not closed, or has no time for it, leaves its group all the same."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort.share_consumer import ShareConsumer, share_core
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Drop

PATIENCE_S = 60.0
PROGRAM = """
import asyncio, sys, threading
from kohort.share_consumer import AsyncShareConsumer, ShareConsumer

def poll(consumer, begun):
    while True:
        begun.set()
        consumer.poll(10)

def poll_on_another_thread():
    begun, consumer = threading.Event(), ShareConsumer(sys.argv[1], group="jobs")
    consumer.subscribe(["work"])
    while not consumer.assignment:
        consumer.poll(0.1)
    threading.Thread(target=poll, args=(consumer, begun), daemon=True).start()
    begun.wait()

async def asynchronous():
    consumer = AsyncShareConsumer(sys.argv[1], group="jobs")
    consumer.subscribe(["work"])
    while not consumer.assignment:
        await consumer.poll(0.1)
    return consumer

async def begun_to_close():
    closing = asyncio.create_task((await asynchronous()).close())
    await asyncio.sleep(0)
    return closing
"""


def leaves(fake: FakeBroker) -> int:
    """The number of heartbeats that leave."""
    requests: list[Any] = [call.request for call in fake.calls_of("ShareGroupHeartbeat")]
    return sum(request.member_epoch == -1 for request in requests)


@pytest.mark.proves("B-36")
@pytest.mark.parametrize(
    "end",
    [
        "poll_on_another_thread()",
        "kept = asyncio.run(asynchronous())",
        "asyncio.run(asynchronous())",
        "loop = asyncio.new_event_loop(); kept = loop.run_until_complete(begun_to_close())",
    ],
)
def test_a_member_leaves_at_the_end_of_the_interpreter(end: str) -> None:
    with FakeBroker(topics={"work": 1}) as fake:
        subprocess.run([sys.executable, "-c", PROGRAM + end, fake.bootstrap], check=True, timeout=120)
        assert leaves(fake) == 1


def close_without_time(consumer: ShareConsumer) -> None:
    consumer.close(0)


def close_with_some_time(consumer: ShareConsumer) -> None:
    consumer.close(0.5)


def drop(_consumer: ShareConsumer) -> None:
    """The caller has the last reference."""


@pytest.mark.proves("SH-21", "B-36")
@pytest.mark.filterwarnings("ignore:unclosed share consumer")
@pytest.mark.parametrize("end", [close_without_time, close_with_some_time, drop])
def test_a_member_leaves_though_a_broker_does_not_end_its_session(
    end: Callable[[ShareConsumer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_core, "LEAVE_S", 0.5)
    with FakeBroker(topics={"work": 1}) as fake:
        fake.configure_group("jobs", {"share.auto.offset.reset": "earliest"})
        fake.produce("work", 0, [(None, b"x")])
        consumer = ShareConsumer(fake.bootstrap, group="jobs")
        consumer.subscribe(["work"])
        assert consumer.poll(PATIENCE_S)
        fake.control("ShareAcknowledge", lambda _call: Drop())
        end(consumer)
        del consumer
        limit = time.monotonic() + PATIENCE_S
        while not leaves(fake):
            assert time.monotonic() < limit
            time.sleep(0.02)
        assert leaves(fake) == 1
