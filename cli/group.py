"""`kohort group`: administration of consumer groups and share groups."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import OverflowMethod
from rich.live import Live
from rich.table import Table

from kohort.admin import (
    Admin,
    GroupDescription,
    GroupMissing,
    OffsetChange,
    PartitionLag,
    SharePartitionOffset,
    StreamsGroupDescription,
)
from kohort.admin.streams_groups import STREAMS
from kohort.cli.connection_options import AsJson, ConnectionOptions, Yes, connected, console
from kohort.cli.deletion import delete_each
from kohort.cli.file_errors import reading
from kohort.cli.group_configs import configs
from kohort.cli.group_timeline import timeline
from kohort.cli.numbers_given import finite
from kohort.cli.partitions import partitions_of, short
from kohort.cli.terminal import cell, folding_table, say
from kohort.cli.timestamps import time_ms
from kohort.common import TopicPartition
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.common.foreign_text import parsed_json
from kohort.common.whole_number import whole

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Show and change consumer groups and share groups.")
offsets = typer.Typer(no_args_is_help=True, help="Move a group's committed offsets.")
app.add_typer(offsets, name="offsets")
app.command()(timeline)
app.command()(configs)

Group = Annotated[str, typer.Argument(help="The group.")]
SHARE = "share"
TASKS = ("active", "standby", "warmup", "target")
ROWS_SHOWN = 40
LINES_BESIDE_ROWS = 7  # of the table: title, frame, head, caption, and where the cursor waits
Row = PartitionLag | SharePartitionOffset
Rows = Sequence[Row]
WHERE = "earliest, latest, 5, +100, -100, 2026-01-31T12:00 (UTC), or P1D for a day ago"


class Sort(StrEnum):
    """The orders of lag lists."""

    PARTITION = "partition"
    LAG = "lag"


@app.command("list")
@connected
def list_(cluster: ConnectionOptions, as_json: AsJson = False) -> None:
    """List every group of the cluster. Example: kohort group list -b localhost:9092"""
    with cluster.admin() as admin:
        found = admin.list_groups()
    if as_json:
        print(json.dumps([_plain(one) for one in found]))
        return
    _print(("group", "type", "state", "protocol"), [(g.group, g.type, g.state, g.protocol_type) for g in found])


@app.command()
@connected
def describe(cluster: ConnectionOptions, group: Group, as_json: AsJson = False) -> None:
    """List the members of a group and their partitions. Example: kohort group describe billing -b localhost:9092"""
    with cluster.admin() as admin:
        try:
            found = admin.describe_group(group)
        except GroupMissing:
            with suppress(GroupMissing):  # the first error has the broker's message
                _describe_streams_group(admin.describe_streams_group(group), as_json)
                return
            raise
        rows = admin.share_offsets(group) if found.type == SHARE else admin.lag(group)
        behind = {one.partition: one.lag for one in rows}
    if as_json:
        print(json.dumps(_described(found, behind)))
        return
    epoch = f", epoch {found.epoch}" if found.epoch is not None else ""
    say(f"{found.group}: {found.state}, {found.type}{epoch}, assignor {found.assignor or '-'}")
    known = "started" if found.type == SHARE else "committed"
    count = sum(_from(one) is not None for one in rows)
    say(f"{known} in {counted(count, 'partition')}, where {_waiting(rows)}{_unknown(rows)}")
    if not found.members:
        say("no members")
        return
    _print(
        ("client", "member", "instance", "host", "partitions", "lag"),
        [
            (
                one.client_id,
                one.member_id,
                one.instance_id or "-",
                one.host,
                short(one.owned),
                str(sum(behind.get(partition) or 0 for partition in one.owned)),
            )
            for one in found.members
        ],
    )


@app.command()
@connected
def lag(
    cluster: ConnectionOptions,
    group: Group,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    every_s: Annotated[
        float,
        typer.Option("--every", min=0.1, max=86_400, callback=finite, help="Seconds between updates, with --watch."),
    ] = 2.0,
    sort: Annotated[Sort, typer.Option(help="The order of partitions.")] = Sort.LAG,
    show_all: Annotated[
        bool,
        typer.Option("--all", help=f"Show all partitions, not the first {ROWS_SHOWN} or a screen full."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the lag of each partition. Example: kohort group lag billing --watch -b localhost:9092"""
    with cluster.admin() as admin:
        if not watch:
            _print_lag(_looked(admin, group), sort, show_all, as_json)
            return
        _watch(admin, group, every_s, sort, show_all, as_json)


