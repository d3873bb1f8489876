"""The result of one check in one version."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kohort.conformance.frame_log import Frame


class CheckVerdict(Enum):
    """The verdict of a cell. `BLOCKED` is no pass: its set-up failed, which another check reports."""

    PASS = "pass"
    FAIL = "fail"
    DEVIATION = "deviation"
    NOT_APPLICABLE = "not applicable"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one cell. `version` is -1 if the check did not run.

    `reason`: of a verdict other than pass. `what`, `expected` and `observed`: of a failure.
    """

    check: str
    version: int
    verdict: CheckVerdict
    reason: str = ""
    what: str = ""
    expected: str = ""
    observed: str = ""
    took_ms: int = 0
    frames: tuple[Frame, ...] = field(default=(), repr=False)

    @property
    def cell(self) -> str:
        """The name of the cell, such as `B4@5`, as --only takes it."""
        return f"{self.check}@{self.version}" if self.version >= 0 else self.check

    def as_json(self, *, with_frames: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {"check": self.check, "version": self.version, "verdict": self.verdict.value}
        entry |= {name: value for name in ("reason", "what", "expected", "observed") if (value := getattr(self, name))}
        entry["took_ms"] = self.took_ms
        if with_frames and self.frames:
            entry["frames"] = [frame.as_json() for frame in self.frames]
        return entry

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Result:
        frames = tuple(Frame.from_json(each) for each in entry.get("frames", ()))
        rest = {name: value for name, value in entry.items() if name not in ("frames", "verdict")}
        kinds = dict.fromkeys(("version", "took_ms"), int)
        for name, value in rest.items():
            if not isinstance(value, kinds.get(name, str)):
                raise TypeError(f"{name} is {value!r}")
        return cls(**rest, verdict=CheckVerdict(entry["verdict"]), frames=frames)
