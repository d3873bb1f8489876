"""Parsing and display of times: an ISO 8601 moment or a duration ago."""

import time
from datetime import UTC, datetime

from kohort.common.errors import KohortError
from kohort.common.foreign_text import cut
from kohort.coordinator_client.offset_reset import ResetPolicy


def time_ms(text: str, hint: str) -> int:
    """Parse `2026-01-31T12:00:00Z` (UTC without a zone, as in Kafka) or `PT1H`, an hour ago, to ms since 1970.

    `hint`: other valid values, for the KohortError if it is neither.
    """
    if text.startswith("P"):
        try:
            policy = ResetPolicy.of(f"by_duration:{text}")
        except KohortError:
            raise KohortError(f"{text!r} is not a duration", hint="use ISO 8601: PT1H, PT90M, P1D, P1DT12H") from None
        at = policy.timestamp(time.time_ns() // 1_000_000, below_start=None)
        assert at is not None
        return at
    try:
        since_s = utc_time(text).timestamp()
    except (ValueError, OverflowError):
        raise KohortError(f"{cut(text)!r} is neither an offset nor a time", hint=f"use {hint}") from None
    return max(0, int(since_s * 1000))  # a broker gives negative times another meaning


def utc_time(text: str) -> datetime:
    """Parse an ISO 8601 moment, in UTC without a zone. Raises ValueError."""
    when = datetime.fromisoformat(text)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def moment(timestamp_ms: int) -> str | None:
    """Return a record's timestamp as an ISO 8601 moment, None if it has none."""
    if timestamp_ms == -1:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a timestamp is any int64
        return f"{timestamp_ms} ms"
