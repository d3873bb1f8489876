"""Secrets that others may read are named once, and never shown."""

from pathlib import Path
from typing import Any

import pytest

from kohort.cli.properties_file import from_file
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.auth.tls import Certificates, exposures
from kohort.network.errors import ConfigError

PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "u",
    "sasl_password": "CANARY",
}


@pytest.mark.parametrize(
    ("bootstrap", "change", "kinds"),
    [
        ("broker.example:9092", {}, ["password_in_the_clear"]),
        ("localhost:9092,10.0.0.1:9092", {}, ["password_in_the_clear"]),
        ("localhost:9092,127.0.0.1:9093,[::1]:9094", {}, []),
        ("broker.example:9092", {"sasl_mechanism": "SCRAM-SHA-512"}, []),
        ("broker.example:9092", {"security_protocol": "SASL_SSL"}, []),
    ],
)
def test_a_password_without_tls(bootstrap: str, change: dict[str, Any], kinds: list[str]) -> None:
    found = exposures(ConsumerConfig.of(bootstrap=bootstrap, **PLAIN | change))
    assert [notice.kind for notice in found] == kinds
    assert not any("CANARY" in notice.text for notice in found)


def test_a_notice_comes_once() -> None:
    certificates = Certificates(ConsumerConfig.of(bootstrap="broker.example:9092", **PLAIN))
    notice = certificates.reload()
    assert notice is not None
    assert notice.kind == "password_in_the_clear"
    assert certificates.reload() is None


@pytest.mark.parametrize(
    ("mode", "kinds"), [(0o600, []), (0o640, ["key_file_open_to_others"]), (0o604, ["key_file_open_to_others"])]
)
def test_a_key_that_others_may_read(tmp_path: Path, mode: int, kinds: list[str]) -> None:
    key = tmp_path / "key.pem"
    key.write_text("")
    key.chmod(mode)
    config = ConsumerConfig.of(
        bootstrap="b.example:9092", security_protocol="SSL", ssl_cert_path=str(key), ssl_key_path=str(key)
    )
    assert [notice.kind for notice in exposures(config)] == kinds


@pytest.mark.parametrize(
    "name", ["sasl.password", "sasl.oauthbearer.client.credentials.client.secret", "sasl.jaas.config"]
)
def test_a_properties_file_that_others_may_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"bootstrap.servers=b:1\n{name}=CANARY\n")
    path.chmod(0o644)
    assert from_file(path, None)[name] == "CANARY"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert name in said
    assert "chmod 600" in said
    assert "CANARY" not in said
    path.chmod(0o600)
    from_file(path, None)
    path.write_text("bootstrap.servers=b:1\n")
    path.chmod(0o644)
    from_file(path, None)
    assert capsys.readouterr().err == ""


def test_a_limit_beyond_the_columns_offsets_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_decompressed_bytes"):
        ConsumerConfig.of(bootstrap="b:1", max_decompressed_bytes=1 << 31)


@pytest.mark.parametrize(
    ("change", "unused", "cure"),
    [
        ({"security_protocol": "PLAINTEXT"}, ["sasl_mechanism", "sasl_username", "sasl_password"], "SASL_SSL"),
        ({"security_protocol": "SSL"}, ["sasl_mechanism", "sasl_username", "sasl_password"], "SASL_SSL"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_ca_path": "/ca.pem"}, ["ssl_ca_path"], "SASL_SSL"),
        ({"security_protocol": "SASL_SSL", "ssl_check_hostname": False}, [], None),
    ],
)
def test_protection_that_the_protocol_does_not_use(change: dict[str, Any], unused: list[str], cure: str | None) -> None:
    found = exposures(ConsumerConfig.of(bootstrap="localhost:9092", **PLAIN | change))
    assert [notice.kind for notice in found] == ["security_settings_unused"] * bool(unused)
    for notice in found:
        assert f"does not use {', '.join(unused)}:" in notice.text
        assert f"'{cure}'" in notice.text
        assert "CANARY" not in notice.text


def test_tls_files_without_tls() -> None:
    (notice,) = exposures(ConsumerConfig.of(bootstrap="localhost:9092", ssl_ca_path="/ca.pem"))
    assert "set security_protocol='SSL'" in notice.text
