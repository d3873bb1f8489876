"""A cooperative group of three kinds of client on a real broker, through joins and leaves in random order.

Two members each of ours, Kafka's own Java consumer and librdkafka's take part, any of them leading. Every change of
owners is recorded with the machine's monotonic clock. A partition's next owner must come after the last one revoked it.
A partition with the same owner before and after a change must not be revoked in between.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kohort.coordinator_client import Assigned, Consumer, Lost, RebalanceHooks, Revoked
from kohort.testing import jars
from kohort.testing.jdk import java
from tests.support.broker_selection import SelectedBroker

PARTITIONS = 14
FEW, MANY = 12, 50
HEARTBEAT_MS = 100
PATIENCE_S = 120.0
QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Reported(NamedTuple):
    """`what`: "+" partitions came, "-" they have been let go, "lost" they were taken without a revocation."""

    at_ns: int
    member: str
    what: str
    partitions: frozenset[int]


class Book:
    """All reports of all members, in the order of the clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: list[Reported] = []

    def write(self, member: str, what: str, numbers: Iterable[int], at_ns: int | None = None) -> None:
        with self._lock:
            self._reported.append(
                Reported(time.monotonic_ns() if at_ns is None else at_ns, member, what, frozenset(numbers))
            )

    def reported(self) -> list[Reported]:
        with self._lock:
            return sorted(self._reported)

    def owners(self) -> dict[int, list[str]]:
        """The owners of each partition after all reports so far."""
        owned: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        for reported in self.reported():
            for number in reported.partitions:
                if reported.what == "+":
                    owned[number].append(reported.member)
                elif reported.member in owned[number]:
                    owned[number].remove(reported.member)
        return owned


class Members(ABC):
    """The members of one kind of client."""

    @abstractmethod
    def join(self, name: str) -> None: ...
    @abstractmethod
    def leave(self, name: str) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class InThreads(Members):
    """Members that sit in threads of this process."""

    def __init__(self, bootstrap: str, group: str, topic: str, book: Book) -> None:
        self.bootstrap, self.group, self.topic, self.book = bootstrap, group, topic, book
        self.seats: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self.errors: list[BaseException] = []

    def join(self, name: str) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(name, stop), name=name, daemon=True)
        self.seats[name] = thread, stop
        thread.start()

    def leave(self, name: str) -> None:
        thread, stop = self.seats.pop(name)
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{name} does not leave"

    def close(self) -> None:
        for name in list(self.seats):
            self.leave(name)

    def _run(self, name: str, stop: threading.Event) -> None:
        try:
            self.sit(name, stop)
        except BaseException as error:
            self.errors.append(error)

    @abstractmethod
    def sit(self, name: str, stop: threading.Event) -> None: ...


class Ours(InThreads):
    def sit(self, name: str, stop: threading.Event) -> None:
        book = self.book

        class Hooks(RebalanceHooks):
            def on_assigned(self, event: Assigned) -> None:
                book.write(name, "+", (each.partition for each in event.partitions))

            def on_revoked(self, event: Revoked) -> None:
                book.write(name, "-", (each.partition for each in event.partitions))

            def on_lost(self, event: Lost) -> None:
                book.write(name, "lost", (each.partition for each in event.partitions))

        with Consumer(
            self.bootstrap,
            group=self.group,
            client_id=name,
            assignors=["cooperative-sticky"],
            heartbeat_interval_ms=HEARTBEAT_MS,
        ) as consumer:
            consumer.subscribe([self.topic], hooks=Hooks())
            while not stop.is_set():
                consumer.poll(0.05)


class Librdkafkas(InThreads):
    def sit(self, name: str, stop: threading.Event) -> None:
        from confluent_kafka import Consumer as Peer

        def came(consumer: Any, partitions: list[Any]) -> None:
            self.book.write(name, "+", (each.partition for each in partitions))
            consumer.incremental_assign(partitions)

        def went(consumer: Any, partitions: list[Any]) -> None:
            consumer.incremental_unassign(partitions)
            self.book.write(name, "-", (each.partition for each in partitions))

        consumer = Peer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": name,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        consumer.subscribe([self.topic], on_assign=came, on_revoke=went)
        try:
            while not stop.is_set():
                consumer.poll(0.05)
        finally:
            consumer.close()


