"""Names and docstrings of the product: one class a name, and first words that say a subject or a verb."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_house import LINKS, ROOT

QUESTION_WORDS = frozenset({"How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why"})
MOST_QUESTIONS = 0.02
SHARED_NAMES = {
    "DataLossError": {"consistent_region/errors.py", "spark/errors.py"},
    "PlanError": {"assignors/errors.py", "spark/errors.py"},
    "Subscription": {"coordinator_client/subscription_state.py", "protocol/membership.py"},
}
"""Public names of two packages each, which their users import."""


def modules() -> Iterator[Path]:
    for room in sorted(link.name for link in LINKS.iterdir() if link.is_symlink()):
        yield from sorted((ROOT / room).rglob("*.py"))


def first_words(tree: ast.Module) -> Iterator[str]:
    """The first word of each docstring of a module."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (text := ast.get_docstring(node)):  # type: ignore[arg-type]
            yield text.split()[0].strip(",.:;")


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
