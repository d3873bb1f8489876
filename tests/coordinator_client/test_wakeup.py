"""wakeup() from where it is needed most: another thread, and the handler of a signal that says to stop."""

import signal
import threading

import pytest

from kohort import Consumer
from kohort.coordinator_client import WakeupError
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S


@pytest.mark.proves("S-11", "B-36")
def test_a_handler_may_wake_the_consumer_whose_lock_is_held_by_who_was_interrupted() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap)
        consumer.assign([])

        def is_interrupted() -> None:
            with consumer._session.driver.lock:
                consumer.wakeup()

        interrupted = threading.Thread(target=is_interrupted, daemon=True)
        interrupted.start()
        interrupted.join(120)
        assert not interrupted.is_alive(), "it waits for itself"
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_S)
        assert consumer.poll(0) == []  # raised once
        consumer.close()


@pytest.mark.proves("S-11")
def test_a_poll_that_waits_is_woken_from_another_thread_and_by_a_signal() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        consumer.assign([])
        before = signal.signal(signal.SIGUSR1, lambda _number, _frame: consumer.wakeup())
        here = threading.get_ident()
        try:
            for wake in (consumer.wakeup, lambda: signal.pthread_kill(here, signal.SIGUSR1)):
                timer = threading.Timer(0.3, wake)
                timer.start()
                with pytest.raises(WakeupError):
                    consumer.poll(PATIENCE_S)
                timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
