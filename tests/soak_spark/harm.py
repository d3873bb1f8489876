"""Kills processes of the job, found by their commands and their parents."""

import os
import random
import signal
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "executor's worker": 6,
    "executor's daemon": 1,
    "driver's planner": 1,
    "driver's JVM": 1,
    "driver, whole": 3,
}
FATAL = frozenset({"driver's planner", "driver's JVM", "driver, whole"})
"""After these the job is started again; of the others Spark must take care by itself."""


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    command: str


def under(root: int) -> list[Process]:
    """`root` and its descendants, parents before children."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has just ended
            table[int(entry.name)] = Process(int(entry.name), parent, command)
    found = [table[root]] if root in table else []
    for one in found:  # grows while it is walked
        found += [other for other in table.values() if other.parent == one.pid]
    return found


def victims(kind: str, job: int) -> list[int]:
    """Process ids of such a kind under `job`, none if there is none at the moment."""
    family = under(job)
    if kind == "driver, whole":
        return [one.pid for one in family[:1]]
    if kind == "driver's JVM":
        return [one.pid for one in family if "org.apache.spark.deploy.SparkSubmit" in one.command][:1]
    if kind == "driver's planner":
        return [one.pid for one in family if "streaming_source_runner" in one.command]
    daemons = {one.pid for one in family if "pyspark.daemon pyspark.worker" in one.command}
    forked = [one.pid for one in family if one.pid in daemons and one.parent in daemons]
    return forked if kind == "executor's worker" else sorted(daemons - set(forked))


def kill(kind: str, job: int, chance: random.Random) -> bool:
    """kill -9 one of a kind; of the whole driver everything at once. Whether there was one."""
    chosen = victims(kind, job)
    if not chosen:
        return False
    doomed = [one.pid for one in under(job)] if kind == "driver, whole" else [chance.choice(chosen)]
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return True
