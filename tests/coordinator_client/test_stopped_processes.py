"""Processes that stand still for longer than a session: a member that is stopped, and the broker it talks to."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.testing import RealBroker
from kohort.testing.fake_broker import FakeBroker
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import Witness, numbers, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]

MEMBER = """
import json, sys, time
from kohort import Consumer, KohortError, RebalanceHooks, TopicPartition

bootstrap, group, topic = sys.argv[1:]

def report(*what):
    print(json.dumps(what), flush=True)

class Hooks(RebalanceHooks):
    def on_assigned(self, event):
        report("assigned", len(event.partitions))
    def on_lost(self, event):
        report("lost", len(event.partitions))
        try:
            consumer.commit({TopicPartition(topic, 0): 1}, timeout_s=5)
        except KohortError as error:
            report("refused", type(error).__name__)

with Consumer(bootstrap, group=group, auto_offset_reset="earliest", enable_auto_commit=False,
              session_timeout_ms=6000, heartbeat_interval_ms=500) as consumer:
    consumer.subscribe([topic], hooks=Hooks())
    while True:
        for columns in consumer.poll(0.1):
            for record in columns:
                report("record", record.value.decode())
"""


def reported(out: IO[str]) -> list[object]:
    """The next thing the member says."""
    line = out.readline()
    assert line, "the member has ended"
    said = json.loads(line)
    assert isinstance(said, list)
    return said


@pytest.mark.broker
@pytest.mark.proves("B-33", "S-12", "F-04")
def test_a_member_that_was_stopped_past_its_session_gets_its_loss_before_anything_else(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Name
) -> None:
    topic, group = make_topic(1), unique("stopped")
    produce(broker.bootstrap, topic, numbers(0, 3))
    member = subprocess.Popen(
        [sys.executable, "-c", MEMBER, broker.bootstrap, group, topic], stdout=subprocess.PIPE, text=True
    )
    try:
        assert member.stdout is not None
        assert [reported(member.stdout) for _ in range(4)] == [["assigned", 1], *(["record", str(n)] for n in range(3))]
        member.send_signal(signal.SIGSTOP)
        with Consumer(broker.bootstrap, group=group, auto_offset_reset="earliest") as heir:
            heir.subscribe([topic])
            read(heir, 3, patience_s=120)  # it had to wait for the session to end
            heir.commit()
            produce(broker.bootstrap, topic, numbers(3, 3))
            read(heir, 3)
            heir.commit()
            stored = heir.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
            assert stored is not None
            assert stored.offset == 6
            member.send_signal(signal.SIGCONT)
            assert reported(member.stdout) == ["lost", 1], (
                "no record that came before the stop, and none that came since"
            )
            assert reported(member.stdout) == ["refused", "CommitFailed"]
            again = heir.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
            assert again == stored
    finally:
        member.kill()
        member.wait()


@pytest.mark.broker
@pytest.mark.proves("B-24", "B-33", "F-05", "G-12")
def test_a_coordinator_that_stands_still_is_waited_for_and_nothing_is_shown_on_trust(unique: Name) -> None:
    group, topic = unique("still"), unique("topic")
    hooks = Witness()
    with RealBroker() as broker:
        create_topic(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, numbers(0, 5))
        with Consumer(
            broker.bootstrap,
            group=group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            request_timeout_ms=3000,
        ) as consumer:
            consumer.subscribe([topic], hooks=hooks)
            read(consumer, 5)
            consumer.commit({TopicPartition(topic, 0): 5})
            broker.pause()
            limit = time.monotonic() + 120
            while time.monotonic() < consumer._session.read(
                lambda core: core.view.ownership_deadline if core.view else 0.0
            ):
                assert consumer.poll(0.2) == []
                assert time.monotonic() < limit
            broker.resume()
            produce(broker.bootstrap, topic, numbers(5, 5))
            assert [record.value for record in read(consumer, 5, patience_s=120)] == numbers(5, 5)
            poll_until(consumer, lambda: consumer.health().healthy)
            consumer.commit({TopicPartition(topic, 0): 10})
    # The broker decides if the group still has it as a member. If not, the loss came first.
    assert hooks.kinds() in (["Assigned", "Revoked"], ["Assigned", "Lost", "Assigned", "Revoked"])


@pytest.mark.proves("B-33", "G-15")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_stood_still_with_a_revocation_due_gets_the_loss_instead(protocol: GroupProtocol) -> None:
    hooks, coordinator = Witness(), CoordinatorSettings(group_consumer_session_timeout_ms=1_000)
    settings: dict[str, Any] = {"group": "group", "session_timeout_ms": 1_000, "heartbeat_interval_ms": 100}
    with (
        FakeBroker(topics={"topic": 2}, settings=coordinator) as fake,
        Consumer(fake.bootstrap, protocol=protocol, **settings) as sleeper,
        Consumer(fake.bootstrap, protocol=protocol, **settings) as heir,
    ):
        sleeper.subscribe(["topic"], hooks=hooks)
        poll_until(sleeper, lambda: len(sleeper.assignment) == 2)
        heir.subscribe(["topic"])
        session = sleeper._session
        poll_until(heir, lambda: session.read(lambda core: core._hook is not None))
        with session.driver.lock:  # as in a process that is stopped
            poll_until(heir, lambda: len(heir.assignment) == 2)
        poll_until(sleeper, lambda: len(hooks.reported) > 1)
        assert hooks.kinds()[:2] == ["Assigned", "Lost"]
