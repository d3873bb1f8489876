"""KIP-848 on a real broker: beside other clients, migrating from classic and back, static, by the broker's pattern."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Consumer, IllegalState, RebalanceHooks
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import Witness, numbers, poll_all_until, poll_until, produce
from tests.coordinator_client.group.test_mixed_group import Seat, seated, settled
from tests.support.broker_selection import SelectedBroker, wanted_version

MakeTopic = Callable[..., str]
Name = Callable[[str], str]
SESSION_MS = 2_000

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(int(wanted_version().partition(".")[0]) < 4, reason="KIP-848 is on from Kafka 4.0"),
]


@pytest.fixture(scope="module")
def quick(  # a broker of its own: how soon a dead member is noticed is the broker's to say
) -> Iterator[RealBroker]:
    with RealBroker(version=wanted_version(), properties={"group.consumer.session.timeout.ms": str(SESSION_MS)}) as one:
        yield one


def sit(seat: Seat, bootstrap: str, group: str, topic: str, protocol: GroupProtocol) -> None:
    with Consumer(bootstrap, group=group, protocol=protocol, client_id=seat.name) as consumer:
        consumer.subscribe([topic], hooks=RebalanceHooks())
        while not seat.stop.is_set():
            consumer.poll(0.1)
            seat.owned = frozenset((one.topic, one.partition) for one in consumer.assignment)


def sit_confluent(seat: Seat, bootstrap: str, group: str, topic: str, protocol: GroupProtocol) -> None:
    from confluent_kafka import Consumer as Peer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": seat.name,
        "group.protocol": protocol,
    }
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "range"
    consumer = Peer(settings)
    consumer.subscribe([topic])
    try:
        while not seat.stop.is_set():
            consumer.poll(0.1)
            seat.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
    finally:
        consumer.close()


def shared_out(seats: list[Seat], bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Wait until members and coordinator agree, and every partition has exactly one owner."""
    view = settled(seats, bootstrap, group)
    owned = [partition for share in view.values() for partition in share]
    assert sorted(owned) == [(topic, number) for number in range(partitions)]


@pytest.mark.proves("G-03", "G-05", "G-13")
def test_ours_and_librdkafkas_share_a_group(broker: SelectedBroker, make_topic: MakeTopic, unique: Name) -> None:
    topic, group = make_topic(7), unique("mixed")
    with ExitStack() as stack:
        seats = [
            stack.enter_context(seated(how, name, broker.bootstrap, group, topic, "consumer"))
            for how, name in ((sit, "kohort-1"), (sit_confluent, "confluent"), (sit, "kohort-2"))
        ]
        shared_out(seats, broker.bootstrap, group, topic, 7)
        seats[2].stop.set()
        shared_out(seats[:2], broker.bootstrap, group, topic, 7)


