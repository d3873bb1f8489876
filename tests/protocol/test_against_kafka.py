"""Oracle 1: random messages of every version, byte for byte through Apache Kafka's own classes, both ways."""

from __future__ import annotations

import base64
import collections
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.protocol import framing, membership
from kohort.protocol.catalogue import APIS
from kohort.protocol.codec import Message
from kohort.protocol.primitives import WireType
from kohort.protocol.schema import Field, Struct
from tests.protocol.definitions import KAFKA_VERSIONS, RENAMED_FIELDS, snake_case, valid_versions
from tests.protocol.kafka_jvm import jvm
from tests.protocol.sampling import Choices, sample

EACH = 20  # messages in one exchange with a JVM
EXCHANGES, ALL_EXCHANGES = 4, 10  # for each message, version, release and direction; all only with --full
OURS_THROUGH_KAFKA = "ours through Kafka's classes"
KAFKAS_THROUGH_OURS = "Kafka's through ours"

# Kafka's name -> our codec
MESSAGES: dict[str, Message[Any]] = {
    **{message.name: message for api in APIS for message in (api.request, api.response)},
    "RequestHeader": Message.of(framing.RequestHeader),
    "ResponseHeader": Message.of(framing.ResponseHeader),
    "ConsumerProtocolSubscription": Message.of(membership.Subscription),
    "ConsumerProtocolAssignment": Message.of(membership.Assignment),
}
PAIRS = [
    pytest.param(name, version, id=f"{name}-v{version}")
    for name, message in MESSAGES.items()
    for version in range(message.versions[0], message.versions[1] + 1)
]

blobs = st.lists(st.binary(min_size=128, max_size=128), min_size=EACH, max_size=EACH)  # of one size: drawn faster
Counts = collections.Counter[tuple[str, str, str, int]]


@pytest.fixture(scope="module")
def covered(request: pytest.FixtureRequest) -> Iterator[Counts]:
    """(release, direction, message, version) -> messages compared; said aloud at the end."""
    counts: Counts = collections.Counter()
    yield counts
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for kafka in KAFKA_VERSIONS:
            for direction in (OURS_THROUGH_KAFKA, KAFKAS_THROUGH_OURS):
                here = {key: count for key, count in counts.items() if key[:2] == (kafka, direction)}
                names, least = {name for _, _, name, _ in here}, min(here.values(), default=0)
                print(
                    f"Apache Kafka {kafka}, {direction}: {len(names)} messages, {len(here)} versions, "
                    f"{sum(here.values())} random messages byte for byte, at least {least} each"
                )


def releases(name: str, version: int) -> list[str]:
    """The releases of the two that still speak a version; one that none speaks would go unproven."""
    found = [kafka for kafka in KAFKA_VERSIONS if version in valid_versions(kafka, name)]
    assert found, f"no oracle for {name} v{version}"
    return found


def many(exchanges: int) -> settings:
    return settings(max_examples=exchanges, database=None, suppress_health_check=list(HealthCheck), derandomize=True)


def ours_through_kafka(name: str, version: int, exchanges: int, covered: Counts) -> None:
    message = MESSAGES[name]

    @many(exchanges)
    @given(blobs)
    def exchange(blobs: list[bytes]) -> None:
        values = [sample(message.struct, version, Choices(blob)) for blob in blobs]
        written = [message.build(value, version) for value in values]
        # The lowered codec does the bulk; the reference is slow and stands behind it once an exchange.
        assert message.reference(version).write(values[0]) == written[0]
        assert [message.parse(data, version) for data in written] == values
        for kafka in releases(name, version):
            replies = jvm(kafka).rewrite(name, version, written)
            assert [reply.refused for reply in replies] == [None] * len(replies)
            assert [reply.data.hex() for reply in replies] == [data.hex() for data in written]
            covered[kafka, OURS_THROUGH_KAFKA, name, version] += len(replies)

    exchange()
    for kafka in releases(name, version):
        assert covered[kafka, OURS_THROUGH_KAFKA, name, version] >= EACH * exchanges


def kafkas_through_ours(name: str, version: int, exchanges: int, covered: Counts) -> None:
    message = MESSAGES[name]

    @many(exchanges)
    @given(blobs)
    def exchange(blobs: list[bytes]) -> None:
        for kafka in releases(name, version):
            replies = jvm(kafka).make(name, version, blobs)
            assert [reply.refused for reply in replies] == [None] * len(replies)
            for reply in replies:
                value = message.parse(reply.data, version)
                assert message.build(value, version).hex() == reply.data.hex()
                assert value == from_json(message.struct, json.loads(reply.json), version)
            first = replies[0].data
            assert message.reference(version).read(first, 0) == (message.parse(first, version), len(first))
            covered[kafka, KAFKAS_THROUGH_OURS, name, version] += len(replies)

    exchange()
    for kafka in releases(name, version):
        assert covered[kafka, KAFKAS_THROUGH_OURS, name, version] >= EACH * exchanges


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_kafka_reads_and_rewrites_ours(name: str, version: int, covered: Counts) -> None:
    ours_through_kafka(name, version, EXCHANGES, covered)


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_we_read_and_rewrite_kafkas(name: str, version: int, covered: Counts) -> None:
    kafkas_through_ours(name, version, EXCHANGES, covered)


@pytest.mark.full
@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("compare", [ours_through_kafka, kafkas_through_ours])
def test_every_version_at_full_size(
    compare: Callable[[str, int, int, Counts], None], name: str, covered: Counts
) -> None:
    first, last = MESSAGES[name].versions
    for version in range(first, last + 1):
        compare(name, version, ALL_EXCHANGES, covered)


def from_json(struct: type[Struct], said: dict[str, Any], version: int) -> Struct:
    """The value that Kafka's JSON form of a message describes."""
    renamed = {name[0].lower() + name[1:]: newer for name, newer in RENAMED_FIELDS.get(struct.__name__, {}).items()}
    given = {snake_case(renamed.get(name, name)): value for name, value in said.items()}
    value = struct._make(
        _from_json(each, given.pop(each.name), version) if each.name in given else each.zero for each in struct._table
    )
    assert not given, f"{struct.__name__} lacks {sorted(given)}"
    return value


def _from_json(each: Field, said: Any, version: int) -> Any:
    if said is None:
        return None
    if each.array:
        return tuple(_one(each, item, version) for item in said)
    return _one(each, said, version)


def _one(each: Field, said: Any, version: int) -> Any:
    if not isinstance(each.of, WireType):
        return from_json(each.of, said, version)
    match each.of.name:
        case "uuid":
            return UUID(bytes=base64.urlsafe_b64decode(said + "=="))
        case "bytes" | "records":
            return base64.b64decode(said)
    return said
