"""Plain English, measured: words that have a better term, and long sentences.

Words are searched in pages, comments and all strings of three words or more. Sentences are counted in pages,
docstrings, raised errors, hints and help texts. `python -m tests.house.prose PATH...` prints the findings of files.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_WORDS = 25
"""The limit for a sentence. Code between backquotes counts as one word."""

INSTEAD = {
    r"ask(s|ed|ing)?": "request, prompt, need",
    r"questions?": "request, check",
    r"answer(s|ed|ing)?": "response, respond",
    r"unanswered|unasked": "without a response, not requested",
    r"told|tells?|telling": "report, state, show",
    r"hears?|heard|hearing": "receive",
    r"(no|some|any|every)body('s)?": "the noun",
    r"who|whom|who(m)?ever": "the noun",
    r"whatever": "the noun",
    r"lies?|lied|lying": "is in; false",
    r"silence": "no response, throttling, pause",
    r"news": "update",
    r"farewell": "LeaveGroup request",
    r"desk": "the noun",
    r"wish(es)?|wished": "setting, request",
    r"is of no use": "failed",
    r"cannot be had": "is not available",
    r"anew": "again",
}
"""Regular expression of a word -> words to use in its place."""

WORDS = re.compile(r"(?<![\w.'-])(?:" + "|".join(INSTEAD) + r")(?![\w-])", re.IGNORECASE)
LEAST_WORDS = 3
"""Strings of fewer words are keys and names."""

PYTHON = (".py", ".pyx", ".pyi", ".pxd")
MESSAGE_ARGUMENTS = ("help", "hint", "short_help", "epilog")
FSTRING_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", None)  # since Python 3.12


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


def blocks(lines: list[str], *, indented_is_code: bool) -> Iterator[tuple[int, str]]:
    """(line number, text) of paragraphs, items and cells of a table, without code.

    A semicolon divides a cell. In docstrings every indented line is code or a table, in pages only after an empty line.
    """
    kept: list[str] = []
    first, fenced = 0, False
    for number, line in enumerate([*lines, ""]):
        fence = line.lstrip().startswith(("```", ">>>"))
        code = line.startswith("    ") and (indented_is_code or not kept)
        if kept and (code or fence or not line.strip() or re.match(r"\s*([-*|#>]|\d+\.)\s", line)):
            yield first, " ".join(kept)
            kept = []
        if fence:
            fenced = fenced != line.lstrip().startswith("```")
        elif line.lstrip().startswith("|") and not fenced:
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\||; ", line) if cell.strip(" -:"))
        elif line.strip() and not fenced and not code:
            first = first if kept else number
            kept.append(re.sub(r"^\s*([-*>]|#+|\d+\.)\s", "", line))


def page(path: Path) -> Iterator[Text]:
    """The prose of a Markdown page."""
    for number, text in blocks(path.read_text().splitlines(), indented_is_code=False):
        yield Text(path, number + 1, text)


def docstring(path: Path, line: int, column: int, text: str) -> Iterator[Text]:
    """The prose of a docstring that begins at a line and column."""
    lines = [text_line.removeprefix(" " * column) for text_line in text.splitlines()]
    for number, part in blocks(lines, indented_is_code=True):
        yield Text(path, line + number, part)


def docstrings(path: Path) -> Iterator[Text]:
    """Docstrings of a module, its classes, functions and attributes. In Cython, all strings in triple quotes."""
    source = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Expr) and isinstance(text := getattr(node.value, "value", None), str):
                yield from docstring(path, node.lineno, node.col_offset, text)
    else:
        for found in re.finditer(r'^( *)"""(.*?)"""', source, re.DOTALL | re.MULTILINE):
            yield from docstring(path, source[: found.start()].count("\n") + 1, len(found[1]), found[2])


def messages(path: Path) -> Iterator[Text]:
    """Strings that are raised, and those of `help=` and `hint=`."""
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found = node.exc.args
        elif isinstance(node, ast.Call):
            found = [word.value for word in node.keywords if word.arg in MESSAGE_ARGUMENTS]
        yield from (Text(path, value.lineno, text) for value in found if (text := _literal(value)))


def _literal(node: ast.expr) -> str:
    """The text of a literal. A value in an f-string is one word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "`x`"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def strings(path: Path) -> Iterator[Text]:
    """Comments, and strings of three words or more."""
    with path.open() as source:
        for token in tokenize.generate_tokens(source.readline):
            line = token.start[0]
            if token.type == tokenize.COMMENT:
                yield Text(path, line, token.string)
            elif token.type in (tokenize.STRING, FSTRING_MIDDLE):
                text = re.sub(r"^\w*(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", "", token.string)
                if "\n" in text:
                    yield from docstring(path, *token.start, text)
                elif len(text.split()) >= LEAST_WORDS:
                    yield Text(path, line, re.sub(r"\{[^{}]*\}", "`x`", text))


def plain(text: str) -> str:
    """A text without its code: a part between backquotes or quotation marks is one word."""
    text = re.sub(r"``[^`]*``|`[^`]+`", "`", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return " ".join(re.sub(r'\\?"[^"\n]*"', "`", text).split())


def sentences(text: str) -> Iterator[str]:
    yield from (part for part in re.split(r"(?<=[.!?])[*_)\"']*\s+", plain(text)) if part)


def length(sentence: str) -> int:
    """The number of words. A lone sign is no word."""
    return sum(1 for word in sentence.split() if re.search(r"\w|`", word))


def words(path: Path) -> Iterator[Finding]:
    """Words that have a better term."""
    for _, line, text in page(path) if path.suffix == ".md" else strings(path):
        for word in WORDS.finditer(plain(text)):
            yield Finding(path, line, f"{word.group()!r}", plain(text))


def long_sentences(path: Path) -> Iterator[Finding]:
    """Sentences of more than MOST_WORDS words."""
    texts = page(path) if path.suffix == ".md" else (*docstrings(path), *messages(path))
    for _, line, text in texts:
        for sentence in sentences(text):
            if length(sentence) > MOST_WORDS:
                yield Finding(path, line, f"{length(sentence)} words", sentence)


def files(place: Path) -> list[Path]:
    """The pages and sources of a folder, or the file itself."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in (".md", *PYTHON))


if __name__ == "__main__":
    for path in (path for place in sys.argv[1:] for path in files(Path(place))):
        for found in (*words(path), *long_sentences(path)):
            print(f"{found.path}:{found.line}: {found.rule}: {found.text[:300]}")
