"""Findings of rules."""

from enum import StrEnum
from functools import partial

from kohort.common.named_tuple import NamedTuple


class Severity(StrEnum):
    """The severity of a finding.

    ERROR: it does not work, or records are lost. WARNING: it will fail at some time. NOTE: for information, without
    effect on the exit code.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """A finding, in sentences: `what` is wrong, `where` in the cluster or the settings, and what to `do`."""

    severity: Severity
    what: str
    where: str
    do: str


error = partial(Finding, Severity.ERROR)
warning = partial(Finding, Severity.WARNING)
note = partial(Finding, Severity.NOTE)
