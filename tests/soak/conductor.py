"""Carries a plan out on a cluster of three brokers, and gathers the files of all processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kohort.admin import Admin
from kohort.common import KohortError
from kohort.producer import Delivery, Producer
from kohort.testing import RealCluster, jars
from kohort.testing.jdk import java
from kohort.testing.topics import create_topic
from tests.soak.history import Entry, Writer, read
from tests.soak.plan import BROKER_ACTS, CLASSIC, CONSUMER, MOST_MEMBERS, Act, Action, Plan
from tests.soak.seats import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Seat

ROOT = Path(__file__).parents[2]
RECORDS_A_SECOND = 400
DRAIN_S = 60.0
LEAVE_S = 25.0
REPLICAS_S = 240.0
REQUEST_MS = 5_000
PATIENT_MS = 300_000
UNSENT_BYTES = 1 << 20  # with so much that no broker has taken, nothing is added


class Conductor:
    """One run, once. `folder`: where the histories go."""

    def __init__(self, cluster: RealCluster, plan: Plan, folder: Path) -> None:
        self._cluster, self._plan, self._folder = cluster, plan, folder
        self._topic = f"soak-{plan.seed}-{time.time_ns():x}"
        self._group = f"group-{self._topic}"
        self._protocol = plan.protocol
        self._members: dict[str, subprocess.Popen[bytes]] = {}  # the oldest first
        self._speaks: dict[str, str] = {}
        self._residents: frozenset[str] = frozenset()
        self._leaving: set[str] = set()
        self._stopped: dict[str, float] = {}
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.jsonl"):
            old.unlink()
        self._book = Writer(folder / "conductor.jsonl", "conductor")

    def run(self) -> list[Entry]:
        """The history of the run."""
        create_topic(
            self._cluster.bootstrap,
            self._topic,
            partitions=self._plan.partitions,
            replicas=3,
            config={"min.insync.replicas": "2"},
        )
        if self._plan.remote:
            self._hasten_sessions()
        try:
            with produced(self._cluster.bootstrap, self._topic, self._plan, self._folder) as ends:
                for kind in self._plan.first:
                    self._join(kind)
                self._residents = frozenset([*self._members][: self._plan.residents])
                self._chaos()
                self._residents = frozenset()  # they, too, will be stopped
                self._reap()
                if not any(name.startswith("kohort") for name in self._members):
                    self._join("kohort")
                self._book.write("quiet")
            self._drain(ends)
            if self._plan.remote:
                self._see_what_it_became()
            for name in list(self._members):
                self._leave(name)
            self._wait_for_all()
        finally:
            for process in self._members.values():
                process.kill()
                process.wait()
        return read(sorted(self._folder.glob("*.jsonl")))

    def residents(self) -> dict[str, int]:
        """The members that stay to the end, and the process of each; none when faults are over. Callable on any
        thread."""
        found = ((name, self._members.get(name)) for name in sorted(self._residents))
        return {name: process.pid for name, process in found if process is not None}

    # --- faults

    def _chaos(self) -> None:
        began = time.monotonic()
        brokers: Future[None] | None = None
        with ThreadPoolExecutor(1, "brokers") as pool:
            for action in self._plan.actions:
                self._sleep_until(began + action.at_s)
                if action.act not in BROKER_ACTS:
                    self._do_to_members(action)
                    continue
                if brokers is not None:
                    self._wait_for(brokers)  # two of three at once, and nothing at all can be written
                brokers = pool.submit(self._do_to_brokers, action)
            self._sleep_until(began + self._plan.chaos_s)
            while self._stopped:
                self._sleep_until(min(self._stopped.values()))
            if brokers is not None:
                brokers.result()

    def _wait_for(self, brokers: Future[None]) -> None:
        while not brokers.done():
            self._sleep_until(time.monotonic() + 0.1)
        brokers.result()

    def _sleep_until(self, until: float) -> None:
        """Wake the processes that have been stopped long enough meanwhile."""
        while True:
            now = time.monotonic()
            for name in [name for name, wake_at in self._stopped.items() if wake_at <= now]:
                self._continue(name)
            if now >= until:
                return
            time.sleep(max(min([until, *self._stopped.values()]) - now, 0.0))

    def _do_to_members(self, action: Action) -> None:
        self._reap()
        awake = sorted(self._members.keys() - self._stopped.keys())
        if action.act is Act.JOIN:
            if len(self._members) < MOST_MEMBERS:
                self._join(action.kind)
            return
        if action.act is Act.CONVERT:
            self._protocol = CLASSIC if self._protocol == CONSUMER else CONSUMER
            self._book.write("converting", to=self._protocol)
            return
        if action.act is Act.RESTART:
            self._restart(awake)
            return
        possible = awake if action.act is Act.STOP else [name for name in awake if name not in self._residents]
        if len(awake) < 2 or not possible:
            return  # the group needs a reader
        name = possible[int(action.pick * len(possible))]
        match action.act:
            case Act.LEAVE:
                self._leave(name)
            case Act.KILL:
                process = self._members.pop(name)
                process.kill()
                process.wait()
                self._book.write("killed", member=name)
            case Act.STOP:
                self._book.write("stopped", member=name)
                self._members[name].send_signal(signal.SIGSTOP)
                self._stopped[name] = time.monotonic() + action.for_s

    def _do_to_brokers(self, action: Action) -> None:
        nodes = self._cluster.nodes
        chosen = nodes[int(action.pick * len(nodes))]
        for node in nodes if action.act is Act.ROLL_BROKERS else (chosen,):
            self._book.write("broker", act=action.act.value, node=node.node_id)
            if action.act is Act.FREEZE_BROKER:
                node.pause()
                time.sleep(action.for_s)
                node.resume()
            else:
                (node.kill if action.act is Act.KILL_BROKER else node.stop)()
                time.sleep(action.pick)
                self._cluster.start()
            self._await_replicas()
            self._book.write("broker", act="is back", node=node.node_id)

    def _await_replicas(self) -> None:
        """Until every partition has all its replicas again: the next broker may then fail without loss."""
        limit = time.monotonic() + REPLICAS_S
        while time.monotonic() < limit:
            with suppress(Exception):  # a broker that is coming up may not respond
                topics = _admin(self._cluster.bootstrap).list_topics(timeout=5).topics
                wanted = [one for name in (self._topic, "__consumer_offsets") for one in _partitions(topics, name)]
                if wanted and all(len(one.isrs) == 3 for one in wanted):
                    return
            time.sleep(0.1)
        raise TimeoutError("the brokers' replicas did not come together again")

    # --- members

    def _join(self, kind: str) -> None:
        self._count += 1
        name = f"{kind}-{self._count}"
        self._speaks[name] = self._protocol
        self._book.write("started", member=name, protocol=self._protocol)
        history = str(self._folder / f"{name}.jsonl")
        strategy = self._plan.remote if self._protocol == CONSUMER else self._plan.strategy
        seat = Seat(name, self._cluster.bootstrap, self._group, self._topic, strategy, self._protocol)
        command = [sys.executable, "-m", "tests.soak.seats", kind, history, *seat]
        if kind == "java":
            command = [*java_command(self._folder.parent), *seat[:5], history]
            command += map(str, (SESSION_MS, HEARTBEAT_MS, REBALANCE_MS, seat.protocol))
        with (self._folder / f"{name}.log").open("wb") as log:
            self._members[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def _restart(self, awake: list[str]) -> None:
        staying = [name for name in self._members if name in awake and name not in self._leaving]
        foreign = [name for name in staying if self._speaks[name] != self._protocol]
        for name in (foreign or staying)[:1]:
            self._leave(name)
            self._join(name.rpartition("-")[0])

    def _continue(self, name: str) -> None:
        del self._stopped[name]
        if name in self._members:
            self._members[name].send_signal(signal.SIGCONT)
            self._book.write("continued", member=name)

    def _leave(self, name: str) -> None:
        self._leaving.add(name)
        self._book.write("leaving", member=name)
        self._members[name].send_signal(signal.SIGTERM)

    def _reap(self) -> None:
        """Removes members whose processes have ended."""
        for name in [name for name, process in self._members.items() if process.poll() is not None]:
            code = self._members.pop(name).returncode
            # A JVM ends by the signal to stop; an interpreter may get it before it has a handler.
            requested = code in (-signal.SIGTERM, 128 + signal.SIGTERM)
            self._book.write("ended", member=name, code=0 if requested else code)

    def _wait_for_all(self) -> None:
        limit = time.monotonic() + LEAVE_S
        while self._members and time.monotonic() < limit:
            self._reap()
            time.sleep(0.02)
        for name, process in self._members.items():
            process.kill()
            process.wait()
            self._book.write("ended", member=name, code="still there long after the signal to stop")
        self._members.clear()

    # --- the end

    def _drain(self, ends: dict[int, int]) -> None:
        """Until the group has committed everything that was produced."""
        limit = time.monotonic() + DRAIN_S
        behind: dict[int, tuple[int, int]] = {}
        while time.monotonic() < limit:
            self._reap()
            with suppress(KohortError):  # a coordinator that is loading does not respond
                at = self._committed()
                behind = {one: (at.get(one, 0), end) for one, end in ends.items() if at.get(one, 0) < end}
                if not behind:
                    self._book.write("drained", done=True, behind="")
                    return
            time.sleep(0.1)
        self._book.write("drained", done=False, behind=f"partition: (committed, end) {behind}")

    def _committed(self) -> dict[int, int]:
        # By our own admin: in librdkafka's (2.16.1) an assertion may end a process with a slow coordinator.
        with Admin(self._cluster.bootstrap, default_api_timeout_ms=REQUEST_MS) as admin:
            return {one.partition: to.offset for one, to in admin.committed(self._group).items()}

    # --- groups of KIP-848

    def _hasten_sessions(self) -> None:
        """Under KIP-848 how soon a silent member is missed is the group's own configuration."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        wanted = {"consumer.session.timeout.ms": SESSION_MS, "consumer.heartbeat.interval.ms": HEARTBEAT_MS}
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self._group, incremental_configs=entries)
        _admin(self._cluster.bootstrap).incremental_alter_configs([resource])[resource].result(120)

    def _see_what_it_became(self) -> None:
        """A group is one of KIP-848 as long as it has a member that speaks it, and no longer."""
        spoken = {self._speaks[name] for name in self._members if name not in self._leaving}
        due = CONSUMER if CONSUMER in spoken else CLASSIC
        limit, kind = time.monotonic() + DRAIN_S, ""
        while kind != due and time.monotonic() < limit:
            with suppress(KohortError), Admin(self._cluster.bootstrap, default_api_timeout_ms=REQUEST_MS) as admin:
                kind = admin.describe_group(self._group).type
            time.sleep(0.1)
        self._book.write("became", kind=kind, due=due)


