"""`wakeup()` of share consumers: the running poll, or else the next one, raises WakeupError once."""

import asyncio
import threading

import pytest

from kohort import AsyncShareConsumer
from kohort.network.errors import WakeupError
from tests.share_consumer.test_share_consumer import GROUP, PATIENCE_S, TOPIC, broker_with, member, next_batch, until


def test_a_poll_that_waits_is_woken_and_the_next_one_is_not() -> None:
    with broker_with(0) as fake, member(fake) as consumer:
        errors: list[BaseException] = []

        def poll() -> None:
            try:
                consumer.poll(PATIENCE_S)
            except WakeupError as error:
                errors.append(error)

        thread = threading.Thread(target=poll)
        thread.start()
        consumer.wakeup()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert len(errors) == 1
        assert consumer.poll(0) == []


def test_the_next_poll_is_woken_and_loses_no_records() -> None:
    with broker_with(3) as fake, member(fake, acknowledgement_mode="explicit") as consumer:
        consumer.acknowledge(next_batch(consumer))
        fake.produce(TOPIC, 0, [(b"", b"later")])
        consumer.wakeup()
        consumer.wakeup()
        assert consumer.commit() == {}  # only polls are woken
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_S)
        assert [record.value for record in next_batch(consumer)] == [b"later"]


def test_an_iteration_is_woken() -> None:
    with broker_with(3) as fake, member(fake) as consumer:

        def work() -> None:
            for _batch in consumer:
                consumer.wakeup()

        with pytest.raises(WakeupError):
            work()


def test_a_task_that_polls_is_woken() -> None:
    async def main(bootstrap: str) -> None:
        async with AsyncShareConsumer(bootstrap, group=GROUP) as consumer:
            consumer.subscribe([TOPIC])
            waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await asyncio.wait_for(waiting, PATIENCE_S)
            assert await consumer.poll(0) == []

    with broker_with(0) as fake:
        asyncio.run(main(fake.bootstrap))


@pytest.mark.proves("SH-20")
def test_a_poll_that_was_woken_waits_no_longer_so_its_member_leaves() -> None:
    with broker_with(0) as fake, member(fake, max_poll_interval_ms=500) as consumer:
        until(lambda: consumer.poll(0) == [] and bool(fake.share_group(GROUP).members))
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_S * 60)
        until(lambda: not fake.share_group(GROUP).members)
