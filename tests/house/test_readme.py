"""README's first program runs as it is printed, on a broker without topics. Its figures are the measured ones."""

import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.page import results
from kohort import Producer
from kohort.admin import Admin
from kohort.cli.topic import app as topic_command
from kohort.testing import RealBroker
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S

README = (Path(__file__).parents[2] / "README.md").read_text()
ONE_SCREEN = 60
"""The most lines of README."""

NEAR = 1.25
"""A figure of README may differ from the kept result by this factor, since results are measured again."""


class Enough(Exception):
    """Ends a program that would run for ever."""


def block(heading: str, bootstrap: str) -> str:
    """The block of code under a heading, for a broker that runs already."""
    (section,) = re.findall(rf"\n## {heading}\n(.*?)\n## ", README, re.DOTALL)
    (text,) = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    return str(text).replace("localhost:9092", bootstrap)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def fresh(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker without topics."""
    if request.param == "fake":
        with FakeBroker() as fake:
            yield fake.bootstrap
    else:
        with RealBroker() as real:
            yield real.bootstrap


def send_after_the_commit(bootstrap: str, group: str) -> None:
    """Once the group has committed a record, send another."""
    with Admin(bootstrap) as admin:
        for _ in range(int(PATIENCE_S / 0.05)):
            if sum(to.offset for to in admin.committed(group).values()) >= 1:
                break
            threading.Event().wait(0.05)
    with Producer(bootstrap) as producer:
        producer.send("payments", b"43", key=b"anna")


def test_the_first_program_runs_as_printed_on_a_fresh_broker(fresh: str) -> None:
    shell = block("Install", fresh).splitlines()
    assert [shlex.split(line, comments=True)[:3] for line in shell[:2]] == [
        ["pip", "install", "kohort[cli]"],
        ["kohort", "broker", "start"],
    ]
    for line in shell[2:]:
        program, noun, *arguments = shlex.split(line)
        assert (program, noun) == ("kohort", "topic")
        done = CliRunner().invoke(topic_command, arguments)
        assert done.exit_code == 0, done.output

    # The consumer reads its own record, commits, and reads on; the second record ends the test.
    seen: list[tuple[int, bytes, bytes]] = []

    def show(offset: int, key: Any, value: Any) -> None:
        seen.append((offset, bytes(key), bytes(value)))
        if len(seen) > 1:
            raise Enough

    waiting = threading.Thread(target=send_after_the_commit, args=(fresh, "billing"))
    waiting.start()
    with pytest.raises(Enough):
        exec(block("Produce and consume", fresh), {"__name__": "__main__", "print": show})
    waiting.join()
    assert seen == [(0, b"anna", b"42"), (1, b"anna", b"43")]


def test_it_fits_on_one_screen() -> None:
    assert len(README.splitlines()) <= ONE_SCREEN


def figures(page: str) -> list[tuple[str, str, str, float, bool]]:
    """(benchmark, work, peer, ratio, is worse) of each row of the table."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| ([\d.]+)x (faster|less|slower|more) \|$", page, re.MULTILINE)
    return [(name, work, peer, float(ratio), kind in ("slower", "more")) for name, work, peer, ratio, kind in rows]


def measured(name: str, work: str, peer: str) -> float:
    """The factor by which kohort is better in the kept result."""
    (value,) = [
        float(one["times_better"])
        for result in results()
        if result["benchmark"] == name
        for one in result["ratios"]
        if (one["work"], one["peer"]) == (work, peer)
    ]
    return value


def test_the_figures_are_those_of_the_kept_results_and_the_last_is_a_loss() -> None:
    rows = figures(README)
    assert len(rows) == 4
    for name, work, peer, ratio, is_worse in rows:
        better = measured(name, work, peer)
        assert 1 / NEAR < (1 / better if is_worse else better) / ratio < NEAR, (work, better)
    assert [is_worse for *_, is_worse in rows] == [False, False, False, True]
