"""A standalone master and two workers that have kohort from `spark.archives` only (`make test-cluster`).

The commands are those of docs/spark-cluster.md. Longer than the rest, and so not among the tests that every change
must pass.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pyspark
import pytest
from packaging.requirements import Requirement

import kohort
from tests.spark.cluster_job import PARTITIONS, RECORDS
from tests.support.broker_selection import SelectedBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3000)]
ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
BASE_PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
# Nothing of the checkout and of its environment reaches the cluster's processes.
CLEAN = {name: value for name, value in os.environ.items() if not re.match(r"PYTHON|PYSPARK|SPARK|VIRTUAL_ENV", name)}


def page_commands() -> list[str]:
    """The commands of the page's section on archives, one a line."""
    page = (ROOT / "docs" / "spark-cluster.md").read_text()
    section = page.split("## An archive for executors")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()


def needed(name: str, extra: str = "") -> Iterator[Distribution]:
    """The installed distributions that one needs, itself last."""
    found = distribution(name)
    for requirement in map(Requirement, found.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            try:
                yield from needed(requirement.name)
            except PackageNotFoundError:  # optional where it is not installed
                continue
    yield found


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `packed`, a venv of kohort[arrow] and nothing else, and `environment.tar.gz`, the same packed."""
    folder = tmp_path_factory.mktemp("packed")
    subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", folder / "packed"], check=True, env=CLEAN)
    site = next((folder / "packed").glob("lib/python*/site-packages"))
    for one in {found.name: found for found in needed("kohort", "arrow")}.values():
        for file in one.files or ():
            if one.name != "kohort" and ".." not in file.parts and "include" not in file.parts:
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    shutil.copytree(str(Path(kohort.__file__).parent), site / "kohort", ignore=shutil.ignore_patterns("*.c", "*.pyc"))
    with tarfile.open(folder / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "packed", arcname=".")
    return folder


class Standalone:
    """A master and its workers, on loopback. `url`: what `--master` takes."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._class = SPARK_HOME / "bin" / "spark-class"
        self._running: list[subprocess.Popen[bytes]] = []
        port, self._web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._start(
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            str(self._web),
        )
        for number in range(workers):
            self._start(
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                str(free_port()),
                "--work-dir",
                str(folder / f"work-{number}"),
                self.url,
            )
        until = time.monotonic() + 400
        while self._alive() < workers:
            assert time.monotonic() < until, "the workers did not reach the master"
            time.sleep(0.2)

    def _start(self, *command: str) -> None:
        environment = {
            **CLEAN,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with (self._folder / f"daemon-{len(self._running)}.log").open("w") as log:
            started = subprocess.Popen(
                [str(self._class), *command],
                cwd=self._folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(started)

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as response:
                return sum(worker["state"] == "ALIVE" for worker in json.load(response)["workers"])
        except OSError:  # not up yet
            return 0

    def executor_of(self, daemon: int) -> int:
        """The process id of the executor that started a Python daemon."""
        running = processes()
        executor = running[daemon][0]
        assert running[executor][0] in {process.pid for process in self._running}
        return executor

    def stop(self) -> None:
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            process.wait(120)


def processes() -> dict[int, tuple[int, str]]:
    """Of each process its parent and its command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = (parent, (path / "cmdline").read_text().replace("\0", " "))
        except OSError:  # ended meanwhile
            continue
    return found


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    started = Standalone(tmp_path_factory.mktemp("standalone"), workers=2)
    yield started
    started.stop()


def submit(folder: Path, standalone: Standalone, command: str, *arguments: str, **environment: str) -> Any:
    """The page's command, started in `folder`."""
    shutil.copy(Path(__file__).with_name("cluster_job.py"), folder / "job.py")
    settings = "--driver-memory 512m --executor-memory 512m --conf spark.ui.enabled=false"
    settings += " --conf spark.sql.shuffle.partitions=2"
    command = command.replace("spark://HOST:7077", f"{standalone.url} {settings}")
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            ["bash", "-c", " ".join([command, *arguments])],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **CLEAN,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{CLEAN['PATH']}",
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_LOCAL_IP": "127.0.0.1",
                **environment,
            },
        )


def test_the_cluster_has_no_kohort_of_its_own() -> None:
    done = subprocess.run([BASE_PYTHON, "-c", "import kohort"], env=CLEAN, capture_output=True, text=True, check=False)
    assert "No module named 'kohort'" in done.stderr


def test_without_the_link_the_error_names_the_command(
    packed: Path, standalone: Standalone, tmp_path: Path, broker: SelectedBroker, topic: str
) -> None:
    (tmp_path / "environment.tar.gz").symlink_to(packed / "environment.tar.gz")
    job = submit(
        tmp_path,
        standalone,
        page_commands()[-1],
        broker.bootstrap,
        topic,
        str(tmp_path),
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONPATH=str(Path(kohort.__file__).parents[1]),
    )
    assert job.wait(600) != 0
    log = (tmp_path / "log").read_text()
    assert f"run: ln -s {sys.prefix} {tmp_path}/environment" in log, log


def test_a_read_a_stream_a_write_and_an_rdd_outlive_executors(
    packed: Path, standalone: Standalone, tmp_path: Path, broker: SelectedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(PARTITIONS)
    (tmp_path / "environment.tar.gz").symlink_to(packed / "environment.tar.gz")
    (tmp_path / "packed").symlink_to(packed / "packed")
    link, run = page_commands()[-2:]
    subprocess.run(link, shell=True, cwd=tmp_path, check=True)
    job = submit(tmp_path, standalone, run, broker.bootstrap, topic, str(tmp_path))
    killed = []
    try:
        for name in ("read", "stream"):
            wait_for(tmp_path / f"{name}.in-task", job)
            daemon = int((tmp_path / f"{name}.in-task").read_text())
            killed.append(standalone.executor_of(daemon))
            os.kill(killed[-1], signal.SIGKILL)
            (tmp_path / f"{name}.killed").touch()
        assert job.wait(900) == 0, (tmp_path / "log").read_text()
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
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


def wait_for(path: Path, job: Any) -> None:
    until = time.monotonic() + 900
    while not path.exists():
        assert job.poll() is None, (path.parent / "log").read_text()
        assert time.monotonic() < until, f"{path.name} did not appear"
        time.sleep(0.1)
