"""What a consumer loads before its first record: nothing that a plain connection has no use for."""

import subprocess
import sys

NEEDLESS = (
    "asyncio", "difflib", "email", "hmac", "importlib.metadata", "ipaddress", "secrets", "ssl", "tempfile", "zstandard",
    "kohort.coordinator_client.tape", "kohort.assignors.group_file",
)  # fmt: skip
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


def test_a_plain_consumer_loads_no_tls_no_package_metadata_and_no_tools_for_mistakes() -> None:
    from kohort.fastpath import encode

    batch = bytes(encode([(None, b"value")])).hex()
    code = LIFE.format(batch=batch, needless=NEEDLESS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
