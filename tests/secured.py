"""A pytest plugin: every client of ours that a test makes logs in, and the tests do not know it.

    python -m pytest -p tests.secured --secured scram -m broker tests/network tests/coordinator_client

Each broker that a test starts gets listeners for TLS beside its plain one. Each of our clients with the plain address
goes to the other: by TLS, or by TLS and SCRAM-SHA-512. Other people's clients stay where they are.
Brokers that a test guards by itself, and addresses of proxies, are left alone. Clients are counted: none is a failure,
unless single tests were named, all of which may be of such brokers.
"""

from functools import wraps
from pathlib import Path
from typing import Any, cast

import pytest

from kohort.network.client_config import ClientConfig
from kohort.testing.broker_settings import PLAINTEXT, SASL_TLS, TLS
from kohort.testing.real_broker import RealCluster

USER, PASSWORD = "suite", "only for tests"
LISTENERS = {"tls": TLS, "scram": SASL_TLS}
LOGINS: dict[str, dict[str, Any]] = {
    "tls": {"security_protocol": "SSL"},
    "scram": {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    },
}


class Guard:
    """The guarded twin of each plain address, and the number of clients that were sent there."""

    def __init__(self, kind: str) -> None:
        self.clients = 0
        self._kind = kind
        self._twins: dict[str, tuple[str, Path]] = {}
        self._guarded: set[int] = set()

    def install(self) -> None:
        """For the whole run: brokers offer the listeners, clients go there."""
        init: Any = RealCluster.__init__
        start_nodes: Any = RealCluster._start_nodes
        of: Any = ClientConfig.of.__func__  # type: ignore[attr-defined]

        @wraps(init)
        def guarded_init(cluster: RealCluster, *given: Any, **options: Any) -> None:
            if not options.get("tls") and not options.get("users"):
                options |= {"tls": True, "users": {USER: PASSWORD}}
                self._guarded.add(id(cluster))
            init(cluster, *given, **options)

        @wraps(start_nodes)
        def guarded_start(cluster: RealCluster) -> None:
            start_nodes(cluster)
            if id(cluster) in self._guarded and cluster.ca_file is not None:
                for node in cluster.nodes:
                    twin = node.layout.address(LISTENERS[self._kind])
                    self._twins[node.layout.address(PLAINTEXT)] = (twin, cluster.ca_file)

        @wraps(of)
        def guarded_of(cls: type[ClientConfig], **settings: Any) -> Any:
            return of(cls, **self.login(settings))

        patched: tuple[tuple[type, str, Any], ...] = (
            (RealCluster, "__init__", guarded_init),
            (RealCluster, "_start_nodes", guarded_start),
            (ClientConfig, "of", classmethod(cast("Any", guarded_of))),
        )
        for owner, name, function in patched:
            setattr(owner, name, function)

    def login(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings, with the guarded addresses and the settings that those need, if they are known."""
        given = settings.get("bootstrap")
        addresses = given.split(",") if isinstance(given, str) else given
        if "security_protocol" in settings or not isinstance(addresses, list | tuple):
            return settings
        twins = [self._twins.get(one) for one in addresses]
        known = [one for one in twins if one is not None]
        if not known or len(known) < len(twins):
            return settings
        self.clients += 1
        bootstrap = [address for address, _ in known]
        return {**settings, "bootstrap": bootstrap, "ssl_ca_path": str(known[0][1]), **LOGINS[self._kind]}


_guard: Guard | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--secured", choices=sorted(LISTENERS), required=True, help="how our clients reach brokers")


def pytest_configure(config: pytest.Config) -> None:
    global _guard
    _guard = Guard(config.getoption("--secured"))
    _guard.install()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    named = any("::" in one for one in session.config.args)
    if _guard is not None and not _guard.clients and session.testscollected and not named:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _guard is not None:
        terminalreporter.write_line(f"{_guard.clients} clients of ours logged in where the tests gave a plain address")
