"""A driver that ended by a defect of ours: every face says so at its next call, whichever that is."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, Producer
from kohort.admin import Admin
from kohort.fastpath import KohortError, TopicPartition
from kohort.testing.fake_broker import FakeBroker


def polls(bootstrap: str) -> tuple[Any, Callable[[], object]]:
    consumer = Consumer(bootstrap)
    consumer.assign([TopicPartition("topic", 0)])
    return consumer._session.driver, lambda: consumer.poll(30)


def sends(bootstrap: str) -> tuple[Any, Callable[[], object]]:
    producer = Producer(bootstrap)
    return producer._driver, lambda: producer.send("topic", b"value")


def lists(bootstrap: str) -> tuple[Any, Callable[[], object]]:
    admin = Admin(bootstrap)
    return admin._asker._driver, admin.list_topics


@pytest.mark.parametrize("face", [polls, sends, lists])
def test_a_driver_that_has_ended_is_told_of_and_so_it_is_again(
    face: Callable[[str], tuple[Any, Callable[[], object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        driver, call = face(fake.bootstrap)

        def turn(*_given: object) -> object:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr(driver.core, "turn", turn)
        driver.wake()
        until = time.monotonic() + 60
        while driver.crashed is None and time.monotonic() < until:
            time.sleep(0.01)
        for _ in range(2):
            with pytest.raises(KohortError, match="ended by a defect: please report it") as told:
                call()
            assert isinstance(told.value.__cause__, ZeroDivisionError)
