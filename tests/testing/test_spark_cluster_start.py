"""The parts of a Spark cluster that need no Spark."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kohort.testing import SparkCluster
from kohort.testing.errors import BrokerStateError
from kohort.testing.spark_cluster import SparkExecutor, running_processes


@pytest.mark.parametrize(("body", "alive"), [(b"", 0), (b'{"workers": [{"state": "ALIVE"}, {"state": "DEAD"}]}', 1)])
def test_a_master_whose_page_is_empty_yet_has_no_workers(
    body: bytes, alive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # it is for other machines

    class Master(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Master) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = SparkCluster.__new__(SparkCluster)
        cluster._web = server.server_port
        assert cluster._alive() == alive
        server.shutdown()


def test_a_process_whose_command_line_is_not_utf_8_is_listed() -> None:
    command: list[str | bytes] = [sys.executable, "-c", "import sys; sys.stdin.read()", b"caf\xe9"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        parent, found = running_processes()[process.pid]
        process.communicate()
    assert parent == os.getpid()
    assert found.rstrip().endswith("caf\ufffd")


def test_a_fault_of_a_process_that_is_gone() -> None:
    """An executor may end between the list of executors and the signal."""
    cluster = SparkCluster()
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    cluster.kill_executor(SparkExecutor(process.pid, 0))
    with pytest.raises(BrokerStateError, match=r"the worker is not running \(worker=0\)"):
        cluster.kill_worker(0)
