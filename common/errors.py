"""The base class of all errors, and WireError.

An error says what happened, where, and what to do. *Where* is given as keywords (`topic=`, `partition=`, `offset=`,
`path=`, `group=`, `generation=`, ...) that are printed and kept in `error.place`, so that code can act on them.
"""

from collections.abc import Mapping

from kohort.common.foreign_text import cut, cut_inside, escaped

MOST_MESSAGE_CHARACTERS = 2_000


class KohortError(Exception):
    """Any error this library raises on purpose.

    `place`: where it happened, by name, unchanged. `hint`: what to do about it, or None. `message` and `hint` may hold
    text of brokers and others: control characters are escapes, and they are cut at 2,000 characters.
    """

    several_lines = False
    """True if line breaks of the message are kept, and the end of a long message, which may be that of a log."""

    def __init__(self, message: str, *, hint: str | None = None, **place: object) -> None:
        shortened = cut_inside if self.several_lines else cut
        self.message = message = shortened(escaped(message, lines=self.several_lines), MOST_MESSAGE_CHARACTERS)
        self.hint = None if hint is None else cut(escaped(hint), MOST_MESSAGE_CHARACTERS)
        self.place: Mapping[str, object] = {name: value for name, value in place.items() if value is not None}
        super().__init__(message)

    def __str__(self) -> str:
        where = ", ".join(f"{name}={cut(escaped(str(value)))}" for name, value in self.place.items())
        text = f"{self.message} ({where})" if where else self.message
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments would be lost by Exception's own pickling, and Spark ships errors between processes.
        return _rebuild, (type(self), self.message, self.hint, dict(self.place))


def _rebuild(kind: type[KohortError], message: str, hint: str | None, place: dict[str, object]) -> KohortError:
    error = kind.__new__(kind, message)
    error.message, error.hint, error.place = message, hint, place  # cut already
    return error


class WireError(KohortError):
    """Bytes that are not the message they claim to be (or values that no message can hold).

    Carries `api`, `version`, `path` (the field) and `offset` (into the frame) where they are known.

    Cure:
        Send the bytes to `kohort wire explain`, which shows the place. A broker that sends them has a defect, or is no
        Kafka broker.
    """
