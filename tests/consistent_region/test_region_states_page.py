"""docs/region-states.md is drawn from the tables, is current, and shows all of them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kohort.consistent_region.states import PHASES, TRANSITIONS, RegionPhase, RegionState

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_make_for_regions", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_tables_say(make: ModuleType) -> None:
    assert (DOCS / "region-states.md").read_text() == make.region_states_page(), "run `make docs`"


def test_every_state_has_a_paragraph_and_every_transition_a_row(make: ModuleType) -> None:
    assert set(make.paragraphs(RegionState)) == {state.name for state in RegionState}
    assert set(make.paragraphs(RegionPhase)) == {phase.name for phase in RegionPhase}
    lines = make.region_states_page().splitlines()
    states = [(one.name, when.name, to.name) for one, row in TRANSITIONS.items() for when, to in row.items()]
    phases = [(one.name, when.name, to.name) for one, row in PHASES.items() for when, to in row.items()]
    for source, trigger, target in [*states, *phases]:
        row = (f"| {source} | {trigger}: ", f"| {target} |")
        assert any(line.startswith(row[0]) and line.endswith(row[1]) for line in lines), row
