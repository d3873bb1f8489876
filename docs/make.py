"""Pages that are made from tables of the code. `make docs` writes them, and tests check that they are current."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from docs import typed_settings
from docs.grafana import board
from kohort.admin.admin_config import AdminConfig
from kohort.consistent_region import states as region
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.group.states import (
    CONSUMER_GROUP_TRANSITIONS,
    COORDINATOR_TRANSITIONS,
    TRANSITIONS,
    CoordinatorState,
    MemberState,
)
from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics
from kohort.network.auth.security_config import SecurityConfig
from kohort.network.client_config import ClientConfig
from kohort.network.exporting.readings import prometheus_name
from kohort.network.metric_spec import ClientMetrics, MetricKind, MetricSpec
from kohort.network.settings_table import Setting, Settings
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_metrics import ProducerMetrics
from kohort.share_consumer import states as share
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_metrics import SHARE_FIGURES

State = TypeVar("State", bound=Enum)
When = TypeVar("When", bound=Enum)

HERE = Path(__file__).parent


def paragraphs(kind: type) -> dict[str, str]:
    """The paragraph under each member of an Enum, from the source, since Python does not keep it."""
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
    """A mermaid state diagram. Triggers with the same states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in table.items():
        for trigger, target in row.items():
            if not leave_out(state.name, trigger.name):
                arrows.setdefault((state.name, target.name), []).append(trigger.name)
    lines = [f"    [*] --> {start}"]
    lines += [f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _aside(state: str, trigger: str) -> bool:
    """True for the three triggers of nearly every state. They would crowd the picture; the table has them."""
    return trigger in {"CLOSED", "STALLED", "GAVE_UP"}


INTERRUPTIONS = frozenset({"LOST", "LOST_NOTHING", "MUST_JOIN", "MUST_LEAVE", "MUST_REVOKE"})


def _of_member(state: str, trigger: str) -> bool:
    """True for triggers of nearly every state of a member. Those that interrupt it are drawn for STABLE only."""
    return _aside(state, trigger) or (trigger in INTERRUPTIONS and state != "STABLE")


def states_page() -> str:
    """docs/states.md."""
    described = paragraphs(MemberState)
    coordinator = paragraphs(CoordinatorState)
    parts = [
        "# The states of a group member",
        "Made by `docs/make.py` from `coordinator_client/group/states.py`; change the table there and run `make docs`.",
        "A member is two small state machines. *Membership* is the state of the member in its group:",
        diagram(TRANSITIONS, "OUT", _of_member),
        "The picture leaves out three transitions of nearly every state. A fatal error leads to FAILED, a handler "
        "that does not poll to STALLED, and the deadline of close to CLOSED. A loss of partitions, and an order to "
        "revoke or to leave, interrupts nearly every state. Of these the picture has those of STABLE. The table has "
        "all transitions.",
        "In a [KIP-848](kip848.md) group the coordinator assigns. There is no planning and no sync:",
        diagram(CONSUMER_GROUP_TRANSITIONS, "OUT", _of_member),
        "*The coordinator* is the search for the group's broker. Its loss does not end the membership:",
        diagram(COORDINATOR_TRANSITIONS, "UNKNOWN"),
        "## States",
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
        "Made by `docs/make.py` from `consistent_region/states.py`; change the tables there and run `make docs`. "
        "[region.md](region.md) describes regions.",
        "A member has two state machines. *Consistency* is the relation of its state and its positions:",
        diagram(region.TRANSITIONS, "INITIALIZED", _aside),
        "The picture leaves out two transitions. An error that no reset cures (GAVE_UP) leads from every state but the "
        "last two to FAILED. Every state leads to CLOSED. The table has all transitions.",
        "*The checkpoint* is the progress of the checkpoint under way in this member. A reset ends it in any phase:",
        diagram(region.PHASES, "OPEN"),
        "## States",
        *(f"**{state.name}** ({state.value}). {described[state.name]}" for state in region.RegionState),
        *(f"**{phase.name}** ({phase.value}). {phases[phase.name]}" for phase in region.RegionPhase),
        "## Every transition",
        _table(region.TRANSITIONS),
        _table(region.PHASES),
    ]
    return "\n\n".join(parts) + "\n"


def share_states_page() -> str:
    """docs/share-states.md."""
    described = paragraphs(share.ShareState)
    parts = [
        "# The states of a member of a share group",
        "Made by `docs/make.py` from `share_consumer/states.py`; change the table there and run `make docs`. "
        "[share-groups.md](share-groups.md) describes share groups.",
        diagram(share.TRANSITIONS, "OUT", _aside),
        "The picture leaves out two transitions. A fatal error (GAVE_UP) leads from every state to FAILED. A caller "
        "that does not poll leads to STALLED. The table has all transitions.",
        "## States",
        *(f"**{state.name}** ({state.value}). {described[state.name]}" for state in share.ShareState),
        "## Every transition",
        _table(share.TRANSITIONS),
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
        "# Metrics",
        "Made by `docs/make.py` from `coordinator_client/metrics/metrics_table.py`, `producer/producer_metrics.py` and "
        "`share_consumer/share_metrics.py`; change the tables there and run `make docs`.",
        "`Consumer.metrics()`, `Producer.metrics()` and `ShareConsumer.metrics()` return all metrics of one moment. "
        "[watching.md](watching.md) describes them and their exporters. Metrics of share consumers have no exporter.",
        "Latencies are in ms as in Java's client; ages are in s. A metric without a measurement is None, where Java "
        "has NaN or -1. Averages and maxima are over the last 30 to 60 s. Those of rebalances are over the last 100. "
        "There are no rates that a monitoring system computes from a counter.",
        "## Consumer",
        _figures_table(ConsumerMetrics),
        "## Producer",
        _figures_table(ProducerMetrics),
        "## Share consumer",
        "\n".join(
            [
                "| kohort | Java | unit | meaning |",
                "| --- | --- | --- | --- |",
                *(f"| `{one.name}` | {_javas(one)} | {one.unit} | {one.about} |" for one in SHARE_FIGURES.values()),
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _javas(one: MetricSpec) -> str:
    return f"{one.java[1]} ({one.java[0]}-metrics)" if one.java is not None else ""


def _figures_table(table: type[ClientMetrics]) -> str:
    head = ("| kohort | Java | Prometheus | unit | meaning |", "| --- | --- | --- | --- | --- |")
    return "\n".join([*head, *(_figure_row(table, one) for one in table.figures.values())])


def _figure_row(table: type[ClientMetrics], one: MetricSpec) -> str:
    name = prometheus_name(table, one).removeprefix(f"kohort_{table.client}_")
    name += "_total" if one.kind is MetricKind.COUNTER else ""
    return f"| `{one.name}` | {_javas(one)} | {name} | {one.unit} | {one.about} |"


def settings_page() -> str:
    """docs/reference/settings.md."""
    parts = [
        "# Settings",
        "Made by `docs/make.py` from the tables in the code. Change them there and run `make docs`.",
        "`Consumer(bootstrap, setting=value)` takes kohort's names. `Consumer.from_config({...})` takes Kafka's names, "
        "and values as text. An unknown name raises `ConfigError` with the nearest known name. Type checkers find "
        f"misspelt names and values too, by {_typed_dicts()}.",
        *(part for title, kind in SETTINGS.items() for part in (f"## {title}", _settings_table(_own_rows(kind)))),
    ]
    return "\n\n".join(parts) + "\n"


def _typed_dicts() -> str:
    names = [f"`{file.name}`" for file in typed_settings.FILES.values()]
    return f"{', '.join(names[:-1])} and {names[-1]}"


SETTINGS: Mapping[str, type[Settings]] = {
    "Consumer": ConsumerConfig,
    "Producer": ProducerConfig,
    "ShareConsumer": ShareConsumerConfig,
    "Admin": AdminConfig,
    "Connections of every client": ClientConfig,
    "Security of every client": SecurityConfig,
}


def _own_rows(kind: type[Settings]) -> list[Setting]:
    """The settings that a class adds to those of its base class."""
    above = getattr(kind.__base__, "table", {})
    return [row for name, row in kind.table.items() if name not in above]


def _settings_table(settings: Iterable[Setting]) -> str:
    head = ["| kohort | Kafka | default | allowed | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join(head + [_setting_row(one) for one in settings])


def _setting_row(one: Setting) -> str:
    if one.choices:
        allowed = ", ".join(f"`{choice}`" for choice in one.choices)
    elif one.low is not None or one.high is not None:
        allowed = " ".join(
            f"{sign} {bound:,}" for sign, bound in (("≥", one.low), ("≤", one.high)) if bound is not None
        )
    else:
        allowed = ""
    default = "" if one.default is None or one.default == () else f"`{one.default}`"
    kafka = ", ".join(f"`{name}`" for name in (one.kafka, *one.aliases))
    return f"| `{one.name}` | {kafka} | {default} | {allowed} | {one.about.replace('|', chr(92) + '|')} |"


def public_errors() -> dict[str, list[type[Exception]]]:
    """Public package -> its error classes: each class once, at the first package that exports it."""
    found: dict[str, list[type[Exception]]] = {}
    seen: set[type] = set()
    for package in (
        "common",
        "coordinator_client",
        "producer",
        "share_consumer",
        "workers",
        "admin",
        "assignors",
        "fastpath",
        "protocol.errors",
        "spark",
        "testing",
    ):
        module = import_module(f"kohort.{package}")
        values = (getattr(module, name) for name in getattr(module, "__all__", vars(module)))
        classes = [one for one in values if isinstance(one, type) and issubclass(one, Exception) and one not in seen]
        seen.update(classes)
        found[package] = classes
    region = import_module("kohort.consistent_region.errors")
    found["consistent_region.errors"] = [
        one for one in vars(region).values() if isinstance(one, type) and one.__module__ == region.__name__
    ]
    return {package: classes for package, classes in found.items() if classes}


CURE = "\n\nCure:\n"


def cause_and_cure(error: type[Exception]) -> tuple[str, str]:
    """The docstring of an error: the text before its section `Cure:`, and that section in one line."""
    cause, _, cure = inspect.cleandoc(error.__doc__ or "").partition(CURE)
    return cause, " ".join(cure.split())


def errors_page() -> str:
    """docs/reference/errors.md."""
    parts = [
        "# Errors",
        "Made by `docs/make.py` from the classes. Change them there and run `make docs`.",
        "Every error derives from `KohortError`. `error.place` holds the values that say where it happened, such as "
        "topic, partition and offset. `error.hint` says what to do. Classes without a cure are bases of others.",
    ]
    for package, classes in public_errors().items():
        parts.append(f"## kohort.{package}")
        for one in classes:
            bases = ", ".join(f"`{base.__name__}`" for base in one.__bases__)
            cause, cure = cause_and_cure(one)
            parts.append(f"### {one.__name__}")
            parts.append(f"Derives from {bases}. {cause}")
            parts += [f"**Cure.** {cure}"] if cure else []
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/errors.md": errors_page,
    "reference/settings.md": settings_page,
    "metrics.md": metrics_page,
    "region-states.md": region_states_page,
    "share-states.md": share_states_page,
    "states.md": states_page,
}
"""Page -> its function."""


FILES: dict[str, Callable[[], str]] = {
    "recipes/grafana.json": board,
    **{f"../{name}": partial(typed_settings.source, file) for name, file in typed_settings.FILES.items()},
}
"""File that is no page -> its function."""


def main() -> None:
    for name, make in (PAGES | FILES).items():
        (HERE / name).write_text(make())
        print((HERE / name).resolve().relative_to(HERE.parent))


if __name__ == "__main__":
    main()
