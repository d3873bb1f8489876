"""Responses whose smallest elements would become the largest objects, and what one costs a client in a fresh process.

python -m tests.protocol.hostile_responses        # a table: kohort beside its peers, before and after the login
"""

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kohort.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.protocol.apis.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic
from kohort.protocol.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kohort.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from kohort.protocol.apis.sync_group import SyncGroupResponse
from kohort.protocol.catalogue import API
from kohort.protocol.codec import Message
from kohort.protocol.membership import Subscription, build_subscription

MIB = 1 << 20


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def filled(before: bytes, element: bytes, after: bytes, size: int) -> bytes:
    """A compact array of as many elements as `size` bytes hold, between what stands before and after it."""
    count = (size - len(before) - len(after) - 5) // len(element)
    return before + uvarint(count + 1) + element * count + after


def api_versions(size: int = MIB) -> bytes:
    """Version 3: ranges of seven bytes each."""
    return filled(b"\0\0", struct.pack(">hhh", 18, 0, 3) + b"\0", bytes(4) + b"\0", size)


def sasl_handshake(size: int = MIB) -> bytes:
    """Version 1: mechanisms without a letter, two bytes each."""
    count = (size - 6) // 2
    return b"\0\0" + count.to_bytes(4, "big") + bytes(2 * count)


def join_group(size: int = MIB) -> bytes:
    """Version 9: members of four bytes each."""
    before = bytes(4) + b"\0\0" + struct.pack(">i", 1) + b"\1\1\1\0\1"
    return filled(before, b"\1\0\1\0", b"\0", size)


def metadata(size: int = MIB) -> bytes:
    """Version 12: one topic, its partitions of eighteen bytes each."""
    before = bytes(4) + b"\1" + b"\0" + struct.pack(">i", 0) + b"\2" + b"\0\0" + b"\2t" + bytes(16) + b"\0"
    partition = struct.pack(">hiii", 0, 0, 0, 0) + b"\1\1\1" + b"\0"
    return filled(before, partition, struct.pack(">i", 0) + b"\0" + b"\0", size)


def telemetry_subscriptions(size: int = MIB) -> bytes:
    """Version 0: requested metrics without a letter, one byte each (KIP-714)."""
    return filled(bytes(26) + b"\1" + struct.pack(">ii", 1000, MIB) + b"\0", b"\1", b"\0", size)


def list_groups(size: int = MIB) -> bytes:
    """Version 5: groups without a name, five bytes each."""
    return filled(bytes(6), b"\1\1\1\1\0", b"\0", size)


def find_coordinator(size: int = MIB) -> bytes:
    """Version 4: coordinators of fourteen bytes each."""
    return filled(bytes(4), b"\1" + bytes(4) + b"\1" + bytes(4) + b"\0\0" + b"\0" + b"\0", b"\0", size)


def offset_fetch(size: int = MIB) -> bytes:
    """Version 8: groups of five bytes each."""
    return filled(bytes(4), b"\1\1\0\0\0", b"\0", size)


def fetch(size: int = MIB) -> bytes:
    """Version 13: topics without partitions, eighteen bytes each."""
    return filled(bytes(10), bytes(16) + b"\1\0", b"\0", size)


def group_heartbeat(size: int = MIB) -> bytes:
    """Version 0: an assignment of topics without partitions, eighteen bytes each (KIP-848)."""
    return filled(bytes(6) + b"\0\0" + bytes(8) + b"\1", bytes(16) + b"\1\0", b"\0\0", size)


def unknown_tags(size: int = MIB) -> bytes:
    """Heartbeat, version 4: empty tagged fields that no version declares, four bytes each."""
    count = (size - 10) // 4
    tags = b"".join(uvarint((1 << 14) + tag) + b"\0" for tag in range(count))
    return bytes(6) + uvarint(count) + tags


RESPONSES = {
    "ApiVersions": (3, api_versions),
    "SaslHandshake": (1, sasl_handshake),
    "JoinGroup": (9, join_group),
    "Metadata": (12, metadata),
    "GetTelemetrySubscriptions": (0, telemetry_subscriptions),
    "ListGroups": (5, list_groups),
    "FindCoordinator": (4, find_coordinator),
    "OffsetFetch": (8, offset_fetch),
    "Fetch": (13, fetch),
    "ConsumerGroupHeartbeat": (0, group_heartbeat),
    "Heartbeat": (4, unknown_tags),
}
"""By API: the version, and a function from a size to such a response's body."""


