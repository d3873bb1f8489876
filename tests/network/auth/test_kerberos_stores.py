"""The store of keys and tickets that the library is given, with a stand-in for the library."""

import os
import signal
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.auth import kerberos_tickets
from tests.coordinator_client.consumer_helpers import PATIENCE_S, in_a_child

SETTINGS: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The credentials that were requested."""
    calls: list[dict[str, Any]] = []
    library = SimpleNamespace(
        Name=lambda name, kind: (name, kind),
        NameType=SimpleNamespace(kerberos_principal="principal"),
        MechType=SimpleNamespace(kerberos="krb5"),
        Credentials=lambda **given: calls.append(given),
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    return calls


@pytest.mark.parametrize(
    ("given", "store"),
    [
        ({}, None),
        ({"sasl_kerberos_ccache": "FILE:mine"}, {"ccache": "FILE:mine"}),
        ({"sasl_kerberos_keytab": "keys"}, {"client_keytab": "keys", "ccache": "MEMORY:ours"}),
    ],
)
@pytest.mark.parametrize("principal", [None, "me@REALM"])
def test_a_keytab_has_a_cache_of_its_own_and_else_the_environments_tickets_count(
    given: dict[str, Any], store: dict[str, str] | None, principal: str | None, requested: list[dict[str, Any]]
) -> None:
    more: dict[str, Any] = {} if principal is None else {"sasl_kerberos_principal": principal}
    config = ConsumerConfig(bootstrap=("host:1",), **SETTINGS, **given, **more)
    kerberos_tickets._credentials(config, "MEMORY:ours")
    name = None if principal is None else (principal, "principal")
    assert requested == [{"name": name, "usage": "initiate", "mechs": ["krb5"], "store": store}]


def test_a_process_that_is_forked_while_another_thread_waits_for_a_kdc_gets_its_own_ticket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent, waits, may_end = os.getpid(), threading.Event(), threading.Event()

    def begun(*_given: object) -> str:
        if os.getpid() == parent:
            waits.set()
            may_end.wait(PATIENCE_S)
        return "ticket"

    monkeypatch.setattr(kerberos_tickets, "_begun", begun)
    config = ConsumerConfig(bootstrap=("host:1",), **SETTINGS, sasl_kerberos_keytab="keys")
    fetch = partial(kerberos_tickets.fetch, config, "broker", False)
    thread = threading.Thread(target=fetch)
    thread.start()
    assert waits.wait(PATIENCE_S)
    try:
        assert in_a_child(partial(signal.alarm, round(PATIENCE_S)), fetch) == []  # the alarm ends a child that waits
    finally:
        may_end.set()
        thread.join()
