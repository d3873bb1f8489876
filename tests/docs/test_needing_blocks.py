"""Blocks that need something no test has, such as a cloud account: they are type-checked, and their settings parsed."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

import kohort
from kohort.cli.connection_options import ConnectionOptions
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.client_config import ClientConfig
from kohort.network.errors import ConfigError
from kohort.producer.producer_config import ProducerConfig
from tests.docs.pages import Block, blocks_of

ROOT = Path(__file__).parents[2]


def texts(wanted: Callable[[Block], bool]) -> list[Any]:
    """The texts of such blocks of all pages, as parameters of a test."""
    return [
        pytest.param(block.text, id=f"{path.relative_to(ROOT)}:{block.line}")
        for path in sorted((ROOT / "docs").rglob("*.md"))
        for block in blocks_of(path.read_text())
        if wanted(block)
    ]


PROGRAMS = texts(lambda block: block.verb == "needs" and block.language == "python")
OF_A_CLIENT = [one for one in PROGRAMS if re.search(r"import (Consumer|Producer)$", str(one.values[0]), re.MULTILINE)]
OF_SPARK = "from typing import Any\n\nspark: Any\nrows: Any\n"
"""The names that a page about Spark presupposes."""


class Secrets(dict[str, str]):
    """An environment in which every variable is set."""

    def __missing__(self, name: str) -> str:
        return f"the value of {name}"


def settings_of(program: str, monkeypatch: pytest.MonkeyPatch) -> list[ClientConfig]:
    """The checked settings of each client that a program makes. No client is started."""
    made: list[ClientConfig] = []

    def parser(kind: type[ClientConfig]) -> type:
        class Client:
            def __init__(self, bootstrap: Any = (), **settings: Any) -> None:
                made.append(kind.of(bootstrap=bootstrap, **settings))

            @classmethod
            def from_config(cls, properties: dict[str, Any]) -> Self:
                made.append(kind.from_kafka(properties))
                return cls.__new__(cls)

        return Client

    monkeypatch.setattr(kohort, "Consumer", parser(ConsumerConfig))
    monkeypatch.setattr(kohort, "Producer", parser(ProducerConfig))
    monkeypatch.setattr(os, "environ", Secrets(os.environ))
    monkeypatch.setattr(Path, "read_text", lambda self, **_: f"the contents of {self}")
    signer = ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    exec(program, {"__name__": "__main__"})
    return made


@pytest.mark.parametrize("program", OF_A_CLIENT)
def test_the_settings_of_a_program_are_valid(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (config,) = settings_of(program, monkeypatch)
    assert config.sasl_mechanism is not None


@pytest.mark.parametrize("text", texts(lambda block: block.language == "properties"))
def test_a_properties_file_of_a_page_is_valid(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("gssapi")
    library.__spec__ = ModuleSpec("gssapi", None)
    monkeypatch.setitem(sys.modules, "gssapi", library)
    file = tmp_path / "client.properties"
    file.write_text(text)
    file.chmod(0o600)
    profiles: list[str | None] = [*re.findall(r"^\[(\w+)\]", text, re.MULTILINE)] or [None]
    for profile in profiles:
        found = ConnectionOptions(bootstrap="broker:9093", config=file, profile=profile).properties
        assert ConsumerConfig.from_kafka(found).bootstrap == ("broker:9093",)


def test_an_invalid_setting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="sasl_username"):
        settings_of(
            "from kohort import Producer\nProducer('a:1', security_protocol='SASL_SSL', sasl_mechanism='PLAIN')",
            monkeypatch,
        )


def test_the_programs_pass_mypy(tmp_path: Path) -> None:
    assert len(PROGRAMS) >= len(OF_A_CLIENT) >= 5
    files = []
    for number, program in enumerate([*(str(one.values[0]) for one in PROGRAMS), "from kohort import Konsumer"]):
        files.append(tmp_path / f"program_{number}.py")
        files[-1].write_text(OF_SPARK + program)
    mypy = [sys.executable, "-m", "mypy", *map(str, files)]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    (mistake, summary) = done.stdout.splitlines()
    assert 'Module "kohort" has no attribute "Konsumer"' in mistake
    assert summary.startswith("Found 1 error in 1 file")
