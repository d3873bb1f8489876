"""A signal handler that raises in an Admin call: no lock stays held, the next call works, close works.

The script runs once for every point (see `tests/interrupts.py`). By default each `STRIDE`th point is taken;
KOHORT_INTERRUPTS=1 (`make test-interrupts`) takes all.
"""

import contextlib
import gc
import signal
import warnings
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kohort.admin import Admin, AdminClosed
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import ConcurrentUseError
from kohort.network.event_loop import LONGEST_SLEEP_S
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.interrupts import Interrupt, Tracer, attempt, elsewhere, every_point, every_point_within, reported

STRIDE = 67
PLACE = TopicPartition("topic", 0)
HASTY: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


def test_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = count()
    with FakeBroker(topics={"topic": 2}) as fake:
        fake.produce("topic", 0, [(b"k", b"v")] * 5)

        def script() -> None:
            name = f"made-{next(numbers)}"
            fake.commit(name, {PLACE: 2})
            admin = attempt(lambda: Admin(fake.bootstrap, **HASTY))
            assert name in {one.group for one in attempt(admin.list_groups)}
            assert attempt(lambda: admin.describe_group(name)).group == name
            assert attempt(lambda: admin.remove_members(name)) == []
            assert attempt(lambda: admin.committed(name))[PLACE].offset == 2
            elsewhere(lambda: admin.committed(name))
            assert attempt(lambda: admin.lag(name))[0].end == 5
            assert attempt(lambda: admin.first_offsets([PLACE])) == {PLACE: 0}
            assert attempt(lambda: admin.end_offsets([PLACE])) == {PLACE: 5}
            assert attempt(lambda: admin.newest_ms([PLACE])).keys() == {PLACE}
            attempt(lambda: admin.reset_offsets(name, {PLACE: 1}))
            assert attempt(lambda: admin.committed(name))[PLACE].offset == 1
            assert "topic" in {one.topic for one in attempt(admin.list_topics)}
            assert attempt(lambda: admin.describe_topics(["topic"])).keys() == {"topic"}
            brokers = attempt(admin.brokers)
            assert attempt(lambda: admin.versions(brokers)).keys() == {one.node for one in brokers}
            for unknown in (
                lambda: admin.describe_topic("topic"),
                lambda: admin.topic_configs(["topic"]),
                lambda: admin.broker_configs(brokers, ["x"]),
            ):
                with pytest.raises(UnsupportedVersion):
                    attempt(unknown)
            carried_out(lambda: admin.create_topic(name, partitions=1))
            assert name in {one.topic for one in attempt(admin.list_topics)}
            carried_out(lambda: admin.delete_topics(name))
            carried_out(lambda: admin.delete_groups(name))
            assert name not in {one.group for one in attempt(admin.list_groups)}
            ended(admin)

        report = every_point(script, stride=STRIDE)
    reported(report, capsys)


def carried_out(call: Callable[[], object]) -> None:
    """A change that an interrupted call may have made already: the second then is refused."""
    try:
        call()
    except Interrupt:
        with contextlib.suppress(KohortError):
            call()


def ended(admin: Admin) -> None:
    """No lock is held, and close works."""
    elsewhere(admin.brokers)
    attempt(admin.close)
    assert attempt(lambda: admin._driver.ended.wait(PATIENCE_S))
    with pytest.raises(AdminClosed):
        elsewhere(admin.brokers)
    attempt(admin.close)


def test_close_of_an_admin(capsys: pytest.CaptureFixture[str]) -> None:
    """At every point of `close` only. The second does what is left; without one, the finalizer does it."""
    with FakeBroker(topics={"topic": 1}) as fake:

        def script(tracer: Tracer, *, again: bool) -> None:
            admin = Admin(fake.bootstrap, **HASTY)
            admin.brokers()
            driver = admin._driver
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                with contextlib.suppress(Interrupt), tracer.on():
                    admin.close()
                if again:
                    admin.close()
                    with pytest.raises(AdminClosed):
                        admin.brokers()
                del admin
                gc.collect()
            assert driver.ended.wait(LONGEST_SLEEP_S / 2), "the thread was not woken"

        reports = [every_point_within(lambda tracer: script(tracer, again=again), stride=4) for again in (True, False)]  # noqa: B023
    with capsys.disabled():
        print(*reports, sep="\n    ", end="")


def test_a_handler_that_interrupts_the_lock_gets_an_error() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        assert admin.brokers()
        raised: list[str] = []

        def handler(*_: object) -> None:
            for call in (admin.brokers, admin.list_groups, admin.close):
                try:
                    call()
                except KohortError as error:
                    raised.append(type(error).__name__)

        before = signal.signal(signal.SIGALRM, handler)
        try:
            admin._driver.lock.run(signal.raise_signal, signal.SIGALRM)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert raised == [ConcurrentUseError.__name__] * 3
        assert admin.brokers()


def test_one_that_is_dropped_unclosed_warns_and_ends() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        admin = Admin(fake.bootstrap, client_id="forgotten")
        assert admin.brokers()
        driver = admin._driver
        with pytest.warns(ResourceWarning, match="unclosed admin 'forgotten'"):
            del admin
        assert driver.ended.wait(PATIENCE_S)
        assert not driver._channels


def test_one_that_is_closed_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        with Admin(fake.bootstrap) as admin:
            admin.brokers()
        del admin
    assert not [one for one in recwarn if one.category is ResourceWarning]
