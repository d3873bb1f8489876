"""Times on the command line."""

import time
from datetime import UTC, datetime

import pytest

from kohort.cli.plan import bound
from kohort.cli.timestamps import time_ms

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no TZ")
def test_a_time_without_a_zone_is_utc_in_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in kafka-consumer-groups. A cron job must not depend on the zone of its machine."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "America/New_York")
        time.tzset()
        plain, zoned = (time_ms(f"2026-01-31T12:00:00{zone}", "") for zone in ("", "+01:00"))
        start = bound("2026-01-31T12:00:00")
    time.tzset()
    assert [plain, zoned] == [NOON.timestamp() * 1000, (NOON.timestamp() - 3600) * 1000]
    assert start == NOON
