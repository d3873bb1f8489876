"""The time-outs and other settings of a group member, and the two clocks of a membership.

Heartbeats show that the process lives, polls that the handler does. KIP-62 split them so that a slow handler does not
look like a dead process. Both end membership. The coordinator expels a process without heartbeats after the session
timeout. A stuck handler makes the member leave by itself after max.poll.interval.
"""

from math import inf
from typing import Final

from kohort.common.named_tuple import NamedTuple
from kohort.network.backoff import Backoff


class MemberSettings(NamedTuple):
    """Settings of one group member. All times are milliseconds. The machine's own clock is in seconds.

    `jitter`: a random number in [0, 1), drawn once for each member. It scales the member's backoffs by 0.8 to 1.2, so
    that members do not retry at the same time. `instance_id`: static membership (KIP-345). Such a member does not leave
    at close unless `leave_on_close` is set. `rebalance_timeout_ms`: the group's wait for members to rejoin. None means
    `max_poll_interval_ms`, as in Apache Kafka's clients. `member_id`, `remote_assignor`: for the consumer group
    protocol (KIP-848). A member generates its own id (KIP-1082), and the coordinator assigns, by the named assignor or
    its own choice. `poll_warning_ratio`: a notice is issued after this part of `max_poll_interval_ms` without a poll.
    """

    group_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rebalance_timeout_ms: int | None = None
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    jitter: float = 0.5
    leave_on_close: bool | None = None
    exclude_internal_topics: bool = True
    poll_warning_ratio: float = 0.8
    member_id: str = ""
    remote_assignor: str | None = None

    @property
    def rebalance_ms(self) -> int:
        """The rebalance timeout in force."""
        return self.max_poll_interval_ms if self.rebalance_timeout_ms is None else self.rebalance_timeout_ms

    @property
    def leaves(self) -> bool:
        """True if unsubscribe, close and a stalled handler send a leave: dynamic members do, static ones do not."""
        return self.instance_id is None if self.leave_on_close is None else self.leave_on_close

    def backoff_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, with the member's own jitter."""
        return Backoff(self.retry_backoff_ms, self.retry_backoff_ms_max).delay_s(failures, self.jitter)


FIRST_PART: Final = 0.1
"""The part of the interval after which the first heartbeat of a generation is sent."""


class MemberTimers:
    """Deadlines of one member, in monotonic seconds. The machine decides what they mean."""

    __slots__ = (
        "_first_part",
        "_settings",
        "_stable_since",
        "broker_interval_s",
        "confirmed_at",
        "heartbeat_sent_at",
        "last_heartbeat_at",
        "last_response_at",
        "processing_since",
        "settled_at",
        "warned",
    )

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.heartbeat_sent_at = -inf
        self._stable_since = -inf
        self._first_part = FIRST_PART
        self.last_heartbeat_at: float | None = None
        # The latest time at which the coordinator's session timer cannot have started yet: the *sending* of a request
        # with a successful response. The timer started at the arrival, which is not earlier.
        self.confirmed_at = -inf
        self.settled_at = -inf  # the same, where the coordinator did not wait for this member to rejoin or to revoke
        # The time of the last response, as confirmed_at, but a new coordinator gets a whole session too.
        self.last_response_at = -inf
        self.processing_since: float | None = None
        self.warned = False
        self.broker_interval_s: float | None = None  # KIP-848: the coordinator's heartbeat interval

    @property
    def session_s(self) -> float:
        return self._settings.session_timeout_ms / 1000

    @property
    def rebalance_s(self) -> float:
        return self._settings.rebalance_ms / 1000

    @property
    def interval_s(self) -> float:
        """The time between heartbeats. At least three of them come in a lease."""
        interval_s = self._settings.heartbeat_interval_ms / 1000
        if self.broker_interval_s is not None:
            interval_s = self.broker_interval_s
        return min(interval_s, self.rebalance_s / 3)

    # -- heartbeats

    def confirmed(self, sent_at: float, *, settled: bool = True) -> None:
        """Record a successful response to a request sent at `sent_at`.

        `settled`: the coordinator did not wait for this member, which it expels at the end of the rebalance timeout.
        """
        self.confirmed_at = max(self.confirmed_at, sent_at)
        if settled:
            self.settled_at = max(self.settled_at, sent_at)
        self.last_response_at = max(self.last_response_at, sent_at)

    def restarted(self, now: float) -> None:
        """Heartbeats begin (after a join's response): the first is due one interval from now."""
        self.heartbeat_sent_at = now
        self.last_response_at = now

    def stable_since(self, since: float) -> None:
        """A generation began then. Its first heartbeat comes early, since other members often join at the same time.

        After a heartbeat has ended a generation that was shorter than an interval, it comes later, so that many joins
        share a rebalance. A member ends other short generations by itself, when it gives partitions up.
        """
        if since == self._stable_since:
            return
        if since >= self._stable_since + self.interval_s:
            self._first_part = FIRST_PART
        elif self.last_heartbeat_at is not None and self.last_heartbeat_at > self._stable_since:
            self._first_part = min(2 * self._first_part, 1.0)
        self._stable_since = since
        self.heartbeat_sent_at = min(self.heartbeat_sent_at, since - (1 - self._first_part) * self.interval_s)

    @property
    def next_heartbeat_at(self) -> float:
        return self.heartbeat_sent_at + self.interval_s

    @property
    def ownership_deadline(self) -> float:
        return min(self.confirmed_at + self.session_s, self.settled_at + self.rebalance_s)

    @property
    def session_deadline(self) -> float:
        """The time (monotonic s) at which a coordinator without responses counts as dead."""
        return self.last_response_at + self.session_s

    # -- polls

    def polling(self) -> None:
        """The caller waits inside poll: nothing can be overdue."""
        self.processing_since = None
        self.warned = False

    def processing(self, since: float) -> None:
        """The user's code runs since then."""
        self.processing_since = since
        self.warned = False

    @property
    def poll_deadline(self) -> float:
        """The time (monotonic s) at which the handler has taken too long."""
        return (
            inf if self.processing_since is None else self.processing_since + self._settings.max_poll_interval_ms / 1000
        )

    @property
    def warn_at(self) -> float:
        """Return the time (monotonic s) of the warning about the poll deadline, once for each period without a poll."""
        if self.processing_since is None or self.warned:
            return inf
        return self.processing_since + self._settings.poll_warning_ratio * self._settings.max_poll_interval_ms / 1000
