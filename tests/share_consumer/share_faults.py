"""Deliberate faults of the share consumer and of the fake broker: each must violate an invariant of the simulation.

A fault is a function that replaces parts for the length of a test, by pytest's monkeypatch.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.share_consumer import share_fetcher
from kohort.share_consumer.share_core import ShareConsumerCore
from kohort.share_consumer.share_fetcher import ParkedFetch, ShareFetcher
from kohort.share_consumer.share_member import ShareMember
from kohort.share_consumer.share_records import ShareRecords
from kohort.share_consumer.share_session import ShareSession
from kohort.testing.fake_broker.share_partition import FakeSharePartition, InFlight, OffsetState
from kohort.testing.fake_broker.shares import FakeShares

Fault = Callable[[pytest.MonkeyPatch], None]


def epoch_stays(patch: pytest.MonkeyPatch) -> None:
    """The session epoch does not grow."""
    patch.setattr(ShareSession, "responded", lambda self: setattr(self, "in_flight", False))


def two_requests_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A request in flight does not stop the next one."""

    def begin(self: ShareSession) -> int:
        return self.epoch

    patch.setattr(ShareSession, "_begin", begin)


def old_life_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements of a lost session are sent in the next one."""

    def lost(self: ShareSession) -> dict[Any, Any]:
        self.in_flight, self.epoch, self.partitions = False, 0, frozenset()
        void, self.waiting, self.waiting_since = self.waiting, {}, None
        return void

    patch.setattr(ShareSession, "lost", lost)


def expired_records_are_returned(patch: pytest.MonkeyPatch) -> None:
    """Parked records whose lock has run out are not dropped."""
    patch.setattr(ShareFetcher, "ready", lambda self, now: list(self.parked))


def held_records_are_not_renewed(patch: pytest.MonkeyPatch) -> None:
    """Held records are believed to be locked, without a renewal."""
    hold = ShareFetcher.hold

    def held(self: ShareFetcher, batch: ShareRecords) -> bool:
        taken = hold(self, batch)
        batch.held_until = batch.renew_at = inf
        return taken

    patch.setattr(ShareFetcher, "hold", held)


def a_held_record_of_a_lost_session_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A session that has ended keeps its life, so that held records seem to be locked."""

    def lost(self: ShareSession) -> dict[Any, Any]:
        self.in_flight, self.epoch, self.partitions = False, 0, frozenset()
        self.waiting, self.waiting_since = {}, None
        return {}

    patch.setattr(ShareSession, "lost", lost)


def lock_counts_from_the_response(patch: pytest.MonkeyPatch) -> None:
    """The lock is believed to last for ever."""
    made = ParkedFetch.__init__

    def init(self: ParkedFetch, *given: Any) -> None:
        made(self, *given)
        self.lock_until += 100.0

    patch.setattr(ParkedFetch, "__init__", init)


def what_waits_for_the_next_part_is_a_gap(patch: pytest.MonkeyPatch) -> None:
    """Acquired records above the limit of one decoding are acknowledged as gaps."""
    patch.setattr(share_fetcher, "split", lambda ranges, _offset: (ranges, []))


def parked_records_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """Records are accepted before a poll has returned them."""
    begin = ShareConsumerCore.begin_commit

    def commit(self: ShareConsumerCore, handed: Any, now: float) -> None:
        for one in self.fetcher.ready(now):
            if one.batches is None:
                share_fetcher.decode_parked(one, 1 << 20)
        self.fetcher.take([batch for one in self.fetcher.parked for batch in one.batches or ()])
        for batch in self.fetcher.held():
            batch.accept_pending()
        begin(self, handed, now)

    patch.setattr(ShareConsumerCore, "begin_commit", commit)


def release_is_success_of_accept(patch: pytest.MonkeyPatch) -> None:
    """A release is reported as an acceptance."""
    report = ShareFetcher._report

    def reported(self: ShareFetcher, place: Any, acks: Iterable[Any], error: Any) -> None:
        report(self, place, [one._replace(types=one.types.replace(b"\2", b"\1")) for one in acks], error)

    patch.setattr(ShareFetcher, "_report", reported)