class Javas(Members):
    """Kafka's own consumers, in one JVM."""

    def __init__(self, bootstrap: str, group: str, topic: str, book: Book) -> None:
        classpath = os.pathsep.join(map(str, jars.clients()))
        source = Path(__file__).with_name("JavaMembers.java")
        self.book = book
        self.joined: set[str] = set()
        self.left: set[str] = set()
        self.failed: list[str] = []
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        self.process = subprocess.Popen(
            [str(java()), *QUICK, quiet, "-cp", classpath, str(source), bootstrap, group, topic, str(HEARTBEAT_MS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def join(self, name: str) -> None:
        self.joined.add(name)
        self.left.discard(name)
        self._say(f"join {name}")

    def leave(self, name: str) -> None:
        self.joined.remove(name)
        self._say(f"leave {name}")
        limit = time.monotonic() + PATIENCE_S
        while name not in self.left:
            assert time.monotonic() < limit, f"{name} does not leave"
            time.sleep(0.02)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(120)

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            name, what, *rest = line.split()
            if what == "left":
                self.left.add(name)
            elif what == "failed":
                self.failed.append(line)
            else:
                numbers = () if rest[1] == "-" else (int(each.rpartition("-")[2]) for each in rest[1].split(","))
                self.book.write(name, what, numbers, at_ns=int(rest[0]))


def settled(book: Book, present: set[str]) -> dict[int, str]:
    """Wait until every partition has one owner among those present, shares are even, and no more reports come."""
    limit = time.monotonic() + PATIENCE_S
    calm: tuple[int, float] = (-1, 0.0)
    while time.monotonic() < limit:
        owners, reported = book.owners(), len(book.reported())
        single = {number: names[0] for number, names in owners.items() if len(names) == 1}
        loads = [list(single.values()).count(name) for name in present]
        if len(single) == PARTITIONS and set(single.values()) <= present and max(loads) - min(loads) <= 1:
            if reported != calm[0]:
                calm = reported, time.monotonic()
            elif time.monotonic() - calm[1] > 2.5 * HEARTBEAT_MS / 1000:
                return single
        time.sleep(0.02)
    raise AssertionError(f"no balance among {sorted(present)}: {book.owners()}")


@pytest.mark.broker
@pytest.mark.proves("G-08", "G-09")
@pytest.mark.parametrize("changes", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_joins_and_leaves_with_one_owner_each_and_no_stop_for_what_stays(
    changes: int, broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group, book, chance = make_topic(PARTITIONS), unique("cooperative"), Book(), random.Random(7)
    with ExitStack() as stack:
        kinds: dict[str, Members] = {}
        for kind, cls in (("ours", Ours), ("java", Javas), ("librdkafka", Librdkafkas)):
            kinds[kind] = cls(broker.bootstrap, group, topic, book)
            stack.callback(kinds[kind].close)
        seats = {f"{kind}-{number}": members for kind, members in kinds.items() for number in (1, 2)}
        present: set[str] = set()
        before: dict[int, str] = {}
        moved = 0
        for change in range(changes):
            mark = time.monotonic_ns()
            # The first six join, so that all of them meet; then it is chance.
            name = sorted(seats)[change] if change < len(seats) else chance.choice(sorted(seats))
            if name in present and len(present) > 1:
                present.discard(name)
                seats[name].leave(name)
            elif name not in present:
                present.add(name)
                seats[name].join(name)
            after = settled(book, present)
            stayed = {number for number, owner in after.items() if before.get(number) == owner}
            for reported in book.reported():
                stopped = reported.partitions & stayed
                if reported.at_ns > mark and any(before[number] == reported.member for number in stopped):
                    raise AssertionError(f"change {change}, {name}: {reported} although {sorted(stopped)} stayed")
            moved += PARTITIONS - len(stayed)
            before = after
        for members in kinds.values():
            assert not getattr(members, "errors", []), members
            assert not getattr(members, "failed", []), members
    assert moved > PARTITIONS, "hardly anything moved: the story tests nothing"
    assert_one_owner_at_a_time(book.reported())


def assert_one_owner_at_a_time(story: list[Reported]) -> None:
    """No member receives a partition before its last owner has let it go; none loses one without a revocation."""
    owner: dict[int, str] = {}
    for reported in story:
        assert reported.what != "lost", reported
        for number in reported.partitions:
            if reported.what == "+":
                assert number not in owner, f"{reported} while {owner[number]} had {number}"
                owner[number] = reported.member
            else:
                assert owner.get(number) == reported.member, f"{reported} which it did not have"
                del owner[number]
    assert not owner, "a member left without letting go"
