"""Manners that no linter knows: public names, light imports, links, and heads of files."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import kohort

ROOT = Path(__file__).parents[2]
LINKS = ROOT / "src" / "kohort"
# The names a user may rely on; they stay where they are when files move inside.
PUBLIC = {
    "kohort": (
        "Consumer",
        "AsyncConsumer",
        "RebalanceHooks",
        "Revoked",
        "Assigned",
        "Lost",
        "TopicPartition",
        "Record",
        "RecordColumns",
        "Assignor",
        "GroupView",
        "Plan",
        "ConsistentRegion",
        "KohortError",
        "Producer",
        "ShareConsumer",
        "AsyncShareConsumer",
    ),
    "kohort.assignors": ("Assignor", "GroupView", "Plan", "get"),
    "kohort.fastpath": ("decode", "Record", "RecordColumns", "TopicPartition", "KohortError", "WireError"),
    "kohort.protocol.catalogue": ("API", "choose_version"),
    "kohort.protocol.membership": ("Subscription", "Assignment"),
    "kohort.protocol.errors": ("ERRORS", "error_name", "BrokerError"),
    "kohort.protocol.wire": ("WireConnection",),
    "kohort.coordinator_client": (
        "Consumer",
        "AsyncConsumer",
        "RebalanceHooks",
        "Revoked",
        "Assigned",
        "Lost",
    ),
    "kohort.producer": ("Producer", "Delivery", "ProducerFenced", "TransactionAborted"),
    "kohort.share_consumer": ("ShareConsumer", "AsyncShareConsumer", "ShareRecords", "LockLost"),
    "kohort.consistent_region": ("ConsistentRegion", "Periodic", "DictState"),
    "kohort.spark": ("kafka_rdd", "plan", "OffsetRange"),
    "kohort.testing": ("RealBroker", "RealCluster", "FakeBroker", "FaultProxy"),
}
# The locks of `threading` are left held by signal handlers that raise, from Python 3.14 on. None runs on these threads.
PLAIN_LOCKS = {
    "network/network_client.py",  # threads of jobs
    "spark/consumer_pool.py",  # Spark's workers, which have no handlers that raise
    "spark/group_member.py",  # the same
    "spark/transactional_batch.py",  # threads of Py4J, which call `foreachBatch`
}
NO_CODE = frozenset({tokenize.COMMENT, tokenize.NL})
HEAVY = ("pyspark", "pyarrow", "typer", "rich", "construct", "numpy", "pandas", "asyncio")


def folders() -> list[str]:
    """The package's folders at the top of the repository."""
    return sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in ("benchmarks",))


def ours() -> list[Path]:
    """Every source file of ours, the tests' too."""
    places = [*folders(), "tests", "benchmarks", "examples", "docs", ".ci"]
    found = [
        path
        for place in places
        for path in (ROOT / place).rglob("*.py*")
        if path.suffix in (".py", ".pyx", ".pyi", ".pxd")
    ]
    return sorted([*found, ROOT / "setup.py"])


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_where_users_look_for_them(module: str) -> None:
    loaded = importlib.import_module(module)
    missing = [name for name in PUBLIC[module] if not hasattr(loaded, name)]
    assert missing == []
    assert set(PUBLIC[module]) <= set(getattr(loaded, "__all__", PUBLIC[module]))


@pytest.mark.parametrize("folder", ["", *folders()])
def test_all_lists_what_is_there_and_nothing_twice(folder: str) -> None:
    module = importlib.import_module(f"kohort.{folder}" if folder else "kohort")
    names = list(getattr(module, "__all__", ()))
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


def test_dir_of_the_package_offers_its_public_names() -> None:
    assert set(kohort.__all__) <= set(dir(kohort))
    with pytest.raises(AttributeError, match="no attribute 'Konsumer'"):
        _ = kohort.Konsumer  # type: ignore[attr-defined]


def test_import_kohort_loads_nothing_heavy() -> None:
    code = f"import kohort, sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_consumer_needs_neither_spark_nor_arrow_nor_the_command_line() -> None:
    code = (
        "import kohort, sys; kohort.Consumer; print(sorted({'pyspark', 'pyarrow', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_links_of_the_package_are_relative_and_complete() -> None:
    links = {path.name: os.readlink(path) for path in LINKS.iterdir() if path.is_symlink()}
    assert links == {name: f"../../{name}" for name in folders()}


def test_files_are_finished() -> None:
    unfinished = ("TO" + "DO", "FIX" + "ME", "XX" + "X:")  # in two halves, so that this file passes its own test
    assert [relative(path) for path in ours() if any(word in path.read_text() for word in unfinished)] == []


def says_what_it_is_for(path: Path) -> bool:
    """Reads the first token that is no comment: a docstring, or the end of an empty file."""
    with path.open() as source:
        first = next(token for token in tokenize.generate_tokens(source.readline) if token.type not in NO_CODE)
    if first.type == tokenize.STRING:
        return bool(str(ast.literal_eval(first.string)).strip())
    return first.type == tokenize.ENDMARKER


def test_every_module_says_what_it_is_for() -> None:
    assert [relative(path) for path in ours() if path.suffix == ".py" and not says_what_it_is_for(path)] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('#!/usr/bin/env python\n\n"""Text."""\n', True),
        ("", True),
        ("# Text.\n", True),
        ('"""  """\n', False),
        ("# Text.\nx = 1\n", False),
        ('x = 1\n"""Text."""\n', False),
    ],
)
def test_a_module_without_a_docstring_is_found(text: str, says: bool, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert says_what_it_is_for(tmp_path / "module.py") == says


def test_callers_of_clients_hold_no_plain_lock() -> None:
    plain = re.compile(r"\bthreading\.(R?Lock|Condition|(Bounded)?Semaphore)\(")
    files = [path for path in LINKS.glob("*/**/*.py") if path.relative_to(LINKS).parts[0] not in ("cli", "testing")]
    found = {path.relative_to(LINKS).as_posix() for path in files if plain.search(path.read_text())}
    assert found == PLAIN_LOCKS


def test_repository_names_no_path_of_a_machine() -> None:
    paths = (f"{ROOT}/", f"{Path.home()}/")
    reported = [
        relative(path)
        for path in [*ours(), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
        if path.exists() and any(word in path.read_text() for word in paths)
    ]
    assert reported == []


def test_files_that_the_maps_name_exist() -> None:
    """Of CONTRIBUTING.md's list and DESIGN.md's map. NAME stands for any API."""
    text = "".join((ROOT / page).read_text() for page in ("CONTRIBUTING.md", "DESIGN.md"))
    named = set(re.findall(r"`([\w./-]+/\w+\.(?:py|pyx|pxd|md|toml))`", text))
    assert len(named) > 80
    assert {name for name in named if "NAME" not in name and not (ROOT / name).exists()} == set()


def test_make_builds_and_cleans_each_folder_with_extensions() -> None:
    (named,) = re.findall(r"^COMPILED := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named.split() == sorted({relative(path.parent) for path in ours() if path.suffix == ".pyx"})