@offsets.command()
@connected
def reset(
    cluster: ConnectionOptions,
    group: Group,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, an offset, a shift (+100, -100), a time (2026-01-31T12:00, UTC) or P1D ago."
        ),
    ] = "",
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic; repeatable. Needed for a new group.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help='JSON file of offsets, in place of --to: {"topic": {"0": 5}}.')
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Commit other offsets for a group without members, or set start offsets of a share group.

    Example: kohort group offsets reset billing --to earliest --dry-run -b localhost:9092
    """
    if bool(to) == (file is not None):
        problem = "--to and --file are both given" if to else "no offsets are given"
        raise KohortError(problem, hint="use --to earliest, or --file offsets.json")
    topics = frozenset(topic or ())
    with cluster.admin() as admin:
        shares = any(one.group == group and one.type == SHARE for one in admin.list_groups())
        target = _where(admin, group, shares, to, topics) if file is None else _of(topics, _from_file(file))
        if not target and file is not None:
            raise KohortError("the file has no offsets of these topics", path=file)
        if not target:
            raise KohortError(
                "the group has no committed offsets of these topics", hint="name topics: --topic NAME", group=group
            )
        planned = _share_changes(admin, group, target) if shares else admin.reset_offsets(group, target, dry_run=True)
        if not as_json:
            _print(("partition", "start" if shares else "committed", "new", "moves"), [_change(one) for one in planned])
        if not dry_run:
            if not yes and not as_json:
                typer.confirm(f"{'set' if shares else 'commit'} these for {group}?", abort=True)
            if shares:
                admin.alter_share_offsets(group, {one.partition: one.after for one in planned})
            else:
                admin.reset_offsets(group, target)
    if as_json:
        rows = [{**one.partition._asdict(), "before": one.before, "after": one.after} for one in planned]
        print(json.dumps({"group": group, "changed": not dry_run, "offsets": rows}))
    elif dry_run:
        print("nothing was changed")


@offsets.command()
@connected
def export(cluster: ConnectionOptions, group: Group, as_json: AsJson = False) -> None:
    """Print the committed or start offsets of a group as JSON for `reset --file`; with --json on one line.

    Example: kohort group offsets export billing -b localhost:9092 > offsets.json
    """
    with cluster.admin() as admin:
        found: dict[str, dict[str, int]] = {}
        for one in _looked(admin, group):
            if (offset := _from(one)) is not None:
                found.setdefault(one.partition.topic, {})[str(one.partition.partition)] = offset
    print(json.dumps(found, indent=None if as_json else 1))


@app.command()
@connected
def delete(
    cluster: ConnectionOptions,
    groups: Annotated[list[str], typer.Argument(help="The groups.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, and their offsets. Example: kohort group delete old -b localhost:9092"""
    if not yes and not as_json:
        typer.confirm(f"delete {', '.join(groups)} with all committed offsets?", abort=True)
    with cluster.admin() as admin:
        delete_each(admin.delete_groups, groups, as_json=as_json)


