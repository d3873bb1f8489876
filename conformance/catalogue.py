"""Every check there is, in the order of reports."""

from kohort.conformance import (
    apiversions,
    commits,
    consumer,
    coordinators,
    describing,
    heartbeats,
    join,
    leaving,
    malformed,
    offsets,
    static,
    syncing,
    txn,
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
    txn.FETCH_SECTION,
    describing.SECTION,
    static.SECTION,
    txn.SECTION,
    consumer.SECTION,
    malformed.SECTION,
)
CHECKS: tuple[Check, ...] = tuple(check for section in SECTIONS for check in section)
TITLES: dict[str, str] = {section.letter: section.title for section in SECTIONS}
