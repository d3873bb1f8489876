"""The notebook of the examples runs cell by cell, and prints the outputs that it keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import FakeBroker
from tests.docs.pages import PageError, PageRun

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_look.ipynb"


def as_page(notebook: dict[str, Any]) -> str:
    """The cells as fences, and the texts that they printed as fences below."""
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{''.join(cell['source'])}\n```\n")
            printed = "".join(line for output in cell["outputs"] for line in output["text"])
            parts += [f"```text\n{printed}```\n"] if printed else []
    return "\n".join(parts)


def run(notebook: dict[str, Any], folder: Path) -> None:
    page = folder / "notebook.md"
    page.write_text(as_page(notebook))
    with FakeBroker() as fake:
        assert PageRun(page, folder, fake.bootstrap).run() == (4, 0)


def test_it_prints_the_outputs_that_it_keeps(tmp_path: Path) -> None:
    run(json.loads(NOTEBOOK.read_text()), tmp_path)


def test_another_output_is_found(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    notebook["cells"][-1]["outputs"][0]["text"] = ["25\n"]
    with pytest.raises(PageError, match="prints\n24"):
        run(notebook, tmp_path)
