"""GSSAPI without a Kerberos: RFC 4752's messages over a context that is a list of lines.

Also the times at which tickets are fetched, and each error of the library as a user sees it.
"""

from typing import Any

import pytest

from kohort.common import KohortError
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.auth import kerberos_tickets
from kohort.network.auth.gssapi import KerberosTicket, TicketCache
from kohort.network.auth.sasl import Credentials, LoginRefused
from kohort.network.broker_connection import BrokerConnection
from kohort.network.errors import AuthenticationFailed, ConfigError, ConnectionFailed, TicketUnavailable
from kohort.network.requests import Endpoint, PendingRequest, Stage
from kohort.protocol.catalogue import API

SETTINGS: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


class Script:
    """A context whose peer's words are known beforehand, and which says in its own whether they were those."""

    def __init__(self, *rounds: tuple[bytes, bytes]) -> None:
        self._rounds = list(rounds)

    @property
    def complete(self) -> bool:
        return not self._rounds

    def step(self, challenge: bytes) -> bytes:
        awaited, response = self._rounds.pop(0)
        if challenge != awaited:
            raise AuthenticationFailed("the server did not prove that it is kafka@host")
        return response

    def wrap(self, message: bytes) -> bytes:
        return b"sealed:" + message

    def unwrap(self, message: bytes) -> bytes:
        sealed, _, bare = message.partition(b":")
        if sealed != b"sealed":
            raise AuthenticationFailed("the server did not prove that it is kafka@host")
        return bare


def ticket() -> KerberosTicket:
    return KerberosTicket(Script((b"ap-rep", b"")), b"ap-req")


def test_the_messages_are_those_of_the_rfc_and_no_layer_is_agreed_on() -> None:
    talk = Credentials("GSSAPI", "", "").conversation("", ticket())
    assert next(talk) == b"ap-req"
    assert talk.send(b"ap-rep") == b""  # the context is made, and the server has the next word
    assert talk.send(b"sealed:\x07\x00\x10\x00") == b"sealed:\x01\x00\x00\x00"
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_a_mechanism_that_takes_more_rounds_is_followed() -> None:
    talk = KerberosTicket(Script((b"2", b"3"), (b"4", b"5")), b"1").conversation()
    assert [next(talk), talk.send(b"2"), talk.send(b"4")] == [b"1", b"3", b"5"]
    assert talk.send(b"sealed:\x01\x00\x00\x00").startswith(b"sealed:")


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (b"sealed:\x06\x00\x10\x00", "requires a SASL security layer"),
        (b"sealed:", "invalid GSSAPI message"),
        (b"sealed:\x01\x00\x00", "invalid GSSAPI message"),
        (b"sealed:\x01\x00\x00\x00\x00", "invalid GSSAPI message"),
        (b"\x01\x00\x00\x00", "did not prove"),
    ],
)
def test_an_offer_that_is_no_offer_of_no_layer_is_refused(offer: bytes, said: str) -> None:
    talk = ticket().conversation()
    next(talk)
    talk.send(b"ap-rep")
    with pytest.raises(AuthenticationFailed, match=said):
        talk.send(offer)


def test_a_server_that_does_not_know_its_own_key_is_refused() -> None:
    talk = ticket().conversation()
    next(talk)
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        talk.send(b"made up")


def test_nothing_of_a_ticket_is_shown() -> None:
    assert "ap-req" not in repr(ticket())
    assert "Script" not in repr(ticket())


# --- when tickets are fetched


