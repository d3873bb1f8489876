"""A release is cut by one command, and a tag that does not fit is refused. Workflows call targets that exist."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEW = "77.0.0rc1"
NAMED = {f"GIT_{role}_{name}": "a tester" for role in ("AUTHOR", "COMMITTER") for name in ("NAME", "EMAIL")}

Release = Callable[..., "subprocess.CompletedProcess[str]"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | NAMED, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that a release reads and writes."""
    for name in (".ci/release.py", "common/version.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "a start")
    return tmp_path


@pytest.fixture
def release(checkout: Path) -> Release:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(checkout / ".ci" / "release.py"), *arguments]
        return subprocess.run(command, env=os.environ | NAMED, capture_output=True, text=True, check=False)

    return run


def test_a_release_has_its_version_its_section_its_commit_and_its_tag(checkout: Path, release: Release) -> None:
    before = (checkout / "CHANGELOG.md").read_text()
    assert release("cut", NEW).returncode == 0
    text = (checkout / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[:2] == ["Unreleased", NEW]
    entries = before.split("## Unreleased\n")[1]
    assert text.endswith(entries)
    assert f'"{NEW}"' in (checkout / "common" / "version.py").read_text()
    assert git(checkout, "describe", "--exact-match") == f"v{NEW}\n"
    assert git(checkout, "status", "--porcelain") == ""
    assert release("check", f"v{NEW}").returncode == 0
    assert release("notes").stdout.strip() == entries.strip()
    assert "no entry under '## Unreleased'" in release("cut", "78.0.0").stderr


def test_a_tag_without_its_version_or_its_section_is_refused(checkout: Path, release: Release) -> None:
    assert "is not the package's version" in release("check", f"v{NEW}").stderr
    (checkout / "common" / "version.py").write_text(f'__version__ = "{NEW}"\n')
    assert "has no section" in release("check", f"v{NEW}").stderr


@pytest.mark.parametrize(
    ("prepare", "version", "error"),
    [
        (lambda folder: None, "1.2", "no version"),
        (lambda folder: git(folder, "tag", f"v{NEW}"), NEW, "exists"),
        (lambda folder: (folder / "CHANGELOG.md").write_text("# Changelog\n"), NEW, "has changes"),
    ],
    ids=["no version", "a tag that exists", "changes"],
)
def test_a_cut_that_cannot_be_right_changes_nothing(
    checkout: Path, release: Release, prepare: Callable[[Path], object], version: str, error: str
) -> None:
    prepare(checkout)
    state = git(checkout, "status", "--porcelain"), git(checkout, "tag"), git(checkout, "rev-parse", "HEAD")
    assert error in release("cut", version).stderr
    assert (git(checkout, "status", "--porcelain"), git(checkout, "tag"), git(checkout, "rev-parse", "HEAD")) == state


def test_workflows_call_targets_that_the_makefile_has() -> None:
    called = {
        target
        for path in (ROOT / ".github" / "workflows").iterdir()
        for line in re.findall(r"make ((?:[a-z-]+ ?)+)", path.read_text())
        for target in line.split()
    }
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(called) >= 5
    assert called <= targets
