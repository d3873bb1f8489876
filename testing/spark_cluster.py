"""A standalone Spark cluster from the installed PySpark: a master, and workers on loopback addresses of their own."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import time
import urllib.request
from pathlib import Path
from typing import Final, Self

from kohort.common.named_tuple import NamedTuple
from kohort.testing.child_process import Supervised
from kohort.testing.errors import BrokerStateError, SparkStartError
from kohort.testing.ports import free_ports
from kohort.testing.process_signals import KILL
from kohort.testing.scratch import make_scratch, remove_scratch

START_TIMEOUT_S: Final = 400.0
STOP_TIMEOUT_S: Final = 60.0
_MASTER: Final = "127.0.0.1"
_PACKAGE: Final = "org.apache.spark.deploy"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by the caller's http_proxy
_OF_THE_CALLER: Final = re.compile(r"PYTHON|PYSPARK|SPARK|VIRTUAL_ENV")
# A master removes an application after ten executors that ended early. Tests kill more.
_DAEMON: Final = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.deploy.maxExecutorRetries=-1",
}


class SparkExecutor(NamedTuple):
    """The process of an executor, and the number of its worker."""

    pid: int
    worker: int


class SparkCluster:
    """A master and its workers; a context manager. Linux only, because of the addresses and `/proc`.

    `url` is the value of `spark-submit --master`. Worker `n` has the address `127.0.0.(n + 2)` and the folder
    `work(n)`, where Spark unpacks archives for its executors. No process inherits the caller's Python paths or Spark
    settings.

    The processes end with this one, however it ends. Raises SparkStartError.
    """

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g", spark_home: Path | None = None) -> None:
        self.spark_home = installed_spark() if spark_home is None else spark_home
        self.url = ""
        self._resources = ["--cores", str(cores), "--memory", memory]
        self._count = workers
        self._web = 0
        self._folder = Path()
        self._master: Supervised | None = None
        self._workers: dict[int, Supervised] = {}

    def __enter__(self) -> Self:
        self._folder = make_scratch("kohort-spark-")
        try:
            port, self._web = free_ports(2)
            self.url = f"spark://{_MASTER}:{port}"
            ports = ["--port", str(port), "--webui-port", str(self._web)]
            self._master = self._started("master", "master.Master", _MASTER, ports)
            for number in range(self._count):
                self._start(number)
            self._wait_for(self._count)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        for process in (*self._workers.values(), self._master):
            if process is not None:
                process.end(signal.SIGTERM, STOP_TIMEOUT_S)
        self._workers.clear()
        self._master = None
        remove_scratch(self._folder)

    def work(self, worker: int) -> Path:
        """The folder of a worker."""
        return self._folder / f"work-{worker}"

    def log(self, name: str) -> Path:
        """The output of `master` or of `worker-N`."""
        return self._folder / f"{name}.log"

    # --- faults

    def executors(self) -> list[SparkExecutor]:
        """The executors that run now, of all applications."""
        home = {process.pid: number for number, process in self._workers.items()}
        return sorted(
            SparkExecutor(pid, home[parent])
            for pid, (parent, command) in running_processes().items()
            if parent in home and _EXECUTOR in command
        )

    def kill_executor(self, executor: SparkExecutor) -> None:
        """Kill an executor at once (SIGKILL). Its worker starts another one. Nothing happens if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(executor.pid, KILL)

    def kill_worker(self, worker: int) -> None:
        """Kill a worker at once (SIGKILL). Its executors end, since they lose their worker.

        Raises BrokerStateError if it does not run.
        """
        if worker not in self._workers:
            raise BrokerStateError("the worker is not running", worker=worker)
        self._workers.pop(worker).end(KILL, STOP_TIMEOUT_S)

    def start_worker(self, worker: int) -> None:
        """Start a killed worker again, with its old address, and wait until the master knows it.

        Raises BrokerStateError if it runs.
        """
        if worker in self._workers:
            raise BrokerStateError("the worker is running", worker=worker)
        self._start(worker)
        self._wait_for(len(self._workers))

    # --- processes

    def _start(self, number: int) -> None:
        given = [*self._resources, "--webui-port", "0", "--work-dir", str(self.work(number)), self.url]
        self._workers[number] = self._started(f"worker-{number}", "worker.Worker", f"127.0.0.{number + 2}", given)

    def _started(self, name: str, kind: str, address: str, given: list[str]) -> Supervised:
        own = {key: value for key, value in os.environ.items() if not _OF_THE_CALLER.match(key)}
        return Supervised(
            [str(self.spark_home / "bin" / "spark-class"), f"{_PACKAGE}.{kind}", "--host", address, *given],
            folder=self._folder,
            log=self.log(name),
            remove_if_orphaned=self._folder,
            environment={**own, **_DAEMON, "SPARK_HOME": str(self.spark_home), "SPARK_LOCAL_IP": address},
        )

    def _wait_for(self, workers: int) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while (alive := self._alive()) < workers:
            ended = [name for name, process in self._processes() if not process.running]
            if ended or time.monotonic() > until:
                name = (ended or ["master"])[0]
                raise SparkStartError(
                    f"{alive} of {workers} workers reached the master: {self.log(name).read_text()[-2000:]}",
                    log=self.log(name),
                )
            time.sleep(0.2)

    def _processes(self) -> list[tuple[str, Supervised]]:
        named = [(f"worker-{number}", process) for number, process in self._workers.items()]
        return named if self._master is None else [("master", self._master), *named]

    def _alive(self) -> int:
        try:
            with _DIRECT.open(f"http://{_MASTER}:{self._web}/json/", timeout=5) as response:
                return sum(worker["state"] == "ALIVE" for worker in json.load(response)["workers"])
        except (OSError, ValueError):  # it does not serve yet, or serves no JSON yet
            return 0


def installed_spark() -> Path:
    """The folder of the installed PySpark, which is a whole Spark. Raises SparkStartError."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkStartError("PySpark is not installed", hint="pip install 'kohort[spark]'")
    return Path(found.origin).parent


def running_processes() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each process of this machine, by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = ((path / name).read_text(errors="replace") for name in ("stat", "cmdline"))
            found[int(path.name)] = (int(stat.rpartition(")")[2].split()[1]), command.replace("\0", " "))
        except OSError:  # it has ended
            continue
    return found
