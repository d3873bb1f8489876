"""Examples that need arguments end in one line without them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEED_ARGUMENTS = ["async_service", "consume", "spark_batch", "spark_dead_letters", "spark_postgres", "spark_stream"]


@pytest.mark.parametrize("name", NEED_ARGUMENTS)
def test_an_example_without_arguments_prints_its_usage(name: str) -> None:
    done = subprocess.run([sys.executable, f"examples/{name}.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"usage: python examples/{name}.py BOOTSTRAP ")
