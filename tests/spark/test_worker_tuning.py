"""State of a Python worker between tasks (in a process of its own, because it changes it), and its responses."""

import json
import os
import pickle
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kohort.spark.options import SourceOptions
from kohort.spark.rdd import RangeReader
from kohort.spark.sink import BatchWriter, SinkOptions, stream_writer
from kohort.spark.source import SCHEMA, BatchReader
from kohort.spark.stream import StreamReader

ARCHIVES = ("pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.0.jar", "a_users.zip")
SETTLES = """
import gc, json, sys
from kohort.spark.worker_tuning import settle

def archives():
    return sorted({finder.archive.rpartition("/")[2] for finder in cached() if hasattr(finder, "archive")})

def cached():
    return sys.path_importer_cache.values()

sys.path += sys.argv[1:]
import inside_0, inside_1, inside_2, inside_3, package_0.inside
before, frozen_before = archives(), gc.get_freeze_count()
settle()
after, frozen = archives(), gc.get_freeze_count()
import package_0.later, package_1.later
settle()
frozen_anew = gc.get_freeze_count()
kept = [[] for _ in range(100)]
settle()
frozen_in_the_end = gc.get_freeze_count()
print(json.dumps([before, after, archives(), frozen_before, frozen, frozen_anew, frozen_in_the_end]))
"""


def test_sparks_own_archives_are_forgotten_and_a_users_are_not(tmp_path: Path) -> None:
    for number, name in enumerate(ARCHIVES):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"inside_{number}.py", "")
            for module in ("__init__", "inside", "later"):
                archive.writestr(f"package_{number}/{module}.py", "")
    command = [sys.executable, "-c", SETTLES, *(str(tmp_path / name) for name in ARCHIVES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after, in_the_end, frozen_before, frozen, frozen_anew, frozen_in_the_end = json.loads(done.stdout)
    # What Spark brought is still found when something is imported from it, and forgotten again.
    assert (before, after, in_the_end) == (sorted(ARCHIVES), ["a_users.zip"], ["a_users.zip"])
    # What a task has imported is excluded from collections, and its other objects are not.
    assert frozen_before == 0
    assert 1000 < frozen < frozen_anew == frozen_in_the_end


def test_a_process_that_only_makes_a_source_settles() -> None:
    code = "import gc; from kohort.spark.source import KohortSource as source; source({}); print(gc.get_freeze_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) > 1000, done.stderr


SOURCE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
SINK = SinkOptions.of({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="what is meant exists on Linux only")
@pytest.mark.parametrize(
    "shipped",
    [
        BatchReader(SourceOptions.of(SOURCE, streaming=False), SCHEMA),
        StreamReader(SourceOptions.of(SOURCE, streaming=True), SCHEMA),
        BatchWriter(SINK, SCHEMA),
        stream_writer(SINK, SCHEMA),
        RangeReader({"bootstrap": "127.0.0.1:1"}, "arrow", None, None, True),
    ],
    ids=lambda shipped: type(shipped).__name__,
)
def test_what_reaches_a_worker_is_acknowledged_at_once(shipped: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        accepted, _ = server.accept()
        with accepted:
            worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            sent = pickle.dumps(shipped)
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0
            arrived = pickle.loads(sent)
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            assert arrived.__dict__.keys() == shipped.__dict__.keys()


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="what is meant exists on Linux only")
@pytest.mark.parametrize("blocking", [True, False])
def test_a_default_timeout_that_a_users_code_has_set_leaves_sparks_sockets_as_they_are(blocking: bool) -> None:
    sent = pickle.dumps(RangeReader({"bootstrap": "127.0.0.1:1"}, "arrow", None, None, True))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        worker.setblocking(blocking)
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        socket.setdefaulttimeout(5)
        try:
            pickle.loads(sent)
        finally:
            socket.setdefaulttimeout(None)
        assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
        assert os.get_blocking(worker.fileno()) is blocking
