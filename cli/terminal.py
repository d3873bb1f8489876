"""What others have written, on a terminal: names, keys, values and reasons are text there, and no orders."""

from typing import TYPE_CHECKING, TextIO

from kohort.common.foreign_text import escaped

if TYPE_CHECKING:
    from rich.text import Text


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line; what would break it or order the terminal is escaped."""
    print(escaped(text), file=file)


def markup(text: str) -> str:
    """In a line that has rich's styles, what is none of them."""
    from rich.markup import escape  # not for an error that says how to install it

    return escape(escaped(text))


def cell(text: str, *, lines: bool = False) -> "Text":
    """Of a table; a str would be read for rich's own styles, too. `lines`: line breaks stay."""
    from rich.text import Text

    return Text(escaped(text, lines=lines))
