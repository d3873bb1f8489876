"""Import circles of the product, counted from its syntax trees, and the rules of its folders.

Imports under TYPE_CHECKING and inside functions count: a circle closed by them is still a circle of the design.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_house import LINKS, ROOT, folders

SIBLINGS = ("admin", "coordinator_client", "producer")
MOST_MODULES = 40
ONE_FILE_AN_API = "protocol/apis"

Graph = Mapping[str, frozenset[str]]


@cache
def sources() -> Mapping[str, Path]:
    """The files of the product by module name."""
    files = [LINKS / "__init__.py"]
    files += [path for folder in folders() for kind in ("*.py", "*.pyx") for path in (ROOT / folder).rglob(kind)]
    return {_name(path): path for path in files}


def _name(path: Path) -> str:
    below = path.relative_to(LINKS if path.is_relative_to(LINKS) else ROOT).with_suffix("")
    return ".".join(("kohort", *below.parts)).removesuffix(".__init__")


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file. Of a Cython file, that of its imports only."""
    text = path.read_text()
    if path.suffix == ".pyx":
        lines = re.findall(r"^ *(from kohort\S* (?:c?import) .*|import kohort.*)$", text, re.MULTILINE)
        text = "\n".join(line.replace(" cimport ", " import ") for line in lines)
    return ast.parse(text)


def imports(module: str, tree: ast.AST, modules: Iterable[str], *, package: bool) -> Iterator[str]:
    """The modules that a tree imports. `from package import name` is a module if there is one of this name."""
    known = frozenset(modules)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            above = parts[: len(parts) - node.level + package] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found = inner if inner in known else base
                if found in known:
                    yield found


@cache
def graph() -> Graph:
    """The imports of each module of the product, without those of itself."""
    modules = sources()
    return {
        name: frozenset(imports(name, tree_of(path), modules, package=path.name == "__init__.py")) - {name}
        for name, path in modules.items()
    }


def circles(graph: Graph) -> set[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            component = frozenset(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.add(component)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_no_modules_import_each_other() -> None:
    assert {tuple(sorted(one)) for one in circles(graph())} == set()


def test_clients_do_not_import_each_other() -> None:
    rooms = {name: name.split(".")[1] for name in graph() if "." in name}
    found = {
        (name, other)
        for name, others in graph().items()
        for other in others
        if rooms.get(name) in SIBLINGS and rooms.get(other) in SIBLINGS and rooms[name] != rooms[other]
    }
    assert found == set()


def test_no_folder_is_crowded() -> None:
    crowds = {
        folder.relative_to(ROOT).as_posix(): len([*folder.glob("*.py"), *folder.glob("*.pyx")])
        for folder in {path.parent for path in sources().values()}
    }
    assert {name: count for name, count in crowds.items() if count > MOST_MODULES and name != ONE_FILE_AN_API} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import kohort.b", {"kohort.b"}),
        ("from kohort.b import thing", {"kohort.b"}),
        ("from kohort import b", {"kohort.b"}),
        ("from kohort.p import deep, other", {"kohort.p", "kohort.p.deep"}),
        ("from . import b", {"kohort.b"}),
        ("from .p import deep", {"kohort.p.deep"}),
        ("if TYPE_CHECKING:\n    from kohort.b import B", {"kohort.b"}),
        ("def f():\n    from kohort.b import B", {"kohort.b"}),
        ("import os", set()),
    ],
)
def test_every_kind_of_import_counts(text: str, found: set[str]) -> None:
    modules = ("kohort", "kohort.a", "kohort.b", "kohort.p", "kohort.p.deep")
    assert set(imports("kohort.a", ast.parse(text), modules, package=False)) == found


def test_a_circle_is_seen() -> None:
    edges = {"a": "b", "b": "c", "c": "ad", "d": "", "e": "a"}
    assert circles({name: frozenset(others) for name, others in edges.items()}) == {frozenset("abc")}
