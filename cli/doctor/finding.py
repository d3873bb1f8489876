"""What a rule finds."""

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """ERROR: it does not work, or records are lost. WARNING: it will not, some day. NOTE: good to know; no finding for
    the exit code."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """`what` is wrong, `where` in the cluster or the settings, and what to `do`: sentences for people."""

    severity: Severity
    what: str
    where: str
    do: str
