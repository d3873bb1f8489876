"""A password goes to the broker and nowhere else: a canary is looked for in all that a run leaves behind or shows."""

import ast
import base64
import gc
import gzip
import io
import logging
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.main import main
from kohort.conformance.broker_client import Access
from kohort.coordinator_client import AuthenticationFailed, ConfigError, Consumer
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.auth.token_refresh import Token, TokenRefresher
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.network.auth.token_issuer import Issuer, issuing, unsecured

ROOT = Path(__file__).parents[2]
CANARY = "canary-Zq7_hT29"
WRONG = "kanari-wr0ng_Xy41"
PACKAGES = (
    "common",
    "fastpath",
    "protocol",
    "assignors",
    "network",
    "coordinator_client",
    "conformance",
    "spark",
    "consistent_region",
    "testing",
    "cli",
)
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "yaml"}


def spellings(secret: str) -> list[bytes]:
    """The secret as it may be written: plain, hex, and base64 at each of the three places in a stream."""
    data = secret.encode()
    found = [data, data.hex().encode(), data[::-1]]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data)
        found.append(encoded[2 * shift : len(encoded) - 4].rstrip(b"=")[:12])
    return found


def leaks(text: bytes) -> list[str]:
    return [
        spelling.decode("latin-1") for secret in (CANARY, WRONG) for spelling in spellings(secret) if spelling in text
    ]


def test_the_search_finds_what_it_looks_for() -> None:
    token = b"\0user\0" + CANARY.encode()
    for hidden in (CANARY.encode(), base64.b64encode(token), token.hex().encode(), base64.b64encode(b"x" + token)):
        assert leaks(b"before " + hidden + b" after"), hidden
    assert leaks(b"a line about canaries and Zq7 alone") == []


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealBroker]:
    login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": login,
        "listener.name.sasl_tls.oauthbearer.sasl.jaas.config": login,
    }
    with RealBroker(tls=True, users={"user": CANARY}, properties=properties) as broker:
        create_topic(broker.bootstrap, "topic")
        produce(broker.bootstrap, "topic", numbers(0, 5))
        yield broker


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Every log line of every logger, from DEBUG on."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("mechanism", "tls"), [("PLAIN", False), ("PLAIN", True), ("SCRAM-SHA-256", False)], ids=["plain", "tls", "scram"]
)
def test_a_run_leaves_no_password_behind(
    mechanism: str, tls: bool, guarded: RealBroker, logged: io.StringIO, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "security_protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "user",
        "auto_offset_reset": "earliest",
    } | ({"ssl_ca_path": str(guarded.ca_file)} if tls else {})
    address = guarded.bootstrap_sasl_tls if tls else guarded.bootstrap_sasl
    shown: list[str] = []
    tape = tmp_path / "tape.jsonl"
    with Consumer(address, group=f"g-{mechanism}-{tls}", sasl_password=CANARY, tape=str(tape), **settings) as consumer:
        consumer.subscribe(["topic"])
        assert len(read(consumer, 5)) == 5
        consumer.commit()
        everything = (
            consumer,
            consumer.health(),
            consumer.metrics(),
            consumer.timeline(),
            consumer.commit_log(),
            consumer._session,
            consumer._session.driver,
            consumer._config,
        )
        shown += [repr(each) for each in everything] + [str(each) for each in everything]
    with Consumer(
        address,
        group="g",
        sasl_password=WRONG,
        bootstrap_timeout_ms=1500,
        tape=str(tmp_path / "wrong.jsonl"),
        **settings,
    ) as refused:
        refused.subscribe(["topic"])
        with pytest.raises(AuthenticationFailed) as caught:
            poll_until(refused, lambda: False)
        shown.append("".join(traceback.format_exception(caught.value)))
        shown.append(repr(refused.health()))
    assert tape.stat().st_size > 1000
    written = [path.read_bytes() for path in tmp_path.iterdir()]
    for text in [*(each.encode() for each in shown), *written, logged.getvalue().encode()]:
        assert leaks(text) == []