SECRET = "dGhlIHNlY3JldA-hunter2"
TEXTS = (
    "\x1b[2J\x1b]0;title\x07",
    "a line\r\n## another\n| cell |",
    "<script>alert(1)</script>",
    "\u202eright to left\u2066",
    "\u2028\u2029\x85\x00",
    f"login failed for {SECRET}",
    "x" * 4_000,
)
"""Texts of brokers, members and issuers that would command a terminal, forge a line, or carry a secret back."""
OFFSETS = (-(1 << 63), -2, -1, 1 << 40, (1 << 63) - 1)


def _subscription(topics: int) -> bytes:
    return build_subscription(
        Subscription(topics=tuple(f"unknown-{number}" for number in range(topics)), user_data=None)
    )


def texts() -> list[tuple[Message[Any], int, bytes]]:
    """(message, version, body) of responses with each of `TEXTS` in every place where a response has one."""
    made: list[tuple[str, int, Any]] = []
    for text in TEXTS:
        member = JoinGroupResponseMember(member_id=text, group_instance_id=text, metadata=_subscription(50))
        found = Coordinator(key=text, node_id=1, host=text, port=9092, error_code=30, error_message=text)
        described = DescribedGroup(
            error_code=0,
            group_id=text,
            group_state=text,
            protocol_type="consumer",
            protocol_data=text,
            members=(
                DescribedGroupMember(
                    member_id=text,
                    group_instance_id=text,
                    client_id=text,
                    client_host=text,
                    member_metadata=text.encode()[:200],
                    member_assignment=b"\0",
                ),
            ),
        )
        made += [
            ("SaslAuthenticate", 2, SaslAuthenticateResponse(error_code=58, error_message=text)),
            ("JoinGroup", 9, JoinGroupResponse(leader=text, member_id=text, protocol_name=text, members=(member,))),
            ("FindCoordinator", 4, FindCoordinatorResponse(coordinators=(found,))),
            ("DescribeGroups", 5, DescribeGroupsResponse(groups=(described,))),
            (
                "Metadata",
                12,
                MetadataResponse(cluster_id=text, topics=(MetadataResponseTopic(name=text, error_code=17),)),
            ),
            ("ConsumerGroupHeartbeat", 0, ConsumerGroupHeartbeatResponse(error_code=110, error_message=text)),
            ("SyncGroup", 5, SyncGroupResponse(protocol_name=text, assignment=text.encode())),
        ]
    return [(API[name].response, version, API[name].response.build(value, version)) for name, version, value in made]


def committed_offsets() -> list[tuple[Message[Any], int, bytes]]:
    """OffsetFetch responses with offsets that no log has, and metadata as long as a string can be."""
    version, message = 7, API["OffsetFetch"].response
    partitions = tuple(
        OffsetFetchResponsePartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=-1,
            metadata="x" * 32_767,
            error_code=0,
        )
        for number, offset in enumerate(OFFSETS)
    )
    value = OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=partitions),))
    return [(message, version, message.build(value, version))]


def subscriptions() -> list[bytes]:
    """Subscriptions of a foreign member: some hundred unknown topics, a false length, and bytes without a topic."""
    many = _subscription(300)
    return [many, many[:2] + b"\x7f\xff\xff\xff" + many[6:], b"\0\3" + bytes(400), b"\x7f\xff" + many[2:]]


def corpus(size: int) -> list[tuple[Message[Any], int, bytes]]:
    """Small ones of all kinds, for a fuzzer to change."""
    filled_ones = [(API[name].response, version, made(size)) for name, (version, made) in RESPONSES.items()]
    return [*filled_ones, *texts(), *committed_offsets()]


PARSE = """
import sys
from kohort.protocol.catalogue import API
from kohort.fastpath import WireError
def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
message, version, budget = API[sys.argv[1]].response, int(sys.argv[2]), int(sys.argv[3])
try:
    message.parse_from(b"", 0, version)
except WireError:
    pass  # its codec is built
data = sys.stdin.buffer.read()
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")  # the peak is counted from here
before = status("VmRSS")
try:
    message.parse_from(data, 0, version, budget)
    outcome = "parsed"
except WireError as error:
    outcome = error.message
print(status("VmHWM") - before, outcome)
"""


