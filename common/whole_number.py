"""Whole numbers in text from outside."""


def whole(text: str) -> int | None:
    """Return the number that a text of at most 18 ASCII digits is, or None for another text. Raises no error."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None