def token(secret: str, lives_s: float = 600.0) -> str:
    """One whose claims hold the secret, and which can be looked for itself."""
    now = time.time()
    made = unsecured(sub="user", iat=now - 3600, exp=now + lives_s, jti=secret)
    TOKENS.append(made)
    return made


TOKENS: list[str] = []


class Indiscreet(Issuer):
    """A class that shows everything that it was given."""

    def token(self, client: str) -> str:
        return token(CANARY)

    def respond(self, authorization: str | None) -> tuple[int, dict[str, Any]]:
        status, body = super().respond(authorization)
        return status, body | ({"error_description": f"not {WRONG}"} if status == 401 else {})


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["function", "issuer"])
def test_a_run_leaves_no_token_behind(kind: str, guarded: RealBroker, logged: io.StringIO, tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "auto_offset_reset": "earliest",
    }
    shown: list[str] = []
    with issuing(Indiscreet({"user": CANARY})) as issuer:
        good: dict[str, Any] = {"sasl_oauth_token": partial(token, CANARY)}
        bad: dict[str, Any] = {"sasl_oauth_token": lambda: (token(WRONG, -600), time.time() + 600)}
        if kind == "issuer":
            requested: dict[str, Any] = {
                "sasl_oauth_token_endpoint_url": issuer.token_url,
                "sasl_oauth_allowed_urls": (issuer.token_url,),
                "sasl_oauth_client_id": "user",
            }
            good, bad = (requested | {"sasl_oauth_client_secret": secret} for secret in (CANARY, WRONG))
        settings = {**common, **good, "group": f"g-token-{kind}", "tape": str(tmp_path / "tape.jsonl")}
        with Consumer(guarded.bootstrap_sasl, **settings) as consumer:
            consumer.subscribe(["topic"])
            assert len(read(consumer, 5)) == 5
            consumer.commit()
            driver = consumer._session.driver
            everything = (
                consumer,
                consumer.health(),
                consumer.metrics(),
                consumer.timeline(),
                consumer._session,
                driver,
                consumer._config,
                driver._tokens,
                driver._credentials,
                *driver._channels.values(),
            )
            shown += [repr(each) for each in everything] + [str(each) for each in everything]
        with Consumer(
            guarded.bootstrap_sasl, **{**common, **bad, "tape": str(tmp_path / "wrong.jsonl"), "group": "g"}
        ) as refused:
            refused.subscribe(["topic"])
            with pytest.raises(AuthenticationFailed) as caught:
                poll_until(refused, lambda: False)
            shown.append("".join(traceback.format_exception(caught.value)))
            shown.append(repr(refused.health()))
    written = [path.read_bytes() for path in tmp_path.iterdir()]
    assert (tmp_path / "tape.jsonl").stat().st_size > 1000
    assert TOKENS
    for text in [*(each.encode() for each in shown), *written, logged.getvalue().encode()]:
        assert leaks(text) == []
        assert not any(made.encode() in text or made.encode().hex().encode() in text for made in TOKENS)


@pytest.mark.broker
def test_a_conformance_run_leaves_no_password_behind(
    guarded: RealBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], logged: io.StringIO
) -> None:
    output = tmp_path / "report"
    reports = [word for kind in ("html", "md", "json", "junit") for word in ("--report", kind)]
    for password, expected in ((CANARY, 0), (WRONG, 3)):
        command = ["conformance", "--bootstrap", guarded.bootstrap_sasl_tls, "--ca", str(guarded.ca_file)]
        command += ["--user", f"user:{password}", "--only", "A1,B4@9,D3a@4", *reports, "--output", str(output)]
        assert main(command) == expected
    files = sorted(tmp_path.iterdir())
    assert [path.suffix for path in files] == [".html", ".json", ".md", ".xml"]
    embedded = files[0].read_text().partition('type="application/octet-stream">')[2].partition("<")[0]
    said = capsys.readouterr()
    texts = [path.read_bytes() for path in files] + [gzip.decompress(base64.b64decode(embedded))]
    for text in [*texts, said.out.encode(), said.err.encode(), logged.getvalue().encode()]:
        assert leaks(text) == []


