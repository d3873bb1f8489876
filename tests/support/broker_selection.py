"""The broker of a test run: a named one, else a container, else one from the jars.

A test that needs a broker and finds none fails with the reason; it is never skipped.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from kohort.testing import jars
from kohort.testing.real_broker import RealBroker
from tests.support.container_broker import ContainerBroker


class SelectedBroker(Protocol):
    """The facts about a broker that a test needs."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def version(self) -> str: ...


class BrokerSource(Enum):
    """A source of brokers."""

    NAMED = "KOHORT_BOOTSTRAP"
    CONTAINER = "testcontainers"
    JARS = "jars"


class NamedBroker:
    """A broker that is run elsewhere, from KOHORT_BOOTSTRAP; `version` as KOHORT_BROKER_VERSION claims it."""

    def __init__(self, bootstrap: str, version: str) -> None:
        self.bootstrap = bootstrap
        self.version = version


def wanted_version(environment: Mapping[str, str] | None = None) -> str:
    """KOHORT_BROKER_VERSION, or the default."""
    return (os.environ if environment is None else environment).get("KOHORT_BROKER_VERSION") or jars.DEFAULT_VERSION


def choose(environment: Mapping[str, str], engine_responds: Callable[[], bool]) -> BrokerSource:
    """The source for a run; `engine_responds` is called only if no broker is named."""
    if environment.get("KOHORT_BOOTSTRAP"):
        return BrokerSource.NAMED
    return BrokerSource.CONTAINER if engine_responds() else BrokerSource.JARS


def docker_engine_responds() -> bool:
    """True if testcontainers is installed and a Docker engine responds to its ping."""
    if find_spec("testcontainers") is None or find_spec("docker") is None:
        return False
    docker: Any = import_module("docker")  # it has no types, and a machine without it must type-check alike
    try:
        client = docker.from_env(timeout=3)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return False


@contextmanager
def any_broker(version: str | None = None) -> Iterator[SelectedBroker]:
    """A broker from the first source that serves, up for the length of the `with` block.

    A container that does not come up is an error like any other: falling back to the jars would hide it.
    """
    wanted = version or wanted_version()
    source = choose(os.environ, docker_engine_responds)
    if source is BrokerSource.NAMED:
        yield NamedBroker(os.environ["KOHORT_BOOTSTRAP"], wanted)
    elif source is BrokerSource.CONTAINER:
        with ContainerBroker(wanted) as container:
            yield container
    else:
        with RealBroker(version=wanted) as broker:
            yield broker
