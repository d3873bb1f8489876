"""`register` where the driver lacks the Python that executors have, as with `spark.archives` in client mode."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from kohort.spark import PlanError
from kohort.spark.driver_python import check_driver_python
from tests.spark.queries import BUSY, STARTS
from tests.spark.sent import varied
from tests.support.broker_selection import SelectedBroker


def session(python: str, folder: Path, path: str = "/nowhere") -> Any:
    """As much of a classic session as the check looks at."""
    system = SimpleNamespace(getProperty={"user.dir": str(folder)}.get, getenv={"PATH": path}.get)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=python, _jvm=jvm))


def executable(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(stat.S_IRWXU)


def test_a_path_in_the_archive_that_the_driver_lacks_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as raised:
        check_driver_python(session("./environment/bin/python", tmp_path))
    assert raised.value.place == {"python": "./environment/bin/python", "folder": str(tmp_path)}
    assert str(raised.value).endswith(f"run: ln -s {sys.prefix} {tmp_path}/environment")


def test_the_command_quotes_what_a_shell_would_split(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"'.*two words/environment'$"):
        check_driver_python(session("environment/bin/python", tmp_path / "two words"))


@pytest.mark.parametrize("python", ["/no/such/python", "no-such-python", "bin/python", "./environment/bin/no-such"])
def test_no_link_is_proposed_that_would_not_help(python: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="set PYSPARK_PYTHON to a Python that the driver and all executors have"):
        check_driver_python(session(python, tmp_path))


def test_a_file_that_cannot_be_executed_is_no_python(tmp_path: Path) -> None:
    executable(tmp_path / "environment/bin/python")
    (tmp_path / "environment/bin/python").chmod(stat.S_IRUSR)
    with pytest.raises(PlanError):
        check_driver_python(session("./environment/bin/python", tmp_path))


def test_a_client_of_spark_connect_needs_no_py4j(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    connect: Any = SimpleNamespace()  # without sparkContext
    check_driver_python(connect)


def test_a_python_that_the_driver_has_passes(tmp_path: Path) -> None:
    executable(tmp_path / "environment/bin/python")
    check_driver_python(session("./environment/bin/python", tmp_path))
    check_driver_python(session(str(tmp_path / "environment/bin/python"), Path("/nowhere")))
    check_driver_python(session("python", Path("/nowhere"), path=f"/nowhere{os.pathsep}{tmp_path}/environment/bin"))


def test_the_folder_is_that_of_spark_and_not_that_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "here/environment/bin/python")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(PlanError):
        check_driver_python(session("./environment/bin/python", tmp_path / "there"))


def test_a_session_without_a_driver_in_reach_is_not_checked() -> None:
    check_driver_python(SimpleNamespace())  # as Spark Connect's


def test_a_platform_that_forbids_the_calls_is_not_checked(tmp_path: Path) -> None:
    def forbidden(_name: str) -> str:
        raise Py4JError("not allowed")

    refusing = session("./environment/bin/python", tmp_path)
    refusing.sparkContext._jvm.java.lang.System.getProperty = forbidden
    check_driver_python(refusing)


JOB = """
import subprocess, sys
from pyspark.sql import SparkSession
from kohort.spark import PlanError, register

bootstrap, topic = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    register(spark)
    sys.exit("no error")
except PlanError as error:
    subprocess.run(str(error).rpartition("run: ")[2], shell=True, check=True)
register(spark)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
batch = spark.read.format("kohort").options(**options).load()
stream = spark.readStream.format("kohort").options(**options).load()
query = stream.writeStream.format("memory").queryName("read").trigger(availableNow=True).start()
query.awaitTermination()
print("counts", batch.count(), spark.table("read").count())
"""


@pytest.mark.full
@pytest.mark.broker
def test_the_command_in_the_error_makes_load_work(
    broker: SelectedBroker, topic: str, send: Callable[..., None], tmp_path: Path
) -> None:
    send(topic, varied(300))
    for attempt in range(STARTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", JOB, broker.bootstrap, topic],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=580,
            check=False,
            env={**os.environ, "PYSPARK_PYTHON": "./environment/bin/python", "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        if BUSY not in done.stderr:
            break
    assert "counts 300 300" in done.stdout, done.stdout + done.stderr
