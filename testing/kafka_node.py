"""One Kafka node as an operating-system process: format, start, signals, log."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kohort.testing.blank_storage import DECIDE, copy_storage, keep_storage, kept_storage, new_id
from kohort.testing.broker_settings import PLAINTEXT, NodeLayout, format_arguments, render
from kohort.testing.child_process import Supervised
from kohort.testing.errors import BrokerStartError, BrokerStateError
from kohort.testing.jdk import java
from kohort.testing.process_signals import KILL, freeze, thaw
from kohort.testing.readiness import brokers_seen

FORMAT_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
LINES_SHOWN = 20  # of a log, in an error
_LOG_LEVEL = "info"


class KafkaNode:
    """A node of a RealCluster: stop it, kill it, freeze it, start it again; its data stays between starts."""

    def __init__(
        self, layout: NodeLayout, *, jars: Sequence[Path], cluster_id: str, heap_mb: int, jvm_options: Sequence[str]
    ) -> None:
        self.layout = layout
        self.log = layout.folder / "broker.log"
        self._jars = tuple(jars)
        self._classpath = os.pathsep.join(str(jar) for jar in jars)
        self._cluster_id = cluster_id
        self._java_options = [
            # A broker of tests ends before the optimizing compiler pays: that took 1.2 s of a start's 2.8 s.
            "-XX:TieredStopAtLevel=1",
            f"-Xmx{heap_mb}m",
            f"-Xms{min(heap_mb, 128)}m",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={_LOG_LEVEL}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            *jvm_options,
        ]
        self._properties: dict[str, str] = {}
        self._process: Supervised | None = None

    @property
    def node_id(self) -> int:
        return self.layout.node_id

    @property
    def bootstrap(self) -> str:
        """This node's plaintext address."""
        return self.layout.address(PLAINTEXT)

    @property
    def pid(self) -> int:
        """The Java process; raises BrokerStateError when it is not running."""
        if self._process is None or not self._process.running:
            raise BrokerStateError("this broker is not running", node=self.node_id)
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if the process exists (a paused one does)."""
        return self._process is not None and self._process.running

    def configure(self, properties: Mapping[str, str]) -> None:
        """Write server.properties; takes effect at the next start."""
        self._properties = dict(properties)
        self.layout.folder.mkdir(parents=True, exist_ok=True)
        (self.layout.folder / "server.properties").write_text(render(properties))

    def format(self, users: Mapping[str, str]) -> None:
        """Give the empty data folder its cluster id, and SCRAM its first users."""
        settings = self.layout.folder / "server.properties"
        data = self.layout.folder / "data"
        usual = self._properties.get("log.dirs") == str(data) and not DECIDE & self._properties.keys()
        kept = kept_storage(self._jars) if usual and not users else None
        ids = {"cluster.id": self._cluster_id, "node.id": str(self.node_id), "directory.id": new_id()}
        if kept is not None and copy_storage(kept, data, ids):
            return
        command = [
            str(java()),
            *self._java_options,
            "-cp",
            self._classpath,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self._cluster_id,
            "-c",
            str(settings),
            *format_arguments(users),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=FORMAT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise BrokerStartError(
                f"its storage was not formatted within {FORMAT_TIMEOUT_S:g} s", node=self.node_id
            ) from None
        if done.returncode:
            raise BrokerStartError(
                f"its storage could not be formatted: {(done.stdout + done.stderr).strip()[-2000:]}", node=self.node_id
            )
        if kept is not None:
            keep_storage(kept, data)

    def launch(self, *, remove_if_orphaned: Path | None) -> None:
        """Start the process without waiting for it to serve."""
        if self.running:
            raise BrokerStateError("this broker runs already", node=self.node_id)
        command = [str(java()), *self._java_options, "-cp", self._classpath]
        command += ["kafka.Kafka", str(self.layout.folder / "server.properties")]
        self._process = Supervised(
            command, folder=self.layout.folder, log=self.log, remove_if_orphaned=remove_if_orphaned
        )
        if not self._process.pid:
            raise self.failed("its supervisor did not start")

    def wait_ready(self, *, brokers: int, timeout_s: float) -> None:
        """Until it serves and sees `brokers` of them; raises BrokerStartError with its last words otherwise."""
        deadline = time.monotonic() + timeout_s
        while brokers_seen(f"127.0.0.1:{self.layout.ports[PLAINTEXT]}") < brokers:
            if not self.running:
                raise self.failed("it ended while starting")
            if time.monotonic() > deadline:
                raise self.failed(f"it did not serve within {timeout_s:g} s")
            time.sleep(0.05)

    def failed(self, what: str) -> BrokerStartError:
        """An error with the end of its log, which may be in a folder that is about to be removed."""
        try:
            last_words = "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])
        except OSError:
            last_words = "(no log)"
        return BrokerStartError(f"{what}:\n{last_words}", node=self.node_id, log=self.log)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker (SIGTERM: controlled shutdown), kill it after `timeout_s`. Nothing happens when it is
        down."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing happens when it is down."""
        self._end(KILL, STOP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: its sockets stay open and get no response; returns once every thread has stopped.

        Raises NotImplementedError on Windows.
        """
        pid = self.pid
        freeze(pid)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not _is_frozen(pid) and time.monotonic() < deadline:
            time.sleep(0.002)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        thaw(self.pid)

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        if self._process is not None:
            self._process.end(number, timeout_s)
            self._process = None


def _is_frozen(pid: int) -> bool:
    """True if all threads are stopped; the signal reaches them one by one. True also without /proc."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return True
    for task in tasks.iterdir():
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue  # the thread ended
        if state not in "TtXZ":
            return False
    return True
