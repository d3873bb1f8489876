"""A report as one self-contained HTML page: a matrix of check x version, with the frames of each cell.

The data is embedded gzipped, since frames repeat themselves. The browser unpacks it (DecompressionStream, in all
browsers since 2023).
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence

from kohort.common.foreign_text import escaped
from kohort.conformance.check import Check
from kohort.conformance.html_assets import SCRIPT, STYLE
from kohort.conformance.report import Report

MAX_FRAMES_PASSED = 40  # of a passing cell; those of others are kept whole


def render(report: Report, checks: Sequence[Check], titles: Mapping[str, str]) -> str:
    """Return the page. `titles`: section letter to its title."""
    data = {
        "report": _report(report),
        "sections": titles,
        "checks": [
            {
                "id": check.id,
                "title": check.title,
                "subject": check.subject,
                "versions": check.versions,
                "kind": check.kind.name,
                "kindText": check.kind.value,
                "source": check.source,
                "expected": check.expected,
                "note": check.note,
                "once": check.once,
                "needs": sorted([*check.apis, *(need.value for need in check.needs)]),
            }
            for check in checks
        ],
    }
    packed = base64.b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0)).decode()
    title = html.escape(escaped(f"Conformance of {report.subject.title}"))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style></head>
<body><header><h1>{title}</h1><div id="facts"></div><div id="chips" role="group" aria-label="Filter by verdict"></div>
<div id="filters"><input id="search" type="search" placeholder="B4, fenced, KIP-345 ..." aria-label="Search checks">
<select id="section" aria-label="Section"><option value="">all sections</option></select>
<select id="kind" aria-label="Class"><option value="">all classes</option></select>
<span id="shown"></span></div></header>
<main><div id="matrix"></div><aside id="detail" hidden aria-live="polite"></aside></main>
<noscript>This page unpacks its data with a script; the same report is kept as Markdown and JSON.</noscript>
<script id="data" type="application/octet-stream">{packed}</script>
<script>{SCRIPT}</script></body></html>
"""


def _report(report: Report) -> dict[str, object]:
    results = []
    for result in report.results:
        entry = result.as_json(with_frames=True)
        if result.verdict.value == "pass" and len(entry.get("frames", ())) > MAX_FRAMES_PASSED:
            entry["frames_left_out"] = len(entry["frames"]) - MAX_FRAMES_PASSED
            entry["frames"] = entry["frames"][:MAX_FRAMES_PASSED]
        results.append(entry)
    return {
        "address": report.subject.address,
        "brokers": report.subject.brokers,
        "features": dict(report.subject.features),
        "started": report.started,
        "took_s": report.took_s,
        "command": report.command,
        "ended_early": report.ended_early,
        "left_behind": report.left_behind,
        "results": results,
    }
