"""A driver that ended by a defect of ours: every face says so at its next call, whichever that is."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, Producer
from kohort.admin import Admin
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import WakeupError
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, crash, poll_until


def polls(bootstrap: str) -> tuple[Any, Callable[[], object]]:
    consumer = Consumer(bootstrap)
    consumer.assign([TopicPartition("topic", 0)])
    return consumer._session.driver, lambda: consumer.poll(30)


def sends(bootstrap: str) -> tuple[Any, Callable[[], object]]:
    producer = Producer(bootstrap)
    return producer._driver, lambda: producer.send("topic", b"value")


def lists(bootstrap: str) -> tuple[Any, Callable[[], object]]:
    admin = Admin(bootstrap)
    return admin._driver, admin.list_topics


@pytest.mark.parametrize("face", [polls, sends, lists])
def test_a_driver_that_has_ended_is_reported_and_so_it_is_again(
    face: Callable[[str], tuple[Any, Callable[[], object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        driver, call = face(fake.bootstrap)
        crash(driver, monkeypatch)
        for _ in range(2):
            with pytest.raises(KohortError, match="ended by a defect: please report it") as reported:
                call()
            assert isinstance(reported.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("group", [None, "group"])
def test_a_consumer_that_was_closed_is_not_healthy(group: str | None) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        with Consumer(fake.bootstrap, group=group) as consumer:
            if group is None:
                consumer.assign([TopicPartition("topic", 0)])
            else:
                consumer.subscribe(["topic"])
            poll_until(consumer, lambda: bool(consumer.assignment))
            assert consumer.health().healthy
        health = consumer.health()
        assert (health.healthy, health.reason) == (False, "the consumer is closed"), (
            "its loop has ended: there is no reader"
        )


@pytest.mark.proves("B-36")
def test_a_member_whose_driver_has_ended_closes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap, group="group")
        consumer.subscribe(["topic"])
        crash(consumer._session.driver, monkeypatch)
        began = time.monotonic()
        consumer.close(3600)
        assert time.monotonic() - began < PATIENCE_S

        async def asynchronous() -> None:
            other = AsyncConsumer(fake.bootstrap, group="group")
            other.subscribe(["topic"])
            crash(other._session.driver, monkeypatch)
            await asyncio.wait_for(other.close(3600), PATIENCE_S)

        asyncio.run(asynchronous())


def test_a_wakeup_without_a_waiting_poll_is_for_polls_only() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        consumer.wakeup()
        session, waits = consumer._session, 0
        until = session.driver.now() + 0.2
        while session.wait(until, session.driver.bell.rings, wakeable=False):  # as close() waits: else it would spin
            session.core.has_updates = False
            waits += 1
        assert waits < 50  # a few for what the driver found out meanwhile
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_S)
