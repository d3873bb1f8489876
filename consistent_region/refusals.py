"""Effects that their target refuses for what they are, and never accepts later: errors of data.

A target that is away is waited for. A target without the table or the topic is an error of the set-up, and ends the
member: its effects are sound. A statement or record with wrong data would end each next owner of its task as well.
"""

from typing import Final, Literal

from kohort.common.errors import KohortError
from kohort.consistent_region.errors import ConfigurationError
from kohort.producer.errors import RecordTooLarge
from kohort.protocol.errors import BrokerError
from kohort.protocol.errors import ErrorCode as Code

OnRefused = Literal["raise", "dead_letters"]
_POLICIES: Final = ("raise", "dead_letters")
_ALONE: Final = frozenset({Code.MESSAGE_TOO_LARGE})
_OF_RECORDS: Final = _ALONE | {Code.INVALID_RECORD, Code.INVALID_TIMESTAMP}
HINT: Final = 'on_refused="dead_letters" puts such effects aside and goes on'


def check_policy(policy: str) -> None:
    """Raise ConfigurationError for an unknown policy."""
    if policy not in _POLICIES:
        raise ConfigurationError(f"unknown on_refused {policy!r}", hint=" or ".join(_POLICIES), setting="on_refused")


def refused_record(error: BaseException | None) -> bool:
    """True if a record, or one of its batch, is what the broker refuses."""
    return isinstance(error, RecordTooLarge) or (isinstance(error, BrokerError) and error.code in _OF_RECORDS)


def refused_alone(error: KohortError) -> bool:
    """True if the error is of this record, and not of any other in its batch."""
    return not isinstance(error, BrokerError) or error.code in _ALONE
