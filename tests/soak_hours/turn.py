"""One turn of the long run: on three brokers that fall, a mixed group, a region and a Spark stream, all at once.

The group and the faults of brokers are those of `tests.soak`. The region is that of `tests.soak_region`, the Spark job
that of `tests.soak_spark`. Region and Spark read one log of transactions, of which a third is aborted. An aborted
record in their results is an effect, or a row, too many.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.testing import RealCluster
from kohort.testing.topics import create_topic
from tests.soak.checker import judge
from tests.soak.conductor import Conductor
from tests.soak.history import Entry
from tests.soak.plan import CONSUMER, long_plan
from tests.soak_hours.growth import Sampler, growth
from tests.soak_hours.ledger import Ledger
from tests.soak_region.harm import Crew, Harm
from tests.soak_region.seen import differences
from tests.soak_region.soak import FIRST_S, PARTITIONS, RESET, SETTLE_S, Region, read_log, until
from tests.soak_region.store_host import SqliteHost
from tests.soak_spark.harm import victims
from tests.soak_spark.soak import SPARKS_OWN, Job, rows_of_the_log

STAYING, COMING = ("ada", "ben"), ("cleo",)
REGION_KINDS = {"member killed": 2, "member stopped": 1}
REGION_EVERY_S = 40.0
LEDGER_RATE = 100
SPARK_EVERY = "10 seconds"
SAMPLES_A_TURN, LEAST_BETWEEN_S = 400, 0.25
FAULTS = ("killed", "stopped", "broker")


@dataclass
class Reported:
    """The result of a turn, as it is kept. `findings` are ours, of any part. `about_others` are not.
    `faults`: [seconds since the beginning, fault, process]."""

    seed: int
    seconds: float
    group: dict[str, Any] = field(default_factory=dict)
    region: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    faults: list[tuple[float, str, str]] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    samples: list[tuple[Any, ...]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    about_others: list[str] = field(default_factory=list)


def live(cluster: RealCluster, seed: int, seconds: float, folder: Path, say: Callable[[str], None]) -> Reported:
    """The turn of `seed`; what goes wrong is among its findings. `folder` is emptied, and keeps histories and logs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reported = Reported(seed, seconds)
    topic = f"ledger-{seed}-{time.time_ns():x}"
    config = {"min.insync.replicas": "2"}
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3, config=config)
    with ExitStack() as stack:
        ledger = Ledger(cluster.bootstrap, topic, PARTITIONS, LEDGER_RATE, seed)
        ledger.start()
        regional = Regional(cluster, topic, folder, seed)
        stack.callback(regional.close)
        streaming = Streaming(cluster.bootstrap, topic, folder)
        stack.callback(streaming.close)
        conductor = Conductor(cluster, long_plan(seed, seconds), folder / "group")

        def processes() -> Iterator[tuple[str, int]]:
            yield from conductor.residents().items()
            yield from ((f"region-{name}", pid) for name, pid in regional.crew.pids(STAYING).items())
            yield from streaming.processes()

        sampler = Sampler(processes, max(seconds / SAMPLES_A_TURN, LEAST_BETWEEN_S))
        sampler.start()
        group = _begun(conductor.run)
        region = _begun(lambda: regional.run(seconds, say))
        _watch(group, region, streaming, reported, say)
        sampler.stop()
        say("faults are over; the rest is read to its end")
        _try(reported, "ledger", ledger.finish)
        _try(reported, "group", lambda: _group(reported, group.result(), seed, seconds, sampler.began_at))
        _try(reported, "region", lambda: _region(reported, regional, region, sampler.began_at))
        _try(
            reported,
            "Spark",
            lambda: _spark(reported, streaming, rows_of_the_log(cluster.bootstrap, topic, PARTITIONS)),
        )
        reported.ledger = {"committed": ledger.committed, "aborted": ledger.aborted, "given up": ledger.given_up}
    reported.samples = [tuple(one) for one in sampler.samples]
    grown = growth(sampler.samples)
    reported.growth = [one._asdict() for one in grown]
    reported.findings += [
        f"growth: {one.who}: {text}" for one in grown for text in one.grew if one.who.startswith(OURS)
    ]
    reported.faults.sort()
    return reported


OURS = ("kohort", "region-", "spark-")


class Regional:
    """Three members of a region: two stay, one is killed, or frozen, and comes back."""

    def __init__(self, cluster: RealCluster, topic: str, folder: Path, seed: int) -> None:
        self.cluster, self.topic = cluster, topic
        self.host = SqliteHost(folder)
        self.crew = Crew(
            (*STAYING, *COMING),
            (),
            lambda name: [cluster.bootstrap, topic, name, self.host.url, "dynamic", RESET],
            folder,
        )
        self.harms: list[tuple[float, str]] = []
        self._seed = seed
        self.region = Region(self.host.url, topic)

    def run(self, seconds: float, say: Callable[[str], None]) -> None:
        def received(text: str) -> None:
            self.harms.append((time.monotonic(), text.strip().partition(" ")[2]))

        for name in self.crew.names:
            self.crew.start(name)
        until(lambda: self.region.newest() > 0, self.crew, "the region has no first checkpoint", FIRST_S)
        say("the region has its first checkpoint")
        every_s = min(REGION_EVERY_S, seconds / 3)
        harm = Harm(
            self._seed,
            self.crew,
            self.cluster,
            self.host,
            every_s=every_s,
            say=received,
            kinds=REGION_KINDS,
            whom=COMING,
        )
        harm.run(int(seconds / every_s))

    def close(self) -> None:
        self.crew.close()
        self.region.close()
        self.host.close()


