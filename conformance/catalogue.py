"""Every check there is, in the order of reports."""

from kohort.conformance import (
    apiversions,
    commits,
    consumer,
    coordinators,
    describing,
    expiry,
    heartbeats,
    join,
    leaving,
    malformed,
    offsets,
    restarts,
    rights,
    static,
    syncing,
    txn,
)
from kohort.conformance.check import Check, Section

SECTIONS: tuple[Section, ...] = (
    apiversions.SECTION,
    coordinators.SECTION,
    restarts.SECTION,
    join.SECTION,
    syncing.SECTION,
    heartbeats.SECTION,
    leaving.SECTION,
    commits.SECTION,
    rights.SECTION,
    offsets.SECTION,
    txn.FETCH_SECTION,
    expiry.SECTION,
    describing.SECTION,
    static.SECTION,
    txn.SECTION,
    consumer.SECTION,
    malformed.SECTION,
    restarts.FAILOVER_SECTION,
)
CHECKS: tuple[Check, ...] = tuple(check for section in SECTIONS for check in section)
TITLES: dict[str, str] = {section.letter: section.title for section in SECTIONS}
