"""`kohort conformance --bootstrap HOST:PORT`: check a broker's group protocol.

Exit codes: 0: no failure. 1: a failure. 2: wrong usage. 3: the run ended early, or a part or all could not be judged.
130 and 143: after SIGINT and SIGTERM.
"""

import asyncio
import json
import shlex
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kohort.cli.connection_options import AsJson
from kohort.cli.connection_options import console as output_console
from kohort.cli.file_errors import writing
from kohort.cli.terminal import cell, markup
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.common.whole_number import whole
from kohort.conformance import html, junit, markdown
from kohort.conformance.broker_client import Access
from kohort.conformance.broker_control import Commands, Operator
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS, TITLES
from kohort.conformance.check import Check, Selection
from kohort.conformance.compare import differences
from kohort.conformance.errors import ConformanceError, SelectionError
from kohort.conformance.profile import Profile
from kohort.conformance.report import Report
from kohort.conformance.runner import AT_A_TIME, RunStopped, conduct
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.protocol.catalogue import API

if TYPE_CHECKING:
    from kohort.testing import RealCluster

app = typer.Typer(add_completion=False, invoke_without_command=True)
error_console = Console(stderr=True)

COULD_NOT_JUDGE = 3
_SIGNALLED = 128  # plus the number of the signal, as in a shell
STYLE = {
    CheckVerdict.PASS: "green",
    CheckVerdict.FAIL: "bold red",
    CheckVerdict.BLOCKED: "magenta",
    CheckVerdict.DEVIATION: "yellow",
    CheckVerdict.NOT_APPLICABLE: "dim",
}
# Settings of --start that some checks need.
SETTINGS = {"group.max.size": "6"}
JUDGE, STRANGER = ("judge", "judge-secret"), ("stranger", "stranger-secret")


class Format(StrEnum):
    """The formats of --report."""

    HTML = "html"
    MD = "md"
    JSON = "json"
    JUNIT = "junit"


_OF_LOGINS = ("--user", "--stranger")
CHOICE = "Choice of checks"  # a table of its own: the column for --no-timing would have other names cut

SUFFIX = {Format.HTML: "html", Format.MD: "md", Format.JSON: "json", Format.JUNIT: "xml"}


