"""docs/reliability.md, made from the results of long runs. They are kept as JSON with command and date.

    python -m benchmarks.reliability run fuzz-frames --inputs 5000000 --seed 2     another run of a kind
    python -m benchmarks.reliability page                                          the page of all kept runs

The command identifies a run. A repeated command replaces its earlier results, so that nothing counts twice. The sums on
the page are over all runs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import machine

KEPT = Path(__file__).parent / "reliability_runs"
PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
Figures = dict[str, float | str]


def figures(pattern: str, *names: str) -> Callable[[str], Figures]:
    """A function that reads numbers from the last line of an output that matches the pattern."""

    def read(output: str) -> Figures:
        found = [match for line in output.splitlines() if (match := re.search(pattern, line))]
        if not found:
            return {}
        return {name: float(text.replace(",", "")) for name, text in zip(names, found[-1].groups(), strict=True)}

    return read


histories = figures(r"([\d,]+) histories, ([\d,]+) violated", "histories", "violated")


def histories_and_events(output: str) -> Figures:
    """The numbers of histories, and those of each event in all of them."""
    events = re.findall(r"^(\S.*?) {2,}(\d+)$", output, re.MULTILINE)
    return histories(output) | {event: float(times) for event, times in events}


def hostile(output: str) -> Figures:
    """The rows of the benchmark: peak memory by kind of batch and client."""
    rows = re.findall(r"^  peak memory: (.+?) {2,}(\S+) +([\d.,]+k?) MB +(.*)$", output, re.MULTILINE)
    return {f"{title} | {client}": f"{peak} MB, {outcome.strip()}" for title, client, peak, outcome in rows}


def overstay(output: str) -> Figures:
    """The JSON that the run prints."""
    found = json.loads(output[output.index("{") :])
    return {
        "calls": found["calls"],
        "outlived their timeout by more than 1 s": len(found["overran"]),
        "ended with an untyped error": len(found["broken"]),
        "typed errors": sum(found["errors"].values()),
        "worst overrun in s": found["worst_s"],
    }


def alarms(output: str) -> Figures:
    """The lines of both tests, added up."""
    found = re.findall(r"\w+: (\d+) interrupts, (\d+) records, longest pause ([\d.]+) s", output)
    return {
        "interrupts": float(sum(int(one[0]) for one in found)),
        "records": float(sum(int(one[1]) for one in found)),
        "longest time without a record in s": max(float(one[2]) for one in found),
    }


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    `goal`: the target. `bad`: results that must be 0. `summed`: results that are added over runs. `resumes`: a run
    resumes after an interruption, so its time is that of the last part.
    """

    title: str
    module: str
    goal: str
    read: Callable[[str], Figures]
    summed: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    about: str = ""
    arguments: tuple[str, ...] = field(default=())
    resumes: bool = False


