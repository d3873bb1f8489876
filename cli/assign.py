"""`kohort assign simulate|plan-migration`: show the plan of an assignor before any partition moves."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kohort.assignors import AssignorError, get
from kohort.assignors.group_file import from_json
from kohort.cli.assigning import report
from kohort.cli.assigning.events import Document
from kohort.cli.assigning.java_plans import JAVA_ASSIGNORS, JavaPlans
from kohort.cli.assigning.live import read_group
from kohort.cli.assigning.migration import plan_migration
from kohort.cli.assigning.simulation import from_numbers
from kohort.cli.assigning.simulation import simulate as run_simulation
from kohort.cli.connection_options import ConnectionOptions, connected, console
from kohort.cli.file_errors import writing
from kohort.cli.terminal import say
from kohort.common.counted import counted
from kohort.common.foreign_text import parsed_json
from kohort.testing.errors import JarsUnavailable, JdkMissing

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Show the plan of an assignor before any partition moves."
)

GroupFile = Annotated[
    Path | None, typer.Argument(help="A group as JSON: written by hand, by --save, or by a refused plan.")
]


@app.command()
@connected
def simulate(
    cluster: ConnectionOptions,
    file: GroupFile = None,
    assignor: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor", "-a", help="Name of an assignor; may be repeated to compare. rack-NAME adds racks to NAME."
        ),
    ] = None,
    event: Annotated[str | None, typer.Option("--event", "-e", help="The event, in one of the forms above.")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="For a generated group: a topic as NAME:PARTITIONS; repeatable.")
    ] = None,
    members: Annotated[int, typer.Option(min=1, max=100_000, help="For a generated group: the number of members.")] = 3,
    racks: Annotated[int, typer.Option(min=0, max=1000, help="For a generated group: the number of racks.")] = 0,
    lag: Annotated[
        int, typer.Option(min=0, help="For a generated group: the greatest lag of a partition, in records.")
    ] = 0,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Name of a live group of the cluster.")] = None,
    java: Annotated[bool, typer.Option(help="Compare with Java's plan. Needs a JDK.")] = True,
    page: Annotated[
        Path | None, typer.Option("--report", help="Write an HTML page to this file, and its picture as PNG.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the group before the event to this file, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate an event in a group. Shows moves, skew, far reads and lag spread, beside Java's plan.

    Events: join[:MEMBER[:TOPIC,...]], leave[:MEMBER], grow:TOPIC:PARTITIONS, subscribe:MEMBER:TOPIC,...

    Example: kohort assign simulate --group billing -e join -b localhost:9092
    """
    if page is not None and (not page.name or page.suffix.lower() == report.PICTURE_SUFFIX):
        raise typer.BadParameter("use the path of an HTML file", param_hint="--report")
    document, used = _document(file, topic, members, racks, lag, cluster, group)
    if save is not None:
        with writing(save):
            save.write_text(json.dumps(document, indent=1) + "\n")
    chosen = [get(name) for name in assignor or [used or "cooperative-sticky"]]
    notes: list[str] = []
    with ExitStack() as stack:
        oracle = _java(stack, notes) if java and any(each.name in JAVA_ASSIGNORS for each in chosen) else None
        outcomes = [run_simulation(document, each, event, oracle) for each in chosen]
    if as_json:
        print(json.dumps(report.to_json(outcomes, notes)))
    else:
        report.show(outcomes, notes, console())
    if page is not None:
        subscribed = from_json(document)
        size = f"{counted(len(subscribed.members), 'member')}, {counted(subscribed.size, 'partition')}"
        with writing(page):
            pages = report.write_page(outcomes, notes, f"{event or 'no event'}: {size}", page)
        for written in pages:
            say(f"wrote {written}", sys.stderr)


@app.command("plan-migration")
def migrate(
    old: Annotated[str, typer.Argument(help="The present assignor of the group.")],
    new: Annotated[str, typer.Argument(help="The new assignor.")],
    members: Annotated[int, typer.Option(min=1, max=100_000, help="The number of members.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the rolling restarts that change the assignor of a group, without a refused member.

    Example: kohort assign plan-migration range cooperative-sticky --members 12
    """
    bounces = plan_migration(get(old), get(new), members)
    if as_json:
        rows = [
            {
                "assignors": list(bounce.settings),
                "java": bounce.java_setting,
                "rebalance": bounce.mode.value,
                "used_before": bounce.used[0],
                "used_after": bounce.used[-1],
                "turns_at": bounce.turns_at,
            }
            for bounce in bounces
        ]
        print(json.dumps({"bounces": rows}))
        return
    if not bounces:
        print(f"No restart is needed: the group uses {new!r} already.")
        return
    print(f"From {old!r} to {new!r}, {counted(members, 'member')}, {counted(len(bounces), 'rolling restart')}:")
    for number, bounce in enumerate(bounces, start=1):
        print(f"\n{number}. Restart every member, one after the other, with")
        print(f"     kohort: {bounce.kohort_setting}")
        print(f"     Java:   {bounce.java_setting}")
        turns = bounce.turns_at
        print(
            f"   The group uses {bounce.used[0]!r} throughout."
            if turns is None
            else f"   The group uses {bounce.used[0]!r} until {turns} of {members} are restarted, "
            f"then {bounce.used[-1]!r}."
        )
        stops = "all members stop at each rebalance" if bounce.mode.value == "eager" else "only moved partitions stop"
        print(f"   A restarted member rebalances {bounce.mode.value}: {stops}.")
    print(
        "\nBegin the second restart after the first has reached every member. Do not merge the two: a\n"
        "member whose list shares nothing with the others' is refused with InconsistentGroupProtocol."
    )


def _document(
    file: Path | None,
    topic: list[str] | None,
    members: int,
    racks: int,
    lag: int,
    cluster: ConnectionOptions,
    group: str | None,
) -> tuple[Document, str | None]:
    """Return (the group, its assignor if known), from a file, a broker, or numbers."""
    sources = [name for name, given in (("FILE", file), ("--topic", topic), ("--group", group)) if given]
    if not sources and cluster.bootstrap:
        raise AssignorError("no group is named", hint="add --group NAME")
    if len(sources) != 1:
        raise AssignorError(
            f"{' and '.join(sources)} are different groups" if sources else "no group",
            hint="give a FILE, or --topic NAME:PARTITIONS (and --members), or --group with --bootstrap",
        )
    if file is not None:
        try:
            document = parsed_json(file.read_bytes())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise AssignorError(f"cannot read a group: {why}", file=file) from error
        from_json(document)
        return document, document.get("assignor")
    if group is not None:
        with cluster.admin() as admin:
            return read_group(admin, group)
    return from_numbers(topic or [], members, racks, lag), None


def _java(stack: ExitStack, notes: list[str]) -> JavaPlans | None:
    try:
        return stack.enter_context(JavaPlans())
    except (JdkMissing, JarsUnavailable, OSError) as error:  # OSError: no cache folder can be made
        notes.append(f"not compared with Java's plans: {error}")
        return None
