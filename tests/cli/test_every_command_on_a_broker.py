"""Every command, typed with --json beside a real broker, and what it prints taken apart. A command that is not in the
table fails by its name: so none comes without."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.cli.main import main
from kohort.fastpath import encode
from kohort.testing.topics import create_topic
from tests.cli.test_every_command import ALL, WITHOUT_JSON
from tests.cli.test_region_command import Region
from tests.cli.test_wire import heartbeat
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce
from tests.support.broker_selection import SelectedBroker

RECORDS = 10


class Place:
    """The surroundings of a command: a resource is created when it is first used."""

    def __init__(self, broker: SelectedBroker, unique: Callable[[str], str], folder: Path, stack: ExitStack) -> None:
        self.broker, self.folder, self.stack = broker, folder, stack
        self._unique = unique

    @cached_property
    def topic(self) -> str:
        """A topic of two partitions and ten records."""
        name = self._unique("topic")
        create_topic(self.broker.bootstrap, name, partitions=2)
        for partition in range(2):
            produce(self.broker.bootstrap, name, numbers(partition * 5, 5), partition=partition)
        return name

    @property
    def requests(self) -> tuple[str, ...]:
        return ("--bootstrap", self.broker.bootstrap)

    def group(self) -> str:
        """A group that has read four of the records, and has gone."""
        name = f"group-{self.topic}"
        with Consumer(self.broker.bootstrap, group=name) as consumer:
            consumer.commit({TopicPartition(self.topic, 0): 4})
        return name

    def lines(self) -> str:
        """A file of two lines."""
        path = self.folder / "lines.txt"
        path.write_text("1\n2\n")
        return str(path)

    def member(self, **settings: Any) -> str:
        """A group with a member in it: the group's name, which is the member's instance id too."""
        name = f"live-{self.topic}"
        consumer = self.stack.enter_context(
            Consumer(self.broker.bootstrap, group=name, group_instance_id=name, **settings)
        )
        consumer.subscribe([self.topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        return name

    def tape(self) -> str:
        """A tape on which a member has lived and gone."""
        path = str(self.folder / "life.tape")
        with Consumer(self.broker.bootstrap, group=f"taped-{self.topic}", tape=path) as consumer:
            consumer.subscribe([self.topic])
            poll_until(consumer, lambda: len(consumer.assignment) == 2)
        return path

    def segment(self) -> str:
        """A segment of two records."""
        folder = self.folder / "payments-0"
        folder.mkdir()
        path = folder / "00000000000000000000.log"
        path.write_bytes(encode([(b"k", b"v", 1_700_000_000_000), (None, b"w", 1_700_000_000_001)]))
        return str(path)

    def region(self, *, stopped: bool = False) -> str:
        """The store of a region with five checkpoints."""
        made = Region(self.folder / "region.db")
        self.stack.callback(made.coordinator.store.close)
        if stopped:
            made.coordinator.deregister(made.ticket)
        return made.url

    def report(self) -> str:
        """A broker's report, which `conformance` has written."""
        path = self.folder / "report"
        typed = ["conformance", *self.requests, "--only", "D3a@4", "--report", "json", "--output", str(path)]
        assert main(typed) == 0
        return f"{path}.json"


@dataclass(frozen=True)
class Row:
    """`typed`: what follows the command. `shows`: whether what came out is what it is there for; several lines of JSON
    come as a list."""

    typed: Callable[[Place], tuple[str, ...]]
    shows: Callable[[Any, Place], bool]


