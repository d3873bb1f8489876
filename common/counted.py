"""Numbers with their nouns, for messages."""


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 record`, `1,000 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
