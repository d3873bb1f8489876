"""The results of a run, and their lossless form, JSON."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.common.foreign_text import parsed_json
from kohort.conformance.errors import ConformanceError
from kohort.conformance.verdict import CheckVerdict, Result

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """The broker that was judged. `ranges`: API key to its versions. `features`: the finalised ones."""

    address: str
    name: str
    cluster_id: str | None
    brokers: int
    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    @property
    def title(self) -> str:
        return self.name or self.address


@dataclass(frozen=True, slots=True)
class Report:
    """A run's results.

    `ended_early`: the reason why the run was cut short, or "". `left_behind`: objects that could not be cleaned up.
    """

    subject: Subject
    started: str
    took_s: float
    command: str
    results: tuple[Result, ...]
    ended_early: str = ""
    left_behind: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[CheckVerdict, int]:
        found = Counter(result.verdict for result in self.results)
        return {verdict: found[verdict] for verdict in CheckVerdict}

    @property
    def exit_code(self) -> int:
        """0: no failure. 1: a failure. 3: the run ended early, or a part or all of it could not be judged."""
        counts = self.counts
        if self.ended_early:
            return 3
        if counts[CheckVerdict.FAIL]:
            return 1
        judged = counts[CheckVerdict.PASS] + counts[CheckVerdict.DEVIATION]
        return 0 if judged and not counts[CheckVerdict.BLOCKED] else 3

    def dump(self, *, all_frames: bool = False) -> str:
        """Return JSON, with the frames of all cells that did not pass, or of all cells."""
        subject = {
            name: getattr(self.subject, name)
            for name in ("address", "name", "cluster_id", "brokers", "ranges", "features")
        }
        return json.dumps(
            {
                "format": FORMAT,
                "subject": subject,
                "started": self.started,
                "took_s": self.took_s,
                "command": self.command,
                "ended_early": self.ended_early,
                "left_behind": self.left_behind,
                "counts": {verdict.value: count for verdict, count in self.counts.items()},
                "results": [
                    result.as_json(with_frames=all_frames or result.verdict is not CheckVerdict.PASS)
                    for result in self.results
                ],
            },
            indent=1,
        )

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read the output of `dump` from a file, gzipped or not. Raises ConformanceError if it is invalid."""
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise ConformanceError(f"the report cannot be read: {error.strerror}", report=path) from None
        try:
            data: dict[str, Any] = parsed_json(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
            if data["format"] != FORMAT:
                raise ConformanceError(f"it has format {data['format']}, not {FORMAT}", report=path)
            subject = data["subject"]
            return cls(
                subject=Subject(
                    _text(subject["address"]),
                    _text(subject["name"]),
                    subject["cluster_id"],
                    subject["brokers"],
                    {int(key): (low, high) for key, (low, high) in subject["ranges"].items()},
                    subject["features"],
                ),
                started=_text(data["started"]),
                took_s=data["took_s"],
                command=_text(data["command"]),
                results=tuple(Result.from_json(entry) for entry in data["results"]),
                ended_early=_text(data["ended_early"]),
                left_behind=tuple(data["left_behind"]),
            )
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConformanceError(f"this is no report: {error}", report=path) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
