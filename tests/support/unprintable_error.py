"""An exception of a user's code whose own text raises."""


class UnprintableError(Exception):
    """`str` of it raises."""

    def __str__(self) -> str:
        raise LookupError("no text")
