"""`kohort broker`: start in the background, look, stop; and what it says when that cannot be."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import Admin, Consumer, Producer
from kohort.testing.cache import cache_dir
from kohort.testing.ports import free_ports
from kohort.testing.readiness import brokers_seen
from tests.coordinator_client.consumer_helpers import read
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
    assert done.stderr == "kohort: error: no broker named 'default' runs; kohort broker status\n"


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
