"""Known and accepted deviations of a broker, each with its reason.

name = "Some broker 1.2"

[[deviation]]
check = "B16"
versions = "0+"                  # left out: all
reason = "documented in ..."
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from kohort.conformance.errors import ProfileError
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.protocol.schema import Versions


@dataclass(frozen=True, slots=True)
class Deviation:
    check: str
    versions: Versions
    reason: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A broker's name for reports, and its accepted deviations."""

    name: str = ""
    deviations: tuple[Deviation, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a profile. Raises ProfileError if it is invalid."""
        try:
            with path.open("rb") as file:
                data = tomllib.load(file)
        except OSError as error:
            raise ProfileError(f"the profile cannot be read: {error.strerror}", profile=path) from None
        except (ValueError, RecursionError) as error:  # ValueError: also bytes that are not UTF-8
            raise ProfileError(f"the profile cannot be read: {error}", profile=path) from None
        unknown = set(data) - {"name", "deviation"}
        if unknown:
            raise ProfileError(
                f"unknown keys: {', '.join(sorted(unknown))}", profile=path, hint="use `name` and `[[deviation]]`"
            )
        deviations = []
        entries = data.get("deviation", [])
        for entry in entries if isinstance(entries, list) else [entries]:
            if not _is_deviation(entry):
                raise ProfileError(
                    f"not a deviation: {entry}", profile=path, hint="give it `check`, `reason` and perhaps `versions`"
                )
            try:
                versions = Versions.of(entry.get("versions", "0+"))
            except ValueError:
                raise ProfileError(
                    f"{entry['versions']!r} is no range", profile=path, hint='use "0+", "2-4" or "7"'
                ) from None
            deviations.append(Deviation(entry["check"], versions, entry["reason"]))
        return cls(str(data.get("name", "")), tuple(deviations))

    def judge(self, result: Result) -> Result:
        """Return the result, or a deviation if it failed as declared. A declared cell that passes is marked."""
        for entry in self.deviations:
            if entry.check == result.check and result.version in entry.versions:
                if result.verdict is CheckVerdict.FAIL:
                    return replace(result, verdict=CheckVerdict.DEVIATION, reason=f"{entry.reason} ({result.reason})")
                if result.verdict is CheckVerdict.PASS:
                    return replace(result, reason="passes, although the profile declares a deviation")
        return result


def _is_deviation(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and {"check", "reason"} <= entry.keys() <= {"check", "versions", "reason"}
        and all(isinstance(text, str) and text for text in entry.values())
    )
