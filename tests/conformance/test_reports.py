"""Reports say what was found, in each of their forms; profiles and comparisons change nothing else."""

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kohort.cli import conformance
from kohort.cli.main import main
from kohort.conformance import html, junit, markdown
from kohort.conformance.catalogue import CHECKS, TITLES
from kohort.conformance.check import Selection
from kohort.conformance.compare import differences
from kohort.conformance.errors import ConformanceError, ProfileError, SelectionError
from kohort.conformance.frame_log import Frame, readable
from kohort.conformance.profile import Profile
from kohort.conformance.report import Report, Subject
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.protocol.apis.heartbeat import HeartbeatResponse

FRAMES = (
    Frame(0, 1, True, "Heartbeat", 4, {"group_id": "<b>&amp;", "generation_id": 1}),
    Frame(3, 1, False, "Heartbeat", 4, HeartbeatResponse(error_code=25)),
)
FAILED = Result(
    "D1a", 4, CheckVerdict.FAIL, "Heartbeat: expected NONE", "Heartbeat", "NONE", "UNKNOWN_MEMBER_ID", 5, FRAMES
)


def report(*results: Result, name: str = "a <broker>") -> Report:
    subject = Subject("127.0.0.1:1", name, "id", 1, {12: (0, 4)}, {"group.version": 1})
    return Report(subject, "2026-01-01T00:00:00+00:00", 1.5, "kohort conformance --bootstrap x", results)


