"""Connection options of commands: their precedence, profiles, and the names of Java's settings."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kohort.cli.connection_options import FIRST_BROKER, ConnectionOptions, properties
from kohort.cli.main import main
from kohort.common.errors import KohortError
from kohort.testing.ports import free_ports
from tests.support.broker_selection import SelectedBroker

FILE = """
# everybody's
client.id = ops
key.serializer=a.b.C

[local]
bootstrap.servers=localhost:9092
[prod]
bootstrap.servers=kafka-1:9093,\\
    kafka-2:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="me" password="s3 cret";
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return path


def reported(
    environment: Mapping[str, str], bootstrap: str = "", config: Path | None = None, profile: str | None = None, *x: str
) -> dict[str, str]:
    return properties(bootstrap, config, x, profile, environment=environment)


def test_a_profile_adds_to_what_is_everybodys_and_java_is_understood(file: Path) -> None:
    assert reported({}, config=file, profile="local") == {"client.id": "ops", "bootstrap.servers": "localhost:9092"}
    assert reported({}, config=file, profile="prod") == {
        "client.id": "ops",
        "bootstrap.servers": "kafka-1:9093,kafka-2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "s3 cret",
        "ssl.ca.location": "/ca.pem",
    }


def test_what_is_typed_wins_over_the_environment_which_wins_over_a_file_nobody_typed(file: Path) -> None:
    named = {"KOHORT_CONFIG": str(file), "KOHORT_PROFILE": "local"}
    assert reported(named)["bootstrap.servers"] == "localhost:9092"
    both = named | {"KOHORT_BOOTSTRAP": "env:1", "KOHORT_CLIENT_ID": "of-env"}
    assert reported(both) == {"client.id": "of-env", "bootstrap.servers": "env:1"}
    assert reported(both, profile="prod")["bootstrap.servers"] == "kafka-1:9093,kafka-2:9093"
    assert reported(both, "", file, "local")["client.id"] == "ops"
    assert reported(both, "", None, None, "client.id=x")["client.id"] == "x"
    assert reported(both, "typed:2", file, "prod", "bootstrap.servers=x:3")["bootstrap.servers"] == "typed:2"


def test_a_file_of_kcats_will_do(tmp_path: Path) -> None:
    path = tmp_path / "kcat.conf"
    path.write_text("metadata.broker.list=kafka:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\n")
    assert reported({}, config=path) == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }
    environment = {"KOHORT_CONFIG": str(path), "KOHORT_BOOTSTRAP": "env:1"}
    assert reported(environment)["bootstrap.servers"] == "env:1"
    assert reported(environment, "", None, None, "metadata.broker.list=x:2")["bootstrap.servers"] == "x:2"


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"])
def test_a_file_is_utf_8_in_every_locale(before: bytes, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(before + "bootstrap.servers=a:1\nclient.id=caf\u00e9\n".encode())
    code = (
        "from pathlib import Path; from kohort.cli.connection_options import properties;"
        f"print(ascii(properties('', Path({str(path)!r}), (), environment={{}})))"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | locale)
    assert (done.stdout, done.stderr) == ("{'bootstrap.servers': 'a:1', 'client.id': 'caf\\xe9'}\n", "")


def test_every_setting_has_its_variable() -> None:
    environment = {
        "KOHORT_BOOTSTRAP": "a:1",
        "KOHORT_SASL_PASSWORD": "p",
        "KOHORT_REQUEST_TIMEOUT_MS": "5",
        "KOHORT_BROKER_VERSION": "4.3.1",
        "HOME": "/nowhere",
    }
    assert reported(environment) == {"bootstrap.servers": "a:1", "sasl.password": "p", "request.timeout.ms": "5"}


def test_the_usual_file_is_found(tmp_path: Path) -> None:
    usual = tmp_path / "kohort" / "config"
    usual.parent.mkdir()
    usual.write_text("bootstrap.servers=usual:1\n[far]\nbootstrap.servers=far:2\n")
    assert reported({"XDG_CONFIG_HOME": str(tmp_path)}) == {"bootstrap.servers": "usual:1"}
    assert reported({"XDG_CONFIG_HOME": str(tmp_path)}, profile="far") == {"bootstrap.servers": "far:2"}
    below = tmp_path / "home" / ".config" / "kohort"
    below.mkdir(parents=True)
    (below / "config").write_text("bootstrap.servers=home:1\n")
    assert reported({"HOME": str(tmp_path / "home")}) == {"bootstrap.servers": "home:1"}


@pytest.mark.parametrize(
    ("text", "profile", "says"),
    [
        ("bootstrap.servers", None, r"not a property .*line=1"),
        ("a=1\n\nb\\\n c\n", None, r"not a property .*line=3"),
        ("[one]\nclient.id=x\n", "two", r"no profile 'two' .*has: one"),
        ("client.id=x\n", "two", r"no profile 'two' .*has: none"),
        ("client.id=x\n", None, "no broker is named"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, profile: str | None, says: str) -> None:
    path = tmp_path / "wrong.properties"
    path.write_text(text)
    with pytest.raises(KohortError, match=says):
        reported({"HOME": "/nowhere"}, config=path, profile=profile)


def test_a_profile_of_no_file_and_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(KohortError, match="profile 'prod' without a file"):
        reported({"HOME": str(tmp_path)}, profile="prod")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(KohortError, match="cannot be read"):
            reported({}, config=path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KohortError, match="not text"):
        reported({}, config=binary)


def test_a_connection_does_not_show_passwords_and_one_from_outside_is_no_member() -> None:
    typed = ("bootstrap.servers=a:1", "sasl.password=canary", "group.id=billing", "enable.auto.commit=true")
    connection = ConnectionOptions(x=typed)
    assert "canary" not in repr(connection)
    assert connection.properties["group.id"] == "billing"
    assert connection.outside() == FIRST_BROKER | {"bootstrap.servers": "a:1", "sasl.password": "canary"}


@pytest.mark.broker
def test_a_command_goes_where_the_profile_says(
    broker: SelectedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(f"[here]\nbootstrap.servers={broker.bootstrap}\n[nowhere]\nbootstrap.servers=127.0.0.1:1\n")
    monkeypatch.setenv("KOHORT_CONFIG", str(path))
    monkeypatch.setenv("KOHORT_PROFILE", "nowhere")
    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)
    assert main(["topic", "list", "--json", "--profile", "here"]) == 0
    assert capsys.readouterr().out.startswith("[")
    assert main(["topic", "list", "--json"]) == 1
    assert "cannot reach the broker" in capsys.readouterr().err


@pytest.mark.parametrize(("settings", "waited"), [((), "3 s"), (("-X", "kohort.bootstrap.timeout.ms=50"), "0.05 s")])
def test_a_mistyped_address_is_reported_soon(
    settings: tuple[str, ...], waited: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    assert main(["topic", "list", "-b", f"127.0.0.1:{port}", *settings]) == 1
    assert f"no broker was reached in {waited} (bootstrap_timeout_ms" in capsys.readouterr().err
