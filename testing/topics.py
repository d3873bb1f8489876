"""Topics for tests, made and awaited without the code under test; and Kafka's own command-line tools."""

import os
import struct
import subprocess
import time
from collections.abc import Mapping

from kohort.protocol.errors import ErrorCode
from kohort.testing import jars
from kohort.testing.class_archive import archive_options
from kohort.testing.errors import BrokerStateError
from kohort.testing.jdk import java
from kohort.testing.plain_wire import send, string

TOOL_TIMEOUT_S = 180.0
RESPONSE_TIMEOUT_S = 10.0
_LIST_OFFSETS, _METADATA, _CREATE_TOPICS = 2, 3, 19
_LATEST = -1
_RETRY_S = 0.02


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> None:
    """Make topic `name` and return once every partition is served by its leader; raises BrokerStateError otherwise.

    Settings in `config` carry Kafka's own topic setting names.
    """
    address = bootstrap.split(",")[0]
    settings = b"".join(string(key) + string(value) for key, value in (config or {}).items())
    topic = (
        string(name) + struct.pack(">ihi", partitions, replicas, 0) + struct.pack(">i", len(config or {})) + settings
    )
    body = struct.pack(">i", 1) + topic + struct.pack(">i?", int(timeout_s * 1000), False)
    deadline = time.monotonic() + timeout_s
    while problem := _create(address, body, timeout_s):
        code, said = problem
        # One replica is too many only as long as the controller counts no broker among those that serve.
        if code != ErrorCode.INVALID_REPLICATION_FACTOR or replicas > 1 or time.monotonic() > deadline:
            raise BrokerStateError(f"topic not created: {said or f'error {code}'}", topic=name, error_code=code)
        time.sleep(_RETRY_S)
    while not serves(address, name, partitions):
        if time.monotonic() > deadline:
            raise BrokerStateError(f"topic is not served after {timeout_s:g} s: {leaders(address, name)}", topic=name)
        time.sleep(_RETRY_S)


def _create(address: str, body: bytes, timeout_s: float) -> tuple[int, str] | None:
    """Send one CreateTopics v2. (error code, message) if the topic of `body` is refused."""
    response = send(address, _CREATE_TOPICS, 2, body, timeout_s=timeout_s)
    name_end = 10 + struct.unpack_from(">h", response, 8)[0]
    code, message_size = struct.unpack_from(">hh", response, name_end)
    return (code, response[name_end + 4 : name_end + 4 + max(message_size, 0)].decode()) if code else None


def leaders(address: str, topic: str) -> list[int]:
    """The leader's node id of each partition of `topic` as the broker at `address` sees it; empty when unknown."""
    return _describe(address, topic)[1]


def serves(address: str, topic: str, partitions: int) -> bool:
    """True if every partition's leader responds for it. Metadata names a leader some moments before it is ready."""
    nodes, led = _describe(address, topic)
    if len(led) != partitions or not all(leader in nodes for leader in led):
        return False
    for leader in set(led):
        wanted = [number for number, node in enumerate(led) if node == leader]
        requested = b"".join(struct.pack(">iq", number, _LATEST) for number in wanted)
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(wanted)) + requested
        response = send(nodes[leader], _LIST_OFFSETS, 1, body, timeout_s=RESPONSE_TIMEOUT_S)
        at = 4 + 2 + len(topic.encode()) + 4
        for _ in wanted:
            if struct.unpack_from(">h", response, at + 4)[0]:
                return False
            at += 4 + 2 + 8 + 8
    return True


def _describe(address: str, topic: str) -> tuple[dict[int, str], list[int]]:
    """Metadata v1 about one topic: (node id to address, leaders by partition)."""
    response = send(address, _METADATA, 1, struct.pack(">i", 1) + string(topic), timeout_s=RESPONSE_TIMEOUT_S)
    nodes = {}
    at = 4
    for _ in range(struct.unpack_from(">i", response)[0]):
        node, host_size = struct.unpack_from(">ih", response, at)
        host = response[at + 6 : at + 6 + host_size].decode()
        at += 6 + host_size
        (port, rack_size) = struct.unpack_from(">ih", response, at)
        nodes[node] = f"{host}:{port}"
        at += 6 + max(rack_size, 0)
    at += 8  # controller, number of topics: one was requested
    at += 2  # its error: unknown topics list no partitions
    at += 2 + struct.unpack_from(">h", response, at)[0] + 1
    (count,) = struct.unpack_from(">i", response, at)
    at += 4
    found = {}
    for _ in range(count):
        _, partition, leader, replicas = struct.unpack_from(">hiii", response, at)
        at += 14 + 4 * replicas
        at += 4 + 4 * struct.unpack_from(">i", response, at)[0]
        found[partition] = leader
    return nodes, [found[partition] for partition in sorted(found)]


def kafka_tool(main_class: str, *arguments: str, version: str = jars.DEFAULT_VERSION, stdin: str = "") -> str:
    """Run one of Apache Kafka's command-line tools by its Java class, and return its standard output.

    Raises BrokerStateError with the tool's output if it fails.
    """
    needed = jars.classpath(version)
    classpath = os.pathsep.join(str(jar) for jar in needed)
    command = [
        str(java()),
        *archive_options(version, needed),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        classpath,
        main_class,
        *arguments,
    ]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode:
        raise BrokerStateError(f"{main_class.rpartition('.')[2]} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout
