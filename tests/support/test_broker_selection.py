"""The source of a run's broker, decided without a Docker engine and without starting anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from kohort.testing import jars
from tests.support import broker_selection
from tests.support.broker_selection import BrokerSource, any_broker, choose, docker_engine_responds, wanted_version
from tests.support.container_broker import container_environment


def test_named_broker_wins_without_a_call_of_the_engine() -> None:
    def never() -> bool:
        raise AssertionError("called the Docker engine")

    assert choose({"KOHORT_BOOTSTRAP": "kafka.example:9092"}, never) is BrokerSource.NAMED


def test_container_comes_before_the_jars() -> None:
    assert choose({}, lambda: True) is BrokerSource.CONTAINER
    assert choose({}, lambda: False) is BrokerSource.JARS
    assert choose({"KOHORT_BOOTSTRAP": ""}, lambda: False) is BrokerSource.JARS


def test_version_is_the_environments_or_the_default() -> None:
    assert wanted_version({"KOHORT_BROKER_VERSION": "3.7.2"}) == "3.7.2"
    assert wanted_version({}) == jars.DEFAULT_VERSION


@pytest.mark.parametrize(
    ("bootstrap", "engine", "used"), [("h:1", True, "named"), ("", True, "container"), ("", False, "jars")]
)
def test_any_broker_opens_the_chosen_source_only(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, engine: bool, used: str
) -> None:
    opened: list[tuple[str, str]] = []

    def source(name: str) -> object:
        @contextmanager
        def open_it(version: str) -> Iterator[SimpleNamespace]:
            opened.append((name, version))
            yield SimpleNamespace(bootstrap=name, version=version)

        return open_it

    monkeypatch.setenv("KOHORT_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("KOHORT_BROKER_VERSION", "3.9.1")
    monkeypatch.setattr(broker_selection, "docker_engine_responds", lambda: engine)
    monkeypatch.setattr(broker_selection, "ContainerBroker", source("container"))
    monkeypatch.setattr(broker_selection, "RealBroker", source("jars"))
    with any_broker() as broker:
        assert broker.version == "3.9.1"
        assert broker.bootstrap == ("h:1" if used == "named" else used)
    assert opened == ([] if used == "named" else [(used, "3.9.1")])


def test_container_that_fails_is_an_error_and_no_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, version: str) -> None: ...

        def __enter__(self) -> None:
            raise RuntimeError("no such image")

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)
    monkeypatch.setattr(broker_selection, "docker_engine_responds", lambda: True)
    monkeypatch.setattr(broker_selection, "ContainerBroker", Failing)
    with pytest.raises(RuntimeError, match="no such image"), any_broker():
        pass


@pytest.mark.parametrize("missing", ["testcontainers", "docker"])
def test_engine_is_not_looked_for_without_its_packages(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(broker_selection, "find_spec", lambda name: None if name == missing else object())
    monkeypatch.setattr(broker_selection, "import_module", lambda name: pytest.fail("imported docker"))
    assert docker_engine_responds() is False


@pytest.mark.parametrize(("ping", "responses"), [(True, True), (OSError("no socket"), False)])
def test_engine_answers_when_its_ping_does(
    monkeypatch: pytest.MonkeyPatch, ping: bool | OSError, responses: bool
) -> None:
    closed: list[bool] = []

    def respond() -> bool:
        if isinstance(ping, OSError):
            raise ping
        return ping

    client = SimpleNamespace(ping=respond, close=lambda: closed.append(True))
    docker = SimpleNamespace(
        from_env=lambda timeout: client,
        errors=SimpleNamespace(DockerException=type("DockerException", (Exception,), {})),
    )
    monkeypatch.setattr(broker_selection, "find_spec", lambda name: object())
    monkeypatch.setattr(broker_selection, "import_module", lambda name: docker)
    assert docker_engine_responds() is responses
    assert closed == [True]


def test_container_advertises_the_port_that_is_bound_on_this_machine() -> None:
    environment = container_environment(12345)
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:12345"
    assert "PLAINTEXT://:12345" in environment["KAFKA_LISTENERS"]
