"""Notifications and withheld records of a member whose broker is stopped (SIGSTOP) for longer than a session.

A handler that is about to take too long has notifications, too."""

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Assigned, Consumer, Lost, RebalanceHooks, Revoked
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce
from tests.support.broker_selection import SelectedBroker, wanted_version

SESSION_MS = 3_000
RECORDS = 3_000


class Diary(RebalanceHooks):
    """Hooks and records in the order in which they came."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []

    def on_assigned(self, event: Assigned) -> None:
        self.lines.append(("assigned", event.generation))

    def on_revoked(self, event: Revoked) -> None:
        self.lines.append(("revoked", event.generation))

    def on_lost(self, event: Lost) -> None:
        self.lines.append(("lost", event.generation))


@pytest.fixture
def frozen() -> Iterator[RealBroker]:
    """A broker of our own, since others have nothing to do while it sleeps."""
    with RealBroker(version=wanted_version()) as broker:
        yield broker


@pytest.mark.broker
@pytest.mark.proves("B-33", "F-05", "F-07", "B-24")
def test_records_at_hand_are_kept_back_once_a_frozen_broker_may_have_given_the_session_up(
    frozen: RealBroker, unique: Callable[[str], str]
) -> None:
    topic, diary = unique("topic"), Diary()
    tp = TopicPartition(topic, 0)
    create_topic(frozen.bootstrap, topic)
    produce(frozen.bootstrap, topic, numbers(0, RECORDS))
    with Consumer(
        frozen.bootstrap,
        group=unique("group"),
        auto_offset_reset="earliest",
        max_poll_records=5,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=200,
        request_timeout_ms=2_000,
    ) as consumer:
        consumer.subscribe([topic], hooks=diary)

        def poll() -> int:
            columns = [one for one in consumer.poll(0.05) if len(one)]
            diary.lines += [("read", one.offsets[0]) for one in columns]
            return sum(map(len, columns))

        while not poll():
            pass
        while consumer.health().last_heartbeat_s is None:
            time.sleep(0.02)  # without a poll: records at hand are what this is about
        committed = consumer.position(tp)
        consumer.commit({tp: committed})
        frozen.pause()
        shown = 0
        while (beat := consumer.health().last_heartbeat_s) is not None and beat < SESSION_MS / 1000:
            shown += poll()
            time.sleep(0.01)  # else all that is at hand is read before the session is over
        assert shown > 0, "what was fetched is read on while the session lasts"
        assert [poll() for _ in range(20)] == [0] * 20, "the owner of these is unknown now"
        stood = consumer.position(tp)
        assert stood < RECORDS, "there were records at hand to keep back"
        diary.lines.clear()
        frozen.resume()
        while ("read" not in dict(diary.lines)) or not consumer.health().healthy:
            poll()
        first = next(offset for what, offset in diary.lines if what == "read")
        if diary.lines[0][0] == "lost":
            assert first == committed, "what was not committed is read again"
            assert [what for what, _ in diary.lines[:3]] == ["lost", "assigned", "read"]
        else:  # the broker read our heartbeats, which had waited for it, before it counted the time it had slept
            assert diary.lines[0] == ("read", stood)
        consumer.commit({tp: consumer.position(tp)})


@pytest.mark.broker
@pytest.mark.proves("S-13", "B-34")
def test_a_handler_near_its_limit_is_warned_of_before_it_costs_the_partitions(
    broker: SelectedBroker, topic: str, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "kohort.consumer"),
        Consumer(broker.bootstrap, group=unique("group"), max_poll_interval_ms=2_000) as consumer,
    ):
        consumer.subscribe([topic])
        poll_until(consumer, lambda: bool(consumer.assignment))
        while "poll_stalled" not in (kinds := [notice.kind for notice in consumer.notices()]):
            time.sleep(0.02)  # the handler does not come back to poll, and others look on
        assert kinds.index("poll_stalling") < kinds.index("poll_stalled")
        assert not consumer.health().healthy
        poll_until(consumer, lambda: consumer.health().healthy and bool(consumer.assignment))
    warned = [record.message for record in caplog.records if record.message.startswith("poll_stalling")]
    assert len(warned) == 1
