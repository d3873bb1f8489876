"""A standalone master and two workers that have kohort from `spark.archives` only (`make test-cluster`).

The commands are those of docs/spark-cluster.md. Longer than the rest, and so not among the tests that every change
must pass.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.producer import Producer
from kohort.testing import SparkCluster
from kohort.testing.spark_cluster import SparkExecutor, running_processes
from tests.spark.cluster_copies_job import RECORDS as NUMBERS
from tests.spark.cluster_job import PARTITIONS, RECORDS
from tests.spark.cluster_kills import read
from tests.spark.packed_environment import BASE_PYTHON, CLEAN, ended, page_commands, submit, unpacked
from tests.support.broker_selection import SelectedBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as started:
        yield started


def executor_of(cluster: SparkCluster, daemon: int) -> SparkExecutor:
    """The executor that started a Python daemon."""
    parent = running_processes()[daemon][0]
    return next(executor for executor in cluster.executors() if executor.pid == parent)


def test_the_cluster_has_no_kohort_of_its_own() -> None:
    done = subprocess.run([BASE_PYTHON, "-c", "import kohort"], env=CLEAN, capture_output=True, text=True, check=False)
    assert "No module named 'kohort'" in done.stderr


def test_without_the_link_the_error_names_the_command(
    packed: Path, cluster: SparkCluster, tmp_path: Path, broker: SelectedBroker, topic: str
) -> None:
    (tmp_path / "environment.tar.gz").symlink_to(packed / "environment.tar.gz")
    job = submit(
        "cluster_job.py",
        tmp_path,
        cluster,
        page_commands().submit,
        broker.bootstrap,
        topic,
        str(tmp_path),
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONPATH=str(Path(kohort.__file__).parents[1]),
    )
    try:
        assert job.wait(600) != 0
    finally:
        ended(job)
    log = (tmp_path / "log").read_text()
    assert f"run: ln -s {sys.prefix} {tmp_path}/environment" in log, log


def test_a_read_a_stream_a_write_and_an_rdd_outlive_executors(
    packed: Path, cluster: SparkCluster, tmp_path: Path, broker: SelectedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(PARTITIONS)
    job = submit(
        "cluster_job.py", tmp_path, cluster, unpacked(tmp_path, packed), broker.bootstrap, topic, str(tmp_path)
    )
    killed = []
    try:
        for name in ("read", "stream"):
            wait_for(tmp_path / f"{name}.in-task", job)
            daemon = int((tmp_path / f"{name}.in-task").read_text())
            killed.append(executor_of(cluster, daemon))
            cluster.kill_executor(killed[-1])
            (tmp_path / f"{name}.killed").touch()
        assert job.wait(900) == 0, (tmp_path / "log").read_text()
    finally:
        ended(job)
    numbers = RECORDS * (RECORDS - 1) // 2
    result = json.loads((tmp_path / "result.json").read_text())
    homes = result.pop("kohort is at")
    assert result == {
        "read": [RECORDS, RECORDS, numbers],
        "read, an executor killed": [RECORDS, RECORDS, numbers],
        "kafka_rdd": [RECORDS, numbers],
        "stream, an executor killed": [RECORDS, RECORDS, numbers],
    }
    assert homes
    assert all(re.search(r"/work-\d/app-[^/]+/\d+/environment/lib/", home) for home in homes), homes
    assert len(set(killed)) == 2


def events(folder: Path) -> list[dict[str, Any]]:
    """The event log of a job."""
    (path,) = (folder / "events").iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()]


def done_with_events(
    mode: str, folder: Path, cluster: SparkCluster, packed: Path, *arguments: str, **settings: str
) -> dict[str, Any]:
    """The result of `cluster_copies_job.py`, which leaves an event log."""
    (folder / "events").mkdir()
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}/events",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.executor.cores": "1",
    }
    command = unpacked(folder, packed)
    conf = {**logged, **{name.replace("_", "."): value for name, value in settings.items()}}
    job = submit("cluster_copies_job.py", folder, cluster, command, *arguments, str(folder), mode, settings=conf)
    try:
        assert job.wait(600) == 0, (folder / "log").read_text()
    finally:
        ended(job)
    return dict(json.loads((folder / "result.json").read_text()))


@pytest.fixture
def numbers(broker: SelectedBroker, make_topic: Callable[..., str]) -> str:
    """A topic with the numbers that `cluster_copies_job.py` reads."""
    topic = make_topic(PARTITIONS)
    with Producer(broker.bootstrap) as producer:
        for number in range(NUMBERS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    return topic


def test_copies_of_slow_tasks_change_no_result(
    packed: Path,
    cluster: SparkCluster,
    tmp_path: Path,
    broker: SelectedBroker,
    numbers: str,
    make_topic: Callable[..., str],
) -> None:
    to = make_topic(PARTITIONS)
    settings = {
        "spark_speculation": "true",
        "spark_speculation_interval": "100ms",
        "spark_speculation_quantile": "0.5",
        "spark_speculation_multiplier": "1.5",
    }
    found = done_with_events("speculation", tmp_path, cluster, packed, broker.bootstrap, numbers, to, **settings)
    assert found == {"batch": list(range(NUMBERS)), "rdd": list(range(NUMBERS))}
    assert read(broker.bootstrap, to, PARTITIONS) == list(range(NUMBERS))
    copies = [
        event["Stage ID"]
        for event in events(tmp_path)
        if event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"]
    ]
    assert len(set(copies)) >= 3, copies  # the batch, the RDD and the write


def test_executors_that_come_and_go_change_no_result(
    packed: Path, cluster: SparkCluster, tmp_path: Path, broker: SelectedBroker, numbers: str
) -> None:
    (tmp_path / "batch.seen").touch()
    settings = {
        "spark_dynamicAllocation_enabled": "true",
        "spark_dynamicAllocation_shuffleTracking_enabled": "true",
        "spark_dynamicAllocation_minExecutors": "0",
        "spark_dynamicAllocation_maxExecutors": "2",
        "spark_dynamicAllocation_executorIdleTimeout": "3s",
        "spark_dynamicAllocation_schedulerBacklogTimeout": "1s",
    }
    found = done_with_events("allocation", tmp_path, cluster, packed, broker.bootstrap, numbers, "none", **settings)
    assert found == {"batch": list(range(NUMBERS)), "again": list(range(NUMBERS))}
    seen = [event["Event"] for event in events(tmp_path)]
    removed = seen.index("SparkListenerExecutorRemoved")
    assert "SparkListenerExecutorAdded" in seen[removed:]


def wait_for(path: Path, job: Any) -> None:
    until = time.monotonic() + 900
    while not path.exists():
        assert job.poll() is None, (path.parent / "log").read_text()
        assert time.monotonic() < until, f"{path.name} did not appear"
        time.sleep(0.1)
