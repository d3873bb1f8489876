"""Reset policy for partitions that have no offset, or whose offset is outside the log."""

import re
from enum import Enum

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.network.errors import ConfigError
from kohort.network.offset_requests import EARLIEST, LATEST

INT64_MAX = 2**63 - 1


class ResetKind(Enum):
    """The kinds of `auto_offset_reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    NEAREST = "nearest"
    BY_DURATION = "by_duration"


# ISO 8601 durations as Java's Duration.parse reads them (KIP-1106), in any case: days, then a T with hours, minutes or
# seconds behind it, each with a sign of its own, and a fraction of the seconds behind a point or a comma.
_DURATION = (
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,19})D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]{1,19})H)?(?:(?P<minutes>[-+]?[0-9]{1,19})M)?"
    r"(?:(?P<seconds>[-+]?[0-9]{1,19})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class ResetPolicy(NamedTuple):
    """A kind, and for `by_duration` the duration to go back (ms)."""

    kind: ResetKind
    back_ms: int = 0

    @classmethod
    def of(cls, text: str) -> "ResetPolicy":
        """Parse `earliest`, `latest`, `none`, `nearest` or `by_duration:PT1H`.

        Raises ConfigError for anything else.
        """
        name, _, duration = text.partition(":")
        try:
            kind = ResetKind(name)
        except ValueError:
            raise _refused(text) from None
        if kind is ResetKind.BY_DURATION:
            return cls(kind, _milliseconds(text, duration))
        if duration:
            raise _refused(text)
        return cls(kind)

    def timestamp(self, wall_ms: int, *, below_start: bool | None) -> int | None:
        """The timestamp for ListOffsets (EARLIEST, LATEST or ms); None if the policy is to raise.

        `below_start`: the position was below the log's start (True), above its end (False), or there was none (None).
        """
        match self.kind:
            case ResetKind.EARLIEST:
                return EARLIEST
            case ResetKind.LATEST:
                return LATEST
            case ResetKind.BY_DURATION:
                return max(wall_ms - self.back_ms, 0)
            case ResetKind.NEAREST:
                # The end that was passed. Without an offset there is no nearest end, and no record is skipped.
                return LATEST if below_start is False else EARLIEST
            case ResetKind.NONE:
                return None


class OffsetReset(NamedTuple):
    """A reset of a position: `partition` is read at `start` instead of `wanted`.

    `wanted` is None if nothing was committed. `skipped` is the number of records that are never read. A negative number
    means that records are read again.
    """

    partition: TopicPartition
    wanted: int | None
    start: int
    reason: str

    @property
    def skipped(self) -> int | None:
        """The offsets between the wanted position and the new one. Negative if reading goes back."""
        return None if self.wanted is None else self.start - self.wanted


def _milliseconds(text: str, duration: str) -> int:
    found = re.fullmatch(_DURATION, duration, re.IGNORECASE)
    if found is None or not any(found[part] for part in _SECONDS):
        raise _refused(text)
    milliseconds = 1000 * sum(int(found[part] or 0) * seconds for part, seconds in _SECONDS.items())
    fraction = int(((found["fraction"] or "") + "000")[:3])
    milliseconds += -fraction if (found["seconds"] or "").startswith("-") else fraction
    milliseconds = -milliseconds if found["sign"] == "-" else milliseconds
    if not 0 <= milliseconds <= INT64_MAX:
        raise _refused(text)
    return milliseconds


def _refused(text: str) -> ConfigError:
    return ConfigError(
        f"auto_offset_reset cannot be {text!r}",
        hint="use earliest, latest, none, nearest or by_duration:PT1H (an ISO 8601 duration)",
        setting="auto_offset_reset",
    )
