"""Entries for the log that pure code returns instead of writing them."""

from kohort.common.named_tuple import NamedTuple


class Notice(NamedTuple):
    """An event that raises no error: for the log, the timeline and a warning hook.

    `kind` is stable and meant for code ("poll_stalling", "rebalance_ended", "commit_dropped", ...), `text` for people.
    """

    kind: str
    text: str
