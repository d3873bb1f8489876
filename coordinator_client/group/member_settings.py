"""The settings of a group member, made by `coordinator_client/consumer_config.py` from those of the user."""

from kohort.common.named_tuple import NamedTuple

CONSUMER_PROTOCOL_TYPE = "consumer"


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

    def backoff_s(self, attempt: int) -> float:
        """Seconds to wait before retry number `attempt`, counted from 1: doubling, capped, spread (KIP-580)."""
        milliseconds = min(self.retry_backoff_ms * 2.0 ** min(max(attempt - 1, 0), 20), self.retry_backoff_ms_max)
        return milliseconds * (0.8 + 0.4 * self.jitter) / 1000.0