def test_settings_and_credentials_do_not_show_it() -> None:
    config = ConsumerConfig.of(
        bootstrap=("host:1",),
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="user",
        sasl_password=CANARY,
        ssl_key_password=WRONG,
    )
    from_kafka = ConsumerConfig.from_kafka(
        {
            "bootstrap.servers": "host:1",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "user",
            "sasl.password": CANARY,
            "security.protocol": "SASL_SSL",
        }
    )
    bearer: dict[str, Any] = {
        "bootstrap": ("host:1",),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
    }
    bound = ConsumerConfig.of(**bearer, sasl_oauth_token=partial(str, CANARY))
    url = "https://issuer.example"
    client = ConsumerConfig.of(
        **bearer,
        sasl_oauth_token_endpoint_url=url,
        sasl_oauth_allowed_urls=(url,),
        sasl_oauth_client_id="user",
        sasl_oauth_client_secret=CANARY,
    )
    keeper = TokenRefresher(1.0, lambda: 0.5, lambda: Token(CANARY, 60.0))
    keeper.requested(0.0)
    keeper.came(Token(CANARY, 60.0), 0.0)
    for each in (config, from_kafka, Access(None, "user", CANARY), bound, client, keeper):
        assert leaks(repr(each).encode() + str(each).encode()) == []


FROM_A_NUMBER = {"common/named_tuple.py: eval"}
"""Evaluates a text that is made from the number of fields of a class alone."""


def test_nothing_is_unpickled_from_the_wire_or_a_store() -> None:
    """Records, member metadata and manifests come from others; a pickle of theirs would be a program of theirs."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    names = [node.func.id] if node.func.id in ("eval", "exec", "compile", "__import__") else []
                found += [f"{path.relative_to(ROOT)}: {name}" for name in names if _loads(name)]
        for path in sorted((ROOT / package).rglob("*.pyx")):
            text = path.read_text()
            found += [f"{path.relative_to(ROOT)}: {name}" for name in LOADERS if f"import {name}" in text]
    assert set(found) == FROM_A_NUMBER


def _loads(name: str) -> bool:
    return name.partition(".")[0] in LOADERS or name in ("eval", "exec", "compile", "__import__")


def test_the_canary_is_collected() -> None:
    """No cache of ours keeps a consumer, and with it its credentials, after it was closed."""
    consumer = Consumer(
        "127.0.0.1:1",
        group="g",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="user",
        sasl_password=CANARY,
    )
    consumer.close(0.1)
    del consumer
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, ConsumerConfig) and each.sasl_password == CANARY]
    assert kept == []


@pytest.mark.parametrize("address", ["user:{}@host:9092", "SASL_SSL://user:{}@host:9092", "kafka://user:{}@host"])
def test_an_address_with_a_password_in_it_is_refused_without_it(address: str) -> None:
    with pytest.raises(ConfigError, match=r"\.\.\.@host") as caught:
        ConsumerConfig.of(bootstrap=("host:1", address.format(CANARY)))
    assert leaks("".join(traceback.format_exception(caught.value)).encode()) == []


@pytest.mark.parametrize("typed", ["sasl.password:{}", "sasl.password: {}", "sasl.password {}"])
def test_a_mistyped_property_is_reported_without_its_value(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "list", "-b", "127.0.0.1:1", "-X", typed.format(CANARY)]) == 1
    said = capsys.readouterr().err
    assert "not a property: 'sasl.password'" in said
    assert leaks(said.encode()) == []


@pytest.mark.parametrize("name", ["sasl_password", "ssl_key_password", "sasl_oauth_client_secret", "sasl_oauth_token"])
def test_a_secret_of_the_wrong_type_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.of(bootstrap=("host:1",), **{name: [CANARY]})
    assert leaks("".join(traceback.format_exception(caught.value)).encode().replace(__file__.encode(), b"")) == []
