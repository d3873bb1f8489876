"""`kohort conformance` with files and brokers that cannot be used."""

import json
from pathlib import Path

import pytest

from kohort.cli.main import main
from kohort.testing import FakeBroker

COULD_NOT_JUDGE = 3


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code, and what is printed on standard error."""
    with FakeBroker() as broker:
        code = main(["conformance", "-b", broker.bootstrap, "--only", "D3a@4", *arguments])
    return code, " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_the_error_of_an_authority_names_its_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    code, errors = run(capsys, "--ca", str(file))
    assert code == COULD_NOT_JUDGE
    assert f"path={file}" in errors


def test_a_wrong_selection_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "-b", "localhost:1", "--skip", "D1,none"]) == 2
    errors = capsys.readouterr().err
    assert "--skip" in errors
    assert "no check matches 'none'" in errors


def test_a_selection_may_be_given_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as broker:
        parts = ["--only", "D3a@4", "--only", "D1a@4,B9@5", "--skip", "B9", "--skip", "C*"]
        assert main(["conformance", "-b", broker.bootstrap, *parts, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert sorted((one["check"], one["version"]) for one in results) == [("D1a", 4), ("D3a", 4)]


@pytest.mark.parametrize("options", [["--only", "D3a@99"], ["--only", "D3a", "--skip", "D*"]])
def test_a_selection_of_nothing_is_no_judgement(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    with FakeBroker() as broker:
        assert main(["conformance", "-b", broker.bootstrap, *options]) == COULD_NOT_JUDGE
    assert "the run ended early: the selection has no check" in capsys.readouterr().out


def test_a_report_without_a_file_name_is_refused_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, errors = run(capsys, "--output", "", "--report", "json")
    assert code == 2
    assert "--output" in errors


def test_a_report_that_cannot_be_written_is_no_failure_of_the_broker(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, errors = run(capsys, "--output", str(tmp_path / "file" / "report"), "--report", "json")
    assert code == COULD_NOT_JUDGE
    assert "the file cannot be written: File exists" in errors


def test_a_report_that_cannot_be_written_is_found_before_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "folder.json").mkdir()
    requested = ["conformance", "-b", "localhost:1", "--report", "json", "--output"]
    assert main([*requested, str(tmp_path / "folder")]) == COULD_NOT_JUDGE
    assert "the file cannot be written: Is a directory" in capsys.readouterr().err
    (tmp_path / "before.json").write_text("an earlier report")
    for name in ("before", "new"):
        assert main([*requested, str(tmp_path / name)]) == COULD_NOT_JUDGE
        assert "cannot connect" in capsys.readouterr().err
    assert (tmp_path / "before.json").read_text() == "an earlier report"
    assert not (tmp_path / "new.json").exists()


def test_a_broker_that_cannot_be_started_is_no_failure_of_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--start", "no-version", "--only", "D3a@4"]) == COULD_NOT_JUDGE
    assert "'no-version' is no version of Apache Kafka" in capsys.readouterr().err


def test_a_profile_of_other_bytes_is_one_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_bytes(b'name = "\xff"')
    code, errors = run(capsys, "--profile", str(profile))
    assert code == COULD_NOT_JUDGE
    assert "the profile cannot be read" in errors


def test_files_that_are_not_there_are_one_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert run(capsys, "--profile", str(absent)) == (
        COULD_NOT_JUDGE,
        f"kohort: error: the profile cannot be read: No such file or directory (profile={absent})",
    )
    assert main(["conformance", "compare", str(absent), str(absent)]) == COULD_NOT_JUDGE
    error = f"kohort: error: the report cannot be read: No such file or directory (report={absent})\n"
    assert capsys.readouterr().err == error