@app.callback()
def main(
    context: typer.Context,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", "-b", envvar="KOHORT_BOOTSTRAP", help="HOST:PORT of the broker.")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(help="Checks to run: 'B*,C3', or 'B4@5' for one version; repeatable.", rich_help_panel=CHOICE),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Checks to leave out, in the same form; repeatable.", rich_help_panel=CHOICE),
    ] = None,
    timing: Annotated[
        bool,
        typer.Option("--timing/--no-timing", help="Also run checks that wait for timers.", rich_help_panel=CHOICE),
    ] = True,
    profile: Annotated[Path | None, typer.Option(help="TOML file of known deviations of this broker.")] = None,
    report: Annotated[
        list[Format] | None, typer.Option(metavar="FORMAT", help="Write a report: html, md, json or junit; repeatable.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Path of the reports, without the ending.")] = Path("conformance-report"),
    name: Annotated[str, typer.Option(help="The broker's name in reports.")] = "",
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS, with the system's certificate authorities.")] = False,
    ca: Annotated[Path | None, typer.Option(help="PEM file of the trusted authority; implies --tls.")] = None,
    user: Annotated[str, typer.Option(help="NAME:PASSWORD for SASL PLAIN.", envvar="KOHORT_SASL_USER")] = "",
    stranger: Annotated[str, typer.Option(help="NAME:PASSWORD of a user without permissions.")] = "",
    start: Annotated[str, typer.Option(help="Start Apache Kafka of this version, check it, stop it.")] = "",
    brokers: Annotated[int, typer.Option(min=1, max=9, help="With --start: the number of brokers.")] = 1,
    leave_traces: Annotated[
        bool,
        typer.Option(
            "--leave-traces",
            help="Also run checks that may leave a group that cannot be deleted.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
    session_timeout_ms: Annotated[
        int, typer.Option(min=100, max=2**31 - 1, help="Session timeout of members, unless a check sets another.")
    ] = 30_000,
    at_a_time: Annotated[int, typer.Option(min=1, help="The number of parallel checks without timers.")] = (AT_A_TIME),
    at_most: Annotated[
        list[str] | None, typer.Option(help="JoinGroup=5: the highest version in set-ups; may be repeated.")
    ] = None,
    acls: Annotated[
        bool, typer.Option("--acls", help="With --start: users, ACLs, and a user without permissions.")
    ] = False,
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="With --start: NAME=VALUE of the brokers; may be repeated.")
    ] = None,
    stop_command: Annotated[
        str, typer.Option(help="Shell command that stops broker {node}. Adds the checks of restarts, which run last.")
    ] = "",
    start_command: Annotated[str, typer.Option(help="Shell command that starts broker {node} again.")] = "",
    as_json: AsJson = False,
) -> None:
    """Check a broker's group APIs, in every version that broker and kohort have, with the frames as evidence.

    It creates groups and topics named kohort-conformance-*, touches no others, and removes them at the end.
    Exit code 0: no failure. 1: a failure. 3: the run ended early, or some checks could not run.
    Ctrl-C or SIGTERM: reports have the checks until then, and the exit code is 130 or 143.

    Example: kohort conformance --bootstrap localhost:9092 --report html --report junit
    """
    if context.invoked_subcommand is not None:
        return
    source = context.get_parameter_source("bootstrap")
    if start and source is not None and source.name == "ENVIRONMENT":  # an option wins over the environment
        bootstrap = ""
    if bool(bootstrap) == bool(start):
        raise typer.BadParameter("set --bootstrap, or a version with --start", param_hint="--bootstrap")
    if bool(stop_command) != bool(start_command):
        raise typer.BadParameter("set both, or neither", param_hint="--stop-command, --start-command")
    if not output.name:
        raise typer.BadParameter("use the path of a file, without its ending", param_hint="--output")
    reports = {kind: output.with_name(f"{output.name}.{SUFFIX[kind]}") for kind in report or ()}
    for path in reports.values():  # a run takes minutes
        with _judging(), writing(path):
            is_new = not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
            if is_new:
                path.unlink()
    with _judging(), Signals().handled() as signals:
        try:
            selection = Selection.of(",".join(only or ()), CHECKS, ",".join(skip or ()))
        except SelectionError as error:
            raise typer.BadParameter(str(error), param_hint="--only, --skip") from None
        accepted = Profile.load(profile) if profile else Profile()
        extra = dict(map(_property, properties or ()))
        limits = dict(map(_limit, at_most or ()))
        context_tls = _tls(ca) if tls or ca else None
        started = _broker(bootstrap, start, brokers, acls, extra)
        with started as (address, started_user, started_stranger, operator):
            if stop_command:
                operator = Commands(stop_command, start_command)
            access = _access(context_tls, user or started_user)
            outsider = stranger or started_stranger
            outside = _access(context_tls, outsider, "--stranger") if outsider else None
            title = name or accepted.name or (f"Apache Kafka {start}" if start else "")

            async def judged() -> Report:
                target = await BrokerUnderTest.reach(address, access, outside)
                target.leave_traces = leave_traces or bool(start)
                target.session_ms, target.limits, target.operator = session_timeout_ms, limits, operator
                known = Profile(title, accepted.deviations)
                return await _conducted(
                    target, signals, selection=selection, timing=timing, profile=known, at_a_time=at_a_time
                )

            found = asyncio.run(judged())
        if as_json:
            print(found.dump())
        else:
            _summary(found)
        for kind, path in reports.items():
            with writing(path):
                path.write_text(_rendered(found, kind), encoding="utf-8")
            _say(error_console, f"wrote {markup(str(path))}")
    raise typer.Exit(_SIGNALLED + signals.received[0] if signals.received else found.exit_code)


@app.command("list")
def show_checks(as_json: AsJson = False) -> None:
    """List every check, with its subject, the expected result and the source.

    Example: kohort conformance list
    """
    if as_json:
        print(json.dumps([_plain(check) for check in CHECKS]))
        return
    for check in CHECKS:
        print(f"{check.id:5} {check.title}  [{check.subject} {_versions(check)}; {check.kind.name}; {check.source}]")
        print(f"      {check.expected}")


