"""An address of a broker that another broker has now (KIP-1242), as after a restart of pods."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.network.auth.sasl import Credentials
from kohort.network.backoff import Backoff
from kohort.network.broker_connection import LAST_WITHOUT_IDENTITY, BrokerConnection
from kohort.network.connection_states import FIRST_WITH_IDENTITY, ConnectionStates
from kohort.network.errors import RebootstrapRequired
from kohort.network.metadata import BrokerNode, ClusterView
from kohort.network.requests import BrokerIdentity, Endpoint, PendingRequest, Stage
from kohort.protocol import tape as tapes
from kohort.protocol.apis.api_versions import ApiVersion
from kohort.protocol.catalogue import API
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import response_header_version
from kohort.testing import FakeBroker, RealBroker
from kohort.testing.fake_broker import Alter, Close
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, produce, read, wait_until

PLACE = TopicPartition("t", 0)
HERE = Endpoint("b1", 9092)
OLD = {18: (0, LAST_WITHOUT_IDENTITY)}
EXPECTED = BrokerIdentity("c", 7)
UNNAMED = (LAST_WITHOUT_IDENTITY, None, -1)
OLDER: dict[str, Any] = {"versions": {"ApiVersions": (0, LAST_WITHOUT_IDENTITY)}}
BY_NAME: dict[str, Any] = {"versions": {**OLDER["versions"], "Produce": (3, 12)}}
UNKNOWN_CLUSTER = Alter(lambda value: value._replace(cluster_id=None))
LENGTH_AND_FIXED_HEADER = 4 + 8 + 2


def port(fake: FakeBroker, node: int) -> int:
    return int(fake.bootstrap.split(",")[node - 1].rsplit(":", 1)[1])


def expectations(fake: FakeBroker) -> list[tuple[int, str | None, int]]:
    """(version, cluster id, node id) of the ApiVersions requests."""
    requests: list[tuple[int, Any]] = [(call.version, call.request) for call in fake.calls_of("ApiVersions")]
    return [(version, request.cluster_id, request.node_id) for version, request in requests]


def api_versions(tape: Path, direction: str) -> list[tapes.Taped]:
    with tape.open() as lines:
        return [one for one in tapes.read(lines) if (one.api, one.direction) == ("ApiVersions", direction)]


def served(fake: FakeBroker) -> set[str]:
    return {call.api for call in fake.calls}


def topics_requested(fake: FakeBroker) -> list[Any]:
    requests: list[Any] = [call.request for call in fake.calls_of("Metadata")]
    return [request.topics for request in requests]


def reader(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer(bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, **settings)


# ---------------------------------------------------------------------------------------------- one connection


class Opened:
    """A connection whose requests are read, and get the given responses."""

    def __init__(self, expected: BrokerIdentity | None, **settings: Any) -> None:
        self.connection = BrokerConnection(
            HERE, "test", 1 << 20, setup_timeout_s=10.0, opened_at=0.0, expected=expected, **settings
        )
        self.connection.opened(0.0)

    def request(self) -> tuple[str, int, Any]:
        """(API, version, request) of the one frame that is to be written."""
        (frame,) = self.connection.outgoing()
        self.connection.written()
        key, self.version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
        self.correlation_id, self.api = bytes(frame[8:12]), API[key]
        codec = self.api.request
        body = LENGTH_AND_FIXED_HEADER + len("test") + (self.version in codec.struct._flexible)
        return self.api.name, self.version, codec.parse(bytes(frame[body:]), self.version)

    def respond(self, version: int | None = None, **values: Any) -> None:
        """Respond to the request, in its version or in another."""
        version = self.version if version is None else version
        header = b"\0" * response_header_version(self.api.response, version)
        body = self.correlation_id + header + self.api.response.build(values, version)
        self.connection.received(memoryview(len(body).to_bytes(4, "big") + body), 0.0)

    def named(self) -> tuple[int, str | None, int]:
        """(version, cluster id, node id) of the ApiVersions request."""
        api, version, request = self.request()
        assert api == "ApiVersions"
        return version, request.cluster_id, request.node_id


def listed(**more: tuple[int, int]) -> tuple[ApiVersion, ...]:
    ranges = {17: (0, 1), 18: (0, FIRST_WITH_IDENTITY), 36: (0, 2)} | {API[api].key: one for api, one in more.items()}
    return tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items())


@pytest.mark.proves("B-48")
def test_a_connection_names_the_broker_that_it_expects() -> None:
    opened = Opened(EXPECTED)
    assert opened.named() == (FIRST_WITH_IDENTITY, "c", 7)
    opened.respond(error_code=0, api_keys=listed())
    assert opened.connection.stage is Stage.READY


def test_without_an_expectation_older_brokers_need_no_second_round_trip() -> None:
    assert Opened(None).named() == UNNAMED


def test_a_connection_with_known_versions_is_not_checked() -> None:
    assert Opened(EXPECTED, ranges=OLD).connection.stage is Stage.READY
    opened = Opened(EXPECTED, ranges={17: (0, 1), 36: (0, 2)}, credentials=Credentials("PLAIN", "me", "hush"))
    log_in(opened)
    assert opened.connection.stage is Stage.READY


def test_an_older_broker_of_the_cluster_is_used_without_the_check() -> None:
    opened = Opened(EXPECTED)
    versions = []
    while (version := opened.named()[0]) > 0:
        versions.append(version)
        opened.respond(0, error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
    assert versions == [FIRST_WITH_IDENTITY, LAST_WITHOUT_IDENTITY]
    opened.respond(error_code=0, api_keys=listed())
    assert opened.connection.stage is Stage.READY


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (BrokerIdentity("c", 7), "another broker is at this address than broker 7 of the cluster c"),
        (None, "the broker requires a new bootstrap"),
    ],
)
def test_a_refused_connection_says_which_broker_was_expected(expected: BrokerIdentity | None, message: str) -> None:
    opened = Opened(expected)
    opened.request()
    with pytest.raises(RebootstrapRequired, match=message) as caught:
        opened.respond(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=())
    assert caught.value.place == {"host": "b1", "port": 9092}


def logged_in(expected: BrokerIdentity | None) -> Opened:
    """A connection that has logged in. A broker reads the expectation only after that."""
    opened = Opened(expected, credentials=Credentials("PLAIN", "me", "hush"))
    assert opened.named() == UNNAMED
    opened.respond(error_code=0, api_keys=listed())
    log_in(opened)
    return opened


def log_in(opened: Opened) -> None:
    assert opened.request()[0] == "SaslHandshake"
    opened.respond(error_code=0, mechanisms=("PLAIN",))
    assert opened.request()[0] == "SaslAuthenticate"
    opened.respond(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=10_000)


@pytest.mark.proves("B-48")
def test_with_a_login_the_broker_is_named_after_it() -> None:
    opened = logged_in(EXPECTED)
    pending = PendingRequest("SaslHandshake", {"mechanism": "PLAIN"}, lambda _outcome, _now: None, 5.0)
    opened.connection.send(pending, 0.0)
    assert opened.named() == (FIRST_WITH_IDENTITY, "c", 7), "and no request is sent before its response"
    opened.respond(error_code=0, api_keys=listed())
    assert opened.connection.stage is Stage.READY
    assert opened.request()[0] == "SaslHandshake", "the request that waited"


@pytest.mark.proves("B-48")
def test_a_broker_that_refuses_after_the_login_gets_no_request() -> None:
    opened = logged_in(EXPECTED)
    opened.named()
    with pytest.raises(RebootstrapRequired):
        opened.respond(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=())


def test_a_login_without_an_expectation_needs_no_further_round_trip() -> None:
    assert logged_in(None).connection.stage is Stage.READY


def test_a_renewed_login_is_not_checked_again() -> None:
    opened = logged_in(EXPECTED)
    opened.named()
    opened.respond(error_code=0, api_keys=listed())
    assert opened.connection.overdue(9.0) is None
    log_in(opened)
    assert opened.connection.stage is Stage.READY
    assert opened.connection.outgoing() == []


# ---------------------------------------------------------------------------------------------- what is expected


def view(*brokers: tuple[int, str], cluster_id: str | None = "c") -> ClusterView:
    nodes = {node: BrokerNode(node, host, 9092, None) for node, host in brokers}
    return ClusterView(brokers=nodes, cluster_id=cluster_id)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (view((1, "b1"), (2, "b2")), BrokerIdentity("c", 1)),
        (view((1, "b1"), (2, "b1")), None),  # behind one address is any of them
        (view((2, "b2")), None),
        (view((1, "b1"), cluster_id=None), None),
        (view((1, "b1")).without_brokers().with_brokers([BrokerNode(1, "b1", 9092, None)]), None),
    ],
)
def test_an_address_of_one_known_broker_has_an_identity(known: ClusterView, expected: BrokerIdentity | None) -> None:
    assert known.identity(HERE) == expected


def test_the_broker_that_responded_last_decides_if_identities_are_sent() -> None:
    endpoints = ConnectionStates((HERE,), Backoff(50, 1000), lambda: 0.5)
    found = [endpoints.reads_identity]
    for endpoint, ranges in ((HERE, {18: (0, FIRST_WITH_IDENTITY)}), (HERE, None), (Endpoint("b2", 9092), OLD)):
        endpoints.responded(endpoint, ranges)
        found.append(endpoints.reads_identity)
    assert found == [False, True, True, False]


# ---------------------------------------------------------------------------------------------- whole clients


@contextmanager
def second_node_taken_over(fake: FakeBroker, **settings: Any) -> Iterator[FakeBroker]:
    """A broker of another cluster has the address of the second node. The first node leads the partition now."""
    address = port(fake, 2)
    fake.stop_node(2)
    with FakeBroker(topics={"t": 1}, ports=[address], cluster_id="another", **settings) as stranger:
        stranger.produce("t", 0, [(None, b"of another cluster")] * 9)
        yield stranger
        fake.set_leader("t", 0, 1)


@contextmanager
def led_by_the_second(**settings: Any) -> Iterator[FakeBroker]:
    """Two nodes, the second of which leads the partition."""
    with FakeBroker(nodes=2, topics={"t": 1}, **settings) as fake:
        fake.set_leader("t", 0, 2)
        yield fake


@pytest.fixture
def two_nodes() -> Iterator[FakeBroker]:
    with led_by_the_second() as fake:
        yield fake


@pytest.mark.proves("B-48")
def test_a_consumer_reads_nothing_from_a_broker_of_another_cluster(two_nodes: FakeBroker) -> None:
    two_nodes.produce("t", 0, [(None, b"0")])
    with reader(two_nodes.bootstrap.split(",")[0]) as consumer:
        consumer.assign([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"0"]
        with second_node_taken_over(two_nodes) as stranger:
            wait_until(lambda: bool(stranger.calls))
        two_nodes.produce("t", 0, [(None, b"1")])
        assert [record.value for record in read(consumer, 1)] == [b"1"]
    assert served(stranger) == {"ApiVersions"}
    assert set(expectations(stranger)) == {(FIRST_WITH_IDENTITY, "fake-cluster", 2)}


@pytest.mark.proves("B-48")
def test_a_producer_writes_nothing_to_a_broker_of_another_cluster(two_nodes: FakeBroker) -> None:
    with Producer(two_nodes.bootstrap.split(",")[0]) as producer:
        assert producer.send("t", b"0").result(PATIENCE_S).offset == 0
        with second_node_taken_over(two_nodes) as stranger:
            written = producer.send("t", b"1")
            wait_until(lambda: bool(stranger.calls))
        assert written.result(PATIENCE_S).offset == 1
    assert served(stranger) == {"ApiVersions"}


@pytest.mark.proves("B-48")
def test_a_member_commits_nothing_to_a_broker_of_another_cluster(two_nodes: FakeBroker) -> None:
    two_nodes.move_coordinator("g", 2)
    two_nodes.produce("t", 0, [(None, b"0")])
    with reader(two_nodes.bootstrap.split(",")[0], group="g") as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        with second_node_taken_over(two_nodes) as stranger:
            wait_until(lambda: bool(stranger.calls))
        two_nodes.move_coordinator("g", 1)
        consumer.commit({PLACE: 1})
        assert two_nodes.group("g").offsets[PLACE].offset == 1
    assert served(stranger) == {"ApiVersions"}


@pytest.mark.parametrize(
    "settings", [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}], ids=str
)
def test_without_the_check_no_broker_is_named(two_nodes: FakeBroker, settings: dict[str, Any]) -> None:
    with reader(two_nodes.bootstrap.split(",")[0], **settings) as consumer:
        consumer.assign([PLACE])
        poll_until(consumer, lambda: bool(two_nodes.calls_of("Fetch")))
    assert {call.node for call in two_nodes.calls_of("ApiVersions")} == {1, 2}
    assert set(expectations(two_nodes)) == {UNNAMED}


def test_a_cluster_that_does_not_read_it_gets_no_newer_request(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with (
        FakeBroker(nodes=2, topics={"t": 2}, **OLDER) as fake,
        reader(fake.bootstrap.split(",")[0], tape=str(tape)) as consumer,
    ):
        consumer.assign([TopicPartition("t", number) for number in range(2)])
        poll_until(consumer, lambda: len({call.node for call in fake.calls_of("Fetch")}) == 2)
    assert [one.version for one in api_versions(tape, "request")] == [LAST_WITHOUT_IDENTITY] * 2


def test_a_member_leaves_the_coordinator_of_a_cluster_that_requires_a_new_bootstrap(two_nodes: FakeBroker) -> None:
    two_nodes.move_coordinator("g", 2)
    with reader(two_nodes.bootstrap.split(",")[0], group="g", metadata_max_age_ms=500) as consumer:
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        found = len(two_nodes.calls_of("FindCoordinator"))
        required = Alter(lambda value: value._replace(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, brokers=()))
        two_nodes.control("Metadata", lambda _call: required, times=1)
        poll_until(consumer, lambda: len(two_nodes.calls_of("FindCoordinator")) > found)


@pytest.mark.proves("B-48")
@pytest.mark.parametrize(
    ("options", "named"), [({}, [(FIRST_WITH_IDENTITY, "fake-cluster", 1)]), (OLDER, [])], ids=["4.4", "older"]
)
def test_a_cluster_that_takes_the_place_of_another_is_used_after_a_new_bootstrap(
    options: dict[str, Any], named: list[tuple[int, str | None, int]]
) -> None:
    with FakeBroker(topics={"t": 1}, **options) as fake:
        fake.produce("t", 0, [(None, b"old")])
        address = port(fake, 1)
        consumer = reader(fake.bootstrap)
        consumer.assign([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"old"]
    with consumer, FakeBroker(topics={"t": 1}, ports=[address], cluster_id="another", **options) as new:
        new.produce("t", 0, [(None, b"new")])
        wait_until(lambda: bool(new.calls_of("Metadata")))
        assert set(expectations(new)) == {*named, UNNAMED}
        consumer.seek_to_beginning([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"new"]


@pytest.mark.proves("B-48")
def test_an_address_is_checked_though_an_older_connection_to_it_still_has_responses() -> None:
    """The older one's broker may be another one than that at the address now."""
    with FakeBroker(topics={"t": 1}) as fake:
        quick: dict[str, Any] = {
            "heartbeat_interval_ms": 20,
            "reconnect_backoff_ms": 400,
            "reconnect_backoff_max_ms": 400,
        }
        with reader(fake.bootstrap, group="g", **quick) as consumer:
            consumer.subscribe(["t"])
            poll_until(consumer, lambda: bool(fake.calls_of("Fetch")))
            before, beats = len(expectations(fake)), len(fake.calls_of("Heartbeat"))
            fake.control("Fetch", lambda _call: Close(), times=1)
            poll_until(consumer, lambda: len(expectations(fake)) > before)
            assert len(fake.calls_of("Heartbeat")) > beats + 2, "on the older connection"
        assert expectations(fake)[before] == (FIRST_WITH_IDENTITY, "fake-cluster", 1)


