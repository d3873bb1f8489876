"""Share sessions and acknowledgements as values: epochs, lists of partitions, ranges."""

from uuid import UUID

import pytest

from kohort.fastpath import decode, encode
from kohort.share_consumer.share_records import (
    AcknowledgeType,
    AckRange,
    AcquiredRange,
    SessionLife,
    SharePartition,
    ShareRecords,
    acknowledge_type,
    acquired_part,
    merged,
)
from kohort.share_consumer.share_session import INT32_MAX, ShareSession

A, B = SharePartition(UUID(int=1), 0), SharePartition(UUID(int=1), 1)


def batch(size: int = 5, *, last: int | None = None, missing: int = 0) -> ShareRecords:
    """Records 0 to `size` - 1, acquired up to `last`."""
    columns = decode(encode([(b"", b"v")] * size), topic="work", partition=0)
    end = size - 1 if last is None else last
    return ShareRecords(columns, 0, end, 1, A, SessionLife(1), 10.0, missing)


def acks(first: int, last: int, kind: int = 1) -> AckRange:
    return AckRange(first, last, bytes([kind]) * (last - first + 1), batch())


@pytest.mark.proves("SH-24", "SH-25", "SH-30")
def test_epochs_grow_by_one_and_only_changes_are_listed() -> None:
    session = ShareSession(1)
    assert session.fetch(frozenset({A, B})) == (0, (A, B), (), {})
    session.responded()
    assert session.fetch(frozenset({A, B})) == (1, (), (), {})
    session.responded()
    assert session.fetch(frozenset({A})) == (2, (), (B,), {})
    session.responded()
    session.wait(A, [acks(0, 4)], 1.0)
    found = session.acknowledge()
    assert (found.epoch, found.added, list(found.acks)) == (3, (), [A])
    assert session.waiting == {}


@pytest.mark.proves("SH-25")
def test_the_epoch_after_the_largest_is_one() -> None:
    session = ShareSession(1)
    session.epoch = INT32_MAX
    session.responded()
    assert session.epoch == 1


@pytest.mark.proves("SH-28")
def test_a_lost_session_opens_again_with_all_partitions_and_its_acknowledgements_are_void() -> None:
    session = ShareSession(1)
    session.fetch(frozenset({A}))
    session.responded()
    life = session.life
    session.wait(A, [acks(0, 1)], 1.0)
    assert list(session.lost()) == [A]
    assert (life.alive, session.life.alive, session.waiting) == (False, True, {})
    assert session.fetch(frozenset({A})) == (0, (A,), (), {})


@pytest.mark.proves("SH-31")
def test_acknowledgements_ride_only_on_a_fetch_of_their_partitions_and_renewals_never() -> None:
    session = ShareSession(1)
    session.wait(B, [acks(0, 1)], 1.0)
    assert not session.may_ride(frozenset({A}))
    assert session.may_ride(frozenset({A, B}))
    session.wait(B, [acks(2, 2, AcknowledgeType.RENEW)], 1.0)
    assert not session.may_ride(frozenset({A, B}))


def test_ranges_are_sent_in_order_with_one_type_if_all_are_equal() -> None:
    session = ShareSession(1)
    records = batch()
    records.acknowledge(AcknowledgeType.ACCEPT)
    records.acknowledge(AcknowledgeType.REJECT, 3)
    session.wait(A, [acks(10, 11), *records.take_typed()], 1.0)
    found = session.close()
    assert found.epoch == -1
    assert [(one.first_offset, one.last_offset, one.wire_types) for one in found.acks[A]] == [
        (0, 4, (1, 1, 1, 3, 1)),
        (10, 11, (1,)),
    ]