def failure_is_success(patch: pytest.MonkeyPatch) -> None:
    """Failed acknowledgements are reported as successful."""
    report = ShareFetcher._report
    patch.setattr(ShareFetcher, "_report", lambda self, place, acks, _error: report(self, place, acks, None))


def release_is_sent_as_reject(patch: pytest.MonkeyPatch) -> None:
    """A release is sent as an acknowledgement of a gap."""
    batches = share_fetcher._batches

    def sent(acks: Iterable[Any]) -> Any:
        return batches([one._replace(types=one.types.replace(b"\2", b"\0")) for one in acks])

    patch.setattr(share_fetcher, "_batches", sent)


def records_of_a_lost_session_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Records whose session was lost right after their poll are acknowledged without an outcome."""
    keep = ShareFetcher._keep

    def kept(self: ShareFetcher, batch: ShareRecords) -> None:
        if batch.session.alive:
            keep(self, batch)

    patch.setattr(ShareFetcher, "_keep", kept)


def gaps_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Records that are not acknowledged are settled as gaps."""

    def accept(self: ShareRecords) -> None:
        self._types = self._types.replace(b"\xff", b"\0")

    patch.setattr(ShareRecords, "accept_pending", accept)


def acknowledgements_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements that wait are dropped when a request is made."""
    patch.setattr(ShareSession, "_taken", lambda _self: {})


def fenced_member_stays_out(patch: pytest.MonkeyPatch) -> None:
    """A member that was fenced does not join again."""
    patch.setattr(ShareMember, "_on_error", lambda _self, _response, _now: False)


def lost_assignment_is_not_requested(patch: pytest.MonkeyPatch) -> None:
    """A session with an error is never opened again."""
    patch.setattr(ShareFetcher, "_session_lost", lambda *_given, **_named: None)


def delivery_count_stays(patch: pytest.MonkeyPatch) -> None:
    """The broker does not count deliveries."""
    acquire = FakeSharePartition.acquire

    def acquired(self: FakeSharePartition, *given: Any, **named: Any) -> Any:
        return [one._replace(deliveries=1) for one in acquire(self, *given, **named)]

    patch.setattr(FakeSharePartition, "acquire", acquired)


def limit_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """The broker delivers beyond the limit."""

    def back(_self: FakeSharePartition, one: InFlight, _limits: Any) -> None:
        one.state, one.member = OffsetState.AVAILABLE, None

    patch.setattr(FakeSharePartition, "_return", back)


def accept_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """The broker forgets acknowledgements that it has confirmed."""
    patch.setattr(FakeSharePartition, "acknowledge", lambda *_given: ErrorCode.NONE)


def expiry_archives(patch: pytest.MonkeyPatch) -> None:
    """The broker archives the records of an expired lock."""

    def back(_self: FakeSharePartition, one: InFlight, _limits: Any) -> None:
        one.state, one.member = OffsetState.ARCHIVED, None

    patch.setattr(FakeSharePartition, "_return", back)


def locks_never_expire(patch: pytest.MonkeyPatch) -> None:
    """The broker never returns the records of a member that died."""
    patch.setattr(FakeSharePartition, "expire", lambda _self, _now, _limits: False)
    patch.setattr(FakeShares, "close", lambda self, key: self.sessions.pop(key, None))


FAULTS: tuple[Fault, ...] = (
    epoch_stays,
    two_requests_in_flight,
    old_life_goes_on,
    expired_records_are_returned,
    held_records_are_not_renewed,
    a_held_record_of_a_lost_session_is_forgotten,
    lock_counts_from_the_response,
    what_waits_for_the_next_part_is_a_gap,
    parked_records_are_accepted,
    release_is_success_of_accept,
    failure_is_success,
    release_is_sent_as_reject,
    records_of_a_lost_session_are_not_kept,
    gaps_everywhere,
    acknowledgements_are_forgotten,
    fenced_member_stays_out,
    lost_assignment_is_not_requested,
    delivery_count_stays,
    limit_is_ignored,
    accept_is_not_durable,
    expiry_archives,
    locks_never_expire,
)
