"""The client side of a share session with one broker (KIP-932). No clock, no I/O.

The first request has epoch 0 and no acknowledgements. Each later request has the next epoch. One request is in flight.
When the session is lost, records that were acquired in it are released by the broker. So a session has a `life`, and
acknowledgements belong to one life.

A broker may still have a lost session, because it notices the end of a connection late. It may also keep records of it,
because a new session keeps the locks of its member. Such records are `stale`. They are released by a session for their
partitions, which is opened without a fetch of records and closed at once.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from kohort.share_consumer.share_records import AckRange, SessionLife, SharePartition

OPENING: Final = 0
CLOSING: Final = -1
INT32_MAX: Final = 2**31 - 1


class SessionRequest(NamedTuple):
    """The session part of one request.

    `added` and `forgotten`: changes of the broker's list of partitions. `acks`: acknowledgements, in order of offset.
    """

    epoch: int
    added: tuple[SharePartition, ...]
    forgotten: tuple[SharePartition, ...]
    acks: Mapping[SharePartition, tuple[AckRange, ...]]


class ShareSession:
    """The session with one broker: its epoch, its partitions, and the acknowledgements that wait.

    `renew_at`: the time (monotonic s) at which the first of its held batches is due. `stale`: partitions in which the
    broker may keep records of a lost session for this member, until their locks expire at `stale_until`.
    """

    def __init__(self, node: int) -> None:
        self.node = node
        self.epoch = OPENING
        self.life = SessionLife(node)
        self.in_flight = False
        self.closed = False
        self.fetched_at = -inf
        self.renew_at = inf
        self.partitions: frozenset[SharePartition] = frozenset()
        self.waiting: dict[SharePartition, list[AckRange]] = {}
        self.waiting_since: float | None = None
        self.stale: frozenset[SharePartition] = frozenset()
        self.stale_until = -inf

    def wait(self, place: SharePartition, acks: Iterable[AckRange], now: float) -> None:
        """Queue acknowledgements for the next request."""
        self.waiting.setdefault(place, []).extend(acks)
        if self.waiting_since is None:
            self.waiting_since = now

    def is_open(self) -> bool:
        """True if the broker has this session."""
        return self.epoch != OPENING and not self.closed

    def may_ride(self, wanted: frozenset[SharePartition]) -> bool:
        """True if a ShareFetch of `wanted` may carry what waits.

        It would add partitions that are not wanted. A renewal would forbid records.
        """
        return self.waiting.keys() <= wanted and not self.renews

    @property
    def renews(self) -> bool:
        """True if a renewal waits."""
        return any(one.renews for acks in self.waiting.values() for one in acks)

    def fetch(self, wanted: frozenset[SharePartition]) -> SessionRequest:
        """The session part of a ShareFetch, so that the broker's list becomes `wanted`."""
        before, self.partitions = self.partitions, wanted
        added, forgotten = wanted - before, before - wanted
        return SessionRequest(self._begin(), tuple(sorted(added)), tuple(sorted(forgotten)), self._taken())

    def acknowledge(self) -> SessionRequest:
        """The session part of a ShareAcknowledge."""
        return SessionRequest(self._begin(), (), (), self._taken())

    def close(self) -> SessionRequest:
        """The session part of the last ShareAcknowledge, which releases what is still acquired."""
        self._begin()
        self.closed = True
        return SessionRequest(CLOSING, (), (), self._taken())

    def reopened(self, places: frozenset[SharePartition]) -> SessionRequest:
        """The session part of a ShareFetch without records, which opens a session for stale partitions."""
        self.partitions = places
        return SessionRequest(self._begin(), tuple(sorted(places)), (), {})

    def released(self) -> SessionRequest:
        """The session part of the ShareAcknowledge that closes it again, and so releases the stale records.

        It is not repeated: the end of its connection would release them too.
        """
        self._begin()
        self.stale = frozenset()
        return SessionRequest(CLOSING, (), (), {})

    def emptied(self) -> None:
        """The broker has closed the session for stale records. The next request opens a new one."""
        self.epoch, self.partitions = OPENING, frozenset()

    def responded(self) -> None:
        """The broker has taken the epoch of the request in flight."""
        self.in_flight = False
        # The epoch is 31 bits and wraps to 1: 0 would open a new session.
        self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1

    def lost(self) -> dict[SharePartition, list[AckRange]]:
        """The next request opens a new session. Returns the acknowledgements that waited, which are void."""
        self.in_flight = False
        self.epoch = OPENING
        self.life.alive = False
        self.life = SessionLife(self.node)
        self.partitions = frozenset()
        void, self.waiting, self.waiting_since = self.waiting, {}, None
        return void

    def _begin(self) -> int:
        self.in_flight = True
        return self.epoch

    def _taken(self) -> dict[SharePartition, tuple[AckRange, ...]]:
        waiting, self.waiting, self.waiting_since = self.waiting, {}, None
        return {place: tuple(sorted(acks, key=lambda one: one.first_offset)) for place, acks in waiting.items() if acks}
