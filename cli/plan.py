"""`kohort plan`: the offsets that Spark would read, and missing records."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kohort.admin import GroupMissing
from kohort.cli.connection_options import AsJson, ConnectionOptions, connected, console
from kohort.cli.terminal import cell, folding_table
from kohort.cli.timestamps import utc_time
from kohort.common import TopicPartition
from kohort.common.counted import counted
from kohort.common.foreign_text import parsed_json
from kohort.common.whole_number import whole
from kohort.spark.checkpoint import finished_offsets
from kohort.spark.errors import PlanError
from kohort.spark.offset_json import unlogged
from kohort.spark.plan import Bound, Point, ReadPlan
from kohort.spark.plan import plan as make_plan

app = typer.Typer(add_completion=False, help="Show the offsets that Spark would read, and missing records.")

_POINTS: dict[int, Point] = {-1: "latest", -2: "earliest"}
BOUND = (
    "earliest, latest, committed (of --group), a time (2024-02-29T12:00, UTC), or offsets as Spark's source takes them"
)


@app.command()
@connected
def plan(
    cluster: ConnectionOptions,
    topic: Annotated[list[str] | None, typer.Option(help="A topic; repeatable.")] = None,
    pattern: Annotated[str | None, typer.Option(help="All topics whose whole name matches.")] = None,
    partition: Annotated[list[str] | None, typer.Option(help="One partition, as TOPIC:NUMBER; repeatable.")] = None,
    start: Annotated[str, typer.Option(help=f"Start: {BOUND}.")] = "earliest",
    stop: Annotated[str, typer.Option(help="End, in the same form.")] = "latest",
    group: Annotated[str | None, typer.Option(help="The group of 'committed'.")] = None,
    min_partitions: Annotated[int | None, typer.Option(min=1, help="The minimum number of ranges.")] = None,
    max_records: Annotated[int | None, typer.Option(min=1, help="The maximum number of offsets of a range.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="The approximate maximum size of a range, by a sample of each partition.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Read up to the last stable offset, without open transactions.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A stream's checkpoint, a local folder: start behind the last batch that it has finished."),
    ] = None,
    fail_on_data_loss: Annotated[
        bool, typer.Option("--fail-on-data-loss", help="Fail for an offset outside the log, in place of a gap.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the ranges that kafka_rdd and format("kohort") would read, and the gaps before them.

    Example: kohort plan --bootstrap localhost:9092 --topic payments --start committed --group billing

    The lag of a stream: kohort plan --bootstrap localhost:9092 --checkpoint DIR
    """
    read = {} if checkpoint is None else finished_offsets(checkpoint)
    if not read and "committed" in (start, stop):
        _check_group(cluster, group)
    settings = cluster.keywords() | ({"isolation_level": "read_committed"} if read_committed else {})
    found = make_plan(
        settings.pop("bootstrap"),
        topics=topic or (),
        partitions=[_place(one) for one in partition or ()] or list(read),
        pattern=pattern,
        start=read or bound(start),
        stop=bound(stop),
        group=group,
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
        max_bytes_per_partition=max_bytes,
        on_data_loss="fail" if fail_on_data_loss else "skip",
        **settings,
    )
    if as_json:
        print(json.dumps(to_json(found)))
    else:
        _show(found, console())


def bound(text: str) -> Bound:
    """Parse a bound of the command line. Raises PlanError."""
    if text in ("earliest", "latest", "committed"):
        return text  # type: ignore[return-value]  # mypy does not narrow a str to its words
    if text.lstrip().startswith("{"):
        try:
            return {place: _POINTS.get(offset, offset) for place, offset in unlogged(parsed_json(text)).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise PlanError(f"not offsets: {error}", hint='use {"topic":{"0":23,"1":-2}}') from None
    try:
        return utc_time(text)
    except ValueError:
        raise PlanError(
            f"neither a word, a time nor JSON: {text!r}", hint="use earliest, latest, 2024-02-29T12:00Z"
        ) from None


def _check_group(cluster: ConnectionOptions, group: str | None) -> None:
    """Raise PlanError without a group, and for a share group, of which brokers report no committed offsets."""
    if group is None:
        raise PlanError("'committed' needs a group", hint="add --group NAME")
    with cluster.admin() as admin, suppress(GroupMissing):
        if admin.describe_group(group).type == "share":
            hint = "print its start offsets with `kohort group offsets export`"
            raise PlanError("a share group commits no offsets", hint=hint, group=group)


def to_json(found: ReadPlan) -> dict[str, Any]:
    """Return a plan for JSON."""
    return {
        "ranges": [
            {"topic": one.topic, "partition": one.partition, "start": one.start, "stop": one.stop} for one in found
        ],
        "offsets": sum(map(len, found)),
        "gaps": [
            {"topic": gap.topic, "partition": gap.partition, "kind": gap.kind, "first": gap.first, "last": gap.last}
            for gap in found.gaps
        ],
    }


def _place(text: str) -> TopicPartition:
    topic, _, digits = text.rpartition(":")
    number = whole(digits)
    if not topic or number is None:
        raise PlanError(f"not a partition: {text!r}", hint="use TOPIC:NUMBER")
    return TopicPartition(topic, number)


def _show(found: ReadPlan, out: Console) -> None:
    table = folding_table("topic", "partition", "start", "stop", "offsets", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in found:
        table.add_row(cell(one.topic), str(one.partition), f"{one.start:,}", f"{one.stop:,}", f"{len(one):,}")
    out.print(table if found else "nothing to read")
    out.print(f"{counted(len(found), 'range')}, {counted(sum(map(len, found)), 'offset')}")
    for gap in found.gaps:
        out.print(cell(f"gap: {gap}"), soft_wrap=True)
