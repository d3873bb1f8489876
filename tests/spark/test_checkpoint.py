"""The position of a stream by its checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.cli.main import main
from kohort.spark import PlanError
from kohort.spark.checkpoint import finished_offsets
from kohort.testing.fake_broker import FakeBroker

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    return tmp_path


def batch(checkpoint: Path, number: int, *sources: Any, finished: bool = True) -> None:
    lines = ["v1", SETTINGS, *("-" if one is None else json.dumps(one) for one in sources)]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    (checkpoint / "offsets" / f".{number}.crc").touch()
    if finished:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_last_finished_batch_counts(checkpoint: Path) -> None:
    for number in range(9, 12):
        batch(checkpoint, number, {"a": {"0": number, "1": 5}}, finished=number < 11)
    assert finished_offsets(checkpoint) == {TopicPartition("a", 0): 10, TopicPartition("a", 1): 5}


def test_a_batch_of_several_sources_has_those_of_topics(checkpoint: Path) -> None:
    batch(
        checkpoint,
        0,
        {"a": {"0": 3}},
        1234,
        None,
        {"shard": {"position": "49"}},
        {"generation": 2, "ranges": {"b": {"1": [4, 9]}}},
    )
    assert finished_offsets(checkpoint) == {TopicPartition("a", 0): 3, TopicPartition("b", 1): 9}


def test_a_log_with_names_of_sources_has_their_offsets(checkpoint: Path) -> None:
    """As with `spark.sql.streaming.offsetLog.formatVersion` 2."""
    batch(checkpoint, 0)
    lines = ["v2", SETTINGS, '0:{"a": {"0": 3}}', "rate:1234", "none:-"]
    (checkpoint / "offsets" / "0").write_text("\n".join(lines))
    assert finished_offsets(checkpoint) == {TopicPartition("a", 0): 3}


@pytest.mark.parametrize("ahead", [0, 1])
def test_sources_of_one_topic_have_finished_what_both_have(checkpoint: Path, ahead: int) -> None:
    sources = [{"a": {"0": 3, "1": 7}}, {"a": {"0": 9}}]
    batch(checkpoint, 0, sources[ahead], sources[1 - ahead])
    assert finished_offsets(checkpoint) == {TopicPartition("a", 0): 3, TopicPartition("a", 1): 7}


def test_a_folder_that_is_no_checkpoint_is_refused(checkpoint: Path) -> None:
    with pytest.raises(PlanError, match="has finished no batch"):
        finished_offsets(checkpoint)
    batch(checkpoint, 0, 1234)
    with pytest.raises(PlanError, match="has no offsets of topics"):
        finished_offsets(checkpoint)
    batch(checkpoint, 1, {"a": {"zero": 3}})
    with pytest.raises(PlanError, match="has no offsets of topics"):
        finished_offsets(checkpoint)
    batch(checkpoint, 2, {"generation": 2, "ranges": {"a": {"0": 3}}})
    with pytest.raises(PlanError, match="not a log of offsets"):
        finished_offsets(checkpoint)


def test_the_command_shows_what_a_stream_has_not_read(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"a": 2}) as fake:
        for number in range(2):
            fake.produce("a", number, [(None, b"v")] * 10)
        batch(checkpoint, 0, {"a": {"0": 4, "1": 10}})
        assert main(["plan", "--checkpoint", str(checkpoint), "-b", fake.bootstrap, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ranges": [{"topic": "a", "partition": 0, "start": 4, "stop": 10}],
        "offsets": 6,
        "gaps": [],
    }