def parsed(api: str, data: bytes, budget: int) -> tuple[int, str]:
    """(bytes that the peak of a fresh process grows by, the outcome) for one parse."""
    command = [sys.executable, "-c", PARSE, api, str(RESPONSES[api][0]), str(budget)]
    run = subprocess.run(command, input=data, capture_output=True, check=True, timeout=120)
    peak, _, outcome = run.stdout.decode().strip().partition(" ")
    return int(peak), outcome


@contextmanager
def server(api: str, size: int, *, honest_versions: bool) -> Iterator[int]:
    """A port: each connection's first request, or the first one of `api`, gets the hostile response."""
    ranges = [(API[name].key, *API[name].response.versions) for name in WANTED]
    offered = ApiVersionsResponse(
        api_keys=tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges)
    )

    def serve(connection: socket.socket) -> None:
        with connection:
            while len(head := connection.recv(4, socket.MSG_WAITALL)) == 4:
                request = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                key, version = struct.unpack(">hh", request[:4])
                body = RESPONSES[api][1](size)
                if key == API["ApiVersions"].key and honest_versions:
                    body = API["ApiVersions"].response.build(offered, version)
                flexible = b"" if key in (API["ApiVersions"].key, API["SaslHandshake"].key) else b"\0"
                connection.sendall((4 + len(flexible) + len(body)).to_bytes(4, "big") + request[4:8] + flexible + body)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=quietly, args=(connection,), daemon=True).start()

    def quietly(connection: socket.socket) -> None:
        try:
            serve(connection)
        except OSError:
            return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


WANTED = ("ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata", "JoinGroup", "FindCoordinator", "Fetch")

CLIENT = """
import sys, threading, time
port, login, seconds = sys.argv[1], sys.argv[2] == "login", float(sys.argv[3])
address = "127.0.0.1:" + port
def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
{client}
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = status("VmRSS")
try:
    run()
    outcome = "nothing"
except BaseException as error:
    outcome = type(error).__name__
print(status("VmHWM") - before, outcome)
"""
CLIENTS = {
    "kohort": """
from kohort import Consumer
import kohort.network.auth.sasl, kohort.protocol.compiled_codec, kohort.admin
settings = {}
if login:
    settings = dict(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="u", sasl_password="p")
def run():
    with Consumer(address, group="g", bootstrap_timeout_ms=int(seconds * 1000), **settings) as consumer:
        consumer.topics(timeout_s=seconds)
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer
settings = {}
if login:
    settings = dict(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    settings |= dict(sasl_plain_username="u", sasl_plain_password="p")
async def go():
    consumer = AIOKafkaConsumer("t", bootstrap_servers=address, **settings)
    try:
        await asyncio.wait_for(consumer.start(), seconds)
    finally:
        await consumer.stop()
def run():
    asyncio.run(go())
""",
    "kafka-python": """
from kafka import KafkaConsumer
settings = {}
if login:
    settings = dict(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    settings |= dict(sasl_plain_username="u", sasl_plain_password="p")
def run():
    KafkaConsumer("t", bootstrap_servers=address, **settings).topics()
""",
    "confluent-kafka": """
from confluent_kafka import Consumer
settings = {}
if login:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    settings |= {"sasl.username": "u", "sasl.password": "p"}
def run():
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0, **settings})
    consumer.list_topics(timeout=seconds)
""",
}


def cost(client: str, api: str, *, size: int = MIB, seconds: float = 5.0) -> tuple[int, str]:
    """(bytes that a whole client's peak grows by, the error it raises) on a port that sends such a response."""
    login = api in ("ApiVersions", "SaslHandshake")
    with server(api, size, honest_versions=api != "ApiVersions") as port:
        program = CLIENT.replace("{client}", CLIENTS[client])
        command = [sys.executable, "-c", program, str(port), "login" if login else "plain", str(seconds)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds * 4 + 60)
    if run.returncode:
        return -1, run.stderr.strip().splitlines()[-1]
    peak, _, outcome = run.stdout.strip().splitlines()[-1].partition(" ")
    return int(peak), outcome


def main() -> None:
    print("| response of 1 MiB | client | peak grows by, MiB | raised |")
    print("|---|---|---|---|")
    for api in ("ApiVersions", "SaslHandshake", "Metadata"):
        for client in CLIENTS:
            peak, outcome = cost(client, api)
            print(f"| {api} | {client} | {peak / MIB:.1f} | {outcome} |", flush=True)


if __name__ == "__main__":
    main()
