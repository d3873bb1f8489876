"""Cut a release, and check it.

    python .ci/release.py cut 0.2.0      # set the version, cut CHANGELOG, commit, and tag v0.2.0
    python .ci/release.py check v0.2.0   # this tag has the package's version, and a section of CHANGELOG
    python .ci/release.py notes          # print the section of CHANGELOG of the package's version
    python .ci/release.py rehearse DIR   # cut and check a release of a clone of the last commit in DIR

Standard library only. Nothing is pushed: the workflow publishes a tag when it arrives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
VERSION = ROOT / "common" / "version.py"
FORM = r"\d+\.\d+\.\d+((a|b|rc)\d+)?"
UNRELEASED = "Unreleased"
REHEARSED = "9999.0.0"


def version() -> str:
    """The package's version. The package itself is not imported, because it may not be built."""
    return re.findall(r'^__version__ = "(.+)"$', VERSION.read_text(), re.MULTILINE)[0]


def sections() -> dict[str, str]:
    """The sections of CHANGELOG by the first word of their headings: a version, or UNRELEASED."""
    _, *parts = re.split(r"^## (\S+).*\n", CHANGELOG.read_text(), flags=re.MULTILINE)
    return {heading: text.strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)}


def git(*arguments: str) -> str:
    """The output of a git command in the repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def cut(new: str) -> None:
    """Set the version, date the unreleased section, commit both, and tag the commit. Raises SystemExit first."""
    if not re.fullmatch(FORM, new):
        sys.exit(f"{new!r} is no version such as 0.2.0 or 0.2.0rc1")
    if git("status", "--porcelain"):
        sys.exit("The checkout has changes. Commit them first.")
    if git("tag", "--list", f"v{new}"):
        sys.exit(f"The tag v{new} exists.")
    if not sections().get(UNRELEASED):
        sys.exit(f"CHANGELOG.md has no entry under '## {UNRELEASED}'.")
    heading = f"## {UNRELEASED}\n\n## {new} ({datetime.now(UTC):%Y-%m-%d})\n"
    CHANGELOG.write_text(CHANGELOG.read_text().replace(f"## {UNRELEASED}\n", heading, 1))
    VERSION.write_text(VERSION.read_text().replace(f'"{version()}"', f'"{new}"'))
    git("commit", "--all", "--message", f"Release {new}")
    git("tag", "--annotate", f"v{new}", "--message", f"kohort {new}")
    print(f"Tagged v{new}. To publish it: git push --follow-tags")


def check(tag: str) -> None:
    """Raise SystemExit if `tag` is not the package's version, or CHANGELOG has no section of it."""
    if tag != f"v{version()}":
        sys.exit(f"The tag {tag} is not the package's version {version()}. Use `make release VERSION={tag[1:]}`.")
    if not sections().get(version()):
        sys.exit(f"CHANGELOG.md has no section of {version()}.")


def notes() -> None:
    """Print the section of CHANGELOG of the package's version."""
    print(sections()[version()])


def rehearse(folder: str) -> None:
    """Clone the last commit, then cut and check a release there. The checkout keeps its version and its tags."""
    shutil.rmtree(folder, ignore_errors=True)
    git("clone", "--quiet", str(ROOT), str(Path(folder).resolve()))
    who = {f"GIT_{role}_{name}": "rehearsal" for role in ("AUTHOR", "COMMITTER") for name in ("NAME", "EMAIL")}
    for arguments in (("cut", REHEARSED), ("check", f"v{REHEARSED}"), ("notes",)):
        subprocess.run([sys.executable, f"{folder}/.ci/release.py", *arguments], env=os.environ | who, check=True)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    {"cut": cut, "check": check, "notes": notes, "rehearse": rehearse}[name](*arguments)
