"""The modules that a consumer loads before its first record: none that a plain connection has no use for."""

import subprocess
import sys

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
    "pdb",
    "pickle",
    "rich",
    "secrets",
    "ssl",
    "subprocess",
    "tempfile",
    "typer",
    "urllib",
    "cramjam",
    "isal",
    "zstandard",
    "kohort.admin",
    "kohort.assignors.balance",
    "kohort.assignors.group_file",
    "kohort.assignors.lag",
    "kohort.cli",
    "kohort.coordinator_client.async_consumer",
    "kohort.coordinator_client.group.consumer_member",
    "kohort.coordinator_client.metrics.metrics_table",
    "kohort.network.auth.oauth_tokens",
    "kohort.coordinator_client.replay",
    "kohort.network.tape_writer",
    "kohort.network.auth.token_refresh",
    "kohort.producer",
    "kohort.protocol.record_batch",
)
LIFE = """
import sys
from kohort import Consumer
from kohort.fastpath import decode
consumer = Consumer("127.0.0.1:1", group="g", assignors=["range"])
consumer.subscribe(["t"])
decode(bytes.fromhex("{batch}"))
print(sorted(set({needless!r}) & set(sys.modules)))
consumer.close(0)
"""


def loaded() -> str:
    """The needless modules that a fresh interpreter shows after a consumer's start."""
    from kohort.fastpath import encode

    batch = bytes(encode([(None, b"value")])).hex()
    code = LIFE.format(batch=batch, needless=NEEDLESS)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_plain_consumer_loads_no_tls_no_codecs_no_package_metadata_and_no_tools_for_mistakes() -> None:
    assert loaded() == "[]"
