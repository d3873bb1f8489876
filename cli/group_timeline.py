"""`kohort group timeline TAPE`: the rebalances of a member, drawn from its tape.

A consumer made with `tape="FILE"` writes a tape. The file may be read while the consumer runs, as --follow does.
A tape has frames and no rebalances. The frames are replayed to a member, and its timeline is drawn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from kohort.cli.connection_options import console
from kohort.cli.partitions import short
from kohort.common import TopicPartition
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.common.foreign_text import escaped
from kohort.coordinator_client.group.states import MemberState, RebalanceRecord
from kohort.coordinator_client.replay import NoMember, rebalances_on
from kohort.protocol import tape
from kohort.protocol.errors import error_name

STANDARD_INPUT = Path("-")
BAR_CELLS = 48
SHOWN = 30
REFRESH_S = 0.5
COLOURS = {
    MemberState.REVOKING: "red",
    MemberState.LOSING: "bright_red",
    MemberState.COMMITTING: "yellow",
    MemberState.JOINING: "blue",
    MemberState.SYNCING: "cyan",
    MemberState.ASSIGNING: "green",
}


def timeline(
    path: Annotated[
        Path, typer.Argument(metavar="TAPE", help='Tape written by Consumer(tape="TAPE"), or - for standard input.')
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Update as the tape grows, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a rebalance.")] = False,
) -> None:
    """Show a member's rebalances: cause, duration of phases, members, moved partitions, refused commits.

    Example: kohort group timeline billing.tape --follow
    """
    if path != STANDARD_INPUT and (path.is_dir() or not path.exists()):
        raise KohortError("no such tape", path=path, hint='write one with Consumer(tape="FILE")')
    if follow:
        if not path.is_file():
            raise KohortError("--follow needs a file", hint="leave it out for a pipe", path=path)
        _follow(path, as_json)
        return
    rebalances, now = _read(path)
    if as_json:
        for each in rebalances:
            print(json.dumps(plain(each, now)))
        return
    console().print(drawing(rebalances, now))


def drawing(rebalances: Sequence[RebalanceRecord], now: float) -> RenderableType:
    """Draw rebalances, also those of `consumer.timeline()`, with the monotonic time for `now`."""
    if not rebalances:
        return Text("no rebalance yet")
    shown = rebalances[-SHOWN:]
    longest_s = max(_lasted_s(each, now) for each in shown)
    rows: list[RenderableType] = []
    if len(rebalances) > len(shown):
        rows.append(Text(f"({counted(len(rebalances) - len(shown), 'earlier rebalance')} not shown)", style="dim"))
    before = shown[0]
    for each in shown:
        if each.started_at < before.started_at:
            rows.append(Text("another process, with times of its own", style="dim"))
        rows += _rows(each, now, longest_s)
        before = each
    return Group(*rows)


def plain(each: RebalanceRecord, now: float) -> dict[str, Any]:
    """Return a rebalance for JSON: seconds of the tape, partitions as "topic-number"."""
    return {
        "cause": each.cause.reason.name,
        "detail": each.cause.detail,
        "started_s": round(each.started_at, 6),
        "ended_s": None if each.ended_at is None else round(each.ended_at, 6),
        "seconds": round(_lasted_s(each, now), 6),
        "outcome": each.outcome.name if each.outcome else None,
        "generation": each.generation,
        "protocol": each.protocol,
        "leader": each.leader,
        "attempts": each.attempts,
        "phases": [{"state": one.state.name, "seconds": round(one.lasted_s(now), 6)} for one in each.phases],
        "members_joined": sorted(each.members_joined),
        "members_left": sorted(each.members_left),
        **{name: _names(getattr(each, name)) for name in ("revoked", "kept", "added", "lost")},
        "commits_refused": {_name(one): error_name(code) for one, code in each.commits_refused},
        "troubles": list(each.troubles),
    }


def _follow(path: Path, as_json: bool) -> None:
    reported = 0
    with nullcontext() if as_json else Live(console=console(), auto_refresh=False) as live:
        while True:
            rebalances, now = _read(path)
            if live is None:
                ended = [each for each in rebalances if each.ended_at is not None]
                for each in ended[reported:]:
                    print(json.dumps(plain(each, now)), flush=True)
                reported = len(ended)
            else:
                live.update(drawing(rebalances, now), refresh=True)
            time.sleep(REFRESH_S)


def _read(path: Path) -> tuple[tuple[RebalanceRecord, ...], float]:
    """Return the rebalances so far and the tape's time. An incomplete last line is left for the next read."""
    text = sys.stdin.read() if path == STANDARD_INPUT else path.read_text(errors="replace")
    whole, _, _half = text.rpartition("\n")
    frames = list(tape.read(whole.splitlines()))
    try:
        return rebalances_on(frames), frames[-1].time_s if frames else 0.0
    except NoMember:
        return (), frames[-1].time_s if frames else 0.0


def _rows(each: RebalanceRecord, now: float, longest_s: float) -> Iterable[RenderableType]:
    yield Text.assemble(
        (f"+{each.started_at:.3f} s  ", "bold"),
        escaped(str(each.cause)),
        ("  ->  ", "dim"),
        (escaped(_ended(each)), "bold"),
        f"  {_lasted_s(each, now):.3f} s",
    )
    if each.phases:
        yield _bar(each, now, longest_s)
    for label, text in _details(each):
        yield Text.assemble(("      " + label + " ", "dim"), escaped(text))


def _ended(each: RebalanceRecord) -> str:
    if each.outcome is None:
        return "under way" if each.ended_at is None else "the process ended"
    if each.outcome is not MemberState.STABLE:
        return str(each.outcome.value)
    role = ", leader" if each.leader else ""
    return f"generation {each.generation}, {each.protocol}{role}"


def _bar(each: RebalanceRecord, now: float, longest_s: float) -> Text:
    """Draw phases by duration, each at least one cell, with its state's first letter and colour."""
    bar = Text("      ")
    for one in each.phases:
        cells = max(round(BAR_CELLS * one.lasted_s(now) / longest_s), 1) if longest_s else 1
        bar.append(one.state.name[0] * cells, style=f"black on {COLOURS.get(one.state, 'white')}")
    reported = (f"{one.state.name.lower()} {one.lasted_s(now):.3f} s" for one in each.phases)
    return bar.append("  " + ", ".join(reported), style="dim")


def _details(each: RebalanceRecord) -> Iterable[tuple[str, str]]:
    for label, partitions in (("+", each.added), ("-", each.revoked), ("lost", each.lost), ("kept", each.kept)):
        if partitions:
            yield label, short(partitions)
    if each.members_joined:
        yield "came", " ".join(sorted(each.members_joined))
    if each.members_left:
        yield "went", " ".join(sorted(each.members_left))
    if each.attempts > 1:
        yield "attempts", str(each.attempts)
    for one, code in each.commits_refused:
        yield "commit refused", f"{_name(one)}: {error_name(code)}"
    for trouble in each.troubles:
        yield "trouble", trouble


def _lasted_s(each: RebalanceRecord, now: float) -> float:
    return (now if each.ended_at is None else each.ended_at) - each.started_at


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [_name(one) for one in sorted(partitions)]


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
