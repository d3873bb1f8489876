"""The behaviours of docs/behaviours.md: id and text of each."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "behaviours.md"
ID = r"(?:CR|SH|ST|[ABEFGIKSWX])-?\d+"


def read(page: str) -> dict[str, str]:
    """Texts by id, in the order of the page. Raises ValueError for an id without text, and for a repeated id."""
    texts: dict[str, str] = {}
    for identity, text in re.findall(rf"^\| *({ID}) *\|(.*?)\|? *$", page, re.MULTILINE):
        if len(text.split()) < 3:
            raise ValueError(f"docs/behaviours.md has no text for {identity}")
        if identity in texts:
            raise ValueError(f"docs/behaviours.md has {identity} twice")
        texts[identity] = text.strip()
    return texts


BEHAVIOURS = read(PAGE.read_text())
