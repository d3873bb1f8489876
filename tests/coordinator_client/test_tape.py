"""A consumer's tape: every frame of a real membership, readable, replayable, in order."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.coordinator_client.replay import NoMember, rebalances_on, replay
from kohort.network.errors import ConfigError
from kohort.network.group_types import OffsetAndMetadata
from kohort.protocol import tape
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.protocol.membership import Subscription, build_subscription
from kohort.protocol.tape import Taped, TapeError
from kohort.protocol.wire import WireConnection
from kohort.testing import FakeBroker, RealBroker
from tests.coordinator_client.consumer_helpers import read

LIFE_OF_A_MEMBER = ("ApiVersions", "FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "Fetch", "LeaveGroup")


def tape_of_a_member(bootstrap: str, topic: str, path: Path, assignor: str) -> list[Taped]:
    """Of one that shares three partitions with another for a while; heartbeats are 300 ms apart."""
    quick: Any = {"assignors": [assignor], "heartbeat_interval_ms": 300, "session_timeout_ms": 6_000}
    with Consumer(bootstrap, group=topic, tape=str(path), **quick) as first:
        first.subscribe([topic])
        while len(first.assignment) < 3:
            first.poll(0.2)
        with Consumer(bootstrap, group=topic, **quick) as second:
            second.subscribe([topic])
            while len(first.assignment) == 3 or not second.assignment:
                first.poll(0.1)
                second.poll(0.1)
        while len(first.assignment) < 3:
            first.poll(0.2)
    return list(tape.read(path.read_text().splitlines()))


@pytest.mark.broker
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_with_the_same_responses_sends_the_same_requests(
    broker: RealBroker, topic: str, tmp_path: Path, assignor: str
) -> None:
    walk = list(replay(tape_of_a_member(broker.bootstrap, topic, tmp_path / "life.tape", assignor)))
    assert [step for step in walk if step.difference] == []
    assert [step.api for step in walk].count("SyncGroup") >= 3


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_with_a_fake_brokers_responses_sends_the_same_requests(tmp_path: Path, assignor: str) -> None:
    with FakeBroker(topics={"topic": 3}) as fake:
        frames = tape_of_a_member(fake.bootstrap, "topic", tmp_path / "life.tape", assignor)
    walk = list(replay(frames))
    assert [step for step in walk if step.difference] == []
    assert [step.api for step in walk].count("SyncGroup") >= 3
    assert [step.time_s for step in walk] == sorted(step.time_s for step in walk)
    ended = rebalances_on(frames)
    assert len(ended) == [step.api for step in walk].count("SyncGroup") + 1  # and it leaves
    assert all(one.ended_at is not None and one.started_at < one.ended_at for one in ended[:-1])
    assert ended[0].started_at == frames[0].time_s


def test_a_replay_shows_the_first_request_that_differs(tmp_path: Path) -> None:
    with pytest.raises(NoMember):
        list(replay([]))
    join = {
        "group_id": "billing",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "somebody-else",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": build_subscription(Subscription(topics=("t",)))}],
    }
    _, frame = WireConnection("me").send("JoinGroup", 9, join)
    (step,) = replay([Taped(0.0, "b:1", 1, "request", "JoinGroup", 9, 0, frame)])
    assert step.difference == "the member sends no such request", "it has not found its coordinator yet"


def test_a_refused_commit_on_a_tape_has_its_partitions(tmp_path: Path) -> None:
    path, partition = tmp_path / "life.tape", TopicPartition("t", 0)
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g", tape=str(path)) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment:
            consumer.poll(0.1)
        with pytest.raises(BrokerError, match="METADATA_TOO_LARGE"):
            consumer.commit({partition: OffsetAndMetadata(0, metadata="long" * 5_000)})
    frames = list(tape.read(path.read_text().splitlines()))
    assert {each.version for each in frames if each.api == "OffsetCommit"} == {10}  # which has topic ids only
    refusals = [one.commits_refused for one in rebalances_on(frames)]
    assert ((partition, ErrorCode.OFFSET_METADATA_TOO_LARGE),) in refusals


def test_each_process_that_appended_to_a_tape_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "life.tape"
    with FakeBroker(topics={"t": 1}) as fake:
        for group in ("first", "second"):
            with Consumer(fake.bootstrap, group=group, tape=str(path)) as consumer:
                consumer.subscribe(["t"])
                while not consumer.assignment:
                    consumer.poll(0.1)
    frames = list(tape.read(path.read_text().splitlines()))
    assert [step.difference for step in replay(frames) if step.difference] == []
    assert [one.cause.reason.name for one in rebalances_on(frames)] == ["FIRST_JOIN", "CLOSED"] * 2
    joins, begins = (
        [number for number, each in enumerate(frames) if (each.direction, each.api) == ("request", api)]
        for api in ("JoinGroup", "ApiVersions")
    )
    killed = frames[joins[0]]
    second = max(number for number in begins if frames[number].connection == 1)
    cut, *others = rebalances_on([*frames[: joins[0] + 1], *frames[second:]])
    assert (cut.outcome, cut.ended_at, cut.phases[-1].ended_at) == (None, killed.time_s, killed.time_s)
    assert [one.cause.reason.name for one in others] == ["FIRST_JOIN", "CLOSED"]


@pytest.mark.broker
def test_a_life_in_a_group_is_on_the_tape(broker: RealBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "life.tape"
    with Consumer(broker.bootstrap, group=topic, tape=str(path), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment:
            consumer.poll(0.2)
        consumer.poll(1.5)  # the response to a Fetch of an empty topic comes after fetch_max_wait_ms
    frames = list(tape.read(path.read_text().splitlines()))
    for api in LIFE_OF_A_MEMBER:
        assert {frame.direction for frame in frames if frame.api == api} == {"request", "response"}, api
    assert [frame.time_s for frame in frames] == sorted(frame.time_s for frame in frames)
    assert {tape.difference(frame) for frame in frames} == {None}
    requested = {(frame.connection, frame.correlation_id) for frame in frames if frame.direction == "request"}
    assert {(frame.connection, frame.correlation_id) for frame in frames if frame.direction == "response"} <= requested


def test_a_tape_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tape cannot be written"):
        Consumer("localhost:1", tape=str(tmp_path / "no" / "such" / "folder"))


def test_nothing_is_appended_to_a_file_that_is_not_a_tape(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1 of the user")
    with pytest.raises(ConfigError, match="not a tape"):
        Consumer("localhost:1", tape=str(path))
    assert path.read_bytes() == b"PAR1 of the user"
    path.write_bytes(b"")
    for _ in range(2):  # an empty file, and a tape
        with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, tape=str(path)) as consumer:
            assert consumer.partitions_for("t")
    assert len({one.node for one in tape.read(path.read_text().splitlines())}) >= 2


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock that lets others read")
def test_a_tape_has_one_writer_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "shared.tape")
    with FakeBroker(topics={"t": 1}) as fake:
        with Consumer(fake.bootstrap, tape=path) as consumer:
            for _ in range(2):
                with pytest.raises(ConfigError, match="another client writes this tape"):
                    Consumer(fake.bootstrap, tape=path)
            assert consumer.partitions_for("t")
        with Consumer(fake.bootstrap, tape=path) as consumer:
            assert consumer.partitions_for("t")
        with Consumer(fake.bootstrap, tape="/dev/null"), Consumer(fake.bootstrap, tape="/dev/null") as consumer:
            assert consumer.partitions_for("t")
    assert [frame.api for frame in tape.read(Path(path).read_text().splitlines())].count("Metadata") >= 4


def test_a_tape_goes_on_behind_the_incomplete_line_of_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "life.tape"
    path.write_text('{"time_s":1.5,"node":"b')
    with FakeBroker(topics={"t": 1}) as fake:
        for _ in range(2):
            with Consumer(fake.bootstrap, tape=str(path)) as consumer:
                assert consumer.partitions_for("t")
    incomplete, *lines = path.read_text().splitlines()
    assert incomplete == '{"time_s":1.5,"node":"b'
    assert list(tape.read([incomplete, *lines])) == list(tape.read(lines))
    assert [frame.api for frame in tape.read(lines)].count("Metadata") >= 4
    with pytest.raises(TapeError, match="line=2"):
        list(tape.read([incomplete, '{"time_s":1.5}', *lines]))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_consumer_outlives_the_disk_that_its_tape_fills(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(b"k", b"v")])
        with Consumer(fake.bootstrap, tape="/dev/full", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(read(consumer, 1)) == 1
    (said,) = [one.message for one in caplog.records if "tape" in one.message]
    assert said.startswith("the tape ends here, it cannot be written: No space left on device")
