"""A report as JUnit XML, with a suite per section and a case per cell."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from kohort.common.foreign_text import escaped
from kohort.conformance.check import Check
from kohort.conformance.report import Report
from kohort.conformance.verdict import CheckVerdict


def render(report: Report, checks: Sequence[Check]) -> str:
    """Return the document. Not applicable and deviation count as skipped, blocked as an error."""
    known = {check.id: check for check in checks}
    root = ElementTree.Element(
        "testsuites", name=_text(f"kohort conformance of {report.subject.title}"), time=f"{report.took_s:g}"
    )
    for letter in dict.fromkeys(result.check[0] for result in report.results):
        suite = ElementTree.SubElement(root, "testsuite", name=letter, timestamp=report.started)
        results = [result for result in report.results if result.check[0] == letter]
        counted = {"tests": len(results)}
        for name, verdicts in (
            ("failures", (CheckVerdict.FAIL,)),
            ("errors", (CheckVerdict.BLOCKED,)),
            ("skipped", (CheckVerdict.NOT_APPLICABLE, CheckVerdict.DEVIATION)),
        ):
            counted[name] = sum(result.verdict in verdicts for result in results)
        for name, count in counted.items():
            suite.set(name, str(count))
        for result in results:
            check = known.get(result.check)
            title = f"{result.cell} {check.title}" if check else result.cell
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"conformance.{letter}", name=title, time=f"{result.took_ms / 1000:g}"
            )
            if result.verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED):
                tag = "failure" if result.verdict is CheckVerdict.FAIL else "error"
                entry = ElementTree.SubElement(case, tag, message=_text(result.reason))
                entry.text = "\n".join(_text(str(frame)) for frame in result.frames)
            elif result.verdict is not CheckVerdict.PASS:
                ElementTree.SubElement(case, "skipped", message=_text(f"{result.verdict.value}: {result.reason}"))
    if report.ended_early:
        suite = ElementTree.SubElement(root, "testsuite", name="run", tests="1", failures="0", errors="1", skipped="0")
        case = ElementTree.SubElement(suite, "testcase", classname="conformance", name="the run comes to its end")
        ElementTree.SubElement(case, "error", message=_text(f"the run ended early: {report.ended_early}"))
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _text(text: str) -> str:
    """Escape control characters, most of which XML 1.0 cannot represent, and line breaks."""
    return escaped(text)
