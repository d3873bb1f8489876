"""Spark Connect: a client without a JVM, and a server on a cluster (`make test-cluster`)."""

import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kohort
from kohort.testing import SparkCluster
from kohort.testing.ports import free_ports
from tests.spark.cluster_kills import read
from tests.spark.connect_client import PARTITIONS, RECORDS
from tests.spark.packed_environment import CLEAN, ended, started
from tests.spark_jvm.venvs import python_with
from tests.support.broker_selection import SelectedBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3000)]
NEWEST, OLDEST = "4.3.0", "4.0.0"
CLIENTS = {NEWEST: "4.2.0", OLDEST: "4.0.0"}  # pyspark-client follows pyspark some time later
SERVER = "spark-submit --master spark://HOST:7077 --class org.apache.spark.sql.connect.service.SparkConnectServer"
START_TIMEOUT_S = 300.0
CLIENT_TIMEOUT_S = 600.0
NUMBERS = list(range(RECORDS))


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_a_client_reads_and_writes_through_a_server(
    version: str,
    packed: Path,
    tmp_path: Path,
    broker: SelectedBroker,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, copied = make_topic(PARTITIONS), make_topic(PARTITIONS)
    group = unique("group") if version == NEWEST else ""
    python = python_with(CLIENTS[version], "pyspark-client")
    with SparkCluster(workers=2, spark_home=spark_home(version)) as cluster:
        (port,) = free_ports(1)
        at = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
        server = started(SERVER, tmp_path, cluster, at, {"PYSPARK_PYTHON": str(packed / "packed" / "bin" / "python")})
        try:
            listens(port, server, tmp_path / "log")
            arguments = [f"sc://127.0.0.1:{port}", broker.bootstrap, str(tmp_path), topic, copied, group]
            client = subprocess.run(
                [python, Path(__file__).with_name("connect_client.py"), *arguments],
                env={**CLEAN, "PYTHONPATH": str(Path(kohort.__file__).parents[1])},
                capture_output=True,
                text=True,
                timeout=CLIENT_TIMEOUT_S,
            )
            assert client.returncode == 0, client.stderr[-4000:] + (tmp_path / "log").read_text()[-4000:]
        finally:
            ended(server)
    found = json.loads((tmp_path / "result.json").read_text())
    assert "did you mean 'subscribe'" in found.pop("misspelt")
    assert "foreachBatch of Spark Connect" in found.pop("exactly once")
    assert found == {
        "batch": NUMBERS,
        "filter": 10,
        "stream": NUMBERS,
        **({"group": NUMBERS} if group else {}),
        "ends": [RECORDS // PARTITIONS] * PARTITIONS,
        "listener": PARTITIONS,
    }
    assert read(broker.bootstrap, copied, PARTITIONS) == NUMBERS


def spark_home(version: str) -> Path:
    """The Spark of a PySpark that pip has installed."""
    code = "import pyspark; print(pyspark.__path__[0])"
    return Path(subprocess.check_output([python_with(version), "-c", code], env=CLEAN, text=True).strip())


def listens(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.2)
        else:
            return