@pytest.mark.parametrize("option", ["--user", "--stranger"])
@pytest.mark.parametrize("between", [" ", "="])
def test_the_command_is_shown_without_passwords(option: str, between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = f"kohort conformance {option}{between}me:can4ry=9 --only B1 --property a=b:c"
    monkeypatch.setattr("sys.argv", typed.split())
    assert conformance._command() == f"kohort conformance {option}{between}me:... --only B1 --property a=b:c"


PASSED = Result("D1a", 3, CheckVerdict.PASS, took_ms=4, frames=FRAMES)
OUT = Result("B19", -1, CheckVerdict.NOT_APPLICABLE, "no delay | none")
WHOLE = report(PASSED, FAILED, OUT)


def test_json_round_trip(tmp_path: Path) -> None:
    """The round trip keeps everything but the frames of passed checks, which are left out by default."""
    for packed in (False, True):
        path = tmp_path / f"{packed}.json"
        data = WHOLE.dump().encode()
        path.write_bytes(gzip.compress(data) if packed else data)
        loaded = Report.load(path)
        assert loaded.dump() == WHOLE.dump()
        assert loaded.results[0].frames == ()
        assert [str(frame) for frame in loaded.results[1].frames] == [str(frame) for frame in FRAMES]
    path.write_text(WHOLE.dump(all_frames=True))
    assert len(Report.load(path).results[0].frames) == 2


PACKED = gzip.compress(WHOLE.dump().encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 99}',
        b"\x1f\x8b",
        PACKED[:-20],
        PACKED[:20] + bytes(20) + PACKED[40:],
        PACKED[:-8] + bytes(8),
        pytest.param(b"[" * 100_000, id="nested deeply"),
        *(
            WHOLE.dump().replace(right, wrong).encode()
            for right, wrong in (
                ('"address": "127.0.0.1:1"', '"address": null'),
                ('"12": [', '"12": [1, '),
                ('"results": [', '"results": [[], '),
                ('"check": "D1a"', '"check": ["D1a"]'),
                ('"version": -1', '"version": "-1"'),
                ('"verdict": "pass"', '"verdict": "passed"'),
            )
        ),
    ],
)
def test_what_is_no_report_is_one_error(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    whole, path = tmp_path / "whole.json", tmp_path / "report.json"
    whole.write_text(WHOLE.dump())
    path.write_bytes(data)
    assert data != whole.read_bytes()
    with pytest.raises(ConformanceError):
        Report.load(path)
    assert main(["conformance", "compare", str(whole), str(path)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_exit_codes() -> None:
    assert report(PASSED).exit_code == 0
    assert WHOLE.exit_code == 1
    blocked = Result("D1a", 4, CheckVerdict.BLOCKED)
    assert report(PASSED, blocked).exit_code == 3
    assert report(blocked).exit_code == 3
    assert report(FAILED, blocked).exit_code == 1
    assert report(PASSED, replace(FAILED, verdict=CheckVerdict.DEVIATION)).exit_code == 0
    assert report(OUT).exit_code == 3
    assert Report(WHOLE.subject, "", 0, "", (PASSED,), ended_early="it died").exit_code == 3


def test_junit_is_xml_with_the_counts() -> None:
    root = ElementTree.fromstring(junit.render(WHOLE, CHECKS))
    suite = next(entry for entry in root if entry.get("name") == "D")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "25 UNKNOWN_MEMBER_ID" in (failure.text or "")


def test_markdown_has_the_command_to_run_it_again() -> None:
    page = markdown.render(WHOLE, CHECKS)
    assert "### D1a: While Stable" in page
    assert "--only D1a@4`" in page
    assert "`no delay \\| none`" in page
    assert page.count("25 UNKNOWN_MEMBER_ID") == 1


HOSTILE = (
    "</script><script>alert(1)</script>\n```\n\n# FORGED: all checks passed\n\n```````\n| a | b |\n|---|---|\n"
    "\x1b[31m\u202e[link](http://x) ![](http://y) **bold** @who\ud800 \x9b \u2028 &lt; `tick` www.z.z"
)


def test_markdown_holds_what_a_broker_says_as_text_and_nothing_else() -> None:
    """Without code spans and fences, nothing of a hostile member id is left that a reader of Markdown would obey."""
    frame = Frame(3, 1, False, "JoinGroup", 9, {"member_id": HOSTILE})
    fault = replace(FAILED, reason=HOSTILE, observed=HOSTILE, frames=(*FRAMES, frame))
    out = replace(OUT, reason=HOSTILE)
    subject = replace(WHOLE.subject, name=HOSTILE, features={HOSTILE: 1}, address=HOSTILE)
    page = markdown.render(
        Report(subject, "then", 1.5, HOSTILE, (fault, out), ended_early=HOSTILE, left_behind=(HOSTILE,)), CHECKS
    )
    assert page.encode(), "no lone surrogate is left"
    assert all(letter.isprintable() or letter == "\n" for letter in page)
    assert page.count("FORGED") == 8, "each value is there"
    bare, fence = [], ""
    for line in page.splitlines():
        opened = re.match("`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif opened and "`" not in line[opened.end() :]:
            fence = opened[0]
        else:
            bare.append(re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", line))
    assert fence == "", "every fence ends"
    left = "\n".join(bare)
    assert not re.search(r"FORGED|script|alert|http|www|@|bold|link|&lt|`", left)
    assert [line for line in bare if line.startswith("#")] == [
        "# Conformance of ",
        "## What did not pass",
        "### D1a: While Stable",
        "## Every check",
        "## Left behind",
    ]


@pytest.mark.parametrize(
    "text", ["# x", "- x", "1. x", "a_b_", "a*b*", "<b>", "a`b", "[a](b)", "http://a", "ftp://a", "a | b", "a@b.c", "é"]
)
def test_all_that_markdown_may_read_is_a_code_span(text: str) -> None:
    assert markdown.inline(text) == (f"`{text}`" if "`" not in text else f"``{text}``")


def test_a_line_of_backticks_does_not_end_its_fence() -> None:
    assert markdown.fenced(["a", "`````"]) == ["``````text", "a", "`````", "``````"]


@pytest.mark.parametrize("text", ["", "requires a cluster of two or more brokers", "group.version=1", "127 of 9: x."])
def test_plain_sentences_stay_as_they_are(text: str) -> None:
    assert markdown.inline(text) == (text if not text[:1].isdigit() else f"`{text}`")


def test_no_other_form_has_control_characters_of_a_broker() -> None:
    frame = Frame(3, 1, False, "JoinGroup", 9, {"member_id": HOSTILE})
    fault = replace(FAILED, reason=HOSTILE, observed=HOSTILE, frames=(frame,))
    whole = report(fault, name=HOSTILE)
    for text in (junit.render(whole, CHECKS), html.render(whole, CHECKS, TITLES), whole.dump()):
        assert text.encode()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "<script>alert" not in html.render(whole, CHECKS, TITLES)
    assert not re.search("^ *# FORGED", junit.render(whole, CHECKS), re.MULTILINE), "no line of it begins a line"
    assert ElementTree.fromstring(junit.render(whole, CHECKS)) is not None


def test_a_text_of_a_broker_is_cut_in_every_form() -> None:
    frame = Frame(3, 1, False, "JoinGroup", 9, {"member_id": "x" * 100_000})
    whole = report(replace(FAILED, frames=(frame,)))
    forms = (junit.render(whole, CHECKS), markdown.render(whole, CHECKS), whole.dump())
    assert not any("x" * 601 in text for text in forms)


def test_junit_says_that_a_run_ended_early() -> None:
    ended = replace(WHOLE, ended_early="SIGINT was received")
    error = ElementTree.fromstring(junit.render(ended, CHECKS)).find("testsuite[@name='run']/testcase/error")
    assert error is not None
    assert error.get("message") == "the run ended early: SIGINT was received"


def test_html_holds_all_frames_and_loads_nothing() -> None:
    page = html.render(WHOLE, CHECKS, TITLES)
    assert "<title>Conformance of a &lt;broker&gt;</title>" in page
    assert not re.search(r"(src|href)=|https?://|import\(", page)
    found = re.search(r'id="data" type="application/octet-stream">([^<]+)<', page)
    assert found is not None
    data = json.loads(gzip.decompress(base64.b64decode(found[1])))
    assert [len(entry.get("frames", ())) for entry in data["report"]["results"]] == [2, 2, 0]
    assert len(data["checks"]) == len(CHECKS)


def test_profile_accepts_what_it_names_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text('name = "X"\n[[deviation]]\ncheck = "D1a"\nversions = "4+"\nreason = "known"\n')
    profile = Profile.load(path)
    assert profile.judge(FAILED).verdict is CheckVerdict.DEVIATION
    assert "known" in profile.judge(FAILED).reason
    assert profile.judge(PASSED) is PASSED
    assert profile.judge(Result("D1a", 4, CheckVerdict.BLOCKED)).verdict is CheckVerdict.BLOCKED
    assert "passes, although" in profile.judge(Result("D1a", 4, CheckVerdict.PASS)).reason


@pytest.mark.parametrize(
    "text",
    [
        "name = ",
        'nme = "x"',
        '[[deviation]]\ncheck = "A1"',
        '[[deviation]]\ncheck = "A1"\nreason = "r"\nversions = "x"',
        '[[deviation]]\ncheck = "A1"\nreason = "r"\nversion = "1"',
        '[[deviation]]\ncheck = "A1"\nreason = "r"\nversions = 1',
        '[[deviation]]\ncheck = ["A1"]\nreason = "r"',
        "deviation = 5",
        'deviation = ["A1"]',
        'name = "\udcff"',
        pytest.param("name = " + "[" * 50_000, id="nested deeply"),
    ],
)
def test_a_broken_profile_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ProfileError):
        Profile.load(path)


def test_selection() -> None:
    by_id = {check.id: check for check in CHECKS}
    chosen = Selection.of("b3, C2a@4", CHECKS, skip="B3b")
    assert chosen.takes(by_id["B3a"], 9)
    assert not chosen.takes(by_id["B3b"], 9)
    assert chosen.takes(by_id["C2a"], 4)
    assert not chosen.takes(by_id["C2a"], 3)
    assert not chosen.takes(by_id["D1a"], 0)
    for wrong in ("Z1", "B4@x", "B4@-1"):
        with pytest.raises(SelectionError):
            Selection.of(wrong, CHECKS)


def test_comparison_shows_disagreement_only() -> None:
    other = report(PASSED, Result("D1a", 4, CheckVerdict.PASS), Result("B1", 9, CheckVerdict.FAIL, "x"), OUT)
    found = differences(WHOLE, other)
    assert [(entry.check, entry.version, entry.is_one_sided) for entry in found] == [("D1a", 4, False), ("B1", 9, True)]


def test_checks_are_well_formed() -> None:
    assert len(CHECKS) >= 120
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.title, check.id
        assert check.expected, check.id
        assert check.source, check.id
        assert check.versions_with(0, 99), f"{check.id} can never run"


def test_error_codes_are_reported_by_name_and_blobs_are_cut() -> None:
    assert readable(HeartbeatResponse(error_code=27)) == {"error_code": "27 REBALANCE_IN_PROGRESS"}
    assert readable({"metadata": b"x" * 100})["metadata"].endswith("(100 bytes)")
    assert readable({"metadata": b"\x00\x01"}) == {"metadata": "0x0001"}


def test_what_reports_hold_is_neither_style_nor_order_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker chooses what is observed of it, and a report may come from an untrusted source."""
    response = "[bold]\x1b[31m" + "long " * 40 + "end"
    fault = replace(FAILED, reason=response, observed=response)
    left, right = tmp_path / "left.json", tmp_path / "right.json"
    left.write_text(report(PASSED, fault, name="[red]one").dump())
    right.write_text(report(PASSED, replace(FAILED, verdict=CheckVerdict.PASS)).dump())
    assert main(["conformance", "compare", str(left), str(right)]) == 1
    conformance._summary(Report.load(left))
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert said.count("[red]one") == 2
    assert said.count("[bold]\\x1b[31mlong") == 2
    assert any(line.startswith("D1a") and "long " * 40 in line for line in said.splitlines())
