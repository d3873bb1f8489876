"""If no thread can be started any more, as at the interpreter's end, the driver does by itself what takes time."""

import errno
import gc
import os
import socket
import threading
from typing import Any

import pytest

from kohort import Admin, Consumer, Producer, TopicPartition
from kohort.network import event_loop
from kohort.network.errors import ConnectionFailed
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


@pytest.mark.parametrize("room", [0, 1, 3])
def test_batches_are_compressed_and_decoded_where_no_thread_or_too_few_can_be_started(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client starts up to two."""
    started: list[str] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("kohort-helper"):
            if len(started) == room:
                raise RuntimeError("can't start new thread")
            started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    values = [b"%d" % number * 200_000 for number in range(8)]
    with FakeBroker(topics={"t": 4}) as fake:
        with Producer(fake.bootstrap, compression="gzip") as producer:
            for number, value in enumerate(values):
                producer.send("t", value, partition=number % 4)
        assert len(started) == min(room, 2)
        with Consumer(fake.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", partition) for partition in range(4)])
            assert {record.value for record in read(consumer, 8)} == set(values)
            assert consumer._session.driver.run_parallel([lambda: 1, lambda: 2]) == [1, 2]
        assert len(started) == room


@pytest.mark.parametrize("client", [Admin, Consumer, Producer])
@pytest.mark.parametrize("wanting", ["files", "threads"])
def test_a_client_for_which_there_is_no_file_or_thread_is_an_error_and_another_is_made_later(
    client: type[Admin | Consumer | Producer], wanting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("kohort-driver"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def no_more(*_of: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with FakeBroker(topics={"t": 1}) as fake:
        monkeypatch.setattr(event_loop, "_loops", [])
        with monkeypatch.context() as scarce:
            if wanting == "files":
                scarce.setattr(socket, "socketpair", no_more)
            else:
                scarce.setattr(threading.Thread, "start", refuse)
            with pytest.raises(ConnectionFailed, match=r"thread cannot be started: .*(open files|new thread)"):
                client(fake.bootstrap)
            gc.collect()
        assert event_loop._loops == []
        with client(fake.bootstrap) as made:
            assert made is not None