class Streaming:
    """The Spark job, which is hurt only by faults of the brokers."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        settings = folder / "spark.json"
        settings.write_text(
            json.dumps({"bootstrap": bootstrap, "topic": topic, "folder": str(folder), "every": SPARK_EVERY})
        )
        self.folder = folder
        self.job = Job(settings, folder)

    def processes(self) -> Iterator[tuple[str, int]]:
        pid = self.job.pid
        yield "spark-driver", pid
        for kind in ("driver's planner", "executor's worker"):
            yield from ((f"spark-{kind.rpartition(' ')[2]}", one) for one in victims(kind, pid))

    def rows(self) -> Counter[Any]:
        """The rows in Parquet when all has been read."""
        self.job.finish()
        return Counter((p, o, v) for p, o, v in json.loads((self.folder / "rows.json").read_text()))

    def close(self) -> None:
        self.job.kill()


def _begun(work: Callable[[], Any]) -> Future[Any]:
    """It runs on a thread that does not keep the process from ending."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _watch(
    group: Future[list[Entry]],
    region: Future[None],
    streaming: Streaming,
    reported: Reported,
    say: Callable[[str], None],
) -> None:
    """Until both have come to their end; a Spark job that ends meanwhile is a finding, and started again."""
    left: dict[str, Future[Any]] = {"group": group, "region": region}
    while left:
        time.sleep(1.0)
        for part in [part for part, future in left.items() if future.done()]:
            say(f"the {part} is over{f', by {error!r}' if (error := left.pop(part).exception()) else ''}")
        if streaming.job.ended:
            if SPARKS_OWN not in streaming.job.said():
                reported.findings.append(f"Spark: the job ended by itself: {streaming.job.said()[-1000:]}")
            say("the Spark job ended, and is started again")
            streaming.job.again()


def _try(reported: Reported, part: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # one part that fails must not take what the others found with it
        reported.findings.append(f"{part}: it did not come to its end: {type(error).__name__}: {error}")


def _group(reported: Reported, history: list[Entry], seed: int, seconds: float, began_at: float) -> None:
    plan = long_plan(seed, seconds)
    what = Counter(entry.what for entry in history)
    kinds = Counter(entry.facts["member"].rpartition("-")[0] for entry in history if entry.what == "started")
    reported.group = {
        "protocol": f"{plan.protocol}, {plan.remote if plan.protocol == CONSUMER else plan.strategy}",
        "members": dict(kinds),
        "records": sum(len(entry.facts["acks"]) for entry in history if entry.what == "produced"),
        "assignments": what["assigned"],
        "commits": what["commit"],
    }
    for entry in history:
        if entry.what in FAULTS and entry.facts.get("act") != "is back":
            whom = entry.facts.get("member") or f"broker {entry.facts['node']}"
            reported.faults.append((entry.at / 1e9 - began_at, entry.facts.get("act", entry.what), whom))
    for one in judge(history):
        (reported.findings if one.ours else reported.about_others).append(f"group: {one.rule}: {one.text}")


def _region(reported: Reported, regional: Regional, ended: Future[None], began_at: float) -> None:
    reported.faults += [(at - began_at, "region", text) for at, text in regional.harms]
    ended.result()
    log, _rows, ends = read_log(regional.cluster.bootstrap, regional.topic)
    region, crew = regional.region, regional.crew
    until(lambda: region.offsets() == ends, crew, "not all of the log came into a checkpoint", SETTLE_S)
    _, found = region.checkpoint()
    wrong = differences(found, log)
    reported.region = {
        "records": sum(log.keys.values()),
        "checkpoints": region.newest(),
        "resets": region.epoch(),
        "restarts": dict(crew.ended),
        "differences": len(wrong),
    }
    codes = crew.stop()
    reported.findings += [f"region: {text}" for text in wrong]
    if any(codes):
        reported.findings.append(f"region: members ended with {codes}")


def _spark(reported: Reported, streaming: Streaming, log: Counter[Any]) -> None:
    rows = streaming.rows()
    missing, extra = (log - rows).total(), (rows - log).total()
    reported.spark = {"rows": rows.total(), "starts": streaming.job.starts, "missing": missing, "extra": extra}
    if missing or extra:
        reported.findings.append(f"Spark: {missing} rows are missing and {extra} are too many, of {log.total()}")
