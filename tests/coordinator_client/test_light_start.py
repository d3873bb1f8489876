"""The modules that a consumer loads before its first record: none that a plain connection has no use for."""

import subprocess
import sys
from functools import cache

NEEDLESS = (
    "asyncio",
    "decimal",
    "difflib",
    "email",
    "hmac",
    "http",
    "importlib.metadata",
    "ipaddress",
    "json",
    "pathlib",
    "construct",
    "dataclasses",
    "hashlib",
    "inspect",
    "logging",
    "pdb",
    "pickle",
    "queue",
    "random",
    "rich",
    "secrets",
    "signal",
    "ssl",
    "subprocess",
    "tempfile",
    "typer",
    "urllib",
    "cramjam",
    "isal",
    "zstandard",
    "kohort.admin",
    "kohort.assignors.integer_group",
    "kohort.assignors.group_file",
    "kohort.assignors.lag",
    "kohort.cli",
    "kohort.coordinator_client.async_consumer",
    "kohort.coordinator_client.group.consumer_member",
    "kohort.coordinator_client.metrics.metrics_table",
    "kohort.fastpath._encode",
    "kohort.network.auth.oauth_tokens",
    "kohort.network.auth.sasl",
    "kohort.coordinator_client.replay",
    "kohort.network.tape_writer",
    "kohort.network.auth.token_refresh",
    "kohort.producer",
    "kohort.protocol.apis.describe_groups",
    "kohort.protocol.apis.heartbeat",
    "kohort.protocol.apis.leave_group",
    "kohort.protocol.apis.offset_commit",
    "kohort.protocol.apis.offset_for_leader_epoch",
    "kohort.protocol.apis.sasl_authenticate",
    "kohort.protocol.apis.sasl_handshake",
    "kohort.protocol.record_batch",
)
MOST_MODULES = 131
"""Of kohort. Each takes 0.05 ms, and its values and functions some 0.2 ms."""
LIFE = """
import sys
from kohort import Consumer
from kohort.fastpath import decode
consumer = Consumer("127.0.0.1:1", group="g", assignors=["range"])
consumer.subscribe(["t"])
decode(bytes.fromhex("{batch}"))
print(*sys.modules)
consumer.close(0)
"""


@cache
def loaded() -> frozenset[str]:
    """The modules of a fresh interpreter after a consumer's start."""
    from kohort.fastpath import encode

    batch = bytes(encode([(None, b"value")])).hex()
    code = LIFE.format(batch=batch)
    return frozenset(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )


def test_a_plain_consumer_loads_no_tls_no_codecs_no_package_metadata_and_no_tools_for_mistakes() -> None:
    assert sorted(loaded() & set(NEEDLESS)) == []


def test_the_modules_before_the_first_record_are_few() -> None:
    ours = sorted(name for name in loaded() if name.partition(".")[0] == "kohort")
    assert len(ours) <= MOST_MODULES, ours
