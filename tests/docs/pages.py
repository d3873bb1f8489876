"""Code blocks of the documentation's pages, run in their order as a reader runs them.

A page is Markdown. A fence of `python` runs in the page's own interpreter, which keeps its names from block to block. A
fence of `console` holds commands after "$ " and their output. A fence of `text` right below a block of `python` is its
output, in which "..." stands for any text. A fence with title="NAME" is written to NAME in the page's folder. An HTML
comment above a fence changes how it runs:

    <!-- endless: -->       the block is interrupted, as by Ctrl-C, once it has printed the output shown
    <!-- needs: NAME -->    the block needs NAME, such as a cloud account: it is compiled and not run
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ADDRESS = "localhost:9092"
"""The broker's address on every page."""

LIMIT_S = 240.0
END = b"\0"
"""Stands before a block's outcome, after all that it printed."""

STDERR = "stderr.txt"

_FENCE = re.compile(
    r"(?:^<!-- (?P<verb>needs|endless):[^\n]*? -->\n+)?"
    r'^```(?P<language>[a-z]+)(?: title="(?P<file>[^"\n]+)")?\n(?P<text>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)

_CHILD = """
import json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    outcome = ""
    try:
        exec(compile("\\n" * block["line"] + block["text"], block["page"], "exec"), names)
    except KeyboardInterrupt:
        outcome = "interrupted"
    except BaseException:
        outcome = traceback.format_exc()
    print("\\0" + json.dumps(outcome), flush=True)
"""


class Block(NamedTuple):
    """One fence. `line`: of its first line of text, from 1. `file`: the title, the name of the file to write."""

    language: str
    text: str
    line: int
    verb: str | None = None
    file: str | None = None


class PageError(AssertionError):
    """A block failed, or its output is not the output shown."""


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page):
        line = page.count("\n", 0, match.start("text")) + 1
        found.append(Block(match["language"], match["text"], line, match["verb"], match["file"]))
    return found


def shown_output(page: str, blocks: list[Block], number: int) -> str | None:
    """The text of the fence right below, where one is."""
    if number + 1 == len(blocks) or blocks[number + 1].language != "text":
        return None
    this, below = blocks[number], blocks[number + 1]
    end = this.line + this.text.count("\n")
    between = page.splitlines()[end : below.line - 2]
    return None if any(line.strip() for line in between) else below.text


def is_like(output: str, shown: str) -> bool:
    """True if the output is the text shown, in which "..." stands for any text."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("..."))
    return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """(command, output shown) of a console block. A command goes on after a backslash at its line's end."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        length = 1
        while lines[length - 1].rstrip("\n").endswith("\\"):
            length += 1
        yield "".join(lines[:length]), "".join(lines[length:])


class PageRun:
    """One page at work in `folder`, against the broker at `bootstrap`."""

    def __init__(self, path: Path, folder: Path, bootstrap: str) -> None:
        self._path = path
        self._bootstrap = bootstrap
        binaries = str(Path(sys.executable).parent)
        source = str(Path(__file__).parents[2] / "src")
        self._environment = os.environ | {
            "PATH": os.pathsep.join([binaries, os.environ["PATH"], str(Path(__file__).parent / "programs")]),
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        self._folder = folder
        self._output = b""
        self._news = threading.Event()
        self._python: subprocess.Popen[bytes] | None = None
        self._shells: list[int] = []

    def run(self) -> tuple[int, int]:
        """(blocks run, blocks that need something). Raises PageError at the first block that fails."""
        page = self._path.read_text()
        blocks = blocks_of(page)
        ran = needing = 0
        try:
            for number, block in enumerate(blocks):
                if block.verb == "needs":
                    needing += 1
                    if block.language == "python":
                        compile(block.text, str(self._path), "exec")
                elif block.file is not None:
                    (self._folder / block.file).write_text(self._here(block.text))
                elif block.language == "python":
                    ran += 1
                    self._run_python(block, shown_output(page, blocks, number))
                elif block.language == "console":
                    ran += 1
                    self._run_console(block)
        finally:
            self._close()
        return ran, needing

    def _here(self, text: str) -> str:
        return text.replace(ADDRESS, self._bootstrap)

    def _fails(self, block: Block, what: str) -> PageError:
        return PageError(f"{self._path.name}:{block.line}: {what}")

    def _run_console(self, block: Block) -> None:
        for command, shown in commands_of(self._here(block.text)):
            shell = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._shells.append(shell.pid)
            try:
                output = shell.communicate(timeout=LIMIT_S)[0].decode()
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGABRT)  # with PYTHONFAULTHANDLER, each Python prints where it stands
                output = shell.communicate()[0].decode()
                late = f"`{command.strip()}` does not end in {LIMIT_S:.0f} s; it printed\n{output}"
                raise self._fails(block, late) from None
            if shell.returncode:
                raise self._fails(block, f"`{command.strip()}` ends with {shell.returncode}:\n{output}")
            if not is_like(output, shown):
                raise self._fails(block, f"`{command.strip()}` prints\n{output}\nand not\n{shown}")

    def _run_python(self, block: Block, shown: str | None) -> None:
        python = self._started()
        assert python.stdin is not None
        wanted = None if shown is None else self._here(shown)
        self._output = b""
        self._news.clear()
        text = {"text": self._here(block.text), "line": block.line - 1, "page": str(self._path)}
        python.stdin.write(json.dumps(text).encode() + b"\n")
        python.stdin.flush()
        deadline = time.monotonic() + LIMIT_S
        was_interrupted = False
        while not (END in self._output and self._output.endswith(b"\n")):
            self._news.wait(1.0)
            self._news.clear()
            if block.verb == "endless" and not was_interrupted and is_like(self._output.decode(), wanted or ""):
                python.send_signal(signal.SIGINT)
                was_interrupted = True
            if python.poll() is not None:
                raise self._fails(block, "the interpreter ended: " + (self._folder / STDERR).read_text())
            if time.monotonic() > deadline:
                raise self._fails(block, f"does not end in {LIMIT_S:.0f} s; it printed\n{self._output.decode()}")
        printed, _, outcome = self._output.partition(END)
        failure = json.loads(outcome)
        if failure != ("interrupted" if block.verb == "endless" else ""):
            raise self._fails(block, failure or "ends by itself, and is marked endless")
        if wanted is not None and not is_like(printed.decode(), wanted):
            raise self._fails(block, f"prints\n{printed.decode()}\nand not\n{wanted}")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-u", "-c", _CHILD],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self._folder / STDERR).open("wb"),
                start_new_session=True,
            )
            threading.Thread(target=self._collect, daemon=True).start()
        return self._python

    def _collect(self) -> None:
        assert self._python is not None
        assert self._python.stdout is not None
        while piece := os.read(self._python.stdout.fileno(), 65536):
            self._output += piece
            self._news.set()

    def _close(self) -> None:
        """End what the page left running, also in the background of its commands."""
        for leader in (*([self._python.pid] if self._python is not None else []), *self._shells):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
        if self._python is not None:
            self._python.wait()
