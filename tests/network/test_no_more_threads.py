"""If no thread can be started any more, as at the interpreter's end, the driver does by itself what takes time."""

import threading

import pytest

from kohort import Consumer, TopicPartition
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import read


def test_a_name_is_resolved_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name != "kohort-resolver":
            return start(thread)
        refused.append(thread.name)
        raise RuntimeError("can't start new thread")

    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        port = fake.bootstrap.rpartition(":")[2]
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with Consumer(f"localhost:{port}", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in read(consumer, 1)] == [b"v"]
    assert refused