@app.command("remove-members")
@connected
def remove_members(
    cluster: ConnectionOptions,
    group: Group,
    members: Annotated[
        list[str] | None, typer.Argument(help="Member ids or instance ids; without any, all members.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason in the broker's log (KIP-800).")] = "removed by an operator",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove members. Live dynamic members join again. Example: kohort group remove-members billing worker-3"""
    if not yes and not as_json:
        typer.confirm(f"remove {', '.join(members or ['all members'])} from {group}?", abort=True)
    with cluster.admin() as admin:
        gone = admin.remove_members(group, members or None, reason=reason)
    if as_json:
        print(json.dumps({"group": group, "removed": [one.member_id for one in gone]}))
    else:
        say(f"removed {counted(len(gone), 'member')} of {group}")


# --------------------------------------------------------------------------------------------------- where to reset


def _share_changes(admin: Admin, group: str, target: Mapping[TopicPartition, int]) -> list[OffsetChange]:
    """The changes of start offsets, limited to the range of the log."""
    before = {one.partition: one.start_offset for one in admin.share_offsets(group)}
    first, end = admin.first_offsets(target), admin.end_offsets(target)
    return [
        OffsetChange(one, before.get(one), min(max(offset, first[one]), end[one]))
        for one, offset in sorted(target.items())
        if one in first and one in end
    ]


def _where(admin: Admin, group: str, shares: bool, to: str, topics: frozenset[str]) -> dict[TopicPartition, int]:
    """Return the offset of `--to` for every partition of the topics, or that the group has committed or started."""
    committed = (
        {one.partition: one.start_offset for one in admin.share_offsets(group) if one.start_offset is not None}
        if shares
        else {partition: at.offset for partition, at in admin.committed(group).items()}
    )
    # Named topics include partitions without a commit. A member would reset these by its own setting.
    partitions = [one for topic in sorted(topics) for one in partitions_of(admin, topic)] if topics else list(committed)
    if to[0] in "+-" and (count := whole(to[1:])) is not None:
        shift = count if to[0] == "+" else -count
        return {one: committed[one] + shift for one in partitions if one in committed}
    if (offset := whole(to)) is not None:
        return dict.fromkeys(partitions, offset)
    ends = admin.end_offsets(partitions)
    if to == "latest":
        found = ends
    elif to == "earliest":
        found = admin.first_offsets(partitions)
    else:
        found = admin.offsets_at(dict.fromkeys(partitions, time_ms(to, WHERE)))
    _refuse_silence(admin, set(partitions) - (found.keys() & ends.keys()))
    return {one: ends[one] if offset < 0 else offset for one, offset in found.items()}


def _refuse_silence(admin: Admin, silent: set[TopicPartition]) -> None:
    """Raise KohortError for a partition whose topic exists, because it would be left out. Deleted topics may be."""
    there = admin.describe_topics({one.topic for one in silent})
    for topic, number in sorted(silent):
        if not isinstance(there[topic], KohortError):
            raise KohortError(
                "no ListOffsets response from the partition's leader",
                hint="try again later",
                topic=topic,
                partition=number,
            )


def _of(topics: frozenset[str], named: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offsets of these topics, or all offsets if no topic is given."""
    return {one: offset for one, offset in named.items() if not topics or one.topic in topics}


def _offset(read: object) -> int:
    if type(read) is not int or read < 0:  # floats and booleans are not offsets
        raise ValueError
    return read


def _from_file(path: Path) -> dict[TopicPartition, int]:
    with reading(path):
        data = path.read_bytes()
    try:
        return {
            TopicPartition(topic, _offset(whole(number))): _offset(offset)
            for topic, numbers in parsed_json(data).items()
            for number, offset in numbers.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise KohortError("not a file of offsets", hint='write {"topic": {"0": 5, "1": 7}}', path=path) from None


# ---------------------------------------------------------------------------------------------------------- showing


def _looked(admin: Admin, group: str) -> Rows:
    rows = admin.lag(group)
    if rows:
        return rows
    kind = next((one.type for one in admin.list_groups() if one.group == group), None)
    if kind is None:
        raise GroupMissing(group)
    return admin.share_offsets(group) if kind == SHARE else rows


def _from(one: Row) -> int | None:
    """The committed offset, or the start offset of a share partition."""
    return one.start_offset if isinstance(one, SharePartitionOffset) else one.committed


def _end(one: Row) -> int | None:
    """The log end offset, which a share partition does not have."""
    return None if isinstance(one, SharePartitionOffset) else one.end


def _watch(admin: Admin, group: str, every_s: float, sort: Sort, show_all: bool, as_json: bool) -> None:
    """Show the lag repeatedly. A terminal shows as many rows as it has lines, a pipe gets every table."""
    before: dict[TopicPartition, int] = {}
    out = console()
    with Live(console=out, auto_refresh=False) if out.is_terminal and not as_json else nullcontext() as live:
        while True:
            began = time.monotonic()
            rows = _looked(admin, group)
            if as_json:
                print(json.dumps(_lags(rows)), flush=True)
            elif live is None:
                out.print(_lag_table(group, rows, sort, len(rows) if show_all else ROWS_SHOWN, before))
                out.file.flush()
            else:
                live.update(_lag_table(group, rows, sort, out.height - LINES_BESIDE_ROWS, before), refresh=True)
            before = {one.partition: one.lag for one in rows if one.lag is not None}
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))