@contextmanager
def produced(bootstrap: str, topic: str, plan: Plan, folder: Path) -> Iterator[dict[int, int]]:
    """Records flow into `topic` inside the block; afterwards the yielded mapping has the end of each partition.

    It is our own producer. librdkafka's idempotent one takes a processor for each broker after an outage, for minutes
    (its issue 3692). Brokers and members would then lack processors.
    """
    book = Writer(folder / "producer.jsonl", "producer")
    ends: dict[int, int] = {}
    unsettled: list[deque[Delivery]] = [deque() for _ in range(plan.partitions)]
    over = threading.Event()

    def produce() -> None:
        settings: dict[str, Any] = {"max_block_ms": PATIENT_MS, "delivery_timeout_ms": PATIENT_MS}
        number = 0
        with Producer(bootstrap, **settings) as producer:
            while not over.is_set():
                for _ in range(int(RECORDS_A_SECOND * plan.pace_s) if producer.buffered_bytes < UNSENT_BYTES else 0):
                    number += 1
                    partition = number % plan.partitions
                    unsettled[partition].append(producer.send(topic, b"%d" % number, partition=partition))
                post()
                over.wait(plan.pace_s)
            with suppress(KohortError):
                producer.flush(60)
        post()

    def post() -> None:
        acks: list[tuple[int, int]] = []
        for partition, deliveries in enumerate(unsettled):
            while deliveries and deliveries[0].done():
                with suppress(KohortError):  # what is not known to be there is not requested
                    acks.append((partition, deliveries[0].result().offset))
                deliveries.popleft()
        if acks := [(partition, offset) for partition, offset in acks if offset >= 0]:
            book.write("produced", acks=acks)
            ends.update({partition: offset + 1 for partition, offset in acks})

    with ThreadPoolExecutor(1, "producer") as threads:
        production = threads.submit(produce)
        try:
            yield ends
        finally:
            over.set()
        production.result()


def java_command(folder: Path) -> list[str]:
    """The command that starts a Java member; its class is compiled at the first call and kept in `folder`."""
    source = Path(__file__).with_name("SoakMember.java")
    classes = folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    classpath = os.pathsep.join([str(classes), *map(str, jars.clients())])
    compiled = classes / "SoakMember.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        javac = java().with_name("javac")
        subprocess.run([str(javac), "-cp", classpath, "-d", str(classes), str(source)], check=True)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    small = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [str(java()), *small, quiet, "-cp", classpath, "SoakMember"]


_ADMINS: dict[str, Any] = {}


def _admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    if bootstrap not in _ADMINS:
        _ADMINS[bootstrap] = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return _ADMINS[bootstrap]


def _partitions(topics: Any, name: str) -> list[Any]:
    return [*topics[name].partitions.values()] if name in topics else []
