"""Requests of a core without a driver."""

from collections.abc import Sequence

from kohort.network.requests import PollResult, UnsentRequest

VERSION = 12


def sent(turn: PollResult) -> Sequence[UnsentRequest]:
    """The requests of a turn. Those for metadata are made, as by a connection that can send."""
    for one in turn.requests:
        if one.request.api == "Metadata":
            one.request.request(VERSION)
    return turn.requests
