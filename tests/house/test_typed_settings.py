"""Settings have types: mypy and pyright find a misspelt name or value, and accept a program over all public classes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.typed_settings import FILES, source

ROOT = Path(__file__).parents[2]
HEAD = "from kohort import Admin, AsyncConsumer, Consumer, Producer\n"
MISTAKES = (
    'Consumer("a:1", sesion_timeout_ms=1)',
    'Consumer("a:1", group="g", isolation_level="read_comitted")',
    'Consumer("a:1", protocol="clasic")',
    'Consumer("a:1", fetch_min_bytes="1")',
    'Consumer("a:1", linger_ms=5)',
    'AsyncConsumer("a:1", heartbeat_interval=3000)',
    'Producer("a:1", compression="zstdd")',
    'Producer("a:1", acks="all", batch_size=1)',
    'Producer("a:1", sasl_mechanism="SCRAM-SHA-265")',
    'Admin("a:1", default_api_timeout=5)',
)
SOUND = """
import asyncio
from collections.abc import Sequence

import kohort
from kohort import (
    Admin,
    Assigned,
    Assignor,
    AsyncConsumer,
    ConsistentRegion,
    Consumer,
    GroupView,
    KohortError,
    Lost,
    Plan,
    Producer,
    RebalanceHooks,
    Record,
    RecordColumns,
    Revoked,
    TopicPartition,
)
from kohort.assignors import MemberSubscription, Rebalance
from kohort.consistent_region import DictState, Periodic


class Hooks(RebalanceHooks):
    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        return {place: 1 for place in event.partitions}

    def on_assigned(self, event: Assigned) -> None:
        print(event.generation)

    def on_lost(self, event: Lost) -> None:
        print(event.cause)


class Mine:
    name, rebalance = "mine", Rebalance.EAGER

    def subscription(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        return Plan.of(group, {group.members[0].id: [group.partition(0)]})


MINE: Assignor = Mine()


def show(columns: RecordColumns) -> None:
    for record in columns:
        value: Record = record
        print(value.offset, value.key, value.headers)


def count(record: Record, totals: DictState) -> None:
    totals[str(record.offset)] = 1


def main() -> None:
    with Admin("a:1", security_protocol="SSL", ssl_ca_path="ca.pem") as admin:
        admin.create_topic("topic", partitions=1)
    with Producer("a:1", compression="zstd", linger_ms=5, transactional_id="id") as producer:
        with producer.transaction():
            print(producer.send("topic", b"value", key=b"key").result(10.0).offset)
    with Consumer(["a:1"], group="g", assignors=[MINE, "range"], isolation_level="read_committed") as consumer:
        consumer.subscribe(["topic"], hooks=Hooks())
        for columns in consumer.poll(1.0):
            show(columns)
        consumer.commit({TopicPartition("topic", 0): 1})
    try:
        ConsistentRegion("r", group="g", topics=["topic"], bootstrap="a:1", handler=count, trigger=Periodic(5)).run()
    except KohortError as error:
        print(error.place, kohort.__version__)


async def more() -> None:
    async with AsyncConsumer("a:1", group="g", protocol="consumer", max_poll_records=5) as consumer:
        consumer.subscribe(pattern="top.*")
        async for columns in consumer:
            show(columns)


if __name__ == "__main__":
    main()
    asyncio.run(more())
"""


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_made_from_the_tables(name: str) -> None:
    assert (ROOT / name).read_text() == source(FILES[name])


@pytest.fixture
def programs(tmp_path: Path) -> list[Path]:
    """A file with each mistake on a line, and a sound program."""
    wrong, sound = tmp_path / "wrong.py", tmp_path / "sound.py"
    wrong.write_text(HEAD + "\n".join(MISTAKES) + "\n")
    sound.write_text(SOUND)
    return [wrong, sound]


LINES = list(range(2, 2 + len(MISTAKES)))
"""The lines of the mistakes in their file."""


def test_mypy_finds_each_mistake_and_none_in_a_sound_program(programs: list[Path]) -> None:
    mypy = [sys.executable, "-m", "mypy", *map(str, programs)]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    found = re.findall(r"(\w+)\.py:(\d+): error", done.stdout)
    assert sorted({int(line) for name, line in found if name == "wrong"}) == LINES, done.stdout
    assert [line for name, line in found if name != "wrong"] == [], done.stdout


@pytest.mark.full
def test_pyright_finds_each_mistake_and_none_in_a_sound_program(programs: list[Path]) -> None:
    folder = programs[0].parent
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict", "reportMissingImports": "error"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, programs)]
    done = subprocess.run(pyright, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    errors = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    lines = {one["range"]["start"]["line"] + 1 for one in errors if Path(one["file"]).name == "wrong.py"}
    assert sorted(lines) == LINES, errors
    assert [one["message"] for one in errors if Path(one["file"]).name != "wrong.py"] == []
