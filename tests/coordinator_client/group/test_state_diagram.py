"""docs/states.md is drawn from the table, is current, and shows all of it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kohort.coordinator_client.group.states import (
    CONSUMER_GROUP_TRANSITIONS,
    TRANSITIONS,
    CoordinatorState,
    MemberState,
)

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.proves("F-08")
def test_the_page_is_what_the_table_says(make: ModuleType) -> None:
    assert (DOCS / "states.md").read_text() == make.states_page(), "run `make docs`"


def test_every_state_has_a_paragraph(make: ModuleType) -> None:
    assert set(make.paragraphs(MemberState)) == {state.name for state in MemberState}
    assert set(make.paragraphs(CoordinatorState)) == {state.name for state in CoordinatorState}
    assert all(len(text) > 60 for text in make.paragraphs(MemberState).values() if text != "The final state.")


def test_every_transition_is_in_the_table_of_the_page(make: ModuleType) -> None:
    page = make.states_page()
    for state, row in [*TRANSITIONS.items(), *CONSUMER_GROUP_TRANSITIONS.items()]:
        for trigger, target in row.items():
            assert f"| {state.name} | {trigger.name}: {trigger.value} | {target.name} |" in page
