"""`kohort broker`: start in the background, look, stop; and what it says when that cannot be."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import Admin, Consumer, Producer
from kohort.testing.cache import cache_dir, is_locked, locked
from kohort.testing.ports import free_ports
from kohort.testing.readiness import brokers_seen
from tests.coordinator_client.consumer_helpers import PATIENCE_S, read
from tests.support.broker_selection import wanted_version


def kohort(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kohort.cli.main", "broker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env=env,
    )


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A cache of its own that borrows the real one's jars and class archives."""
    for source in [*cache_dir().glob("kafka-*"), cache_dir() / "class-archives", cache_dir() / "formatted"]:
        if source.is_dir():
            (tmp_path / source.name).symlink_to(source)
    environment = {**os.environ, "KOHORT_CACHE": str(tmp_path)}
    yield environment
    kohort("stop", env=environment)


@pytest.mark.broker
def test_started_broker_serves_shows_its_status_and_stops(env: dict[str, str]) -> None:
    started = kohort("start", "--version", wanted_version(), "--sasl", "alice:s3cret", "--json", env=env)
    assert started.returncode == 0, started.stderr
    state = json.loads(started.stdout)
    assert brokers_seen(state["bootstrap"]) == 1
    assert state["version"] == wanted_version()
    assert brokers_seen(state["bootstrap"]) == 1
    assert json.loads(kohort("status", "--json", env=env).stdout) == {"brokers": [state]}
    again = kohort("start", env=env)
    assert again.returncode == 1
    assert "'default' runs already" in again.stderr
    assert "Traceback" not in again.stderr
    assert kohort("stop", env=env).stdout == "default: stopped\n"
    assert brokers_seen(state["bootstrap"], timeout_s=0.5) == 0
    assert json.loads(kohort("status", "--json", env=env).stdout) == {"brokers": []}
    assert not Path(state["logs"][0]).exists()


