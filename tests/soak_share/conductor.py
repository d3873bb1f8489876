"""One run of a share soak: a broker, members of three clients in one share group, kills, freezes and restarts."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from kohort import Admin, KohortError, Producer
from kohort.testing import RealBroker, jars
from kohort.testing.jdk import java
from kohort.testing.topics import create_topic
from tests.soak_share import history
from tests.soak_share.judge import violations

ROOT = Path(__file__).parents[2]
GROUP, TOPIC, PARTITIONS = "soak", "work", 3
LIMIT, LOCK_S = 5, 6.0
FIRST = ("java", "ours", "rdkafka", "ours")
PROPERTIES: dict[str, object] = {
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": int(LOCK_S * 1000),
    "group.share.delivery.count.limit": LIMIT,
    "group.share.min.session.timeout.ms": 6000,
    "group.share.session.timeout.ms": 6000,
    "group.share.min.heartbeat.interval.ms": 1000,
    "group.share.heartbeat.interval.ms": 1000,
}
STANDSTILL_S = 180.0
PAUSE_S, BATCH_BYTES = 1.0, 2048
"""A member rests for up to so long after each poll, and batches are small, so that the records outlast many acts."""


class Member(NamedTuple):
    """A member's process."""

    name: str
    kind: str
    process: "subprocess.Popen[bytes]"


