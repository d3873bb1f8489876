"""README's first programs, run as they are printed, on a broker that has no topic yet."""

import builtins
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort import Consumer, TopicPartition
from kohort.admin import Admin
from kohort.cli.topic import app as topic_command
from kohort.testing import RealBroker
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, read

README = (Path(__file__).parents[2] / "README.md").read_text()


class Enough(Exception):
    """Ends a program that would run for ever."""


def blocks(heading: str, bootstrap: str) -> list[str]:
    """The blocks of code under a heading, for a broker that is there; those of the shell first by their order."""
    (section,) = re.findall(rf"\n## {heading}\n(.*?)\n## ", README, re.DOTALL)
    return [
        text.replace("localhost:9092", bootstrap)
        for text in re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    ]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def fresh(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker without topics."""
    if request.param == "fake":
        with FakeBroker() as fake:
            yield fake.bootstrap
    else:
        with RealBroker() as real:
            yield real.bootstrap


def run(program: str, **names: Any) -> None:
    exec(program, {"__name__": "__main__", **names})


def until_committed(bootstrap: str, group: str, total: int, and_then: Callable[[], None]) -> threading.Thread:
    """In a thread: once the group has committed so much, do `and_then`."""

    def wait() -> None:
        with Admin(bootstrap) as admin:
            for _ in range(int(PATIENCE_S / 0.05)):
                if sum(to.offset for to in admin.committed(group).values()) >= total:
                    break
                pause.wait(0.05)
        and_then()

    pause = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_the_first_programs_run_as_printed_on_a_fresh_broker(fresh: str) -> None:
    shell, consume, *_hooks = blocks("A consumer", fresh)
    produce, transact = blocks("A producer", fresh)
    for line in shell.splitlines():
        program, noun, *arguments = shlex.split(line)
        assert (program, noun) == ("kohort", "topic")
        done = CliRunner().invoke(topic_command, arguments)
        assert done.exit_code == 0, done.output

    said: list[Any] = []
    run(produce, print=said.append)
    assert said[0].topic == "payments"
    assert said[0].offset == 0

    # The consumer reads what was there before it came, commits, and reads on; the second record ends the test.
    seen: list[bytes] = []

    def show(_offset: int, _key: bytes, value: bytes, *_rest: object) -> None:
        seen.append(bytes(value))
        if len(seen) > 1:
            raise Enough

    waiting = until_committed(fresh, "billing", 1, lambda: run(produce, print=said.append))
    with pytest.raises(Enough):
        run(consume, print=show)
    waiting.join()
    assert seen == [b"42", b"42"]

    # The transaction's program never ends by itself: the first commit closes its consumer.
    made: list[Consumer] = []
    original = Consumer.subscribe

    def kept(consumer: Consumer, *given: Any, **named: Any) -> None:
        made.append(consumer)
        original(consumer, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consumer, "subscribe", kept)
        waiting = until_committed(fresh, "totals", 2, lambda: made[0].wakeup())
        with pytest.raises(builtins.Exception, match="wakeup"):
            run(transact)
        waiting.join()
    with Consumer(fresh, isolation_level="read_committed") as consumer:
        consumer.assign({TopicPartition("totals", 0): 0})
        assert [record.value for record in read(consumer, 2)] == [b"42", b"42"]
