"""Names and prose of the product: one class a name, docstrings that begin with a subject or a verb, plain English."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.prose import Finding, files, long_sentences, words
from tests.house.test_house import LINKS, ROOT

QUESTION_WORDS = frozenset({"How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why"})
OLD_WORDS = {"ask", "asks", "asked", "asker", "asking", "answer", "answers", "answered", "answering", "told", "heard"}
WORDS_OF_A_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
MOST_QUESTIONS = 0.02
SHARED_NAMES = {
    "DataLossError": {"consistent_region/errors.py", "spark/errors.py"},
    "PlanError": {"assignors/errors.py", "spark/errors.py"},
    "Subscription": {"coordinator_client/subscription_state.py", "protocol/membership.py"},
}
"""Public names of two packages each, which their users import."""

DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))
    if page != DOCS / "gallery.md" and (page.parent.name != "conformance" or page.name == "README.md")
)
"""Without the reports of runs, which quote brokers and other clients."""

SOURCES = (*sorted(link.name for link in LINKS.iterdir() if link.is_symlink()), "benchmarks", "examples")
MOST_LONG_SENTENCES = dict.fromkeys(SOURCES, 0)
"""Folder -> its long sentences. A number may only become smaller."""


def modules() -> Iterator[Path]:
    for room in sorted(link.name for link in LINKS.iterdir() if link.is_symlink()):
        yield from sorted((ROOT / room).rglob("*.py"))


def shown(found: list[Finding]) -> str:
    """The findings of a failed test, a line each."""
    lines = [f"{one.path.relative_to(ROOT)}:{one.line}: {one.rule}: {one.text[:200]}" for one in found]
    return "\n".join(["", *lines])


def first_words(tree: ast.Module) -> Iterator[str]:
    """The first word of each docstring of a module."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (text := ast.get_docstring(node)):  # type: ignore[arg-type]
            yield text.split()[0].strip(",.:;")


def old_words(tree: ast.Module) -> Iterator[str]:
    """The identifiers of a module with one of `OLD_WORDS`. `Answer` is an action of the fake broker."""
    names = (getattr(node, field, None) for node in ast.walk(tree) for field in ("name", "id", "attr", "arg"))
    for name in filter(None, names):
        parts = {word.lower() for word in WORDS_OF_A_NAME.findall(str(name))}
        if parts & OLD_WORDS and name != "Answer" and "test" not in parts:
            yield str(name)


def test_docstrings_begin_with_a_subject_or_a_verb() -> None:
    words = Counter(word for path in modules() for word in first_words(ast.parse(path.read_text())))
    questions = {word: words[word] for word in QUESTION_WORDS if words[word]}
    assert sum(questions.values()) <= MOST_QUESTIONS * words.total(), questions


@pytest.mark.parametrize("text", ['"""Whether it is."""', 'class A:\n    """Where, and when."""'])
def test_a_docstring_that_begins_with_a_question_word_is_seen(text: str) -> None:
    assert QUESTION_WORDS & set(first_words(ast.parse(text)))


def test_no_two_classes_of_the_product_share_a_name() -> None:
    """Declarations of messages, one file an API, are named by their API."""
    places: dict[str, set[str]] = {}
    for path in modules():
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith("protocol/apis/"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, set()).add(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == SHARED_NAMES


@pytest.mark.parametrize("folder", SOURCES)
def test_sources_use_the_words_of_the_field(folder: str) -> None:
    """The table of words is `INSTEAD` in tests/house/prose.py."""
    found = [one for path in files(ROOT / folder) for one in words(path)]
    assert not found, shown(found)


@pytest.mark.parametrize("folder", [*SOURCES, "tests"])
def test_identifiers_use_the_words_of_the_field(folder: str) -> None:
    """A request is sent, a response is received, a state is reported. Names of tests are sentences and do not count."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(ROOT / folder)
        if path.suffix == ".py" and "gallery" not in path.parts
        for name in old_words(ast.parse(path.read_text()))
    }
    assert not found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def ask(): ...", {"ask"}),
        ("self._asked_at = answer", {"_asked_at", "answer"}),
        ("class NoAnswer:\n    told = 1", {"NoAnswer", "told"}),
        ("call(answered=True)", {"answered"}),
        ("file.tell()\ntask, heartbeat, broad, Answer, taken = 1, 2, 3, 4, 5", set()),
        ("def test_what_it_is_told(): ...", set()),
    ],
)
def test_an_old_word_in_an_identifier_is_seen(text: str, names: set[str]) -> None:
    assert set(old_words(ast.parse(text))) == names


@pytest.mark.parametrize("folder", SOURCES)
def test_sentences_of_sources_are_short(folder: str) -> None:
    found = [one for path in files(ROOT / folder) for one in long_sentences(path)]
    assert len(found) <= MOST_LONG_SENTENCES[folder], shown(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_plain_english(page: Path) -> None:
    found = [*words(page), *long_sentences(page)]
    assert not found, shown(found)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "The broker answers.", ["'answers'"]),
        ("a.md", '```\nthe broker answers\n```\n\nIt sends `answers` and "answers".', []),
        ("a.md", "| a | b |\n| --- | --- |\n| nobody | " + "word " * 20 + "; " + "word " * 20 + "|", ["'nobody'"]),
        ("a.md", "- one\n- " + "word " * 25 + "one", ["26 words"]),
        ("a.md", "word " * 25 + ".\n\nword " * 25, []),
        ("a.py", '"""A list.\n\n    ask   ' + "word " * 30 + '\n"""', []),
        ("a.py", '"""' + "word " * 13 + "\n" + "word " * 13 + '"""', ["26 words"]),
        ("a.py", "x = 1  # whoever comes", ["'whoever'"]),
        ("a.py", "raise Error(f'{told} is not told now')", ["'told'"]),
        ("a.py", "option(help='one two three ' + tell)\nkeys = ['ask', 'told']", []),
        ("a.py", "Error('x', hint='" + "word " * 26 + "')", ["26 words"]),
        ("a.pyx", 'cdef int f():\n    """The news of a broker."""', ["'news'"]),
    ],
)
def test_words_and_long_sentences_are_found(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text + "\n")
    assert [one.rule for one in (*words(path), *long_sentences(path))] == found


def test_a_missing_permission_names_the_permission_to_grant() -> None:
    calls = (
        (path, node)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "AuthorizationFailed"
    )
    without = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, node in calls
        if "hint" not in {keyword.arg for keyword in node.keywords}
    ]
    assert not without


def test_a_hint_is_no_question() -> None:
    hints = (
        (f"{path.relative_to(ROOT)}:{node.value.lineno}", text.value)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "hint"
        for text in ast.walk(node.value)
        if isinstance(text, ast.Constant)
    )
    # "did you mean {name}?" ends with a text of one character
    assert not [place for place, text in hints if isinstance(text, str) and text[1:].endswith("?")]