class Desk:
    """A `TicketCache` with a time-out of 5 s, and the requests to its source."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, bool]] = []
        self.response: KerberosTicket | KohortError = ticket()
        self.desk = TicketCache(self._source, 5.0, lambda: 0.5)

    def _source(self, host: str, forget: bool) -> KerberosTicket | KohortError:
        self.requested.append((host, forget))
        return self.response

    def serve(self, now: float) -> None:
        """As the driver does, with a thread that takes no time."""
        while self.desk.next_request(now):
            self.desk.came(self.desk.requested(now)(), now)


def test_each_connection_gets_a_ticket_of_its_own_for_its_own_host_one_after_the_other() -> None:
    kit = Desk()
    one, two = kit.desk.window("one"), kit.desk.window("two")
    assert not kit.desk.next_request(0)
    assert one.take(0, 0) is None
    assert two.take(0, 0) is None
    errand = kit.desk.requested(0)
    assert not kit.desk.next_request(0)  # the second waits for the first
    kit.desk.came(errand(), 1)
    assert two.take(1, 0) is None
    assert isinstance(one.take(1, 0), KerberosTicket)
    assert one.take(1, 0) is None  # it serves once
    kit.response = ticket()
    kit.serve(1)
    assert two.take(1, 0) is kit.response
    assert kit.requested == [("one", False), ("two", False), ("one", False)]


def test_a_kdc_that_hangs_is_an_error_after_the_time_of_a_setup_and_its_late_word_is_heard() -> None:
    kit = Desk()
    window = kit.desk.window("host")
    assert window.take(0, 0) is None
    errand = kit.desk.requested(0)
    assert kit.desk.next_poll_at(1) == 5
    assert window.take(4.9, 0) is None
    late = window.take(5, 0)
    assert isinstance(late, TicketUnavailable)
    assert "within 5 s" in late.message
    assert late.place["host"] == "host"
    assert kit.desk.next_poll_at(5) is None
    again = kit.desk.window("host")
    assert again.take(6, 6) is None
    assert not kit.desk.next_request(6)  # no second request while one waits
    kit.desk.came(errand(), 7)
    assert kit.desk.next_request(7)


def test_where_a_later_question_may_help_it_is_asked_ever_more_rarely() -> None:
    kit = Desk()
    kit.response = TicketUnavailable("no KDC can be reached")
    window, times, now = kit.desk.window("host"), [], 0.0
    while now < 60:
        assert window.take(now, now) in (None, kit.response)
        if kit.desk.next_request(now):
            times.append(now)
            kit.serve(now)
            assert window.take(now, now) is kit.response
        now += 0.25
    assert 5 <= len(times) <= 12
    assert times[-1] - times[-2] > 8
    kit.response = ticket()
    assert window.take(now + 20, now + 20) is None
    kit.serve(now + 20)
    assert window.take(now + 20, now + 20) is kit.response


def test_a_client_that_the_kdc_refused_sends_no_second_request() -> None:
    kit = Desk()
    kit.response = AuthenticationFailed("the KDC refused the key")
    window = kit.desk.window("host")
    assert window.take(0, 0) is None
    kit.serve(0)
    assert window.take(0, 0) is kit.response
    assert kit.desk.window("other").take(1000, 1000) is kit.response
    assert not kit.desk.next_request(1000)
    assert kit.desk.next_poll_at(1000) is None
    assert len(kit.requested) == 1


def test_a_session_that_is_renewed_waits_without_errors() -> None:
    kit = Desk()
    kit.response = TicketUnavailable("no KDC can be reached")
    window = kit.desk.window("host")
    for now in (0.0, 1.0, 10.0, 100.0):
        assert window.take(now, 0, session_s=60) is None
        kit.serve(now)
    assert len(kit.requested) == 4
    kit.response = ticket()
    assert window.take(200, 0, session_s=60) is None
    kit.serve(200)
    assert window.take(200, 0, session_s=60) is kit.response


def test_a_ticket_that_is_refused_is_fetched_again_once_if_it_was_made_of_what_we_kept() -> None:
    kit = Desk()
    window = kit.desk.window("host")
    for now in (0.0, 10.0):
        assert window.take(now, now) is None
        kit.serve(now)
        assert window.take(now, now) is kit.response
        assert window.refused(ticket(), now)  # the broker's key may have changed since
        assert window.take(now, now) is None
        kit.serve(now)
        assert window.take(now, now) is kit.response
        if not now:
            window.accepted(ticket())
    assert not window.refused(ticket(), 10)
    assert kit.requested == [("host", False), ("host", True)] * 2


def test_connections_that_were_refused_together_are_forgiven_together_and_each_host_once() -> None:
    kit = Desk()
    fetching, group, other = (kit.desk.window(host) for host in ("one", "one", "two"))
    for window in (fetching, group, other):
        assert window.take(0, 0) is None
        kit.serve(0)
        assert window.take(0, 0) is kit.response
    other.accepted(ticket())
    assert fetching.refused(ticket(), 1)
    assert group.refused(ticket(), 1)  # of before, too
    assert group.take(1, 1) is None
    assert other.take(1, 1) is None
    kit.serve(1)
    assert [forget for _host, forget in kit.requested] == [False, False, False, True, False]
    other.accepted(ticket())
    assert not group.refused(ticket(), 2)  # for as long as another broker takes
    assert other.refused(ticket(), 2)


def test_a_ticket_that_is_not_of_ours_is_refused_for_good() -> None:
    kit = Desk()
    kit.desk = TicketCache(kit._source, 5.0, lambda: 0.5, keeps=False)
    assert not kit.desk.window("host").refused(ticket(), 0)  # kinit's tickets are not ours to throw away


# --- on a connection


def connection(kit: Desk) -> BrokerConnection:
    made = BrokerConnection(
        endpoint=Endpoint("host", 1),
        client_id="c",
        max_frame_bytes=1 << 20,
        setup_timeout_s=10.0,
        opened_at=0.0,
        ranges={17: (0, 1), 36: (0, 2), 16: (0, 2)},
        credentials=Credentials("GSSAPI", "", ""),
        tokens=kit.desk.window("host"),
    )
    made.opened(0.0)
    return made


def stage(made: BrokerConnection) -> Stage:
    return made.stage


def responded(
    made: BrokerConnection, requested: bytes | memoryview, api: str, version: int, now: float = 0.0, **values: Any
) -> list[Any]:
    body = API[api].response.build(values, version)
    frame = bytes(requested[8:12]) + (b"\0" if api == "SaslAuthenticate" and version >= 2 else b"") + body
    return made.received(memoryview(len(frame).to_bytes(4, "big") + frame), now)


def logged_in(made: BrokerConnection, now: float = 0.0, **last: Any) -> None:
    (handshake,) = made.outgoing()
    assert b"GSSAPI" in handshake
    responded(made, handshake, "SaslHandshake", 1, now, error_code=0, mechanisms=("GSSAPI",))
    for challenge in (b"ap-rep", b"sealed:\x07\0\0\0"):
        (said,) = made.outgoing()
        responded(made, said, "SaslAuthenticate", 2, now, error_code=0, auth_bytes=challenge)
    (said,) = made.outgoing()
    assert b"sealed:\x01\0\0\0" in said
    responded(made, said, "SaslAuthenticate", 2, now, error_code=0, auth_bytes=b"", **last)


def test_a_connection_waits_for_its_ticket_then_logs_in_and_renews_with_another() -> None:
    kit = Desk()
    made = connection(kit)
    assert stage(made) is Stage.AUTHENTICATING
    assert made.outgoing() == []
    assert made.overdue(4.0) is None
    kit.serve(4.0)
    assert made.overdue(4.0) is None
    logged_in(made, 4.0, session_lifetime_ms=100_000)
    assert stage(made) is Stage.READY
    kit.response = ticket()
    assert made.overdue(89.0) is None
    assert stage(made) is Stage.READY  # requests go on until there is a ticket
    made.send(PendingRequest("ListGroups", {}, lambda _outcome, _now: None, 30), 89.0)
    (request,) = made.outgoing()
    kit.serve(89.0)
    assert made.overdue(89.0) is None
    assert len(responded(made, request, "ListGroups", 2, error_code=0, groups=())) == 1
    assert stage(made) is Stage.AUTHENTICATING
    logged_in(made, 89.0)
    assert stage(made) is Stage.READY
    assert kit.requested == [("host", False)] * 2


def refused_by(made: BrokerConnection) -> KohortError:
    (handshake,) = made.outgoing()
    responded(made, handshake, "SaslHandshake", 1, error_code=0, mechanisms=("GSSAPI",))
    (said,) = made.outgoing()
    with pytest.raises(KohortError) as caught:
        responded(made, said, "SaslAuthenticate", 2, error_code=58, error_message="no", auth_bytes=b"")
    return caught.value


def test_a_broker_that_refuses_twice_is_the_end() -> None:
    kit = Desk()
    for last in (False, True):
        made = connection(kit)
        kit.response = ticket()
        kit.serve(0)
        made.overdue(0)
        error = refused_by(made)
        assert isinstance(error, AuthenticationFailed) is last
        assert isinstance(error, ConnectionFailed)
    assert "refused the Kerberos ticket" in error.message
    assert error.hint is not None
    assert "five minutes" in error.hint
    assert kit.requested == [("host", False), ("host", True)]


def test_a_conversation_that_is_refused_says_what_the_broker_said() -> None:
    talk = ticket().conversation()
    next(talk)
    with pytest.raises(LoginRefused, match="no"):
        talk.throw(LoginRefused("no"))


# --- settings, and the library's words


def test_settings_go_by_kafkas_names_and_request_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    config = ConsumerConfig.from_kafka(
        {
            "bootstrap.servers": "host:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "events",
            "sasl.kerberos.principal": "me@REALM",
            "sasl.kerberos.keytab": "/etc/me.keytab",
        }
    )
    assert config.sasl_kerberos_service_name == "events"
    assert config.sasl_kerberos_principal == "me@REALM"
    assert config.sasl_kerberos_keytab == "/etc/me.keytab"
    with pytest.raises(ConfigError, match="exclude each other"):
        ConsumerConfig.of(bootstrap="host:1", **SETTINGS, sasl_kerberos_keytab="a", sasl_kerberos_ccache="b")


def test_without_the_library_it_is_said_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="needs the library gssapi") as caught:
        ConsumerConfig.of(bootstrap="host:1", **SETTINGS)
    assert caught.value.hint is not None
    assert "kohort[kerberos]" in caught.value.hint
    assert "libkrb5-dev" in caught.value.hint


def test_a_library_that_cannot_be_loaded_is_an_error_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setitem(__import__("sys").modules, "gssapi", None)
    found = kerberos_tickets.fetch(ConsumerConfig.of(bootstrap="host:1", **SETTINGS), "host", False)
    assert isinstance(found, AuthenticationFailed)
    assert "cannot be used" in found.message


class Problem(Exception):
    """An error of the library: its two numbers, and words for them."""

    def __init__(self, minor: int, major: int = 13 << 16) -> None:
        self.min_code, self.maj_code = (minor + kerberos_tickets.KRB5_BASE) % (1 << 32) if minor else 0, major

    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]:
        assert code == (self.maj_code if is_maj else self.min_code)
        return ["the interface's words" if is_maj else "krb5's words\n"]


@pytest.mark.parametrize(
    ("minor", "keytab", "kind", "said", "cure"),
    [
        (6, True, AuthenticationFailed, "client's principal is unknown", "sasl_kerberos_principal"),
        (7, False, AuthenticationFailed, "broker's service principal is unknown", "sasl_kerberos_service_name/HOST"),
        (18, True, AuthenticationFailed, "locked", "administrator of the KDC"),
        (24, True, AuthenticationFailed, "key is not the principal's", "export the keytab again"),
        (31, True, AuthenticationFailed, "key is not the principal's", "export the keytab again"),
        (32, False, TicketUnavailable, "has expired", "kinit"),
        (37, False, AuthenticationFailed, "clock", "five minutes"),
        (195, False, TicketUnavailable, "no Kerberos ticket", "kinit"),
        (195, True, AuthenticationFailed, "no key of the principal", "klist -k"),
        (181, True, AuthenticationFailed, "no key of the principal", "klist -k"),
        (156, True, TicketUnavailable, "no KDC can be reached", "krb5.conf"),
        (99, True, AuthenticationFailed, "no Kerberos ticket", "kinit and kvno"),
    ],
)
def test_each_of_the_librarys_errors_has_a_meaning_and_a_cure(
    minor: int, keytab: bool, kind: type[KohortError], said: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    more: dict[str, Any] = {"sasl_kerberos_keytab": "/me.keytab"} if keytab else {}
    error = kerberos_tickets.explained(
        Problem(minor), ConsumerConfig.of(bootstrap="host:1", **SETTINGS, **more), "kafka@host"
    )
    assert type(error) is kind
    assert said in error.message
    assert "krb5's words" in error.message
    assert error.hint is not None
    assert cure in error.hint
    assert error.place["service"] == "kafka@host"
    assert error.place.get("keytab") == more.get("sasl_kerberos_keytab")


@pytest.mark.parametrize(
    ("keytab", "said"), [(True, "no Kerberos ticket: krb5's words"), (False, "there is no Kerberos ticket")]
)
def test_a_failure_of_a_kdc_is_not_blamed_on_the_keytab(
    keytab: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reports "no credentials" for each failure of a keytab, with krb5's own number beside it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    more: dict[str, Any] = {"sasl_kerberos_keytab": "/me.keytab"} if keytab else {}
    error = kerberos_tickets.explained(
        Problem(60, 7 << 16), ConsumerConfig.of(bootstrap="host:1", **SETTINGS, **more), "kafka@host"
    )
    assert said in error.message
    assert "keytab has no key" not in error.message


@pytest.mark.parametrize(("major", "said"), [(7, "no Kerberos ticket"), (11, "has expired")])
def test_where_the_mechanism_says_nothing_the_interface_counts(
    major: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    error = kerberos_tickets.explained(
        Problem(0, major << 16), ConsumerConfig.of(bootstrap="host:1", **SETTINGS), "kafka@host"
    )
    assert isinstance(error, TicketUnavailable)
    assert said in error.message
    assert "the interface's words" in error.message


def test_a_connection_that_was_given_an_error_waits_for_no_ticket_any_more() -> None:
    kit = Desk()
    one, two = kit.desk.window("one"), kit.desk.window("two")
    assert one.take(0, 0) is None
    assert two.take(0, 0) is None
    kit.response = TicketUnavailable("down")
    kit.desk.came(kit.desk.requested(0)(), 0)
    assert isinstance(two.take(0, 0), TicketUnavailable)
    assert not kit.desk.next_request(100.0)
    assert kit.desk.next_poll_at(0) == 5.0  # of the first, which has not looked since
    assert isinstance(one.take(0, 0), TicketUnavailable)
    assert kit.desk.next_poll_at(0) is None
