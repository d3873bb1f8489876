"""A consumer's tape: every frame of a real membership, readable, replayable, in order."""

from pathlib import Path

import pytest

from kohort import Consumer
from kohort.coordinator_client.errors import ConfigError
from kohort.protocol import tape
from kohort.testing import RealBroker

LIFE_OF_A_MEMBER = ("ApiVersions", "FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "Fetch", "LeaveGroup")


@pytest.mark.broker
def test_a_life_in_a_group_is_on_the_tape(broker: RealBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "life.tape"
    with Consumer(broker.bootstrap, group=topic, tape=str(path), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment:
            consumer.poll(0.2)
        consumer.poll(1.5)  # a Fetch of an empty topic is answered after fetch_max_wait_ms
    frames = list(tape.read(path.read_text().splitlines()))
    for api in LIFE_OF_A_MEMBER:
        assert {frame.direction for frame in frames if frame.api == api} == {"request", "response"}, api
    assert [frame.time_s for frame in frames] == sorted(frame.time_s for frame in frames)
    assert {tape.difference(frame) for frame in frames} == {None}
    asked = {(frame.connection, frame.correlation_id) for frame in frames if frame.direction == "request"}
    assert {(frame.connection, frame.correlation_id) for frame in frames if frame.direction == "response"} <= asked


def test_a_tape_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tape cannot be written"):
        Consumer("localhost:1", tape=str(tmp_path / "no" / "such" / "folder"))