def test_a_record_is_acknowledged_once_and_the_last_call_before_it_is_sent_counts() -> None:
    records = batch()
    assert records.acknowledge(AcknowledgeType.REJECT, 2)
    assert records.acknowledge(AcknowledgeType.ACCEPT, 2)
    assert records.pending == 4
    assert [(one.first_offset, one.types) for one in records.take_typed()] == [(2, b"\x01")]
    assert not records.acknowledge(AcknowledgeType.ACCEPT, 2)
    assert not records.acknowledge(AcknowledgeType.ACCEPT, 9)
    records.accept_pending()
    assert [(one.first_offset, one.last_offset) for one in records.take_typed()] == [(0, 1), (3, 4)]
    assert records.settled


@pytest.mark.proves("SH-70")
def test_acquired_offsets_without_a_record_are_gaps() -> None:
    records = batch(3, last=5)
    assert (len(records), records.last_offset, records.pending) == (3, 5, 3)
    assert [(one.first_offset, one.last_offset, one.types) for one in records.take_typed()] == [(3, 5, b"\0\0\0")]


def test_a_renewed_record_is_acknowledged_again_and_not_accepted_by_itself() -> None:
    records = batch()
    records.acknowledge(AcknowledgeType.RENEW, 1)
    (renewal,) = records.take_typed()
    assert renewal.renews
    records.renewed([renewal], 50.0)
    assert (records.pending, records.lock_until, records.settled) == (4, 10.0, False)
    records.accept_pending()
    assert [one.first_offset for one in records.take_typed()] == [0, 2]
    assert records.acknowledge(AcknowledgeType.ACCEPT, 1)


def test_a_record_whose_renewal_has_failed_is_settled_unless_more_is_noted() -> None:
    records = batch()
    records.acknowledge(AcknowledgeType.RENEW)
    (renewal,) = records.take_typed()
    records.acknowledge(AcknowledgeType.ACCEPT, 1)
    records.not_renewed(renewal)
    assert not records.acknowledge(AcknowledgeType.ACCEPT, 0)
    assert [(one.first_offset, one.last_offset) for one in records.take_typed()] == [(1, 1)]
    assert records.settled


@pytest.mark.proves("SH-81")
def test_a_renewal_of_some_records_is_none_of_the_others() -> None:
    records = batch()
    records.acknowledge(AcknowledgeType.RENEW, 1)
    (by_hand,) = records.take_typed()
    assert records.hold()
    records.renewed([by_hand], 50.0)
    assert (records.lock_until, records.held_until) == (10.0, 10.0)
    records.renewed(records.held(), 60.0)
    assert (records.lock_until, records.held_until) == (10.0, 60.0)
    records.acknowledge(AcknowledgeType.RENEW)
    records.renewed(records.take_typed(), 70.0)
    assert records.lock_until == 70.0


@pytest.mark.proves("SH-37")
def test_only_acquired_records_are_in_a_batch() -> None:
    columns = decode(encode([(b"", b"%d" % i) for i in range(10)]), topic="work", partition=0)
    assert list(acquired_part(columns, AcquiredRange(3, 5, 1)).offsets) == [3, 4, 5]
    assert list(acquired_part(columns, AcquiredRange(8, 20, 1)).offsets) == [8, 9]
    assert len(acquired_part(columns, AcquiredRange(20, 30, 1))) == 0


def test_adjacent_ranges_with_one_delivery_count_are_joined() -> None:
    ranges = (AcquiredRange(0, 1, 1), AcquiredRange(2, 3, 1), AcquiredRange(4, 4, 2), AcquiredRange(6, 7, 2))
    assert merged(ranges) == [AcquiredRange(0, 3, 1), AcquiredRange(4, 4, 2), AcquiredRange(6, 7, 2)]


def test_an_unknown_type_is_refused() -> None:
    assert acknowledge_type("reject") is AcknowledgeType.REJECT
    for wrong in ("ACCEPT!", "gap", 0, None):
        with pytest.raises(ValueError, match="accept, release, reject, renew"):
            acknowledge_type(wrong)  # type: ignore[arg-type]