KINDS: Mapping[str, Kind] = {
    "histories": Kind(
        "Simulated histories of a consistent region",
        "kohort.testing.simulation",
        "200,000 histories, 0 violated, each event 1,000 times",
        histories_and_events,
        ("histories", "violated"),
        ("violated",),
        "Members, broker, store and sinks run in one process on one seeded clock. Invariants are checked after every "
        "step. Partitions move by reset or by hand-over, states are whole or in blocks, and handlers take records or "
        "batches. Processes are killed, stopped and cut off, and operators give commands. The store fails, is lost, or "
        "is replaced by an older copy. Logs are truncated, and topics are created again. The list has the number of "
        "each event. No history has signal handlers that raise. The 1,003,000 histories up to 2026-11-25 are not "
        "counted. Their world had less than this one.",
        resumes=True,
    ),
    "mutants": Kind(
        "Deliberate faults in a region, caught by those histories",
        "tests.consistent_region.region_mutants",
        "all",
        figures(r"(\d+) caught, (\d+) missed", "caught", "missed"),
        (),
        ("missed",),
    ),
    "mutation": Kind(
        "Small random faults in the client and the sticky balance core, caught by tests without a broker",
        "tests.mutation",
        "92 % killed, every survivor explained",
        figures(
            r"([\d,]+) mutants, ([\d,]+) killed \([\d.]+%\), (\d+) of them by a time limit, "
            r"(\d+) survivors not explained",
            "mutants",
            "killed",
            "of these by a time limit",
            "survivors not explained",
        ),
        ("mutants", "killed", "survivors not explained"),
        ("survivors not explained",),
        "A fault is one change at one place: a comparison, a condition, a number, or a statement that is left out. "
        "Types, texts and log lines are not drawn. Numbers above 16 are not drawn either, since one more or less of a "
        "size or a time is no fault. `tests/mutation/survivors.toml` explains known survivors. The first draw (seed 1) "
        "was used to write tests. Before that, between 221 and 239 of its 300 faults were killed. No test was written "
        "for the second draw (seed 2). It was stopped after 77 of 100 faults. 62 were killed (81 %), and 15 survivors "
        "are not explained yet.",
        resumes=True,
    ),
    "soak-region": Kind(
        "A consistent region on three real brokers: members, brokers and store killed and stopped",
        "tests.soak_region.soak",
        "1,000 kills, 10,000,000 records, none lost and none counted twice",
        figures(
            r"([\d,]+) records, (\d+) harms, ([\d,]+) checkpoints, (\d+) differences",
            "records",
            "kills and stops",
            "checkpoints",
            "differences from the log",
        ),
        ("records", "kills and stops", "differences from the log"),
        ("differences from the log",),
        "There are four member processes. The newest checkpoint is compared with the whole log, one bit a record. From "
        "2026-11-26 on, members have a new name at each start. They write each record to a topic through a KafkaSink, "
        "and every sixteenth to a table through an SqlSink. Both are compared with the log, too. The table is in the "
        "store's server, or in a SQLite file beside the store.",
    ),
    "histories-producer": Kind(
        "Simulated histories of a producer",
        "tests.producer.histories",
        "200,000 histories, 0 violated",
        histories,
        ("histories", "violated"),
        ("violated",),
        "The producer without its sockets runs among brokers that lose responses, break connections, refuse batches as "
        "too large, and move coordinators, while time passes. Every record has a callback. A quarter of the histories "
        "has no transactions, the others have transactions of version 1, of version 2, and of version 2 with late "
        "requests. Nothing acknowledged or committed is missing, doubled or out of order, nothing aborted is seen, and "
        "each callback is called once and in order. The brokers are a model: the kills below are of real ones.",
        resumes=True,
    ),
    "soak-producer": Kind(
        "Producers on three real brokers with min.insync.replicas=2, which are killed",
        "tests.soak_producer",
        "300 kills, 0 missing, 0 doubled, 0 out of order",
        figures(
            r"([\d,]+) kills, ([\d,]+) records, ([\d,]+) commits, ([\d,]+) aborts: (\d+) missing, (\d+) doubled, "
            r"(\d+) disordered, (\d+) unwanted; with acks=1 (\d+) of ([\d,]+) lost",
            "kills",
            "records",
            "commits",
            "aborts",
            "missing",
            "doubled",
            "out of order",
            "aborted and seen, or at another offset",
            "lost with acks=1",
            "records with acks=1",
        ),
        ("kills", "records", "commits", "aborts", "missing", "doubled", "out of order", "lost with acks=1"),
        ("missing", "doubled", "out of order", "aborted and seen, or at another offset"),
        "One producer is idempotent, one is transactional, and one has acks=1 and one request in flight. A broker is "
        "killed once all replicas are in sync again. A read_committed consumer of confluent-kafka reads the logs. "
        "What is lost with acks=1 is no fault: a leader was killed before a replica had it.",
        resumes=True,
    ),
    "histories-share": Kind(
        "Simulated histories of share members",
        "tests.share_consumer.share_histories",
        "100,000 histories, 0 violated",
        figures(r"([\d,]+) histories, (\d+) deliveries, (\d+) violated", "histories", "deliveries", "violated"),
        ("histories", "deliveries", "violated"),
        ("violated",),
        "Members without sockets share a group of two fake brokers on one seeded clock. They die, stand still longer "
        "than their locks, lose connections and responses, and acknowledge late. Leaders move, sessions are lost, and "
        "the persister refuses writes. No record is lost. None is delivered after an accept whose success its member "
        "saw. No delivery count passes the limit, and nothing is returned after its lock. No broker loses its state.",
        resumes=True,
    ),
    "soak-share": Kind(
        "Share groups of kohort, Java's client and librdkafka on a real broker that is killed",
        "tests.soak_share",
        "200,000 records, three seeds each on 4.2 and 4.3, 0 violated",
        figures(
            r"(\d+) runs, (\d+) records, (\d+) deliveries, (\d+) faults, (\d+) violated",
            "runs",
            "records",
            "deliveries",
            "faults",
            "violated",
        ),
        ("runs", "records", "deliveries", "faults", "violated"),
        ("violated",),
        "Four members accept, release and reject at random. Members are killed, stopped and frozen for longer than a "
        "lock, and the broker is restarted and killed. Every record ends accepted, rejected, or archived at its "
        "delivery limit. None is delivered after the success of its accept or reject. The lag of kohort's Admin and "
        "of Java's is 0. Java's client is that of 4.3.1 on both brokers. The group has one broker, so no partition "
        "moves. Earlier runs on 4.2.2 failed: after a kill of the broker, acknowledged records were delivered again, "
        "to Java's client too. Their cause is not known. They had Java's client of 4.2.2, larger batches, and members "
        "that did not rest.",
        resumes=True,
    ),
    "soak": Kind(
        "Random mixed groups on three real brokers, through kills and restarts",
        "tests.soak",
        "every history passes its checker",
        figures(r"(\d+) of (\d+) seeds have passed", "histories passed", "histories"),
        ("histories passed", "histories"),
        resumes=True,
    ),
    "soak-hours": Kind(
        "Everything at once for hours: a mixed group, a region and a Spark stream on brokers that fail",
        "tests.soak_hours",
        "nothing found, no growth of memory, threads and descriptors",
        figures(
            r"([\d.]+) hours, (\d+) records, (\d+) faults, (\d+) findings; the most that any of (\d+) processes grew "
            r"by: (-?[\d.]+) MiB, (-?\d+) threads, (-?\d+) descriptors",
            "hours",
            "records",
            "faults",
            "findings",
            "processes of ours",
            "most growth, MiB",
            "most growth, threads",
            "most growth, descriptors",
        ),
        ("hours", "faults", "findings"),
        ("findings",),
        "Growth is measured between the second and the last fifth of each process's life. It is a finding if it is "
        "more than 2 MiB and 4 %, a thread, or a descriptor for each broker. The first hour of seed 1 found two faults "
        "of the library, while one of three brokers restarted and another did not respond. Both are fixed. A Spark "
        "stream ended because no broker had responded for five seconds; it now waits its `default.api.timeout.ms`. A "
        "commit that waited for a coordinator ended 1.3 s after its time-out. The second hour found neither again. It "
        "found members that were started while no broker responded for up to a minute. The cause was the soak itself: "
        "librdkafka's producer wrote its log. That takes a whole processor for each broker after an outage (its issue "
        "3692), so brokers and members had none. Now kohort's producer writes the log. The third and the fourth hour "
        "are below.",
        resumes=True,
    ),
    "soak-spark": Kind(
        "A Spark streaming job whose processes are killed, into Parquet and PostgreSQL",
        "tests.soak_spark.soak",
        "none missing, none extra",
        figures(
            r"([\d,]+) rows, the log has ([\d,]+); (\d+) missing, (\d+) extra",
            "rows",
            "records of the log",
            "missing",
            "extra",
        ),
        ("rows", "missing", "extra"),
        ("missing", "extra"),
    ),
    "fuzz-batches": Kind(
        "Record batches fuzzed under sanitizers",
        "tests.sanitized",
        "100,000,000 batches, 0 crashes",
        figures(r"([\d,]+) inputs of [\d,]+ done, ([\d,]+) accepted, (\d+) crashes", "batches", "accepted", "crashes"),
        ("batches", "accepted", "crashes"),
        ("crashes",),
        "Batches are decoded under address and undefined-behaviour sanitizers. Memory must not grow. With "
        "`--python-pool` input and output of the extension are guarded, but not small objects of Python.",
        ("--python-pool", "tests.fastpath.fuzz_records"),
        True,
    ),
    "fuzz-frames": Kind(
        "Frames fuzzed under sanitizers",
        "tests.sanitized",
        "5,000,000 frames, 0 crashes",
        figures(
            r"([\d,]+) inputs, ([\d,]+) accepted, (\d+) crashes, memory grew by ([\d.]+) MiB",
            "frames",
            "accepted",
            "crashes",
            "memory grew by MiB",
        ),
        ("frames", "accepted", "crashes"),
        ("crashes",),
        arguments=("tests.protocol.fuzz_codec",),
    ),
    "overstay": Kind(
        "Public calls under faults, each with a timeout",
        "tests.testing.overstay",
        "0 of 20,000 outlive it by more than 1 s",
        overstay,
        ("calls", "outlived their timeout by more than 1 s", "ended with an untyped error"),
        ("outlived their timeout by more than 1 s", "ended with an untyped error"),
        "The calls are those of Consumer, from seed 4 on of AsyncConsumer, too, and from seed 5 on of Producer and "
        "Admin. Responses are late, are missing, or end a connection. The longest time that a thread waited for a "
        "processor is subtracted. Two earlier runs of 20,000 subtracted less, on a machine with thirty times its load. "
        "Each had 2 calls over the limit (worst 3.0 s). Seed 3 had ten times the load.",
    ),
    "alarms": Kind(
        "Signal handlers that raise at random, on a real broker with 30 partitions",
        "pytest",
        "10,000 interrupts, no gap, no pause of 40 s",
        alarms,
        ("interrupts", "records"),
        about="A SIGALRM comes each 0.1 to 6 ms, with KOHORT_ALARM_S=60. A gap, a repeated record, or 40 s without a "
        "record fails the test. `make test-interrupts` also raises at every point of every public call.",
        arguments=("tests/coordinator_client/test_alarms.py",),
    ),
    "hostile": Kind(
        "Hostile responses of 1 MiB: peak memory of kohort and other clients",
        "benchmarks",
        "bounded",
        hostile,
        about="Each runs in a fresh process. The address space of a process is limited to 3 GiB.",
        arguments=("hostile",),
    ),
}


