"""Settings have types: mypy and pyright find a misspelt name or value, and accept a program over all public classes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kohort
from docs.typed_settings import FILES, source

ROOT = Path(__file__).parents[2]
SOUND, WRONG = (Path(__file__).with_name(name) for name in ("users_program.py", "wrong_settings.py"))
MISTAKES_AT_LEAST = 10
PYRIGHT = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_made_from_the_tables(name: str) -> None:
    assert (ROOT / name).read_text() == source(FILES[name])


def test_the_program_has_every_public_class_and_the_mistakes_are_marked() -> None:
    assert [name for name in kohort.__all__ if not re.search(rf"\b{name}\b", SOUND.read_text())] == []
    assert WRONG.read_text().count("# type: ignore\n") >= MISTAKES_AT_LEAST


def test_mypy_finds_each_mistake_and_none_in_a_sound_program() -> None:
    mypy = [sys.executable, "-m", "mypy", str(SOUND), str(WRONG)]  # strict: it reports a comment on a sound line
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.full
def test_pyright_finds_each_mistake_and_none_in_a_sound_program(tmp_path: Path) -> None:
    for program in (SOUND, WRONG):
        (tmp_path / program.name).write_text(program.read_text())
    settings = PYRIGHT | {"extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    done = subprocess.run(pyright, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout
