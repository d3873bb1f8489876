"""The process of a broker that cannot be started, and the port that it cannot have."""

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import BrokerStartError, kafka_node, ports
from kohort.testing.broker_settings import PLAINTEXT, NodeLayout
from kohort.testing.kafka_node import KafkaNode


@pytest.fixture
def node(tmp_path: Path) -> KafkaNode:
    layout = NodeLayout(0, tmp_path / "node-0", {PLAINTEXT: 1})
    made = KafkaNode(layout, jars=[], cluster_id="cluster", heap_mb=64, jvm_options=())
    made.configure({})
    return made


def test_a_java_that_is_gone_is_named_by_the_error(
    node: KafkaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setattr(kafka_node, "java", lambda: gone)
    with pytest.raises(BrokerStartError, match=f"its supervisor did not start:[^$]*{gone}"):
        node.launch(remove_if_orphaned=None)


def test_storage_that_is_not_formatted_in_time_is_an_error_of_the_start(
    node: KafkaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "java"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(kafka_node, "java", lambda: slow)
    monkeypatch.setattr(kafka_node, "FORMAT_TIMEOUT_S", 0.1)
    with pytest.raises(BrokerStartError, match=r"its storage was not formatted within 0\.1 s"):
        node.format({})


def test_a_port_that_this_user_may_not_open_is_not_said_to_be_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def bind(self, address: Any, /) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("kohort.testing.ports.socket.socket", Refused)
    with pytest.raises(BrokerStartError, match="the port cannot be opened: Permission denied") as caught:
        ports.check_free([443])
    assert caught.value.place["port"] == 443
