"""Errors of workers. Each has a message, a place (`error.place`) and a hint (`error.hint`)."""

from kohort.common.errors import KohortError


class HandlerFailed(KohortError):
    """A handler failed on the last attempt, and there is no dead-letter topic: `topic`, `partition`, `offset`.

    It is raised for a Consumer only, since skipping the record would lose it. The handler's error is the `__cause__`.

    Cure:
        Give `dead_letter=`, or repair the handler. The next run begins with this record.
    """