def test_brokers_with_each_others_addresses_are_not_called_without_pause(two_nodes: FakeBroker) -> None:
    first, second = port(two_nodes, 1), port(two_nodes, 2)
    two_nodes.advertise(1, "127.0.0.1", second)
    two_nodes.advertise(2, "127.0.0.1", first)
    two_nodes.set_leader("t", 0, 1)
    with reader(f"127.0.0.1:{first}", reconnect_backoff_ms=200, reconnect_backoff_max_ms=200) as consumer:
        consumer.assign([PLACE])
        until = time.monotonic() + 2
        poll_until(consumer, lambda: time.monotonic() > until)
        assert (FIRST_WITH_IDENTITY, "fake-cluster", 1) in expectations(two_nodes)
        assert len(expectations(two_nodes)) < 100


@pytest.mark.broker
@pytest.mark.proves("B-48")
def test_a_consumer_follows_when_another_cluster_has_its_addresses(tmp_path: Path) -> None:
    """Two clusters of 4.4, the first release that reads the expectation."""
    tape = tmp_path / "tape.jsonl"
    with RealBroker(version="4.4.0") as old:
        address = int(old.bootstrap.rsplit(":", 1)[1])
        create_topic(old.bootstrap, "t")
        produce(old.bootstrap, "t", [b"old"])
        # Without TLS in every run: the fixed port is a plain one, and the clusters have no authority in common.
        consumer = reader(old.bootstrap, tape=str(tape), security_protocol="PLAINTEXT")
        consumer.assign([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"old"]
        old.restart()
        produce(old.bootstrap, "t", [b"after a restart"])
        assert [record.value for record in read(consumer, 1)] == [b"after a restart"]
    with consumer, RealBroker(version="4.4.0", ports=[address]) as new:
        create_topic(new.bootstrap, "t")
        produce(new.bootstrap, "t", [b"new"])
        consumer.seek_to_beginning([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"new"]
    codes = codes_with_identity(tape)
    assert codes[0] == ErrorCode.NONE, "the same broker after its restart"
    assert codes[-1] == ErrorCode.REBOOTSTRAP_REQUIRED


@pytest.mark.broker
@pytest.mark.proves("B-48")
def test_a_broker_reads_the_expectation_after_a_login(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    user = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    user |= {"sasl_username": "me", "sasl_password": "hush"}
    with RealBroker(version="4.4.0", users={"me": "hush"}) as broker:
        create_topic(broker.bootstrap, "t")
        produce(broker.bootstrap, "t", [b"0"])
        with reader(broker.bootstrap_sasl, tape=str(tape), **user) as consumer:
            consumer.assign([PLACE])
            assert [record.value for record in read(consumer, 1)] == [b"0"]
            broker.restart()
            produce(broker.bootstrap, "t", [b"1"])
            assert [record.value for record in read(consumer, 1)] == [b"1"]
    assert set(codes_with_identity(tape)) == {ErrorCode.NONE}


def codes_with_identity(tape: Path) -> list[int]:
    """The error codes of the responses to ApiVersions requests that name a broker."""
    frames = api_versions(tape, "response")
    return [tapes.value(one).error_code for one in frames if one.version == FIRST_WITH_IDENTITY]


# ---------------------------------------------------------------------------------------------- brokers before 4.4


METADATA = (0, 12)


def older(expected: BrokerIdentity | None = EXPECTED, **settings: Any) -> Opened:
    """A connection to a broker of a cluster whose brokers read no expectation."""
    opened = Opened(expected, names_identity=False, **settings)
    assert opened.named()[0] == LAST_WITHOUT_IDENTITY
    opened.respond(error_code=0, api_keys=listed(Metadata=METADATA))
    return opened


def cluster_requested(opened: Opened) -> bool:
    """The next request is for the cluster's id, and creates and names no topic."""
    api, version, request = opened.request()
    return (api, version) == ("Metadata", METADATA[1]) and (request.topics, request.allow_auto_topic_creation) == (
        (),
        False,
    )


@pytest.mark.proves("B-48")
@pytest.mark.parametrize("cluster_id", ["c", None])
def test_the_cluster_of_an_older_broker_is_checked_before_any_request(cluster_id: str | None) -> None:
    opened = older()
    pending = PendingRequest("SaslHandshake", {"mechanism": "PLAIN"}, lambda _outcome, _now: None, 5.0)
    opened.connection.send(pending, 0.0)
    assert cluster_requested(opened)
    opened.respond(brokers=(), cluster_id=cluster_id, controller_id=-1, topics=())
    assert opened.connection.stage is Stage.READY
    assert opened.request()[0] == "SaslHandshake", "the request that waited"


@pytest.mark.proves("B-48")
def test_an_older_broker_of_another_cluster_gets_no_request() -> None:
    opened = older()
    assert cluster_requested(opened)
    with pytest.raises(RebootstrapRequired, match="another broker is at this address than broker 7 of the cluster c"):
        opened.respond(brokers=(), cluster_id="d", controller_id=-1, topics=())


@pytest.mark.proves("B-48")
def test_the_cluster_of_an_older_broker_is_checked_after_the_login() -> None:
    opened = older(credentials=Credentials("PLAIN", "me", "hush"))
    log_in(opened)
    assert cluster_requested(opened)
    opened.respond(brokers=(), cluster_id="c", controller_id=-1, topics=())
    assert opened.connection.stage is Stage.READY
    assert opened.connection.overdue(9.0) is None
    log_in(opened)
    assert (opened.connection.stage, opened.connection.outgoing()) == (Stage.READY, []), "once only"


def test_without_an_expectation_the_cluster_is_not_requested() -> None:
    assert older(None).connection.stage is Stage.READY


@pytest.mark.proves("B-48")
def test_the_cluster_is_requested_if_the_broker_does_not_read_the_expectation() -> None:
    opened = Opened(EXPECTED)
    opened.named()
    opened.respond(0, error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=())
    assert opened.named()[0] == LAST_WITHOUT_IDENTITY
    opened.respond(error_code=0, api_keys=listed(Metadata=METADATA))
    assert cluster_requested(opened)


@pytest.mark.parametrize(("reads", "again"), [(False, False), (False, True), (True, False), (True, True)])
def test_an_address_is_checked_again_after_a_connection_has_ended(reads: bool, again: bool) -> None:
    with FakeBroker(topics={"t": 1}) as fake, reader(fake.bootstrap) as consumer:
        consumer.assign([PLACE])
        poll_until(consumer, lambda: bool(fake.calls_of("Fetch")))
        core = consumer._session.driver.core
        core.endpoints.reads_identity = reads
        endpoint = Endpoint("127.0.0.1", port(fake, 1))
        expected = BrokerIdentity("fake-cluster", 1) if reads or again else None
        assert core.cluster.expected(endpoint, again=again) == expected


@pytest.mark.proves("B-48")
def test_no_record_is_written_by_name_to_an_older_broker_of_another_cluster() -> None:
    with led_by_the_second(**BY_NAME) as fake, Producer(fake.bootstrap.split(",")[0]) as producer:
        assert producer.send("t", b"0").result(PATIENCE_S).offset == 0
        assert () not in topics_requested(fake), "not at the first connection"
        with second_node_taken_over(fake, **BY_NAME) as stranger:
            written = producer.send("t", b"1")
            wait_until(lambda: bool(stranger.calls_of("Metadata")))
        assert written.result(PATIENCE_S).offset == 1
    assert served(stranger) == {"ApiVersions", "Metadata"}
    assert set(topics_requested(stranger)) == {()}


@pytest.mark.proves("B-48")
def test_no_offset_is_committed_to_an_older_coordinator_of_another_cluster(two_older_nodes: FakeBroker) -> None:
    fake = two_older_nodes
    fake.move_coordinator("g", 2)
    with reader(fake.bootstrap.split(",")[0], group="g") as consumer:
        consumer.assign([PLACE])  # without membership, so that no id of a member guards the commit
        consumer.commit({PLACE: 1})
        with second_node_taken_over(fake, **OLDER) as stranger:
            consumer.commit_async({PLACE: 2})
            wait_until(lambda: bool(stranger.calls_of("Metadata")))
        fake.move_coordinator("g", 1)
        consumer.commit({PLACE: 3})
        assert fake.group("g").offsets[PLACE].offset == 3
    assert "OffsetCommit" not in served(stranger)


@pytest.mark.broker
def test_a_broker_before_4_4_passes_the_check_after_its_restart(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with RealBroker(version="4.3.1") as broker:
        create_topic(broker.bootstrap, "t")
        with Producer(broker.bootstrap, tape=str(tape), security_protocol="PLAINTEXT") as producer:
            assert producer.send("t", b"0").result(PATIENCE_S).offset == 0
            broker.restart()
            assert producer.send("t", b"1").result(PATIENCE_S).offset == 1
    with tape.open() as lines:
        taped = [one for one in tapes.read(lines) if (one.api, one.direction) == ("Metadata", "request")]
    assert () in [tapes.value(one).topics for one in taped]
    assert {one.version for one in api_versions(tape, "request")} == {LAST_WITHOUT_IDENTITY}


@pytest.fixture
def two_older_nodes() -> Iterator[FakeBroker]:
    """No node reads an expectation."""
    with led_by_the_second(**OLDER) as fake:
        yield fake


@pytest.mark.proves("B-48")
def test_metadata_of_another_cluster_is_not_used(two_older_nodes: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fake = two_older_nodes
    fake.produce("t", 0, [(None, b"0")])
    with reader(fake.bootstrap.split(",")[0], metadata_max_age_ms=100) as consumer:
        consumer.assign([PLACE])
        read(consumer, 1)
        with second_node_taken_over(fake, **OLDER) as stranger:
            stranger.control("Metadata", lambda _call: UNKNOWN_CLUSTER, times=1)  # to the check of the connection
            stranger.create_topic("t")  # again, so that its id is another one
            wait_until(lambda: "metadata of the cluster another, not of fake-cluster" in caplog.text)
        fake.produce("t", 0, [(None, b"1")])
        assert [record.value for record in read(consumer, 1)] == [b"1"]


def test_without_the_check_metadata_of_another_cluster_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker(topics={"t": 1}, **OLDER) as fake:
        consumer = reader(fake.bootstrap, metadata_cluster_check_enable=False, metadata_max_age_ms=100)
        consumer.assign([PLACE])
        poll_until(consumer, lambda: bool(fake.calls_of("Fetch")))
    with consumer, FakeBroker(topics={"t": 1}, ports=[port(fake, 1)], cluster_id="another", **OLDER) as new:
        poll_until(consumer, lambda: len(new.calls_of("Metadata")) > 1)
    assert "metadata of the cluster" not in caplog.text


@pytest.mark.proves("B-48")
def test_an_older_broker_of_another_cluster_refuses_records_by_the_topics_id(two_older_nodes: FakeBroker) -> None:
    fake = two_older_nodes
    with Producer(fake.bootstrap.split(",")[0]) as producer:
        assert producer.send("t", b"0").result(PATIENCE_S).offset == 0
        with second_node_taken_over(fake, **OLDER) as stranger:
            stranger.control("Metadata", lambda _call: UNKNOWN_CLUSTER, times=1)
            stranger.create_topic("t")
            written = producer.send("t", b"1")
            wait_until(lambda: bool(stranger.calls_of("Produce")))
            fake.set_leader("t", 0, 1)
            assert written.result(PATIENCE_S).offset == 1
            assert stranger.end_offset("t", 0) == 0
    assert {call.version for call in fake.calls_of("Produce")} == {API["Produce"].versions[1]}


def test_records_for_a_topic_without_an_id_name_it() -> None:
    with FakeBroker(topics={"t": 1}, versions={"Metadata": (0, 9)}) as fake, Producer(fake.bootstrap) as producer:
        assert producer.send("t", b"0").result(PATIENCE_S).offset == 0
        assert [call.version for call in fake.calls_of("Produce")] == [12]
