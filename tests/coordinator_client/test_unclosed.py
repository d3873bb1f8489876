"""A consumer that is dropped without close() warns, and its driver stops."""

import asyncio
import gc
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import AsyncConsumer, Consumer
from kohort.network.network_client import Driver
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, in_a_child, poll_until


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
