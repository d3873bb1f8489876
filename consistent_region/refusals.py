"""Effects that their target refuses for what they are, and never accepts later: errors of data.

A target that is away is waited for. A target without the table or the topic is an error of the set-up, and ends the
member: its effects are sound. A statement or record with wrong data would end each next owner of its task as well.
"""

from typing import Final, Literal

from kohort.consistent_region.errors import ConfigurationError

OnRefused = Literal["raise", "dead_letters"]
_POLICIES: Final = ("raise", "dead_letters")
HINT: Final = 'on_refused="dead_letters" puts such effects aside and goes on'


def check_policy(policy: str) -> None:
    """Raise ConfigurationError for an unknown policy."""
    if policy not in _POLICIES:
        raise ConfigurationError(f"unknown on_refused {policy!r}", hint=" or ".join(_POLICIES), setting="on_refused")