def run(name: str, arguments: list[str]) -> int:
    """Make one run and keep its results. Returns the run's exit code."""
    kind = KINDS[name]
    words = ["-m", kind.module, *kind.arguments, *arguments]
    command = " ".join(["python", *words])
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=PAGE.parent.parent
    ) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    found = kind.read("".join(lines))
    if not found:
        print(f"{command} ended with {running.returncode}, without results", file=sys.stderr)
        return running.returncode or 1
    entry = {
        "command": command,
        "machine": machine(),
        "took_s": round(time.monotonic() - began, 1),
        "exit": running.returncode,
        "figures": found,
    }
    others = [each for each in kept(name) if each["command"] != command]
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps([*others, entry], indent=1) + "\n")
    return running.returncode


def kept(name: str) -> list[dict[str, Any]]:
    """The kept runs of a kind."""
    path = KEPT / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def page() -> str:
    """The page's Markdown."""
    parts = [
        "# Reliability",
        "This page has the results of long runs under faults. `python -m benchmarks.reliability page` makes it from "
        "the runs in `benchmarks/reliability_runs`. Each run has its command and date, and can be repeated. `make "
        "test` runs a small part of every kind. See also the [conformance](conformance/README.md) of brokers, with "
        "deliberate faults for every check (`make teeth`), and the [gallery](gallery.md) of published bugs.",
        "| test | goal | result |\n| --- | --- | --- |\n"
        + "\n".join(f"| {kind.title} | {kind.goal} | {_summary(name)} |" for name, kind in KINDS.items()),
    ]
    for name, kind in KINDS.items():
        parts.append(f"## {kind.title}")
        if kind.about:
            parts.append(kind.about)
        runs = kept(name)
        if not runs:
            parts.append("Not run yet.")
            continue
        for entry in runs:
            on, took = entry["machine"], _took(kind, entry["took_s"])
            parts.append(f"`{entry['command']}`, {on['date']}, {on['cores']} cores of {on['cpu']}, {took}:")
            parts.append("\n".join(f"- {label}: {_shown(value)}" for label, value in entry["figures"].items()))
    return "\n\n".join(parts) + "\n"


