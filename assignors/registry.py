"""Registry of assignors: built-in ones, and those registered under "kohort.assignors"."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from kohort.assignors.base import Assignor
from kohort.assignors.errors import AssignorError, DuplicateAssignor, UnknownAssignor
from kohort.common.foreign_text import exception_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

RACK_PREFIX = "rack-"
ENTRY_POINT_GROUP = "kohort.assignors"
Registered = dict[str, list[tuple[str, Callable[[], object]]]]

#: Name -> location of its class; imported at first use, so that `import kohort` loads none of them.
BUILT_IN: Mapping[str, tuple[str, str]] = {
    "range": ("kohort.assignors.range", "RangeAssignor"),
    "roundrobin": ("kohort.assignors.roundrobin", "RoundRobinAssignor"),
    "sticky": ("kohort.assignors.sticky", "StickyAssignor"),
    "cooperative-sticky": ("kohort.assignors.cooperative_sticky", "CooperativeStickyAssignor"),
    "lag": ("kohort.assignors.lag", "LagAssignor"),
    "weighted": ("kohort.assignors.weighted", "WeightedAssignor"),
    "copartition": ("kohort.assignors.copartition", "CopartitionAssignor"),
}


def names() -> list[str]:
    """Every name that `get` accepts, sorted: built-in assignors and those of installed packages. Raises no error."""
    return sorted({*BUILT_IN, *_registered()})


def get(assignor: str | Assignor) -> Assignor:
    """The assignor of that name, or the given instance after a check.

    A built-in name always means the built-in assignor. Raises `UnknownAssignor` (its hint is the nearest known name).
    Raises `DuplicateAssignor` if two installed packages have the name, `AssignorError` for an object that is not an
    assignor.
    """
    if not isinstance(assignor, str):
        return _checked(assignor, None)
    if assignor in BUILT_IN:  # before the search for installed packages, which takes longer than joining a group
        module, attribute = BUILT_IN[assignor]
        built_in: Assignor = getattr(import_module(module), attribute)()
        return built_in
    registered = _registered()
    origins = registered.get(assignor, [])
    if len(origins) > 1:
        raise DuplicateAssignor(
            "several assignors of one name",
            assignor=assignor,
            claimed_by=" and ".join(origin for origin, _ in origins),
            hint="uninstall one of them, or pass an instance of the other",
        )
    if origins:
        loaded = _loaded(*origins[0], assignor)
        return _checked(loaded() if isinstance(loaded, type) else loaded, assignor)
    if assignor.startswith(RACK_PREFIX):
        from kohort.assignors.rack import RackAssignor

        return RackAssignor(get(assignor.removeprefix(RACK_PREFIX)))
    from difflib import get_close_matches

    near = get_close_matches(assignor, [*BUILT_IN, *registered], n=1, cutoff=0.5)
    known = ", ".join(sorted({*BUILT_IN, *registered}))
    raise UnknownAssignor(
        "no assignor of that name",
        assignor=assignor,
        hint=f"did you mean {near[0]!r}? There are: {known}" if near else f"there are: {known}",
    )


def get_all(assignors: Iterable[str | Assignor]) -> list[Assignor]:
    """Several assignors in order of preference.

    Raises `DuplicateAssignor` if a name occurs twice, `AssignorError` for an empty list or a string instead of a list.
    """
    if isinstance(assignors, str):
        raise AssignorError("assignors is one string", hint=f"write assignors=[{assignors!r}]")
    found = [get(assignor) for assignor in assignors]
    if not found:
        raise AssignorError(
            "the list of assignors is empty", hint="pass at least one, for example 'cooperative-sticky'"
        )
    seen = set()
    for assignor in found:
        if assignor.name in seen:
            raise DuplicateAssignor("the same assignor twice in one list", assignor=assignor.name)
        seen.add(assignor.name)
    return found


def _loaded(origin: str, load: Callable[[], object], name: str) -> object:
    try:
        return load()
    except Exception as error:
        raise AssignorError(
            f"an installed package registers it and cannot be imported: {exception_text(error)}",
            assignor=name,
            package=origin,
            hint="install the package again, or pip uninstall it",
        ) from error


def _checked(assignor: object, name: str | None) -> Assignor:
    if isinstance(assignor, type):
        raise AssignorError("an assignor's class, not an instance", hint=f"write {assignor.__name__}()")
    if not isinstance(assignor, Assignor):
        missing = [part for part in ("name", "rebalance", "subscription", "assign") if not hasattr(assignor, part)]
        raise AssignorError("not an assignor", got=type(assignor).__name__, hint=f"it has no {', '.join(missing)}")
    if name is not None and assignor.name != name:
        raise AssignorError("registered under another name than its own", registered=name, assignor=assignor.name)
    return assignor


def entry_points(group: str) -> Iterable[EntryPoint]:
    """The entry points of installed packages."""
    from importlib.metadata import entry_points as installed  # takes a sixth of the time to import kohort

    return installed(group=group)


def _registered() -> Registered:
    """Name -> (origin, loader); a package found twice on the path counts once."""
    return _found_on(tuple(sys.path), entry_points)


@cache
def _found_on(path: tuple[str, ...], find: Callable[..., Iterable[EntryPoint]]) -> Registered:
    # Cached, since it reads the metadata of every installed package (10 ms).
    found: dict[str, dict[tuple[str, str], Callable[[], object]]] = {}
    for entry in find(group=ENTRY_POINT_GROUP):
        origin = entry.dist.name if entry.dist else "an installed package"
        found.setdefault(entry.name, {})[(origin, entry.value)] = entry.load
    return {
        name: [(f"{origin} ({value})", load) for (origin, value), load in rows.items()] for name, rows in found.items()
    }