def _print_lag(rows: Rows, sort: Sort, show_all: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_lags(rows)))
    else:
        console().print(_lag_table("", rows, sort, len(rows) if show_all else ROWS_SHOWN, None))


def _lags(rows: Rows) -> dict[str, Any]:
    return {
        "lag": sum(one.lag or 0 for one in rows),
        "partitions": [
            {**one.partition._asdict(), "committed": _from(one), "end": _end(one), "lag": one.lag} for one in rows
        ],
    }


def _lag_table(group: str, rows: Rows, sort: Sort, most: int, before: Mapping[TopicPartition, int] | None) -> Table:
    """Return the table of lags. `before`: the previous lags, None if there are none."""
    if sort is Sort.LAG:
        rows = sorted(rows, key=lambda one: (-(one.lag or 0), one.partition))
    shown = rows[: max(1, most)]
    more = f", the first {len(shown)} shown" if len(shown) < len(rows) else ""
    caption = f"{_waiting(rows)} in {counted(len(rows), 'partition')}{_unknown(rows)}{more}"
    table = Table(title=cell(group) if group else None, caption=caption, caption_justify="left", title_justify="left")
    table.min_width = min(len(caption), console().width)
    whole: OverflowMethod = "fold" if before is None else "ellipsis"  # --watch counts a line for each row
    is_share = bool(rows) and isinstance(rows[0], SharePartitionOffset)
    heads = ("partition", "start", "lag") if is_share else ("partition", "committed", "end", "lag")
    for name in (*heads, *(() if before is None else ("change",))):
        table.add_column(name, justify="left" if name == "partition" else "right", overflow=whole)
    for one in shown:
        was = None if before is None else before.get(one.partition)
        change = "" if was is None or one.lag is None else f"{one.lag - was:+}"
        ends = () if is_share else (_number(_end(one)),)
        cells = (str(one.partition), _number(_from(one)), *ends, _number(one.lag), change)
        table.add_row(*map(cell, cells[: len(table.columns)]))
    return table


def _waiting(rows: Rows) -> str:
    count = sum(one.lag or 0 for one in rows)
    return f"{count} record waits" if count == 1 else f"{count} records wait"


def _unknown(rows: Rows) -> str:
    count = sum(one.lag is None for one in rows)
    return f", {count} of unknown lag" if count else ""


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)


def _change(one: OffsetChange) -> tuple[str, ...]:
    moves = "-" if one.before is None else f"{one.after - one.before:+}"
    return str(one.partition), _number(one.before), str(one.after), moves


def _described(found: GroupDescription, behind: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    return {
        "group": found.group,
        "type": found.type,
        "state": found.state,
        "assignor": found.assignor,
        "epoch": found.epoch,
        "members": [
            {
                "member_id": one.member_id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "epoch": one.epoch,
                "owned": [{**each._asdict(), "lag": behind.get(each)} for each in sorted(one.owned)],
                "target": None if one.target is None else [each._asdict() for each in sorted(one.target)],
            }
            for one in found.members
        ],
    }


def _describe_streams_group(found: StreamsGroupDescription, as_json: bool) -> None:
    if as_json:
        members = [
            {name: getattr(one, name) for name in ("member_id", "instance_id", "client_id", "host", "epoch")}
            | {name: [task._asdict() for task in sorted(getattr(one, name))] for name in TASKS}
            for one in found.members
        ]
        described = {"group": found.group, "type": STREAMS, "state": found.state, "assignor": None}
        print(json.dumps(described | {"epoch": found.epoch, "members": members}))
        return
    say(f"{found.group}: {found.state}, {STREAMS}, epoch {found.epoch}")
    if not found.members:
        say("no members")
        return
    _print(
        ("client", "member", "instance", "host", *(f"{name} tasks" for name in TASKS)),
        [
            (
                one.client_id,
                one.member_id,
                one.instance_id or "-",
                one.host,
                *(
                    " ".join(f"{task.subtopology}_{task.partition}" for task in sorted(getattr(one, name))) or "-"
                    for name in TASKS
                ),
            )
            for one in found.members
        ],
    )


def _plain(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def _print(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = folding_table(*head)
    for row in rows:
        table.add_row(*map(cell, row))  # names are foreign text
    console().print(table)
