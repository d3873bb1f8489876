"""Plain English, measured: words that have a better term, and long sentences, in pages, docstrings, errors and help.

`python -m tests.house.prose PATH...` prints each finding of files or folders.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_WORDS = 25
"""Words of a sentence. Code between backquotes, a link's target and a parenthesis count as in a reader's eye."""

INSTEAD = {
    r"ask(s|ed|ing)?": "request, prompt, need",
    r"questions?": "request, check",
    r"answer(s|ed|ing)?": "response, respond",
    r"unanswered|unasked": "without a response, not requested",
    r"told|tells?|telling|retold": "report, state, show",
    r"hears?|heard|hearing": "receive",
    r"(no|some|any|every)body('s)?": "the noun",
    r"who|whom|who(m)?ever": "the noun",
    r"whatever": "the noun",
    r"lies?|lied|lying": "is in, false response",
    r"silence": "no response, throttling",
    r"news": "update",
    r"farewell": "LeaveGroup request",
    r"desk": "the noun",
    r"wish(es)?|wished": "setting, request",
    r"is of no use": "failed",
    r"cannot be had": "is not available",
    r"anew|beforehand|henceforth": "again, earlier, from now on",
}
"""Regular expression of a word -> what to write in its place."""

WORDS = re.compile(r"(?<![\w.'-])(?:" + "|".join(INSTEAD) + r")(?![\w-])", re.IGNORECASE)


class Text(NamedTuple):
    """Prose at a line of a file."""

    path: Path
    line: int
    text: str


class Finding(NamedTuple):
    """A rule that a text breaks."""

    path: Path
    line: int
    rule: str
    text: str


def page(path: Path) -> Iterator[Text]:
    """The paragraphs, items and cells of a Markdown page, without blocks of code. A semicolon divides a cell."""
    kept: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        starts = fence or not line.strip() or re.match(r"\s*([-*|#>]|\d+\.)", line)
        if starts and kept:
            yield Text(path, first, " ".join(kept))
            kept = []
        if fence:
            fenced = not fenced
        elif not fenced and line.lstrip().startswith("|"):
            yield from (Text(path, number, cell) for cell in re.split(r"(?<!\\)\||; ", line) if cell.strip(" -:"))
        elif not fenced and line.strip() and (kept or not line.startswith("    ")):
            first = first if kept else number
            kept.append(re.sub(r"^\s*([-*>]|#+|\d+\.)\s", "", line))


def docstrings(path: Path) -> Iterator[Text]:
    """Docstrings of a module, its classes and functions, and the strings under attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        for statement in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            if isinstance(statement, ast.Expr) and isinstance(text := getattr(statement.value, "value", None), str):
                yield from _paragraphs(path, statement.lineno, text)


def messages(path: Path) -> Iterator[Text]:
    """Strings that are raised, and those of `help=` and `hint=`."""
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found = [*node.exc.args, *(word.value for word in node.exc.keywords if word.arg == "hint")]
        elif isinstance(node, ast.Call):
            found = [word.value for word in node.keywords if word.arg in ("help", "hint", "short_help", "epilog")]
        for value in found:
            if text := _literal(value):
                yield Text(path, value.lineno, text)


def _literal(node: ast.expr) -> str:
    """A string literal's text; what an f-string fills in is one word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "``"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _paragraphs(path: Path, line: int, text: str) -> Iterator[Text]:
    """Paragraphs and items of a docstring. Indented ones are code or tables."""
    clean = inspect.cleandoc(text)
    for part in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. )", clean):
        if not part.startswith(("    ", ">>>", "```")):
            yield Text(path, line + clean[: clean.find(part)].count("\n"), part)


def plain(text: str) -> str:
    """A text without its code: what is between backquotes or quotation marks is one word."""
    text = re.sub(r"``[^`]*``|`[^`]+`", "`", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return " ".join(re.sub(r'"[^"\n]*"', "`", text).split())


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text."""
    yield from (part for part in re.split(r"(?<=[.!?])[*_)\"']*\s+", plain(text)) if part)


def words(sentence: str) -> int:
    """Words of a sentence; a lone sign is none."""
    return sum(1 for word in sentence.split() if re.search(r"\w|`", word))


def findings(texts: Iterator[Text]) -> Iterator[Finding]:
    """Words that have a better term, and sentences of more than MOST_WORDS words."""
    for path, line, text in texts:
        for word in WORDS.findall(re.sub(r"\*\*|__", "", plain(text))) and WORDS.finditer(plain(text)):
            yield Finding(path, line, f"'{word.group()}'", plain(text))
        for sentence in sentences(text):
            if words(sentence) > MOST_WORDS:
                yield Finding(path, line, f"{words(sentence)} words", sentence)


def prose(path: Path) -> Iterator[Text]:
    """All prose of a file that is read as such."""
    if path.suffix == ".md":
        yield from page(path)
    else:
        yield from docstrings(path)
        yield from messages(path)


def files(places: list[str]) -> Iterator[Path]:
    for place in map(Path, places):
        yield from sorted(p for p in place.rglob("*") if p.suffix in (".md", ".py")) if place.is_dir() else [place]


if __name__ == "__main__":
    for found in (finding for path in files(sys.argv[1:]) for finding in findings(prose(path))):
        print(f"{found.path}:{found.line}: {found.rule}: {found.text[:300]}")
