"""The rule for names of topics."""

import re

_TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def names_a_topic(name: str) -> bool:
    """True if this is a valid name of a topic."""
    return _TOPIC_NAME.fullmatch(name) is not None
