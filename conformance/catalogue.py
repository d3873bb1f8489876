"""Every check, in the order of reports."""

from kohort.conformance import (
    acls,
    apiversions,
    coordinator_restart,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    kip848,
    leave_group,
    malformed,
    offset_commit,
    offset_fetch,
    offset_retention,
    static_membership,
    sync_group,
    txn_offset_commit,
)
from kohort.conformance.check import Check, Section
from kohort.conformance.share import share_group_members, share_group_offsets, share_groups, share_records
from kohort.conformance.streams import streams_groups

SECTIONS: tuple[Section, ...] = (
    apiversions.SECTION,
    find_coordinator.SECTION,
    coordinator_restart.SECTION,
    join_group.SECTION,
    sync_group.SECTION,
    heartbeat.SECTION,
    leave_group.SECTION,
    offset_commit.SECTION,
    acls.SECTION,
    offset_fetch.SECTION,
    txn_offset_commit.FETCH_SECTION,
    offset_retention.SECTION,
    describe_groups.SECTION,
    static_membership.SECTION,
    txn_offset_commit.SECTION,
    kip848.SECTION,
    share_groups.SECTION,
    share_group_members.SECTION,
    share_records.SECTION,
    share_group_offsets.SECTION,
    streams_groups.SECTION,
    malformed.SECTION,
    coordinator_restart.FAILOVER_SECTION,
)
CHECKS: tuple[Check, ...] = tuple(check for section in SECTIONS for check in section)
TITLES: dict[str, str] = {section.letter: section.title for section in SECTIONS}
