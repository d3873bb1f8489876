"""What a consumer loads before its first record: nothing that a plain connection has no use for."""

import subprocess
import sys
from ast import literal_eval

NEEDLESS = (
    "asyncio", "decimal", "difflib", "email", "hmac", "http", "importlib.metadata", "ipaddress", "json", "pathlib",
    "rich", "secrets", "ssl", "subprocess", "tempfile", "typer", "urllib",
    "cramjam", "isal", "zstandard",
    "kohort.admin", "kohort.assignors.balance", "kohort.assignors.group_file", "kohort.assignors.lag", "kohort.cli",
    "kohort.coordinator_client.aio", "kohort.coordinator_client.consumer_group_member",
    "kohort.coordinator_client.epoch_requests", "kohort.coordinator_client.figures", "kohort.coordinator_client.oauth",
    "kohort.coordinator_client.replay", "kohort.coordinator_client.tape", "kohort.coordinator_client.tokens",
    "kohort.producer", "kohort.protocol.record_batch",
)  # fmt: skip
# A frozen dataclass takes seven times as long to make as a named tuple. These are none for a reason of their own:
# settings carry their rows, a mapping is no tuple, what is computed once is kept inside, secrets are not shown.
FROZEN = {"Assignment", "Config", "Credentials", "GroupView", "Subscription"}
LIFE = """
import sys
from kohort import Consumer
from kohort.fastpath import decode
consumer = Consumer("127.0.0.1:1", group="g", assignors=["range"])
consumer.subscribe(["t"])
decode(bytes.fromhex("{batch}"))
print(sorted(set({needless!r}) & set(sys.modules)))
ours = [module for name, module in list(sys.modules.items()) if name.startswith("kohort")]
made = {{each for module in ours for each in vars(module).values() if isinstance(each, type)}}
dataclasses = {{each for each in made if "__dataclass_params__" in vars(each)}}
print(sorted(each.__name__ for each in dataclasses if each.__dataclass_params__.frozen))
consumer.close(0)
"""


def loaded() -> list[str]:
    """[needless modules, frozen dataclasses] as a fresh interpreter shows them after a consumer's start."""
    from kohort.fastpath import encode

    batch = bytes(encode([(None, b"value")])).hex()
    code = LIFE.format(batch=batch, needless=NEEDLESS)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_plain_consumer_loads_no_tls_no_codecs_no_package_metadata_and_no_tools_for_mistakes() -> None:
    assert loaded()[0] == "[]"


def test_what_a_consumer_loads_is_quick_to_make() -> None:
    assert set(literal_eval(loaded()[1])) <= FROZEN
