"""The main job in its order: fill, read as a group in a region, lose a member, gain one, read with Spark, compare,
report."""

import getpass
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kohort.cli.demo import dataset, producers, report
from kohort.cli.demo.crew import Crew, member_arguments
from kohort.cli.demo.filling import Filled, FilledChunk, chunks, fill
from kohort.cli.demo.group_act import group_reading, play
from kohort.cli.demo.ledger import Ledger
from kohort.cli.demo.offsets import committed_offsets, end_offsets
from kohort.cli.demo.outcome import DemoOutcome, SparkReading
from kohort.cli.demo.region_view import DemoRegionView
from kohort.cli.demo.screen import Screen
from kohort.cli.demo.spark_act import READERS, spark_session
from kohort.cli.demo.tally import Tally, of_rows
from kohort.common.private_files import private_folder
from kohort.testing import RealBroker


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line. `records`: at least so many, None for all; `kill_at`: at which share of them."""

    bootstrap: str | None = None
    version: str = ""
    records: int | None = None
    partitions: int = 6
    assignor: str = "range"
    kill_at: float = 0.3
    records_per_second: float = 0.0
    keep_topic: bool = False
    folder: Path | None = None
    spark_master: str = "local[2]"


def tell(options: Options, screen: Screen) -> DemoOutcome:
    """Run it all; the report is in the folder as `report.html`. Raises what any part of it raises."""
    started = time.monotonic()
    folder = options.folder
    if folder is None:
        user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
        shared = Path(tempfile.gettempdir()) / f"kohort-demo-{user}"
        folder = private_folder(shared, hint="remove it, or name another folder with --folder")
    folder.mkdir(parents=True, exist_ok=True)
    names = dict(dataset.carriers())
    with _broker(options, screen) as (bootstrap, broker):
        topic = f"kohort-demo-{uuid.uuid4().hex[:8]}"
        flights, expected = of_rows(dataset.flights(), at_least=options.records)
        filled = _fill(options, screen, bootstrap, topic, flights, expected)
        try:
            outcome = _read(options, screen, bootstrap, broker, topic, filled, expected, folder)
        finally:
            # On our own broker everything goes with it.
            if options.bootstrap and not options.keep_topic:
                producers.delete_topic(bootstrap, topic)
    path = report.write(outcome, names, folder / "report.html")
    screen.outcome(outcome, names, str(path))
    screen.say(f"All of it took {time.monotonic() - started:.0f} s.")
    return outcome


@contextmanager
def _broker(options: Options, screen: Screen) -> Iterator[tuple[str, str]]:
    """A broker's address and how to call it in the report."""
    if options.bootstrap:
        screen.say(f"Using the broker at {options.bootstrap}")
        yield options.bootstrap, options.bootstrap
        return
    screen.say("Starting Apache Kafka")
    with RealBroker(version=options.version) if options.version else RealBroker() as broker:
        screen.say(f"Apache Kafka {broker.version} serves at {broker.bootstrap}")
        yield broker.bootstrap, f"Apache Kafka {broker.version}"


def _fill(options: Options, screen: Screen, bootstrap: str, topic: str, flights: int, expected: Tally) -> Filled:
    total = sum(totals.events for totals in expected.values())
    plan = chunks(total, producers.installed())
    wrote = " and ".join(dict.fromkeys(chunk.producer for chunk in plan))
    screen.say(f"Filling {topic}: {total:,} events of {flights:,} flights, {options.partitions} partitions, by {wrote}")
    producers.create_topic(bootstrap, topic, options.partitions)

    def on_progress(done: int, chunk: FilledChunk) -> None:
        screen.progress(f"writing ({chunk.producer}, {chunk.codec})", done, total)

    filled = fill(bootstrap, topic, dataset.events(islice(dataset.flights(), flights)), plan, on_progress)
    screen.say(f"Written in {filled.seconds:.1f} s")
    return filled


def _read(
    options: Options,
    screen: Screen,
    bootstrap: str,
    broker: str,
    topic: str,
    filled: Filled,
    expected: Tally,
    folder: Path,
) -> DemoOutcome:
    ends = end_offsets(bootstrap, topic, options.partitions)
    group = f"{topic}-readers"
    path, region_path = folder / f"{topic}.sqlite", folder / f"{topic}.region.sqlite"
    ledger = Ledger(path, create=True)
    try:
        arguments = member_arguments(
            bootstrap=bootstrap,
            group=group,
            topic=topic,
            ledger=path,
            region=region_path,
            assignor=options.assignor,
            records_per_second=options.records_per_second,
        )
        with DemoRegionView(region_path, group) as region:
            with Crew(ledger, arguments) as crew:
                samples = play(
                    crew,
                    ledger,
                    ends,
                    lambda: committed_offsets(bootstrap, group, topic, ends),
                    region.offsets,
                    kill_at=options.kill_at,
                    screen=screen,
                )
            committed = committed_offsets(bootstrap, group, topic, ends)
            reading, reread = group_reading(ledger, region)
            saved, checkpoint = region.offsets(), region.newest
        happenings, slices = tuple(ledger.happenings()), tuple(ledger.slices())
    finally:
        ledger.close()
    screen.say(f"The group counted {reading.records:,} records; {reread:,} of them it read twice; its ledger: {path}")
    screen.say(f"Its region: kohort region status sqlite:///{region_path}")
    spark = _spark(options, screen, bootstrap, topic, folder)
    return DemoOutcome(
        title="One topic, read by a group and by Spark",
        broker=broker,
        topic=topic,
        filled=filled,
        ends=ends,
        committed=committed,
        saved=saved,
        checkpoint=checkpoint,
        happenings=happenings,
        slices=slices,
        samples=tuple(samples),
        reread=reread,
        dataset=expected,
        group=reading,
        spark=spark,
    )


def _spark(options: Options, screen: Screen, bootstrap: str, topic: str, folder: Path) -> tuple[SparkReading, ...]:
    screen.say(f"Reading the same topic with PySpark ({options.spark_master})")
    readings = []
    with spark_session(options.spark_master, folder / "spark.log") as (session, started_s):
        for name, read in READERS.items():
            reading = read(session, bootstrap, topic, started_s)
            screen.say(f"{name} read {reading.records:,} records in {reading.seconds:.1f} s")
            readings.append(reading)
    return tuple(readings)
