"""A report as Markdown: failures first, then every check on one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from kohort.common.foreign_text import escaped
from kohort.conformance.check import Check
from kohort.conformance.report import Report
from kohort.conformance.verdict import CheckVerdict, Result

MAX_FRAMES = 14
SIGN = {
    CheckVerdict.PASS: "pass",
    CheckVerdict.FAIL: "**FAIL**",
    CheckVerdict.DEVIATION: "deviation",
    CheckVerdict.NOT_APPLICABLE: "n/a",
    CheckVerdict.BLOCKED: "**blocked**",
}


def render(report: Report, checks: Sequence[Check]) -> str:
    """Return the page. `checks` give the titles."""
    known = {check.id: check for check in checks}
    counts = ", ".join(f"{count} {verdict.value}" for verdict, count in report.counts.items() if count)
    lines = [
        f"# Conformance of {inline(report.subject.title)}",
        "",
        f"{counts}: {len({result.check for result in report.results})} checks in {len(report.results)} cells "
        f"(check x version), {report.took_s:g} s, {report.started}.",
        "",
        *([*fenced([report.command]), ""] if report.command else []),
        f"{report.subject.brokers} broker(s); "
        + (
            ", ".join(inline(f"{name}={level}") for name, level in sorted(report.subject.features.items()))
            or "no finalised features"
        ),
        "",
    ]
    if report.ended_early:
        lines += [f"**The run ended early: {inline(report.ended_early)}.**", ""]
    lines += _failures(report, known)
    lines += ["## Every check", "", "| check | | versions | result |", "|---|---|---|---|"]
    for identity, results in groupby(report.results, key=lambda result: result.check):
        check = known.get(identity)
        title = f"{check.title} ({check.subject})" if check else ""
        lines += [
            f"| {identity} | {title} | {versions} | {SIGN[verdict]}{f': {_cell(reason)}' if reason else ''} |"
            for versions, verdict, reason in _spans(list(results))
        ]
    if report.left_behind:
        lines += ["", "## Left behind", "", *(f"- {inline(entry)}" for entry in report.left_behind)]
    return "\n".join(lines) + "\n"


def _failures(report: Report, known: dict[str, Check]) -> list[str]:
    bad = [
        result
        for result in report.results
        if result.verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED, CheckVerdict.DEVIATION)
    ]
    if not bad:
        return []
    lines = ["## What did not pass", ""]
    for identity, group in groupby(bad, key=lambda result: result.check):
        results = list(group)
        last = results[-1]
        check = known.get(identity)
        lines += [f"### {identity}: {check.title if check else ''}", ""]
        lines += [
            f"- versions {', '.join(str(result.version) for result in results)} of {check.subject}" if check else ""
        ]
        if check:
            lines += [f"- expected ({check.source}): {check.expected}"]
        lines += [f"- {last.verdict.value}: {inline(last.reason)}"]
        if check and check.note:
            lines += [f"- note: {check.note}"]
        again = code(f"kohort conformance --bootstrap {report.subject.address} --only {last.cell}")
        lines += [f"- again: {again}", "", *fenced(_frames(last)), ""]
    return lines


def _frames(result: Result) -> Iterable[str]:
    shown = result.frames[-MAX_FRAMES:]
    if len(shown) < len(result.frames):
        yield f"... {len(result.frames) - len(shown)} frames before"
    for frame in shown:
        text = str(frame)
        yield text if len(text) <= 400 else f"{text[:400]}..."


def _spans(results: list[Result]) -> Iterable[tuple[str, CheckVerdict, str]]:
    """Merge neighbouring versions with the same verdict."""
    for (verdict, reason), group in groupby(results, key=lambda result: (result.verdict, _short(result))):
        versions = [result.version for result in group]
        if versions[0] < 0:
            yield "", verdict, reason
        else:
            yield f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else f"{versions[0]}", verdict, reason


def _short(result: Result) -> str:
    return "" if result.verdict is CheckVerdict.PASS else result.reason.split("\n")[0][:160]


def _cell(text: str) -> str:
    return inline(text).replace("|", "\\|")


# Text of a broker, a command line or another report may contain Markdown, HTML and terminal sequences. It passes
# through these three functions only.

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ,;=/()'+-]*(?:[.:][A-Za-z0-9 ,;=()'+-][A-Za-z0-9 ,;=/()'+-]*)*[.:]?")


def inline(text: str) -> str:
    """Return the text as it is where no reader of Markdown sees more than letters in it, else as a code span."""
    return text if not text or (_PLAIN.fullmatch(text) and "www." not in text.lower()) else code(text)


def code(text: str) -> str:
    """Return a code span of one line: nothing in it is Markdown, HTML or a control character."""
    shown = escaped(text)
    quote = "`" * (_longest_run(shown) + 1)
    space = " " if shown[:1] in ("", "`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{quote}{space}{shown}{space}{quote}"


def fenced(lines: Iterable[str]) -> list[str]:
    """Return the lines in a fence that none of them can end."""
    shown = [escaped(line) for line in lines]
    fence = "`" * max([3, *(_longest_run(line) + 1 for line in shown)])
    return [f"{fence}text", *shown, fence]


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