@pytest.mark.proves("G-03", "G-12")
def test_a_live_group_goes_over_to_the_new_protocol_and_back(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic, group = make_topic(6), unique("migrates")
    with ExitStack() as stack:

        def come(how: Callable[..., None], name: str, protocol: GroupProtocol) -> Seat:
            return stack.enter_context(seated(how, name, broker.bootstrap, group, topic, protocol))

        def go(*leaving: Seat) -> None:
            for seat in leaving:
                seat.stop.set()

        old = [come(sit, "ours-classic", "classic"), come(sit_confluent, "theirs-classic", "classic")]
        shared_out(old, broker.bootstrap, group, topic, 6)
        new = [come(sit, "ours-consumer", "consumer")]
        shared_out(old + new, broker.bootstrap, group, topic, 6)  # both protocols in one group
        go(*old)
        new.append(come(sit_confluent, "theirs-consumer", "consumer"))
        shared_out(new, broker.bootstrap, group, topic, 6)
        back = [come(sit, "ours-classic-again", "classic")]
        shared_out(new + back, broker.bootstrap, group, topic, 6)
        go(*new)
        shared_out(back, broker.bootstrap, group, topic, 6)


SITTER = """
import sys
from kohort import Consumer
with Consumer(sys.argv[1], group=sys.argv[2], protocol="consumer", auto_offset_reset="earliest") as consumer:
    consumer.subscribe([sys.argv[3]])
    while True:
        consumer.poll(0.1)
        print(len(consumer.assignment), flush=True)
"""


@pytest.mark.proves("G-14", "B-36")
def test_a_member_that_is_killed_is_missed_and_its_partitions_go_on(quick: RealBroker, unique: Name) -> None:
    topic, group = unique("topic"), unique("group")
    create_topic(quick.bootstrap, topic, partitions=4)
    with Consumer(quick.bootstrap, group=group, protocol="consumer", auto_offset_reset="earliest") as ours:
        ours.subscribe([topic])
        victim = subprocess.Popen(
            [sys.executable, "-c", SITTER, quick.bootstrap, group, topic], stdout=subprocess.PIPE, text=True
        )
        try:
            poll_until(ours, lambda: len(ours.assignment) == 2)
            victim.send_signal(signal.SIGKILL)
            for partition in range(4):
                produce(quick.bootstrap, topic, numbers(partition * 10, 10), partition=partition)
            records = poll_until(ours, lambda: len(ours.assignment) == 4)
            limit = time.monotonic() + 120
            while len(records) < 40:
                assert time.monotonic() < limit
                records += [record for columns in ours.poll(0.1) for record in columns]
            assert sorted(int(record.value or b"") for record in records) == list(range(40))
        finally:
            victim.kill()
            victim.wait()


@pytest.mark.proves("B-33", "G-14")
def test_a_member_that_slept_through_its_session_shows_nothing_and_gets_the_loss(
    quick: RealBroker, unique: Name
) -> None:
    topic, group = unique("topic"), unique("group")
    create_topic(quick.bootstrap, topic, partitions=2)
    hooks = Witness()
    settings: dict[str, Any] = {"group": group, "protocol": "consumer", "auto_offset_reset": "earliest"}
    with Consumer(quick.bootstrap, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=500, **settings) as sleeper:
        sleeper.subscribe([topic], hooks=hooks)
        poll_until(sleeper, lambda: len(sleeper.assignment) == 2)
        driver = sleeper._session.driver
        with driver.lock:  # as a process does that is stopped: no turn is taken, no heartbeat sent
            time.sleep(SESSION_MS / 1000 + 1.5)
        poll_until(sleeper, lambda: "Lost" in hooks.kinds())
        poll_until(sleeper, lambda: len(sleeper.assignment) == 2)
        assert hooks.kinds() == ["Assigned", "Lost", "Assigned"]


@pytest.mark.proves("G-17")
def test_a_static_member_comes_back_to_what_it_had_and_a_second_holder_is_refused(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    topic, group = make_topic(4), unique("group")
    settings: dict[str, Any] = {"group": group, "protocol": "consumer"}
    with Consumer(broker.bootstrap, **settings) as witness:
        hooks = Witness()
        witness.subscribe([topic], hooks=hooks)
        with Consumer(broker.bootstrap, group_instance_id="i-1", **settings) as static:
            static.subscribe([topic])
            poll_all_until([witness, static], lambda: len(witness.assignment) == len(static.assignment) == 2)
            before, reported = static.assignment, len(hooks.reported)
            patience: dict[str, Any] = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 500}
            with Consumer(broker.bootstrap, group_instance_id="i-1", **settings, **patience) as second:
                second.subscribe([topic])
                with pytest.raises(KohortError, match="UNRELEASED_INSTANCE_ID"):
                    poll_until(second, lambda: bool(static.poll(0) or witness.poll(0)))
            assert static.poll(0.2) == []  # the first holder does not even notice
        with Consumer(broker.bootstrap, group_instance_id="i-1", **settings) as back:
            back.subscribe([topic])
            poll_all_until([witness, back], lambda: back.assignment == before)
        assert len(hooks.reported) == reported


@pytest.mark.proves("F-16")
def test_a_pattern_that_the_broker_matches_follows_topics_that_appear(broker: SelectedBroker, unique: Name) -> None:
    prefix = unique("pay")
    create_topic(broker.bootstrap, f"{prefix}-a", partitions=1)
    with Consumer(broker.bootstrap, group=unique("group"), protocol="consumer", auto_offset_reset="earliest") as ours:
        ours.subscribe(broker_pattern=prefix + "-.*")
        poll_until(ours, lambda: ours.assignment == {TopicPartition(f"{prefix}-a", 0)})
        create_topic(broker.bootstrap, f"{prefix}-b", partitions=1)
        produce(broker.bootstrap, f"{prefix}-b", numbers(0, 3))
        records = poll_until(ours, lambda: len(ours.assignment) == 2)
        limit = time.monotonic() + 120
        while len(records) < 3:
            assert time.monotonic() < limit
            records += [record for columns in ours.poll(0.1) for record in columns]
        ours.subscribe(broker_pattern="(")
        with pytest.raises(KohortError, match="INVALID_REGULAR_EXPRESSION"):
            poll_until(ours, lambda: False)


def test_an_assignor_that_the_broker_does_not_have_is_an_error_that_names_it(
    broker: SelectedBroker, topic: str
) -> None:
    with Consumer(broker.bootstrap, group=f"g-{topic}", protocol="consumer", remote_assignor="mine") as ours:
        ours.subscribe([topic])
        with pytest.raises(KohortError, match="UNSUPPORTED_ASSIGNOR"):
            poll_until(ours, lambda: False)


@pytest.mark.proves("E-09")
def test_a_broker_without_the_protocol_is_named_as_such() -> None:
    with (
        RealBroker(
            version=wanted_version(), properties={"group.coordinator.rebalance.protocols": "classic"}
        ) as without,
        Consumer(without.bootstrap, group="g", protocol="consumer") as ours,
    ):
        create_topic(without.bootstrap, "t", partitions=1)
        ours.subscribe(["t"])
        with pytest.raises(KohortError, match=r"protocol='classic'"):
            poll_until(ours, lambda: False)


def test_what_only_one_protocol_has_is_refused_under_the_other(broker: SelectedBroker, topic: str) -> None:
    with pytest.raises(KohortError, match="remote_assignor"):
        Consumer(broker.bootstrap, group="g", remote_assignor="range")
    with pytest.raises(KohortError, match="the coordinator assigns"):
        Consumer(broker.bootstrap, group="g", protocol="consumer", assignors=["sticky"])
    with Consumer(broker.bootstrap, group="g") as classic, pytest.raises(IllegalState, match="coordinator"):
        classic.subscribe(broker_pattern="t.*")
