"""`kohort plan`: the same plan as Spark's, and what it would miss."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from kohort import Consumer, ShareConsumer, TopicPartition
from kohort.cli.main import main
from kohort.cli.plan import bound
from kohort.spark import PlanError
from kohort.testing import FakeBroker
from tests.support.broker_selection import SelectedBroker


@pytest.fixture
def thirty(broker: SelectedBroker, topic: str) -> str:
    """Ten records in each of three partitions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(30):
        producer.produce(topic, b"%d" % n, partition=n % 3)
    assert producer.flush(120) == 0
    return topic


def test_a_bound_is_a_word_a_time_or_offsets() -> None:
    assert bound("committed") == "committed"
    assert bound("2024-02-29T12:00Z") == bound("2024-02-29T12:00") == datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert bound('{"a":{"0":7,"1":-1,"2":-2}}') == {
        TopicPartition("a", 0): 7,
        TopicPartition("a", 1): "latest",
        TopicPartition("a", 2): "earliest",
    }


@pytest.mark.parametrize("text", ["soon", "{", '{"a":7}', '{"a":{"0":[7]}}'])
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        bound(text)


def test_no_name_is_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    topic = "t" * 120
    with FakeBroker(topics={topic: 1}) as fake:
        fake.produce(topic, 0, [(None, b"v")])
        assert main(["plan", "--topic", topic, "-b", fake.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [topic, "0", "0", "1", "1"] in [line.split() for line in lines]
    assert lines[-1] == "1 range, 1 offset"


def test_a_share_group_has_no_committed_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        requested = ["plan", "--topic", "t", "--start", "committed", "-b", fake.bootstrap]
        assert main(requested) == 1
        assert "'committed' needs a group; add --group NAME" in capsys.readouterr().err
        with ShareConsumer(fake.bootstrap, group="jobs") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0.1)
            assert main([*requested, "--group", "jobs"]) == 1
        assert "a share group commits no offsets (group=jobs)" in capsys.readouterr().err
        assert main([*requested, "--group", "none"]) == 0


@pytest.mark.broker
def test_ranges_and_gaps_of_what_a_group_has_not_read(
    broker: SelectedBroker, thirty: str, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    group = unique("group")
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.commit({TopicPartition(thirty, 0): 2, TopicPartition(thirty, 1): 25})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([Place(thirty, 0, 4)]).values():
        future.result(120)
    requested = ["plan", "--bootstrap", broker.bootstrap, "--topic", thirty, "--start", "committed", "--group", group]
    assert main([*requested, "--max-records", "5", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(one["partition"], one["start"], one["stop"]) for one in found["ranges"]] == [
        (0, 4, 7),
        (0, 7, 10),
        (2, 0, 5),
        (2, 5, 10),
    ]
    assert found["offsets"] == 16
    assert [(gap["partition"], gap["kind"], gap["first"], gap["last"]) for gap in found["gaps"]] == [
        (0, "retention", 2, 4),
        (1, "rewound", 10, 25),
        (2, "new", 0, 0),
    ]
    assert main([*requested, "--max-bytes", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ranges"]) > 4
    assert main(requested) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 ranges, 16 offsets" in lines
    assert f"gap: {thirty}-0: offsets [2, 4) are not in the log any more" in lines
    assert main([*requested, "--fail-on-data-loss"]) == 1
    assert f"holds [4, 10) (topic={thirty}, partition=0, offset=2)" in capsys.readouterr().err


@pytest.mark.broker
def test_one_partition_and_a_pattern(broker: SelectedBroker, thirty: str, capsys: pytest.CaptureFixture[str]) -> None:
    requested = ["plan", "--bootstrap", broker.bootstrap, "--json"]
    assert main([*requested, "--partition", f"{thirty}:1", "--min-partitions", "2"]) == 0
    assert [one["partition"] for one in json.loads(capsys.readouterr().out)["ranges"]] == [1, 1]
    assert main([*requested, "--pattern", f"{thirty[:-1]}."]) == 0
    assert json.loads(capsys.readouterr().out)["offsets"] == 30
    assert main([*requested, "--partition", thirty]) == 1
    assert "TOPIC:NUMBER" in capsys.readouterr().err
