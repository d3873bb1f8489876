"""`kohort doctor`: collect the facts that rules need, and report the findings."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.text import Text

from kohort.cli.connection_options import AsJson, ConnectionOptions, connected, console
from kohort.cli.doctor.facts import Case
from kohort.cli.doctor.finding import Severity
from kohort.cli.doctor.rules import RULES, Opinion, judge
from kohort.cli.numbers_given import finite
from kohort.cli.terminal import cell, folding_table, say
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.common.foreign_text import escaped

app = typer.Typer(add_completion=False)

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
ORDER = list(Severity)
OK, FOUND, UNCHECKED = 0, 1, 2


@app.command()
@connected
def doctor(
    cluster: ConnectionOptions,
    group: Annotated[str, typer.Option("--group", "-g", help="The group; default: group.id of the file.")] = "",
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="A topic beside those of the group; repeatable.")
    ] = None,
    ms_per_record: Annotated[
        float | None,
        typer.Option(min=0.0001, callback=finite, help="The handler's time for a record, for the poll budget."),
    ] = None,
    tape: Annotated[Path | None, typer.Option(help='Tape file written by Consumer(tape="FILE").')] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0, max=600, callback=finite, help="The seconds to watch the group; 0 takes one snapshot."),
    ] = 10.0,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules without requests.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find problems of a consumer's settings, its group, its topics and the brokers.

    Exit code: 0 no error or warning, 1 an error or a warning, 2 a rule that could not be checked.

    Example: kohort doctor -F consumer.properties --group billing --ms-per-record 2.5
    """
    if rules:
        _list_rules(as_json)
        return
    try:
        properties = cluster.properties | ({"group.id": group} if group else {})
        with Case(
            properties,
            topics=topic or (),
            ms_per_record=ms_per_record,
            tape=tape,
            seconds=seconds if "group.id" in properties else 0.0,
        ) as case:
            _ = case.brokers  # fail early if no broker responds
            with Console(stderr=True).status(f"watching for {seconds:g} s" if case.settings.group else "checking"):
                opinion = judge(case)
    except KohortError as error:
        if as_json:
            print(json.dumps({"error": str(error)}))
        else:
            say(f"kohort: error: {error}", sys.stderr)
        raise typer.Exit(UNCHECKED) from None
    if as_json:
        print(json.dumps(_plain(opinion)))
    else:
        _show(opinion)
    raise typer.Exit(exit_code(opinion))


def exit_code(opinion: Opinion) -> int:
    """Return 1 with a warning or an error, else 2 if a rule could not be checked, else 0."""
    if any(found.severity is not Severity.NOTE for _, found in opinion.findings):
        return FOUND
    return UNCHECKED if opinion.unchecked else OK


def _plain(opinion: Opinion) -> dict[str, Any]:
    return {
        "findings": [{"rule": rule.name, **found._asdict()} for rule, found in _sorted(opinion)],
        "satisfied": [rule.name for rule in opinion.satisfied],
        "unchecked": {rule.name: str(error) for rule, error in opinion.unchecked},
        "not_requested": {rule.name: error.message for rule, error in opinion.not_requested},
    }


def _sorted(opinion: Opinion) -> list[Any]:
    return sorted(opinion.findings, key=lambda one: ORDER.index(one[1].severity))


def _show(opinion: Opinion) -> None:
    out = console()
    if opinion.findings:
        table = folding_table("", "rule", "where", "what", "what to do", show_lines=True)
        for rule, found in _sorted(opinion):
            mark = Text(found.severity, style=STYLES[found.severity])
            table.add_row(mark, rule.name, cell(found.where), cell(found.what), cell(found.do))
        out.print(table)
    reported = [Text(f"satisfied: {counted(len(opinion.satisfied), 'rule')}")]
    if opinion.unchecked:
        reported += [
            Text(escaped(f"not checked: {rule.name}: {error}"), style="yellow") for rule, error in opinion.unchecked
        ]
    reasons: dict[str, list[str]] = {}
    for rule, error in opinion.not_requested:
        reasons.setdefault(error.message, []).append(rule.name)
    reported += [Text(escaped(f"skipped, {why}: {', '.join(names)}"), style="dim") for why, names in reasons.items()]
    out.print(Group(*reported))


def _list_rules(as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"rule": rule.name, "about": rule.about} for rule in RULES]))
        return
    table = folding_table("rule", "satisfied if")
    for rule in RULES:
        table.add_row(rule.name, rule.about)
    console().print(table)
