"""The output of a run, as lines: those that say what happened, and at most one a second for what moves."""

import time
from pathlib import Path

from kohort.cli.demo.ledger import GroupHistory
from kohort.cli.demo.outcome import DemoOutcome

PROGRESS_EVERY_S = 1.0


class Screen:
    """Lines on standard output."""

    def __init__(self) -> None:
        self._next = 0.0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def progress(self, text: str) -> None:
        """Print `text` if the last progress is a second ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_S
            self.say(f"  {text}")

    def group(self, history: GroupHistory) -> None:
        """Print counts of records, and each member with its partitions or its state."""
        members = (f"{one.name} {' '.join(map(str, one.partitions)) or one.state}" for one in history.members.values())
        counts = f"{history.read:,} read, {history.reread:,} twice, {history.unsaved:,} to save"
        self.progress(f"{counts}: {', '.join(members)}")

    def outcome(self, outcome: DemoOutcome, report: Path) -> None:
        """Print the verdict."""
        for text, holds in outcome.claims:
            self.say(f"  {'yes' if holds else 'NO '}  {text}")
        for one in outcome.readings:
            self.say(f"  {one.reader}: {one.per_second:,.0f} records/s, after {one.prepared_s:.1f} s to get ready")
        self.say(f"The totals are {'equal' if outcome.equal else 'NOT EQUAL'}")
        self.say(f"Report: {report}")
