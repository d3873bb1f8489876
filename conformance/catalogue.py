"""Every check there is, in the order of reports."""

from kohort.conformance import (
    apiversions,
    commits,
    coordinators,
    describing,
    heartbeats,
    join,
    leaving,
    malformed,
    offsets,
    static,
    syncing,
)
from kohort.conformance.check import Check, Section

SECTIONS: tuple[Section, ...] = (
    apiversions.SECTION,
    coordinators.SECTION,
    join.SECTION,
    syncing.SECTION,
    heartbeats.SECTION,
    leaving.SECTION,
    commits.SECTION,
    offsets.SECTION,
    describing.SECTION,
    static.SECTION,
    malformed.SECTION,
)
CHECKS: tuple[Check, ...] = tuple(check for section in SECTIONS for check in section)
