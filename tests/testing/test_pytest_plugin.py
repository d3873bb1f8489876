"""The plug-in for pytest: its fixtures in a project of their own, and the price of loading it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CLIENTS = """
import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import Producer as LibrdkafkaProducer

from kohort import Consumer
from kohort.testing.faults import Reset


@pytest.mark.kohort_topics(orders=2)
def test_a_topic_of_the_marker(kohort_fake_broker):
    kohort_fake_broker.produce("orders", 1, [(b"k", b"v")])
    with Consumer(kohort_fake_broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while not (batches := consumer.poll(5.0)):
            pass
        assert [record.value for record in batches[0]] == [b"v"]


def test_each_test_has_a_broker_of_its_own(kohort_fake_broker):
    assert not kohort_fake_broker.calls
    with pytest.raises(Exception, match="orders"):
        kohort_fake_broker.produce("orders", 1, [(b"k", b"v")])


@pytest.mark.kohort_topics(orders=1)
def test_another_client_through_faults(kohort_faults, kohort_fake_broker):
    kohort_faults.add(Reset(), api="Produce", times=1)
    errors = []
    producer = LibrdkafkaProducer({"bootstrap.servers": kohort_faults.address})
    producer.produce("orders", b"v", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(120) == 0
    assert errors == [None]
    assert len(kohort_fake_broker.calls_of("Produce")) >= 1
    assert kohort_faults.frames
"""

REAL = """
from kohort import Admin

def test_a_broker(kohort_broker):
    with Admin(kohort_broker.bootstrap) as admin:
        assert len(admin.brokers()) == 1
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_clients.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    command = [sys.executable, "-m", "pytest", "-q", *arguments, "test_clients.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_the_fixtures_serve_any_client(tmp_path: Path) -> None:
    done = run(tmp_path, CLIENTS)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.broker
def test_a_real_broker_is_started_for_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, REAL)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_fixtures_and_the_marker_are_listed(tmp_path: Path) -> None:
    listed = run(tmp_path, REAL, "--fixtures").stdout
    for name in ("kohort_fake_broker", "kohort_faults", "kohort_broker", "kohort_cluster"):
        assert name in listed
    assert "kohort_topics" in run(tmp_path, REAL, "--markers").stdout


def test_loading_the_plug_in_loads_no_extension_and_no_codec() -> None:
    program = """
import json, sys
import pytest
before = set(sys.modules)
import kohort.testing.pytest_plugin
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        "kohort",
        "kohort.common",
        "kohort.common.errors",
        "kohort.common.foreign_text",
        "kohort.common.named_tuple",
        "kohort.common.topic_partition",
        "kohort.common.version",
        "kohort.testing",
        "kohort.testing.pytest_plugin",
    ]