def test_a_fake_broker_serves_a_first_program_and_says_that_it_keeps_nothing(env: dict[str, str]) -> None:
    (port,) = free_ports(1)
    started = kohort("start", "--fake", "--port", str(port), env=env)
    assert started.stdout.splitlines() == [
        f"default: a fake broker in memory at 127.0.0.1:{port}",
        "  One process. Its records and groups end with it. It has no TLS, login, disk or replicas.",
    ]
    (state,) = json.loads(kohort("status", "--json", env=env).stdout)["brokers"]
    assert (state["version"], state["bootstrap"]) == ("fake", f"127.0.0.1:{port}")
    with Admin(state["bootstrap"]) as admin:
        admin.create_topic("payments", partitions=1, replication_factor=1)
    with Producer(state["bootstrap"]) as producer:
        producer.send("payments", b"42")
    with Consumer(state["bootstrap"], group="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["payments"])
        assert [record.value for record in read(consumer, 1)] == [b"42"]
    assert kohort("stop", env=env).stdout == "default: stopped\n"
    assert brokers_seen(state["bootstrap"], timeout_s=0.5) == 0


@pytest.mark.parametrize("kind", [("--fake",), ()])
def test_a_used_port_is_one_error_and_starts_no_broker(env: dict[str, str], kind: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = kohort("start", *kind, "--port", str(port), env=env)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kohort: error: address already in use (host=127.0.0.1, port={port}); ")
    assert json.loads(kohort("status", "--json", env=env).stdout) == {"brokers": []}


@pytest.mark.broker
def test_brokers_of_a_killed_keeper_die_and_its_state_is_forgotten(env: dict[str, str]) -> None:
    state = json.loads(kohort("start", "--version", wanted_version(), "--json", env=env).stdout)
    os.kill(state["pid"], 9)
    deadline = time.monotonic() + 120
    while brokers_seen(state["bootstrap"], timeout_s=0.5):
        assert time.monotonic() < deadline, "the broker outlived its keeper"
        time.sleep(0.1)
    assert "no broker runs" in kohort("status", env=env).stdout


def test_stopping_what_does_not_run_is_one_line(env: dict[str, str]) -> None:
    done = kohort("stop", env=env)
    assert done.returncode == 1
    assert (
        done.stderr == "kohort: error: no broker named 'default' runs; list the brokers with `kohort broker status`\n"
    )


def test_other_files_in_the_cache_are_no_instances(env: dict[str, str]) -> None:
    assert "no broker runs" in kohort("status", env=env).stdout
    Path(env["KOHORT_CACHE"], "brokers", "a copy.json").touch()
    done = kohort("status", env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments", [("--sasl", "alice"), ("--brokers", "0"), ("--port", "70000"), ("--fake", "--tls")]
)
def test_wrong_options_are_usage_errors(env: dict[str, str], arguments: tuple[str, str]) -> None:
    done = kohort("start", *arguments, env=env)
    assert done.returncode == 2
    assert arguments[0] in done.stderr


def test_name_cannot_leave_the_cache(env: dict[str, str]) -> None:
    done = kohort("stop", "--name", "../x", env=env)
    assert done.returncode == 1
    assert "is not a valid name" in done.stderr


@pytest.mark.parametrize("command", [("start", "--fake"), ("stop",), ("status",)])
def test_a_cache_that_is_no_folder_is_one_error_with_a_hint(
    env: dict[str, str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    file.touch()
    done = kohort(*command, env=env | {"KOHORT_CACHE": str(file / "cache")})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kohort: error: Not a directory (path={file / 'cache'}); set KOHORT_CACHE ")


def test_a_user_without_a_home_needs_kohort_cache(tmp_path: Path) -> None:
    done = kohort("status", env={**os.environ, "KOHORT_CACHE": "~no-such-user/cache"})
    assert done.returncode == 1
    assert "set KOHORT_CACHE" in done.stderr
    assert "Traceback" not in done.stderr


def test_ports_of_a_cluster_beyond_the_last_one_are_a_usage_error(env: dict[str, str]) -> None:
    done = kohort("start", "--fake", "--port", "65534", "--brokers", "3", env=env)
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_a_name_that_is_too_long_for_a_file_is_refused(env: dict[str, str]) -> None:
    done = kohort("status", env=env)
    assert done.returncode == 0
    done = kohort("stop", "--name", "a" * 300, env=env)
    assert done.returncode == 1
    assert "is not a valid name" in done.stderr


def test_modules_of_the_current_folder_take_the_place_of_none(env: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "typer.py").write_text("raise SystemExit('not typer')")
    started = subprocess.run(
        [sys.executable, "-P", "-m", "kohort.cli.main", "broker", "start", "--fake"],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env=env,
        cwd=project,
    )
    assert started.returncode == 0, started.stderr


def test_of_two_starts_at_once_one_has_the_brokers_and_one_stop_ends_all(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "kohort.cli.main", "broker", "start", "--fake", "--json"]
    starts = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) for _ in range(2)]
    printed = [start.communicate(timeout=PATIENCE_S) for start in starts]
    assert sorted(start.returncode for start in starts) == [0, 1], printed
    assert any(b"'default' runs already" in errors for _, errors in printed)
    assert kohort("stop", env=env).stdout == "default: stopped\n"
    assert json.loads(kohort("status", "--json", env=env).stdout) == {"brokers": []}
    assert not is_locked(Path(env["KOHORT_CACHE"], "brokers", "default.lock"))


def test_a_start_beside_a_keeper_that_serves_nothing_yet_ends(env: dict[str, str]) -> None:
    folder = Path(env["KOHORT_CACHE"], "brokers")
    folder.mkdir()
    with locked(folder / "default.lock"):
        done = kohort("start", "--fake", env=env)
    assert done.returncode == 1
    assert "'default' is being started or stopped by another process" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_start_leaves_no_keeper(env: dict[str, str], number: int, code: int) -> None:
    folder = Path(env["KOHORT_CACHE"], "brokers")
    folder.mkdir()
    with locked(folder / "default.lock"):  # so that the keeper waits
        command = [sys.executable, "-m", "kohort.cli.main", "broker", "start", "--fake"]
        start = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        while not (folder / "default.log").exists():
            assert start.poll() is None
            time.sleep(0.01)
        time.sleep(0.5)  # the keeper may be anywhere in its start
        start.send_signal(number)
        start.communicate(timeout=PATIENCE_S)
    assert start.returncode == code
    time.sleep(1)  # a keeper that was left behind would have the lock by then
    assert json.loads(kohort("status", "--json", env=env).stdout) == {"brokers": []}
    assert not is_locked(folder / "default.lock")


def test_of_stops_at_once_none_fails_with_an_error_of_the_system(env: dict[str, str]) -> None:
    assert kohort("start", "--fake", env=env).returncode == 0
    command = [sys.executable, "-m", "kohort.cli.main", "broker", "stop"]
    stops = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) for _ in range(3)]
    printed = [stop.communicate(timeout=PATIENCE_S)[1] for stop in stops]
    assert not any(b"Errno" in errors for errors in printed), printed


@pytest.mark.broker
def test_the_end_of_a_broker_is_in_the_keepers_log_with_the_broker_s_last_lines(env: dict[str, str]) -> None:
    state = json.loads(kohort("start", "--version", wanted_version(), "--json", env=env).stdout)
    (supervisor,) = children(state["pid"])
    (java,) = children(supervisor)
    os.kill(java, signal.SIGKILL)
    log = Path(env["KOHORT_CACHE"], "brokers", "default.log")
    deadline = time.monotonic() + 120
    while "a broker process ended" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "kafka.server" in log.read_text().partition("a broker process ended")[2]


def children(pid: object) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in listed for child in file.read_text().split()]