class Conductor:
    """See the module. `folder` gets the histories and the logs."""

    def __init__(self, version: str, seed: int, records: int, folder: Path, *, act_s: float = 1.5) -> None:
        self._version, self._records, self._folder = version, records, folder
        self._draw = random.Random(seed)
        self._act_s = act_s
        self._names = count(1)
        self._members: list[Member] = []
        self._java: list[str] = []
        self._harmed: list[int] = []
        self._times: list[tuple[int, str]] = []
        self.acts: dict[str, int] = {}

    def run(self) -> dict[str, Any]:
        """Run, and judge. Returns the figures, with all violations."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._java = java_command(self._folder)
        began = time.monotonic()
        with RealBroker(version=self._version, properties=PROPERTIES, start_timeout_s=240.0) as broker:
            create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
            with Admin(broker.bootstrap) as admin:
                admin.set_group_configs(GROUP, {"share.auto.offset.reset": "earliest"})
            ends = self._produce(broker.bootstrap)
            try:
                for kind in FIRST:
                    self._start(kind, broker.bootstrap)
                self._harm(broker, ends)
                lags = self._settled(broker.bootstrap, ends, STANDSTILL_S)
                java_lags = self._judge_of_java(broker.bootstrap)
            finally:
                for member in self._members:
                    _end(member.process, signal.SIGTERM)
        found = history.read(self._folder)
        broken = list(violations(found, ends, self._harmed, limit=LIMIT, lock_s=LOCK_S))
        if any(lags.values()) or java_lags != lags:
            broken.append(f"the lag is {lags}, and by Java's Admin {java_lags}")
        by_kind = self._by_kind()
        broken += [f"{kind}: no record was delivered to it" for kind in sorted(set(FIRST)) if not by_kind.get(kind)]
        return {
            "version": self._version,
            "records": sum(ends.values()),
            "deliveries": len(found.deliveries),
            "acknowledged": len(found.successes),
            "seconds": round(time.monotonic() - began, 1),
            "acts": self.acts,
            "act_times": self._times,
            "deliveries_by_kind": by_kind,
            "violations": broken[:50],
            "violated": len(broken),
        }

    def _produce(self, bootstrap: str) -> dict[int, int]:
        with Producer(bootstrap, linger_ms=5, batch_bytes=BATCH_BYTES) as producer:
            for number in range(self._records):
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            producer.flush(300)
        share, more = divmod(self._records, PARTITIONS)
        return {partition: share + (partition < more) for partition in range(PARTITIONS)}

    # --- members

    def _start(self, kind: str, bootstrap: str) -> None:
        name = f"{kind}-{next(self._names)}"
        path = self._folder / f"{name}.history"
        path.touch()
        command = {
            "ours": [sys.executable, "-m", "tests.soak_share.our_member"],
            "rdkafka": [sys.executable, "-m", "tests.soak_share.rdkafka_member"],
            "java": self._java,
        }[kind]
        arguments = [name, bootstrap, GROUP, TOPIC, str(path), str(self._draw.randrange(1 << 30)), str(PAUSE_S)]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([*command, *arguments], cwd=ROOT, stderr=log, stdout=log)
        self._members.append(Member(name, kind, process))

    def _harm(self, broker: RealBroker, ends: dict[int, int]) -> None:
        """Do something every few seconds until all is settled, or a member stands still."""
        acts = ("kill", "stop", "freeze", "kill", "restart", "freeze", "crash")
        left = list(acts)
        since, before = time.monotonic(), -1
        while True:
            time.sleep(self._draw.uniform(0.3, 1.7) * self._act_s)
            lag = sum(self._lags(broker.bootstrap, ends).values())
            if lag == 0:
                return
            if lag != before:
                since, before = time.monotonic(), lag
            if time.monotonic() - since > STANDSTILL_S:
                return
            for member in [one for one in self._members if one.process.poll() is not None]:
                self._count("ended by itself")
                self._harmed.append(time.monotonic_ns())
                self._members.remove(member)
                self._start(member.kind, broker.bootstrap)
            left = left or list(acts)
            self._act(left.pop(self._draw.randrange(len(left))), broker)

    def _act(self, act: str, broker: RealBroker) -> None:
        self._count(act)
        self._times.append((time.monotonic_ns(), act))
        member = self._draw.choice(self._members)
        match act:
            case "kill" | "stop":
                self._members.remove(member)
                _end(member.process, signal.SIGKILL if act == "kill" else signal.SIGTERM)
                self._start(member.kind, broker.bootstrap)
            case "freeze":
                member.process.send_signal(signal.SIGSTOP)
                time.sleep(LOCK_S * 1.4)
                member.process.send_signal(signal.SIGCONT)
            case "restart":
                broker.restart()
            case "crash":
                broker.kill()
                broker.start()
        self._harmed.append(time.monotonic_ns())

    def _count(self, act: str) -> None:
        self.acts[act] = self.acts.get(act, 0) + 1

    # --- the group's state

    def _lags(self, bootstrap: str, ends: dict[int, int]) -> dict[int, int]:
        """The lag of each partition; all records where it is not known yet."""
        found = dict(ends)
        with suppress(KohortError), Admin(bootstrap) as admin:
            for one in admin.share_offsets(GROUP):
                if one.lag is not None and one.lag >= 0:
                    found[one.partition.partition] = one.lag
        return found

    def _settled(self, bootstrap: str, ends: dict[int, int], timeout_s: float) -> dict[int, int]:
        limit = time.monotonic() + timeout_s
        while any((lags := self._lags(bootstrap, ends)).values()) and time.monotonic() < limit:
            time.sleep(1.0)
        return lags

    def _judge_of_java(self, bootstrap: str) -> dict[int, int]:
        said = subprocess.run([*self._java, "judge", bootstrap, GROUP], capture_output=True, text=True, check=True)
        rows = [tuple(map(int, line.split())) for line in said.stdout.splitlines()]
        return {partition: lag for partition, _start, lag in sorted(rows)}

    def _by_kind(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in self._folder.glob("*.history"):
            kind = path.name.partition("-")[0]
            lines = (line.split() for line in path.read_bytes().split(b"\n") if line.startswith(b"D "))
            found[kind] = found.get(kind, 0) + sum(len(line) - 4 for line in lines)
        return dict(sorted(found.items()))


def java_command(folder: Path) -> list[str]:
    """Compile the Java member into `folder`. Returns the command that starts it.

    The client is the newest one for all brokers: that of 4.2 loses outcomes of `commitSync` (KAFKA-20330).
    """
    classes = folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    classpath = os.pathsep.join([str(classes), *map(str, jars.clients())])
    source = Path(__file__).with_name("ShareSoakMember.java")
    subprocess.run([str(java().with_name("javac")), "-cp", classpath, "-d", str(classes), str(source)], check=True)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [
        str(java()),
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        quiet,
        "-cp",
        classpath,
        source.stem,
    ]


def _end(process: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
