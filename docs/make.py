"""Pages that are made from code: `make docs` writes them, and tests hold them to what it would write.

A page that repeats a table by hand is wrong one day; these cannot be.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from kohort.consistent_region import states as region
from kohort.coordinator_client.exporting.readings import prometheus_name
from kohort.coordinator_client.group.states import (
    CONSUMER_GROUP_TRANSITIONS,
    COORDINATOR_TRANSITIONS,
    TRANSITIONS,
    CoordinatorState,
    MemberState,
)
from kohort.coordinator_client.metrics.metrics_table import FIGURES, MetricKind, MetricSpec

State = TypeVar("State", bound=Enum)
When = TypeVar("When", bound=Enum)

HERE = Path(__file__).parent


def paragraphs(kind: type) -> dict[str, str]:
    """Member of an Enum -> the paragraph written under it, which Python itself does not keep."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    found = {}
    for line, below in pairwise(body):
        if (
            isinstance(line, ast.Assign)
            and isinstance(line.targets[0], ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[line.targets[0].id] = " ".join(str(below.value.value).split())
    return found


def diagram(
    table: Mapping[State, Mapping[When, State]], start: str, leave_out: Callable[[str, str], bool] = lambda *_: False
) -> str:
    """A mermaid state diagram; triggers that lead the same way share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in table.items():
        for trigger, target in row.items():
            if not leave_out(state.name, trigger.name):
                arrows.setdefault((state.name, target.name), []).append(trigger.name)
    lines = [f"    [*] --> {start}"]
    lines += [f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _aside(state: str, trigger: str) -> bool:
    """The three arrows that nearly every state has would hide the walk; they stand in the table below it."""
    return trigger in {"CLOSED", "STALLED", "GAVE_UP"}


def states_page() -> str:
    """docs/states.md."""
    described = paragraphs(MemberState)
    coordinator = paragraphs(CoordinatorState)
    parts = [
        "# The states of a group member",
        "Made by `docs/make.py` from `coordinator_client/group/states.py`; change the table there and run `make docs`.",
        "A member is two small machines. *Membership* is what the group believes about us:",
        diagram(TRANSITIONS, "OUT", _aside),
        "Left out of the picture, so that the walk can be seen: from nearly every state a fatal error leads to FAILED, "
        "a handler that does not poll to STALLED, and the deadline of close to CLOSED. The table has all of it.",
        "In a [KIP-848](kip848.md) group, where the coordinator assigns, nobody gathers and nothing is synced:",
        diagram(CONSUMER_GROUP_TRANSITIONS, "OUT", _aside),
        "*The coordinator* is whether we know whom to talk to; losing it takes nothing from membership:",
        diagram(COORDINATOR_TRANSITIONS, "UNKNOWN"),
        "## What each state means",
        *(f"**{state.name}** ({state.value}). {described[state.name]}" for state in MemberState),
        *(f"**coordinator {state.name}**. {coordinator[state.name]}" for state in CoordinatorState),
        "## Every transition",
        _table(TRANSITIONS),
        "## Every transition in a KIP-848 group",
        _table(CONSUMER_GROUP_TRANSITIONS),
    ]
    return "\n\n".join(parts) + "\n"


def region_states_page() -> str:
    """docs/region-states.md."""
    described, phases = paragraphs(region.RegionState), paragraphs(region.RegionPhase)
    parts = [
        "# The states of a region's member",
        "Made by `docs/make.py` from `consistent_region/states.py`; change the tables there and run `make docs`. What "
        "a region is, and what it survives, is in [region.md](region.md).",
        "A member walks twice at once. *Consistency* says whether its state and its positions belong together:",
        diagram(region.TRANSITIONS, "INITIALIZED", _aside),
        "Left out of the picture: every state but the last two leads to FAILED by an error that no reset cures "
        "(GAVE_UP), and to CLOSED. The table has all of it.",
        "*The checkpoint* says how far the one under way has come here; a reset ends it in any phase:",
        diagram(region.PHASES, "OPEN"),
        "## What each state means",
        *(f"**{state.name}** ({state.value}). {described[state.name]}" for state in region.RegionState),
        *(f"**{phase.name}** ({phase.value}). {phases[phase.name]}" for phase in region.RegionPhase),
        "## Every transition",
        _table(region.TRANSITIONS),
        _table(region.PHASES),
    ]
    return "\n\n".join(parts) + "\n"


def _table(table: Mapping[State, Mapping[When, State]]) -> str:
    lines = ["| from | when | to |", "| --- | --- | --- |"]
    lines += [
        f"| {state.name} | {trigger.name}: {trigger.value} | {target.name} |"
        for state, row in table.items()
        for trigger, target in row.items()
    ]
    return "\n".join(lines)


def metrics_page() -> str:
    """docs/metrics.md."""
    parts = [
        "# The figures of a consumer",
        "Made by `docs/make.py` from `coordinator_client/metrics/metrics_table.py`; change the table there and run "
        "`make docs`.",
        "`Consumer.metrics()` gives all of them at one moment; [watching.md](watching.md) says how, and how others are "
        "told.",
        "Units: latencies are ms as in Java's client, what lies back is in s. A figure of which nothing was measured "
        "is None, where Java has NaN or -1. Averages and maxima are of the last 30 to 60 s (those of rebalances: of "
        "the last 100). Rates that a monitoring system makes of a counter are left to it.",
        "\n".join(
            [
                "| kohort | Java | Prometheus | unit | meaning |",
                "| --- | --- | --- | --- | --- |",
                *(_figure_row(one) for one in FIGURES.values()),
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _figure_row(one: MetricSpec) -> str:
    java = f"{one.java[1]} ({one.java[0]}-metrics)" if one.java is not None else ""
    name = prometheus_name(one).removeprefix("kohort_consumer_") + ("_total" if one.kind is MetricKind.COUNTER else "")
    return f"| `{one.name}` | {java} | {name} | {one.unit} | {one.about} |"


PAGES: Mapping[str, Callable[[], str]] = {
    "metrics.md": metrics_page,
    "region-states.md": region_states_page,
    "states.md": states_page,
}
"""Page -> what makes it. Add yours here."""


def main() -> None:
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
