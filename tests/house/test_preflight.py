"""`make dev` names in one go what a machine lacks, before it makes a folder."""

import importlib.util
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

PREFLIGHT = Path(__file__).parents[2] / ".ci" / "preflight.py"


def lacks() -> list[str]:
    found: list[str] = runpy.run_path(str(PREFLIGHT))["missing"]()
    return found


def test_a_machine_with_all_of_them_lacks_nothing() -> None:
    assert lacks() == []


def test_a_machine_with_python_only_reads_everything_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    jdk, compiler, headers, ensurepip = lacks()
    assert "JDK 17" in jdk
    assert "found: none" in jdk
    assert "C compiler" in compiler
    assert str(tmp_path / "Python.h") in headers
    assert "python3-dev" in headers
    assert "ensurepip" in ensurepip
    assert "python3-venv" in ensurepip


@pytest.mark.parametrize(
    ("version", "is_enough"), [("1.8.0_292", False), ("11.0.2", False), ("17.0.9", True), ("25", True)]
)
def test_a_java_before_17_is_named(monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool) -> None:
    said = SimpleNamespace(stderr=f'openjdk version "{version}" 2024-01-01\n')
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: said)
    assert (lacks() == []) is is_enough
