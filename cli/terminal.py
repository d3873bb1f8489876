"""What others have written, on a terminal: names, keys, values and reasons are text there, and no orders."""

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.text import Text

# C0, DEL and C1, which begin what a terminal obeys; lines and tabs do no harm.
_ORDERS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """The same, with control characters to be seen."""
    return text.translate(_ORDERS)


def say(text: str, file: TextIO | None = None) -> None:
    """Print it, whoever wrote what is in it."""
    print(harmless(text), file=file)


def markup(text: str) -> str:
    """In a line that has rich's styles, what is none of them."""
    from rich.markup import escape  # not for an error that says how to install it

    return escape(harmless(text))


def cell(text: str) -> "Text":
    """Of a table; a str would be read for rich's own styles, too."""
    from rich.text import Text

    return Text(harmless(text))
