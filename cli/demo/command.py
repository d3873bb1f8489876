"""`kohort demo`: the main job, on a broker of its own or on yours."""

import getpass
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from kohort.admin import Admin
from kohort.cli.demo import DemoFailed, flights, producers, report
from kohort.cli.demo.group import Checkpoints, Crew, GroupAct
from kohort.cli.demo.ledger import GroupHistory, Ledger
from kohort.cli.demo.member import MemberTask
from kohort.cli.demo.outcome import DemoOutcome, TopicReading
from kohort.cli.demo.spark import spark_readings
from kohort.cli.numbers_given import finite
from kohort.common import TopicPartition
from kohort.common.private_files import private_folder
from kohort.consistent_region.store import SqliteStore
from kohort.testing import RealBroker

app = typer.Typer(add_completion=False, help="The main job on a real broker.")


@app.command()
def demo(
    bootstrap: Annotated[
        str | None, typer.Option(envvar="KOHORT_BOOTSTRAP", help="HOST:PORT of your own broker; else one is started.")
    ] = None,
    version: Annotated[str, typer.Option(help="Apache Kafka's version, when one is started.")] = "",
    records: Annotated[
        int | None, typer.Option(min=1, help="The approximate number of records; by default all.")
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 6,
    assignor: Annotated[str, typer.Option(help="The assignor of the group.")] = "range",
    kill_at: Annotated[
        float, typer.Option(min=0.0, max=0.95, callback=finite, help="Kill a member at this share of the records.")
    ] = 0.3,
    pace: Annotated[
        float, typer.Option(min=0.0, callback=finite, help="Records/s of each member, to watch; 0 is full speed.")
    ] = 0.0,
    keep_topic: Annotated[bool, typer.Option("--keep-topic", help="Leave the topic on your broker.")] = False,
    folder: Annotated[Path | None, typer.Option(help="The folder of the ledger and the report.")] = None,
    spark_master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
) -> None:
    """A topic of flights, a region of three, a kill, a fourth, Spark: and the totals are equal.

    Ends with code 0 if all totals are equal, else 1.

    Example: kohort demo --records 200000 --assignor sticky
    """
    started = time.monotonic()
    if folder is None:
        user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
        shared = Path(tempfile.gettempdir()) / f"kohort-demo-{user}"
        folder = private_folder(shared, hint="remove it, or name another folder with --folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoFailed(f"the folder cannot be made: {error.strerror}", folder=folder) from None
    topic = f"kohort-demo-{uuid.uuid4().hex[:8]}"
    rows, expected = flights.totals_of_rows(flights.flights(), at_least=records)
    say, group, at_hand = partial(print, flush=True), f"{topic}-readers", producers.installed()
    with ExitStack() as stack:
        address = broker = bootstrap or ""
        if not bootstrap:
            say("Starting Apache Kafka")
            real = stack.enter_context(RealBroker(version=version) if version else RealBroker())
            address, broker = real.bootstrap, f"Apache Kafka {real.version}"
        say(f"Using {' at '.join(dict.fromkeys((broker, address)))}")
        admin = stack.enter_context(Admin(address))
        # The flights are of 2013: a retention by time would delete them while they are read.
        admin.create_topic(topic, partitions=partitions, configs={"retention.ms": "-1", "cleanup.policy": "delete"})
        if bootstrap and not keep_topic:
            stack.callback(admin.delete_topics, topic)

        total = sum(one.events for one in expected.values())
        say(f"Filling {topic}: {total:,} events of {rows:,} flights, by {' and '.join(at_hand)}")
        chunks = producers.chunks(total, at_hand)
        written_s = producers.fill(address, topic, flights.events(islice(flights.flights(), rows)), chunks, say)
        say(f"Written in {written_s:.1f} s")

        ledger, region = folder / f"{topic}.ledger", folder / f"{topic}.region.sqlite"
        task = MemberTask("", address, group, topic, str(ledger), str(region), assignor, pace)
        places = [TopicPartition(topic, number) for number in range(partitions)]
        history = GroupHistory(_by_partition(admin.end_offsets(places)))
        entries = stack.enter_context(closing(Ledger(ledger)))
        checkpoints = Checkpoints(stack.enter_context(closing(SqliteStore(region))), group)

        def committed() -> dict[int, int]:
            return _by_partition({place: commit.offset for place, commit in admin.committed(group).items()})

        with Crew(entries, task) as crew:
            GroupAct(crew, entries, history, committed, checkpoints.offsets, say).play(kill_at)
        newest = checkpoints.newest()
        assert newest is not None
        reading = TopicReading("group", checkpoints.totals(newest), *history.seconds)
        say(f"The group counted {reading.records:,} records; {history.reread:,} of them it read twice")
        say(f"Its ledger: {ledger}\nIts region: kohort region status sqlite:///{region}")

        say(f"Reading the same topic with PySpark ({spark_master})")
        by_spark = tuple(spark_readings(spark_master, folder / "spark.log", address, topic, say))
        offsets = (committed(), checkpoints.offsets(), newest.sequence)
        outcome = DemoOutcome(broker, topic, chunks, written_s, *offsets, history, expected, reading, by_spark)
    page = report.write(outcome, flights.carriers(), folder / "report.html")
    for text, holds in outcome.claims:
        say(f"  {'yes' if holds else 'NO '}  {text}")
    for one in outcome.readings:
        say(f"  {one.reader}: {one.per_second:,.0f} records/s, after {one.prepared_s:.1f} s to get ready")
    say(f"The totals are {'equal' if outcome.equal else 'NOT EQUAL'}\nReport: {page}")
    say(f"All of it took {time.monotonic() - started:.0f} s.")
    raise typer.Exit(0 if outcome.equal else 1)


def _by_partition(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {place.partition: offset for place, offset in sorted(offsets.items())}
