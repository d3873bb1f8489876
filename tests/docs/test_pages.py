"""Every page's code runs in its order on a real broker, and prints the output that the page shows."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import PageError, PageRun, blocks_of, commands_of, is_like, shown_output
from tests.support.broker_selection import SelectedBroker

DOCS = Path(__file__).parents[2] / "docs"
LONG = frozenset(
    {
        "moving/java.md",  # starts JVMs
        "region.md",
        "security.md",
        "spark.md",
        "tutorials/spark.md",
        "tutorials/exactly-once.md",  # waits for sessions of killed processes
        "tutorials/group.md",
    }
)
"""Pages for `make test-all`."""

PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in DOCS.rglob("*.md")
    if any(block.language in {"python", "console"} for block in blocks_of(path.read_text()))
)


@pytest.mark.broker
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if name in LONG else ()) for name in PAGES],
)
def test_every_block_runs_and_prints_what_the_page_shows(
    name: str, tmp_path: Path, broker: SelectedBroker, record_property: Callable[[str, object], None]
) -> None:
    ran, needing = PageRun(DOCS / name, tmp_path, broker.bootstrap).run()
    assert ran + needing > 0
    record_property("blocks", (ran, needing))  # tests/conftest.py prints the sums


def test_long_pages_are_pages() -> None:
    assert set(PAGES) >= LONG


def test_at_most_15_blocks_need_something_that_no_test_has() -> None:
    needing = [
        (path.name, block.line)
        for path in DOCS.rglob("*.md")
        for block in blocks_of(path.read_text())
        if block.verb == "needs"
    ]
    assert len(needing) <= 15, needing


PAGE = """
```python
print("a")
```

```text
a
```

```python title="x.py"
print("in a file")
```

```console
$ python x.py
in a file
$ echo one \\
  two
one ...
```
"""


def test_a_page_is_cut_into_blocks_with_their_lines_and_outputs() -> None:
    blocks = blocks_of(PAGE)
    assert [(one.language, one.line, one.file) for one in blocks] == [
        ("python", 3, None),
        ("text", 7, None),
        ("python", 11, "x.py"),
        ("console", 15, None),
    ]
    assert shown_output(PAGE, blocks, 0) == "a\n"
    assert shown_output(PAGE, blocks, 2) is None
    assert list(commands_of(blocks[3].text)) == [
        ("python x.py\n", "in a file\n"),
        ("echo one \\\n  two\n", "one ...\n"),
    ]


def run(text: str, folder: Path) -> tuple[int, int]:
    page = folder / "page.md"
    page.write_text(text)
    return PageRun(page, folder, "127.0.0.1:1").run()


def test_a_page_runs(tmp_path: Path) -> None:
    assert run(PAGE, tmp_path) == (2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", r"page.md:2: prints\n1\n\nand not\n2"),
        ("```python\nx = 1\n```\n\n```python\nx / 0\n```\n", r'page.md:6: Traceback(?s:.*)page.md", line 6'),
        ("```console\n$ echo a\nb\n```\n", r"`echo a` prints\na\n\nand not\nb"),
        ("```console\n$ exit 3\n```\n", "`exit 3` ends with 3"),
        ("<!-- endless: -->\n```python\n1\n```\n\n```text\n2\n```\n", "ends by itself"),
        ("```python\nimport os; os._exit(1)\n```\n", "the interpreter ended"),
    ],
)
def test_a_wrong_page_fails_at_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=message):
        run(text, tmp_path)


def test_a_block_without_an_end_is_interrupted_once_its_output_is_there(tmp_path: Path) -> None:
    endless = 'import time\ntry:\n    print("first")\n    while True: time.sleep(0.1)\nfinally:\n    done = True\n'
    assert run(
        f"<!-- endless: -->\n```python\n{endless}```\n\n```text\nfirst\n```\n\n```python\nassert done\n```\n", tmp_path
    ) == (2, 0)


def test_dots_stand_for_any_text() -> None:
    assert is_like("offset 17 of x\nend\n", "offset ... of x\nend\n")
    assert not is_like("offset 17 of y\nend\n", "offset ... of x\nend\n")


def test_what_a_page_leaves_running_is_ended(tmp_path: Path) -> None:
    start = (
        "import subprocess; child = subprocess.Popen(['sleep', '600']).pid; open('python.pid', 'w').write(str(child))"
    )
    run(f"```console\n$ sleep 600 > /dev/null 2>&1 & echo $! > shell.pid\n```\n\n```python\n{start}\n```\n", tmp_path)
    for name in ("shell.pid", "python.pid"):
        process = int((tmp_path / name).read_text())
        deadline = time.monotonic() + 60
        while is_running(process):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def is_running(process: int) -> bool:
    """True if the process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


CREATED = re.compile(r'(?:topic create |create_topic\(|NewTopic\()"?([a-z][\w.-]*)')

LOOPS = re.compile(r"for topic in ([^;\n]+); do")


def test_pages_that_share_a_broker_create_different_topics() -> None:
    places: dict[str, list[str]] = {}
    for name in PAGES:
        text = "".join(block.text for block in blocks_of((DOCS / name).read_text()) if block.language != "text")
        for topic in [*CREATED.findall(text), *" ".join(LOOPS.findall(text)).split()]:
            places.setdefault(topic, []).append(name)
    assert len(places) > 20
    assert {topic: pages for topic, pages in places.items() if len(pages) > 1} == {}
