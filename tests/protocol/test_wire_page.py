"""The page about the wire: its code runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"


def test_the_code_on_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "wire_page"})
