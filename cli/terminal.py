"""Escapes untrusted text (names, keys, values, reasons) for the terminal."""

from typing import TYPE_CHECKING, Any, TextIO

from kohort.common.foreign_text import escaped

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line, with line breaks and control characters escaped."""
    print(escaped(text), file=file)


def markup(text: str) -> str:
    """Escape text for a line with rich's markup."""
    from rich.markup import escape  # rich may be missing when an error with the installation hint is printed

    return escape(escaped(text))


def folding_table(*heads: str, **how: Any) -> "Table":
    """Return a table that breaks a long name into lines on a narrow terminal. A table of rich cuts it."""
    from rich.table import Table

    made = Table(*heads, **how)
    for column in made.columns:
        column.overflow = "fold"
    return made


def cell(text: str, *, lines: bool = False) -> "Text":
    """Return a table cell in which text is not read as rich's markup. `lines`: line breaks stay."""
    from rich.text import Text

    return Text(escaped(text, lines=lines))
