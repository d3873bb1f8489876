"""Kafka's own assignors, in one JVM that plans groups until it is closed."""

from __future__ import annotations

import os
import subprocess
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from kohort.assignors import GroupView, Member, Plan
from kohort.assignors.plan import NO_MEMBER
from kohort.common import KohortError
from kohort.testing import jars
from kohort.testing.jdk import java

_SOURCE = Path(__file__).with_name("JavaPlans.java")
#: Java's assignors. "target" is cooperative-sticky's plan with the partitions that it withholds for a round.
JAVA_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky", "target")


class JavaPlansFailed(KohortError):
    """Kafka's assignors could not be run, or one of them raised. The message has Java's error."""


class JavaPlans:
    """Run with `with JavaPlans() as java: java.plans(group, ["sticky"])`.

    `jvm_options` are further options of `java`. The first use may download Apache Kafka's jars. Raises `JdkMissing`
    without a JDK 17 or newer, `JarsUnavailable` without the jars.
    """

    def __init__(self, version: str = jars.DEFAULT_VERSION, *, jvm_options: Sequence[str] = ()) -> None:
        classpath = os.pathsep.join(str(jar) for jar in jars.clients(version))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        command = [str(java()), "-Xmx2g", "-XX:+UseSerialGC", *jvm_options, quiet, "-cp", classpath, str(_SOURCE)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="ascii"
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._complaints: list[str] = []
        Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> JavaPlans:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM."""
        with suppress(OSError):
            self._in.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def plans(self, group: GroupView, assignors: Sequence[str]) -> dict[str, Plan]:
        """Return the plans of Java's assignors of these names (of `JAVA_ASSIGNORS`) for the group."""
        try:
            self._in.write("\n".join([*_lines(group), f"A {' '.join(assignors)}\n"]))
            self._in.flush()
        except OSError as error:
            raise self._failed() from error
        return {name: self._read(group, name) for name in assignors}

    def _read(self, group: GroupView, assignor: str) -> Plan:
        head = self._line()
        if head.startswith("E "):
            raise JavaPlansFailed(f"Java's assignor raised {head[2:]}", assignor=assignor)
        owners = array("i", [NO_MEMBER]) * group.size
        while (line := self._line()) != ".":
            member_id, _, partitions = line.partition(" ")
            member = group.number_of_member[_text(member_id)]
            for named in filter(None, partitions.split(",")):
                topic, _, number = named.partition(":")
                index = group.index(_text(topic), int(number))
                if index is None or owners[index] != NO_MEMBER:
                    raise JavaPlansFailed("Java's plan does not fit this group", assignor=assignor, partition=named)
                owners[index] = member
        return Plan(group, owners)

    def _line(self) -> str:
        line = self._out.readline()
        if not line:
            raise self._failed()
        return line.rstrip("\n")

    def _failed(self) -> JavaPlansFailed:
        self._process.wait(timeout=10)
        said = [line for line in self._complaints if line.strip()]
        return JavaPlansFailed("Java ended", said=said[0].strip() if said else None, code=self._process.returncode)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._complaints.append(line)


def _lines(group: GroupView) -> list[str]:
    lines = []
    for number, topic in enumerate(group.topics):
        start, stop = group.topic_offsets[number], group.topic_offsets[number + 1]
        racks = ["-"] * (stop - start) if group.racks is None else [_listed(sorted(r)) for r in group.racks[start:stop]]
        lines.append(f"T {_hex(topic)} {' '.join(racks)}")
    lines.extend(_member_line(group, member) for member in group.members)
    return lines


def _member_line(group: GroupView, member: Member) -> str:
    owned = ",".join(f"{_hex(topic)}:{number}" for topic, number in map(group.partition, member.owned_partitions))
    fields = (
        _hex(member.id),
        "-" if member.instance_id is None else _hex(member.instance_id),
        "-" if member.rack is None else _hex(member.rack),
        str(member.generation),
        _listed(member.topics),
        owned or "-",
        "-" if member.user_data is None else member.user_data.hex() or "-",
    )
    return f"M {' '.join(fields)}"


def _listed(names: Sequence[str]) -> str:
    return ",".join(map(_hex, names)) or "-"


def _hex(text: str) -> str:
    return text.encode().hex()


def _text(named: str) -> str:
    return bytes.fromhex(named).decode()
