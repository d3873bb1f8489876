"""A consumer that is dropped without close() warns, and its driver stops."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import AsyncConsumer, Consumer
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.hooks import RebalanceHooks, Revoked
from kohort.network import event_loop, network_client
from kohort.network.event_loop import EventLoop, Turned
from kohort.network.network_client import Driver
from kohort.network.promise import Flag
from kohort.share_consumer import ShareConsumer
from kohort.testing.fake_broker import Action, Call, Close, FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, in_a_child, poll_until, wait_until
from tests.interrupts import Interrupt


def member(bootstrap: str) -> Driver[Any]:
    consumer = Consumer(bootstrap, group="g", client_id="left")
    consumer.subscribe(["topic"])
    poll_until(consumer, lambda: bool(consumer.assignment))
    return consumer._session.driver


def asynchronous(bootstrap: str) -> Driver[Any]:
    async def main() -> Driver[Any]:
        consumer = AsyncConsumer(bootstrap, group="g", client_id="left")
        consumer.assign([TopicPartition("topic", 0)])
        await consumer.poll(0.1)
        return consumer._session.driver

    return asyncio.run(main())


def dropped(use: Callable[[str], Driver[Any]], bootstrap: str) -> Driver[Any]:
    driver = use(bootstrap)
    gc.collect()
    return driver


@pytest.mark.parametrize("use", [member, asynchronous])
def test_an_unclosed_consumer_warns_and_its_driver_stops(use: Callable[[str], Driver[Any]]) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        with pytest.warns(ResourceWarning, match=r"unclosed consumer 'left' of group 'g': call close\(\)"):
            driver = dropped(use, fake.bootstrap)
        assert driver.ended.wait(PATIENCE_S)


def test_a_closed_consumer_warns_of_nothing() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, warnings.catch_warnings():
        warnings.simplefilter("error")
        with Consumer(fake.bootstrap) as consumer:
            consumer.assign([])
            consumer.poll(0)
        del consumer
        gc.collect()


def test_one_that_could_not_be_made_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KohortError):
            Consumer("127.0.0.1:1", security_protocol="SSL", ssl_ca_path="/no/such/file")
        gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_in_a_forked_child_nothing_is_stopped() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumers = [Consumer(fake.bootstrap)]
        consumers[0].assign([])

        def drop() -> None:
            consumers.clear()
            gc.collect()

        driver = consumers[0]._session.driver
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            in_a_child(drop)
        assert not driver.stopping
        assert consumers[0].poll(0) == []
        consumers[0].close()


PROGRAM = """
import asyncio, sys, threading
from kohort.coordinator_client import AsyncConsumer, Consumer

def member():
    consumer = Consumer(sys.argv[1], group="g")
    consumer.subscribe(["topic"])
    while not consumer.assignment:
        consumer.poll(0.1)
    return consumer

async def asynchronous():
    consumer = AsyncConsumer(sys.argv[1], group="g")
    consumer.subscribe(["topic"])
    while not consumer.assignment:
        await consumer.poll(0.1)
    return consumer

def drop():
    member()

def poll(consumer, begun):
    while True:
        begun.set()
        consumer.poll(10)

def poll_on_another_thread():
    begun = threading.Event()
    threading.Thread(target=poll, args=(member(), begun), daemon=True).start()
    begun.wait()
"""


@pytest.mark.proves("B-36")
@pytest.mark.parametrize(
    "end", ["drop()", "poll_on_another_thread()", "kept = asyncio.run(asynchronous())", "asyncio.run(asynchronous())"]
)
def test_a_member_leaves_at_the_end_of_the_interpreter(end: str) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        subprocess.run([sys.executable, "-c", PROGRAM + end, fake.bootstrap], check=True, timeout=120)
        assert len(fake.calls_of("LeaveGroup")) == 1


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
@pytest.mark.parametrize("make", [Consumer, partial(ShareConsumer, group="g")])
def test_a_creation_that_is_interrupted_before_the_driver_has_a_thread_leaves_none(
    make: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped, threads, main = Flag(), list[EventLoop](), threading.main_thread().ident
    assert main is not None

    def place(driver: Turned) -> EventLoop:
        signal.pthread_kill(main, signal.SIGUSR1)
        assert dropped.wait(PATIENCE_S)
        threads.append(event_loop.place(driver))
        return threads[0]

    def interrupt(*_signal: object) -> None:
        raise Interrupt

    def interrupted() -> None:
        with contextlib.suppress(Interrupt):
            make("127.0.0.1:1")
        gc.collect()

    before = signal.signal(signal.SIGUSR1, interrupt)
    monkeypatch.setattr(network_client, "place", place)
    try:
        with pytest.warns(ResourceWarning, match="unclosed"):
            interrupted()
    finally:
        signal.signal(signal.SIGUSR1, before)
        dropped.set()
    wait_until(lambda: bool(threads) and not threads[0].load)


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_close_without_time_leaves_the_group(protocol: GroupProtocol) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap, group="g", protocol=protocol)
        consumer.subscribe(["topic"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        consumer.close(0)
        group = fake.group if protocol == "classic" else fake.consumer_group
        wait_until(lambda: not group("g").members)


class Outlives(RebalanceHooks):
    """Its `on_revoked` ends after the time-out of `close`, as the member's state shows."""

    consumer: Consumer

    def on_revoked(self, event: Revoked) -> None:
        core = self.consumer._session.core
        wait_until(lambda: core.view is not None and core.view.state is MemberState.CLOSED)


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_close_whose_hook_outlives_it_leaves_the_group(protocol: GroupProtocol) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer, hooks = Consumer(fake.bootstrap, group="g", protocol=protocol), Outlives()
        hooks.consumer = consumer
        consumer.subscribe(["topic"], hooks=hooks)
        poll_until(consumer, lambda: bool(consumer.assignment))
        consumer.close(0.2)
        group = fake.group if protocol == "classic" else fake.consumer_group
        wait_until(lambda: not group("g").members)


@pytest.mark.proves("B-36", "E-06")
@pytest.mark.parametrize(("protocol", "api"), [("classic", "LeaveGroup"), ("consumer", "ConsumerGroupHeartbeat")])
@pytest.mark.parametrize("meets", ["NOT_COORDINATOR", "the end of the connection"])
def test_a_leave_reaches_a_coordinator_that_moves(protocol: GroupProtocol, api: str, meets: str) -> None:
    with FakeBroker(nodes=2, topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap, group="g", protocol=protocol)
        consumer.subscribe(["topic"])
        poll_until(consumer, lambda: bool(consumer.assignment))

        def move(call: Call) -> Action:
            if call.node == 2 or getattr(call.request, "member_epoch", -1) >= 0:
                return None
            fake.move_coordinator("g", 2)
            return Close() if meets == "the end of the connection" else None

        fake.control(api, move)
        consumer.close()
        group = fake.group if protocol == "classic" else fake.consumer_group
        assert not group("g").members