@app.command()
def compare(
    left: Annotated[Path, typer.Argument(help="A JSON report, gzipped or not.")],
    right: Annotated[Path, typer.Argument(help="Another one.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Include checks that ran in only one of the two reports.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two brokers and list the cells in which they differ. Exit code 1 if there are any.

    Example: kohort conformance compare kafka.json.gz other.json
    """
    with _judging():
        first, second = Report.load(left), Report.load(right)
    found = [entry for entry in differences(first, second) if everything or not entry.is_one_sided]
    if as_json:
        rows = [
            {"check": one.check, "version": one.version, "left": _reported(one.left), "right": _reported(one.right)}
            for one in found
        ]
        print(json.dumps({"left": first.subject.title, "right": second.subject.title, "cells": rows}))
        raise typer.Exit(1 if found else 0)
    titles = {check.id: check.title for check in CHECKS}
    table = Table(box=None, pad_edge=False)
    for column in ("check", "versions", "", first.subject.title, second.subject.title):
        table.add_column(cell(column), overflow="fold")
    alike = groupby(found, key=lambda entry: (entry.check, _reported(entry.left), _reported(entry.right)))
    for (check, one, other), group in alike:
        versions = [entry.version for entry in group]
        span = "" if versions[0] < 0 else f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else str(versions[0])
        table.add_row(check, span, titles.get(check, ""), cell(one), cell(other))
    out = output_console()
    if found:
        out.print(table)
    _say(out, counted(len(found), "different cell"))
    raise typer.Exit(1 if found else 0)


@contextmanager
def _judging() -> Iterator[None]:
    """End the command for an error of kohort, with the exit code of a run that could not judge."""
    try:
        yield
    except KohortError as error:
        _say(error_console, f"[red]kohort: error: {markup(str(error))}[/]")
        raise typer.Exit(COULD_NOT_JUDGE) from None


def _say(out: Console, line: str) -> None:
    """Print the text on one line of any length, so that paths can be copied and logs searched."""
    out.print(line, highlight=False, soft_wrap=True)


async def _conducted(target: BrokerUnderTest, signals: "Signals", **settings: Any) -> Report:
    """Conduct the run with these settings, and show its progress."""
    with Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[reported]}"),
        console=error_console,
        transient=True,
    ) as progress:
        task = progress.add_task("waking the coordinator", total=None, reported="")
        counts = dict.fromkeys(CheckVerdict, 0)

        def planned(cells: int) -> None:
            progress.update(task, total=cells, description="judging")

        def reported(result: Result) -> None:
            counts[result.verdict] += 1
            text = " ".join(
                f"[{STYLE[verdict]}]{count} {verdict.value}[/]" for verdict, count in counts.items() if count
            )
            progress.update(task, advance=1, reported=text)
            if result.verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED):
                style = STYLE[result.verdict]
                _say(error_console, f"[{style}]{result.verdict.value}[/] {result.cell} {markup(result.reason[:300])}")

        with signals.stopping() as stop:
            return await conduct(
                target, CHECKS, command=_command(), on_plan=planned, on_result=reported, stop=stop, **settings
            )


class Signals:
    """SIGINT and SIGTERM during the command. `received` has the numbers of those that did not raise.

    Until the run begins a signal raises KeyboardInterrupt or SystemExit. During the run it stops it (see `RunStopped`).
    After the run the first one only sets the exit code, so that brokers are stopped and reports written. The next
    one raises.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._on_signal: Callable[[int], None] = self._end

    @contextmanager
    def handled(self) -> Iterator[Self]:
        """Handle the signals in this block. In a thread other than the main one, nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def stopping(self) -> Iterator[RunStopped]:
        """Signals stop the run that is made in this block, on the running loop."""
        stop, loop = RunStopped(), asyncio.get_running_loop()

        def request(number: int) -> None:
            self.received.append(number)
            loop.call_soon_threadsafe(stop.request, f"{signal.Signals(number).name} was received")

        self._on_signal = request
        try:
            yield stop
        finally:
            self._on_signal = self._note

    def _receive(self, number: int, _: object) -> None:
        self._on_signal(number)

    def _note(self, number: int) -> None:
        self._on_signal = self._end
        self.received.append(number)

    def _end(self, number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_SIGNALLED + number)


class _Started:
    """Stops and starts the brokers of --start."""

    def __init__(self, cluster: "RealCluster") -> None:
        self._cluster = cluster

    async def stop(self, node: int) -> None:
        await asyncio.to_thread(self._cluster.nodes[node].kill)

    async def start(self, node: int) -> None:
        await asyncio.to_thread(self._cluster.start)


@contextmanager
def _broker(
    bootstrap: str, version: str, count: int, acls: bool, extra: dict[str, str]
) -> Iterator[tuple[str, str, str, Operator | None]]:
    """Yield (address, user, stranger, operator).

    The address is the given one, or that of brokers that run during the block.
    """
    if not version:
        yield bootstrap, "", "", None
        return
    from kohort.testing import RealCluster

    if not acls:
        with RealCluster(count, version=version, properties=SETTINGS | extra) as cluster:
            yield cluster.bootstrap, "", "", _Started(cluster)
        return
    # Every group of a run waits for the initial rebalance delay, so only this smaller run has one.
    properties = SETTINGS | {
        "group.initial.rebalance.delay.ms": "300",
        "super.users": f"User:ANONYMOUS;User:{JUDGE[0]}",
    }
    with RealCluster(
        count, version=version, users=dict((JUDGE, STRANGER)), acls=True, properties=properties | extra
    ) as cluster:
        yield cluster.bootstrap_sasl, ":".join(JUDGE), ":".join(STRANGER), _Started(cluster)


def _tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # one of ssl is an OSError, and neither has the file's name
        raise ConformanceError(f"the authority's file cannot be read: {error.strerror or error}", path=ca) from None


def _access(tls: ssl.SSLContext | None, user: str, option: str = "--user") -> Access:
    if not user:
        return Access(tls)
    name, colon, password = user.partition(":")
    if not (name and colon):
        raise typer.BadParameter("use NAME:PASSWORD", param_hint=option)
    return Access(tls, name, password)


def _limit(entry: str) -> tuple[str, int]:
    api, _, version = entry.partition("=")
    highest = whole(version)
    if api not in API or highest is None:
        raise typer.BadParameter(f"{entry!r}: use JoinGroup=5", param_hint="--at-most")
    return api, highest


def _property(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not (name and equals):
        raise typer.BadParameter(f"{entry!r}: use NAME=VALUE", param_hint="--property")
    return name, value


def _command() -> str:
    """Return the command line without its secrets."""
    words = ["kohort", "conformance", *sys.argv[2:]] if len(sys.argv) > 1 else ["kohort", "conformance"]
    return shlex.join(_public(before, word) for before, word in zip(["", *words], words, strict=False))


def _public(before: str, word: str) -> str:
    if before in _OF_LOGINS:
        return f"{word.partition(':')[0]}:..."
    option, equals, login = word.partition("=")  # --user NAME:PASSWORD may be one word as well
    return f"{option}={_public(option, login)}" if equals and option in _OF_LOGINS else word


def _rendered(report: Report, kind: Format) -> str:
    if kind is Format.HTML:
        return html.render(report, CHECKS, TITLES)
    if kind is Format.MD:
        return markdown.render(report, CHECKS)
    return junit.render(report, CHECKS) if kind is Format.JUNIT else report.dump()


def _summary(report: Report) -> None:
    out = output_console()
    counts = "  ".join(
        f"[{STYLE[verdict]}]{count} {verdict.value}[/]" for verdict, count in report.counts.items() if count
    )
    _say(out, f"{markup(report.subject.title)}: {counts}  in {report.took_s:g} s")
    known = {check.id: check for check in CHECKS}
    failed = [result for result in report.results if result.verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED)]
    for identity, group in groupby(failed, key=lambda result: result.check):
        results = list(group)
        versions = ",".join(str(result.version) for result in results)
        style = STYLE[results[0].verdict]
        reason = markup(results[-1].reason[:300])
        _say(out, f"[{style}]{identity:5}[/] {markup(known[identity].title)} (v{versions}): {reason}")
    reasons: dict[str, list[str]] = {}
    for result in report.results:
        if result.verdict is CheckVerdict.NOT_APPLICABLE:
            reasons.setdefault(result.reason, []).append(result.check)
    for reason, checks in reasons.items():
        unique = list(dict.fromkeys(checks))
        more = f" and {len(unique) - 8} more" if len(unique) > 8 else ""
        shown = ", ".join(unique[:8]) + more
        _say(out, f"[dim]not applicable: {shown}: {markup(reason)}[/]")
    if report.ended_early:
        _say(out, f"[bold red]the run ended early: {markup(report.ended_early)}[/]")
    for entry in report.left_behind[:5]:
        _say(out, f"[yellow]left behind: {markup(entry)}[/]")


def _versions(check: Check) -> str:
    return "highest" if check.once else str(check.versions)


def _plain(check: Check) -> dict[str, Any]:
    return {
        "check": check.id,
        "title": check.title,
        "subject": check.subject,
        "versions": _versions(check),
        "kind": check.kind.name,
        "source": str(check.source),
        "expected": check.expected,
    }


def _reported(result: Result | None) -> str:
    if result is None:
        return "not run"
    return result.verdict.value + (
        f": {result.observed or result.reason}" if result.verdict is not CheckVerdict.PASS else ""
    )
