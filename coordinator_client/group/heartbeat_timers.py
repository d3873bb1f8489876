"""The two clocks of a membership: heartbeats say that the process lives, polls say that the handler does.

KIP-62 split them so that a slow handler does not look like a dead process. Both end membership, in different ways: a
silent process is expelled by the coordinator after the session timeout; a stuck handler makes the member leave by
itself after max.poll.interval.
"""

from math import inf

from kohort.coordinator_client.group.member_config import MemberSettings


class Pulse:
    """Deadlines only: what they mean is the machine's affair. All times are monotonic seconds."""

    __slots__ = (
        "_settings",
        "beat_sent_at",
        "busy_since",
        "confirmed_at",
        "heard_at",
        "last_beat_at",
        "told_interval_s",
        "warned",
    )

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.beat_sent_at = -inf
        self.last_beat_at: float | None = None
        # The latest moment at which the coordinator cannot have begun to count later than we do: the *sending* of
        # something it answered well. Its session timer started at the arrival, which is no earlier.
        self.confirmed_at = -inf
        # Since when the coordinator has been silent: as confirmed_at, but a new coordinator gets a whole session too.
        self.heard_at = -inf
        self.busy_since: float | None = None
        self.warned = False
        self.told_interval_s: float | None = None  # KIP-848: the coordinator says how often it wants to hear from us

    @property
    def session_s(self) -> float:
        return self._settings.session_timeout_ms / 1000

    @property
    def interval_s(self) -> float:
        return self._settings.heartbeat_interval_ms / 1000 if self.told_interval_s is None else self.told_interval_s

    # -- heartbeats

    def confirmed(self, sent_at: float) -> None:
        """The coordinator answered something that we sent at `sent_at`, and it knows us."""
        self.confirmed_at = max(self.confirmed_at, sent_at)
        self.heard_at = max(self.heard_at, sent_at)

    def restarted(self, now: float) -> None:
        """Heartbeats begin (after a join was answered): the first is due one interval from now."""
        self.beat_sent_at = now
        self.heard_at = now

    @property
    def next_beat_at(self) -> float:
        return self.beat_sent_at + self.interval_s

    @property
    def lease_until(self) -> float:
        return self.confirmed_at + self.session_s

    @property
    def silent_at(self) -> float:
        """When a silent coordinator counts as dead."""
        return self.heard_at + self.session_s

    # -- polls

    def polling(self) -> None:
        """The caller waits inside poll: nothing can be overdue."""
        self.busy_since = None
        self.warned = False

    def busy(self, since: float) -> None:
        """The user's code runs since then."""
        self.busy_since = since
        self.warned = False

    @property
    def stall_at(self) -> float:
        """When the handler has taken too long."""
        return inf if self.busy_since is None else self.busy_since + self._settings.max_poll_interval_ms / 1000

    @property
    def warn_at(self) -> float:
        """When to warn that it is about to; never twice for the same silence."""
        if self.busy_since is None or self.warned:
            return inf
        return self.busy_since + self._settings.poll_warning_ratio * self._settings.max_poll_interval_ms / 1000
