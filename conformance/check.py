"""One check as data, and the table that a section's file fills.

A check has a subject, the API that it judges. It runs once for every version of the subject that both sides support.
Its other requests use the highest common version, so that a failure points at the subject's version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from kohort.common.whole_number import whole
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import SelectionError
from kohort.protocol.catalogue import API
from kohort.protocol.schema import Versions

Probe = Callable[[CheckContext], Awaitable[None]]


class CheckKind(Enum):
    """The condition that a check's result depends on."""

    MUST = "every broker must do so"
    VERSIONED = "what is expected depends on the API version"
    CONFIG = "depends on a broker's setting, which is read first"
    TIMING = "waits for a timer of the broker"
    SHOULD = "good practice, which no specification requires"


class Need(Enum):
    """A precondition of a check. The runner reports the ones that are missing."""

    TOPIC = "a topic, which the run may create"
    CLUSTER = "more than one broker"
    SETTINGS = "the broker's settings, from DescribeConfigs"
    CONSUMER = "the consumer group protocol of KIP-848, switched on"
    NO_CONSUMER = "the consumer group protocol of KIP-848, supported and switched off"
    SHARE = "share groups (KIP-932), switched on"
    STREAMS = "streams groups (KIP-1071), switched on"
    TRACES = "permission to leave a group that the broker cannot delete (--leave-traces)"
    STRANGER = "a user without rights (--stranger NAME:PASSWORD)"
    OPERATOR = "commands that stop and start brokers (--stop-command and --start-command, or --start)"


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    `id`: section letter, row, and a letter if a row has several. `versions`: the subject's versions that the rule is
    about, as Kafka writes ranges. `apis`: further required APIs, each "Name" or "Name N+". `limit_s`: its time-out.
    """

    id: str
    title: str
    subject: str
    versions: str
    kind: CheckKind
    source: str
    expected: str
    probe: Probe
    apis: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset()
    once: bool = False
    note: str = ""
    limit_s: float = 60.0

    def versions_with(self, low: int, high: int) -> tuple[int, ...]:
        """Return the versions to run for a broker that supports `low` to `high`, only the highest if `once`."""
        ours_low, ours_high = API[self.subject].versions
        rule = Versions.of(self.versions)
        found = tuple(v for v in range(max(low, ours_low), min(high, ours_high) + 1) if v in rule)
        return found[-1:] if self.once else found

    @property
    def is_timed(self) -> bool:
        """True if it waits for a timer of the broker's."""
        return self.kind is CheckKind.TIMING

    @property
    def section(self) -> str:
        return self.id[0]


class Section:
    """The checks of one file, in the order of the file."""

    def __init__(self, letter: str, title: str, subject: str) -> None:
        self.letter = letter
        self.title = title
        self.subject = subject
        self._checks: dict[str, Check] = {}

    def check(
        self,
        id: str,  # noqa: A002  # it is the column's name
        title: str,
        *,
        expected: str,
        source: str,
        versions: str = "0+",
        subject: str | None = None,
        kind: CheckKind = CheckKind.MUST,
        apis: tuple[str, ...] = (),
        needs: tuple[Need, ...] = (),
        once: bool = False,
        note: str = "",
        limit_s: float = 60.0,
    ) -> Callable[[Probe], Probe]:
        """Register the decorated function as a check. A duplicate name is an error."""

        def enter(probe: Probe) -> Probe:
            if id in self._checks or not id.startswith(self.letter):
                raise ValueError(f"{id} is taken, or is not of section {self.letter}")
            self._checks[id] = Check(
                id,
                title,
                subject or self.subject,
                versions,
                kind,
                source,
                expected,
                probe,
                apis,
                frozenset(needs),
                once,
                note,
                limit_s,
            )
            return probe

        return enter

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks.values())


Pattern = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Selection:
    """The cells to run: `B*`, `C3` (with C3a, C3b, ...), or `B4@5` for one version. Empty selects all."""

    wanted: tuple[Pattern, ...] = ()
    skipped: tuple[Pattern, ...] = ()

    @classmethod
    def of(cls, only: str, checks: tuple[Check, ...], skip: str = "") -> Selection:
        """Parse comma-separated lists. Raises SelectionError for a pattern that matches no check."""
        return cls(_patterns(only, checks), _patterns(skip, checks))

    def takes(self, check: Check, version: int) -> bool:
        """True if the cell is selected. Version -1 means a check that does not run."""
        if _any(self.skipped, check, version):
            return False
        return not self.wanted or _any(self.wanted, check, version)


def _patterns(text: str, checks: tuple[Check, ...]) -> tuple[Pattern, ...]:
    found: list[Pattern] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, version = entry.partition("@")
        number = whole(version)
        if version and number is None:
            raise SelectionError(f"{entry!r}: {version!r} is no version", hint="write it like B4@5")
        if not any(_matches(name, check.id) for check in checks):
            raise SelectionError(f"no check matches {entry!r}", hint="run `kohort conformance list` for a list")
        found.append((name, number))
    return tuple(found)


def _any(patterns: tuple[Pattern, ...], check: Check, version: int) -> bool:
    return any(_matches(name, check.id) and only in (None, version) for name, only in patterns)


def _matches(pattern: str, identity: str) -> bool:
    row = identity.rstrip("abcdefghijklmnopqrstuvwxyz")
    return fnmatchcase(identity.lower(), pattern.lower()) or pattern.upper() == row
