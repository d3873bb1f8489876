"""The settings of a share consumer by name and type. Made by `make docs` from `ShareConsumerConfig`."""

from typing import Literal

from kohort.network.client_settings import ClientSettings

ShareAcknowledgementMode = Literal["implicit", "explicit"]
ShareAcquireMode = Literal["batch_optimized", "record_limit"]


class ShareConsumerSettings(ClientSettings, total=False):
    """Keyword arguments of a share consumer."""

    rack: str | None
    """The client's rack, which the coordinator may use to assign partitions."""

    acknowledgement_mode: ShareAcknowledgementMode
    """implicit: the next poll or commit accepts the records that were not acknowledged. explicit: poll refuses while
    such records exist."""

    acquire_mode: ShareAcquireMode
    """batch_optimized: acquire up to the end of a batch. record_limit: acquire at most max_poll_records, from one
    broker at a time (KIP-1206)."""

    max_poll_records: int
    """Maximum records of a ShareFetch response. batch_optimized exceeds it up to the end of a batch."""

    max_poll_interval_ms: int
    """Maximum time between polls, after which the member leaves the group."""

    fetch_min_bytes: int
    """Minimum bytes of a ShareFetch response, for which a broker waits."""

    fetch_max_wait_ms: int
    """Maximum time that a broker waits for fetch_min_bytes."""

    fetch_max_bytes: int
    """Maximum bytes of records in a ShareFetch response."""

    max_decompressed_bytes: int
    """Maximum decompressed bytes of a batch. A larger batch is an error."""

    bootstrap_timeout_ms: int
    """Time at the start without a reachable broker after which calls raise ConnectionFailed."""

    default_api_timeout_ms: int
    """Time-out of calls without a timeout argument."""