def _took(kind: Kind, took_s: float) -> str:
    return f"the last part took {took_s:,.0f} s" if kind.resumes else f"{took_s:,.0f} s"


def _summary(name: str) -> str:
    kind, runs = KINDS[name], kept(name)
    if not runs:
        return "not run yet"
    if not kind.summed:
        last = runs[-1]["figures"]
        numbers = {label: value for label, value in last.items() if not isinstance(value, str)}
        return ", ".join(f"{_shown(value)} {label}" for label, value in numbers.items()) or "see below"
    sums = {label: sum(entry["figures"].get(label, 0) for entry in runs) for label in kind.summed}
    return ", ".join(f"**{_shown(value)}** {label}" for label, value in sums.items())


def _shown(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def clean() -> bool:
    """True if no kept run has a finding."""
    return not any(
        entry["figures"].get(label) for name, kind in KINDS.items() for label in kind.bad for entry in kept(name)
    )


def main() -> int:
    if len(sys.argv) >= 3 and sys.argv[1] == "run" and sys.argv[2] in KINDS:
        return run(sys.argv[2], sys.argv[3:])
    if sys.argv[1:] == ["page"]:
        PAGE.write_text(page())
        print(f"wrote docs/{PAGE.name}")
        return 0 if clean() else 1
    print(f"{__doc__}\nkinds: {', '.join(KINDS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
