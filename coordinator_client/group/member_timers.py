"""The two clocks of a membership: heartbeats show that the process lives, polls that the handler does.

KIP-62 split them so that a slow handler does not look like a dead process. Both end membership. The coordinator expels
a process without heartbeats after the session timeout. A stuck handler makes the member leave by itself after
max.poll.interval.
"""

from math import inf

from kohort.coordinator_client.group.member_settings import MemberSettings


class MemberTimers:
    """Deadlines of one member, in monotonic seconds. The machine decides what they mean."""

    __slots__ = (
        "_settings",
        "broker_interval_s",
        "confirmed_at",
        "heartbeat_sent_at",
        "last_heartbeat_at",
        "last_response_at",
        "processing_since",
        "warned",
    )

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.heartbeat_sent_at = -inf
        self.last_heartbeat_at: float | None = None
        # The latest time at which the coordinator's session timer cannot have started yet: the *sending* of a request
        # with a successful response. The timer started at the arrival, which is not earlier.
        self.confirmed_at = -inf
        # The time of the last response, as confirmed_at, but a new coordinator gets a whole session too.
        self.last_response_at = -inf
        self.processing_since: float | None = None
        self.warned = False
        self.broker_interval_s: float | None = None  # KIP-848: the coordinator's heartbeat interval

    @property
    def session_s(self) -> float:
        return self._settings.session_timeout_ms / 1000

    @property
    def interval_s(self) -> float:
        return self._settings.heartbeat_interval_ms / 1000 if self.broker_interval_s is None else self.broker_interval_s

    # -- heartbeats

    def confirmed(self, sent_at: float) -> None:
        """Record a successful response to a request sent at `sent_at`."""
        self.confirmed_at = max(self.confirmed_at, sent_at)
        self.last_response_at = max(self.last_response_at, sent_at)

    def restarted(self, now: float) -> None:
        """Heartbeats begin (after a join's response): the first is due one interval from now."""
        self.heartbeat_sent_at = now
        self.last_response_at = now

    @property
    def next_heartbeat_at(self) -> float:
        return self.heartbeat_sent_at + self.interval_s

    @property
    def ownership_deadline(self) -> float:
        return self.confirmed_at + self.session_s

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