TABLE: dict[str, Row] = {
    "assign plan-migration": Row(
        lambda p: ("range", "cooperative-sticky"), lambda reported, p: len(reported["bounces"]) == 2
    ),
    "assign simulate": Row(
        lambda p: ("--group", p.member(), "--event", "join", "--no-java", *p.requests),
        lambda reported, p: [one["moves"] for one in reported["outcomes"]] == [1],
    ),
    "conformance": Row(
        lambda p: (*p.requests, "--only", "D3a@4", "--output", str(p.folder / "judged")),
        lambda reported, p: [(one["check"], one["verdict"]) for one in reported["results"]] == [("D3a", "pass")],
    ),
    "conformance compare": Row(lambda p: (p.report(),) * 2, lambda reported, p: reported["cells"] == []),
    "conformance list": Row(lambda p: (), lambda reported, p: "D3a" in [one["check"] for one in reported]),
    "consume": Row(
        lambda p: (p.topic, *p.requests),
        lambda reported, p: sorted(one["value"] for one in reported) == [str(number) for number in range(RECORDS)],
    ),
    "doctor": Row(
        lambda p: ("--group", p.member(), "--seconds", "0", *p.requests),
        lambda reported, p: "group" in reported["satisfied"],
    ),
    "group configs": Row(
        lambda p: (p.group(), *p.requests),
        lambda reported, p: reported["configs"]["share.auto.offset.reset"] == "latest",
    ),
    "group delete": Row(
        lambda p: (p.group(), *p.requests), lambda reported, p: reported == {"deleted": [f"group-{p.topic}"]}
    ),
    "group describe": Row(
        lambda p: (p.member(), *p.requests),
        lambda reported, p: [one["instance_id"] for one in reported["members"]] == [f"live-{p.topic}"],
    ),
    "group lag": Row(lambda p: (p.group(), *p.requests), lambda reported, p: reported["lag"] == 1),
    "group list": Row(
        lambda p: p.requests if p.group() else (),
        lambda reported, p: f"group-{p.topic}" in [one["group"] for one in reported],
    ),
    "group offsets export": Row(
        lambda p: (p.group(), *p.requests), lambda reported, p: reported == {p.topic: {"0": 4}}
    ),
    "group offsets reset": Row(
        lambda p: (p.group(), "--to", "earliest", *p.requests),
        lambda reported, p: [(one["before"], one["after"]) for one in reported["offsets"]] == [(4, 0)],
    ),
    "group remove-members": Row(
        lambda p: (p.member(), *p.requests),
        lambda reported, p: (reported["group"], len(reported["removed"])) == (f"live-{p.topic}", 1),
    ),
    "group timeline": Row(
        lambda p: (p.tape(),), lambda reported, p: [one["cause"] for one in reported] == ["FIRST_JOIN", "CLOSED"]
    ),
    "produce": Row(
        lambda p: (p.topic, p.lines(), *p.requests),
        lambda reported, p: (reported["delivered"], sum(reported["partitions"].values())) == (2, 2),
    ),
    "plan": Row(lambda p: ("--topic", p.topic, *p.requests), lambda reported, p: reported["offsets"] == RECORDS),
    "region begin": Row(
        lambda p: (p.region(stopped=True), "--anew"),
        lambda reported, p: (reported["region"], reported["newest"]) == ("bills", 5),
    ),
    "region checkpoints": Row(lambda p: (p.region(),), lambda reported, p: len(reported["checkpoints"]) == 5),
    "region forget": Row(lambda p: (p.region(stopped=True), "t"), lambda reported, p: reported["forgotten"] == ["t-0"]),
    "region inspect": Row(
        lambda p: (p.region(), "5"), lambda reported, p: reported["tasks"][0]["offsets"] == {"t-0": 50}
    ),
    "region reset": Row(lambda p: (p.region(), "--to", "3"), lambda reported, p: reported["forgotten"] == [4, 5]),
    "region retire": Row(lambda p: (p.region(), "--up-to", "2"), lambda reported, p: reported["region"] == "bills"),
    "region status": Row(lambda p: (p.region(),), lambda reported, p: reported["newest_checkpoint"] == 5),
    "segment dump": Row(lambda p: (p.segment(),), lambda reported, p: reported["record_count"] == 2),
    "segment stats": Row(lambda p: (p.segment(),), lambda reported, p: reported["records"] == 2),
    "segment to-parquet": Row(
        lambda p: (p.segment(), str(p.folder / "out.parquet")), lambda reported, p: reported["records"] == 2
    ),
    "topic create": Row(
        lambda p: (f"made-{p.topic}", *p.requests), lambda reported, p: reported == {"created": f"made-{p.topic}"}
    ),
    "topic delete": Row(lambda p: (p.topic, *p.requests), lambda reported, p: reported == {"deleted": [p.topic]}),
    "topic describe": Row(
        lambda p: (p.topic, *p.requests),
        lambda reported, p: [one["end_offset"] for one in reported["partitions"]] == [5, 5],
    ),
    "topic list": Row(
        lambda p: p.requests if p.topic else (), lambda reported, p: p.topic in [one["topic"] for one in reported]
    ),
    "wire apis": Row(
        lambda p: p.requests, lambda reported, p: all(one["broker"] for one in reported if one["name"] == "JoinGroup")
    ),
    "wire explain": Row(lambda p: (heartbeat().hex(),), lambda reported, p: "Heartbeat" in json.dumps(reported)),
    "wire record": Row(
        lambda p: (str(p.folder / "a.tape"), "--group", p.topic, "--topic", p.topic, "--seconds", "0.5", *p.requests),
        lambda reported, p: reported["frames"] > 4,
    ),
    "wire replay": Row(lambda p: (p.tape(),), lambda reported, p: "JoinGroup" in json.dumps(reported)),
}
# They start brokers of their own, one at a time, and are typed there by a test of theirs.
ELSEWHERE = dict.fromkeys(("broker start", "broker stop", "broker status"), "tests/cli/test_broker_command.py")


@pytest.fixture
def place(broker: SelectedBroker, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(broker, unique, tmp_path, stack)


@pytest.mark.broker
@pytest.mark.parametrize("name", sorted(ALL.keys() - WITHOUT_JSON - ELSEWHERE.keys()))
def test_its_json_says_what_it_is_there_for(name: str, place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    assert name in TABLE, f"kohort {name} is typed by no test"
    typed = TABLE[name].typed(place)
    capfd.readouterr()
    assert main([*name.split(), *typed, "--json"]) in (0, 1), capfd.readouterr().err
    printed = capfd.readouterr().out
    try:
        reported = json.loads(printed)
    except json.JSONDecodeError:
        reported = [json.loads(line) for line in printed.splitlines()]
    assert TABLE[name].shows(reported, place), reported


def test_the_table_has_no_row_too_many_and_elsewhere_is_a_test() -> None:
    assert TABLE.keys() | ELSEWHERE.keys() == ALL.keys() - WITHOUT_JSON
    for name, path in ELSEWHERE.items():
        text = Path(__file__).parents[2].joinpath(path).read_text()
        assert f'"{name.split()[1]}", ' in text
        assert '"--json"' in text
