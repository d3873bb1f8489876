"""docs/share-states.md is drawn from the table, is current, and shows all of it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kohort.share_consumer.states import TRANSITIONS, ShareState

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_make_for_share_groups", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_table_says(make: ModuleType) -> None:
    assert (DOCS / "share-states.md").read_text() == make.share_states_page(), "run `make docs`"


def test_every_state_has_a_paragraph_and_every_transition_a_row(make: ModuleType) -> None:
    assert set(make.paragraphs(ShareState)) == {state.name for state in ShareState}
    lines = make.share_states_page().splitlines()
    for source, row in TRANSITIONS.items():
        for trigger, target in row.items():
            start, end = f"| {source.name} | {trigger.name}: ", f"| {target.name} |"
            assert any(line.startswith(start) and line.endswith(end) for line in lines), (source, trigger)
