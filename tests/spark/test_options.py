"""The options of format("kohort"): what each means, and that a wrong one says which is right."""

import pickle
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import ConfigError
from kohort.spark import OptionError
from kohort.spark.java_settings import in_our_words
from kohort.spark.options import SourceOptions
from kohort.spark.rdd import RangeReader
from kohort.spark.sink import SinkOptions

LEAST = {"kafka.bootstrap.servers": "h1:9092,h2:9092", "subscribe": "a, b"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
NOON_MS = 1_709_208_000_123


def options(given: dict[str, str] | None = None, *, streaming: bool = False) -> SourceOptions:
    return SourceOptions.of(LEAST | (given or {}), streaming=streaming)


def test_the_least_there_is_to_say() -> None:
    least = options()
    assert (least.bootstrap, least.topics, least.partitions) == ("h1:9092,h2:9092", ("a", "b"), ())
    assert (least.start, least.stop, options(streaming=True).start) == ("earliest", "latest", "latest")
    assert (least.on_data_loss, least.on_late_time, least.include_headers) == ("fail", "fail", False)
    assert least.settings == {}
    assert pickle.loads(pickle.dumps(least)) == least


def test_what_tasks_are_given_does_not_show_its_passwords() -> None:
    login = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'a.PlainLoginModule required username="me" password="can4ry";',
    }
    source, sink = SourceOptions.of(login | {"subscribe": "a"}, streaming=False), SinkOptions.of(login)
    reader = RangeReader(source.connect, False, None, None, False)
    assert (source.connect["sasl_password"], sink.properties["sasl.password"]) == ("can4ry", "can4ry")
    for each in (source, sink, reader):
        assert "can4ry" not in repr(each), type(each)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"startingOffsets": "latest"}, "start", "latest"),
        ({"startingOffsets": " earliest "}, "start", "earliest"),
        ({"startingoffsets": '{"a":{"0":23,"1":-2}}'}, "start", {A0: 23, A1: "earliest"}),
        ({"startingOffsets": '{"a":{"1":-1}}'}, "start", {A1: "latest"}),
        ({"startingTimestamp": str(NOON_MS)}, "start", NOON),
        ({"startingOffsetsByTimestamp": f'{{"a":{{"0":{NOON_MS}}}}}'}, "start", {A0: NOON}),
        ({"startingTimestamp": str(NOON_MS), "startingOffsets": "latest"}, "start", NOON),
        ({"endingOffsets": '{"a":{"0":9,"1":-1}}'}, "stop", {A0: 9, A1: "latest"}),
        ({"endingTimestamp": str(NOON_MS)}, "stop", NOON),
        ({"endingOffsetsByTimestamp": f'{{"a":{{"0":{NOON_MS}}}}}'}, "stop", {A0: NOON}),
        ({"startingOffsetsByTimestampStrategy": "LATEST"}, "on_late_time", "latest"),
        ({"failOnDataLoss": "False"}, "on_data_loss", "skip"),
        ({"minPartitions": "12"}, "min_partitions", 12),
        ({"maxRecordsPerPartition": "1000"}, "max_records_per_partition", 1000),
        ({"maxBytesPerPartition": "65536"}, "max_bytes_per_partition", 65536),
        ({"includeHeaders": "true"}, "include_headers", True),
        ({"kafka.group.id": "g"}, "group", "g"),
        ({"kafka.isolation.level": "read_committed"}, "settings", {"isolation_level": "read_committed"}),
        ({"kafka.max.partition.fetch.bytes": "1000"}, "settings", {"max_partition_fetch_bytes": 1000}),
        ({"maxTriggerDelay": "90s"}, "max_trigger_delay_ms", 90_000),
        ({"maxTriggerDelay": "2 min"}, "max_trigger_delay_ms", 120_000),
        ({"maxTriggerDelay": "250"}, "max_trigger_delay_ms", 250),
        ({"minOffsetsPerTrigger": "9"}, "min_offsets_per_trigger", 9),
        ({"group": "g"}, "member_of", "g"),
        ({"groupIdPrefix": "p", "kafkaConsumer.pollTimeoutMs": "5"}, "settings", {}),
        ({"provider": "kohort"}, "settings", {}),
    ],
)
def test_an_option_means_what_it_means_to_sparks_own_source(given: dict[str, str], field: str, value: Any) -> None:
    of_streams = {"maxTriggerDelay", "minOffsetsPerTrigger", "group"} & given.keys()
    to_the_end = "latest" in given.values() or "-1" in str(given)
    streaming = not any("ending" in name for name in given) and (to_the_end or bool(of_streams))
    assert getattr(options(given, streaming=streaming), field) == value


def test_assign_names_partitions() -> None:
    found = SourceOptions.of(
        {"kafka.bootstrap.servers": "h:1", "assign": '{"a":[1,0],"b":[2]}'}, streaming=False
    ).partitions
    assert found == (A1, A0, TopicPartition("b", 2))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset' .*did you mean 'startingOffsets'"),
        (
            {"subscribe": "a", "option.subscribe": "a"},
            "a table of a catalog .*option=subscribe.* CREATE TEMPORARY VIEW",
        ),
        ({"maxOffsetPerTriger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"failOnDataLos": "true"}, "did you mean 'failOnDataLoss'"),
        ({"startingOffsets": "earlist"}, "cannot be 'earlist' .*did you mean 'earliest'"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be 'latest'"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "-1 is not a valid offset here"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be 'earliest'"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "-2 is not a valid offset here"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-3 is not a valid offset here"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "True is not a valid offset here"),
        ({"startingOffsets": '{"a":7}'}, "by topic and partition"),
        ({"startingOffsets": '{"a":{"0_0":7}}'}, "by topic and partition"),
        ({"startingOffsets": '{"a":{"٣":7}}'}, "by topic and partition"),
        ({"startingOffsets": f'{{"a":{{"0":{2**63}}}}}'}, "is not a valid offset here"),
        ({"endingOffsetsByTimestamp": '{"a":{" 0":7}}'}, "by topic and partition"),
        ({"startingOffsets": '{"a":'}, "not JSON"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' is not a time in milliseconds"),
        ({"startingTimestamp": "1709208000123000"}, "'1709208000123000' is not a time in milliseconds"),
        ({"endingOffsetsByTimestamp": f'{{"a":{{"0":{2**63 - 1}}}}}'}, "is not a time in milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "must be error or latest"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"failOnDataLoss": True}, "failOnDataLoss must be a string, not True .option=failOnDataLoss"),
        ({"minPartitions": "0"}, "must be a whole number above 0"),
        ({"minPartitions": "many"}, "must be a whole number above 0"),
        ({"minPartitions": "1" * 5000}, "must be a whole number above 0"),
        ({"startingTimestamp": "1_000"}, "'1_000' is not a time in milliseconds"),
        ({"startingTimestamp": "٣"}, "'٣' is not a time in milliseconds"),
        ({"maxOffsetsPerTrigger": "10"}, "maxOffsetsPerTrigger has no meaning for a batch"),
        ({"assign": '{"a":[0]}'}, "exactly one of subscribe"),
        ({"subscribe": " , "}, "no topic is named"),
        ({"subscribePattern": "a.*"}, "exactly one of subscribe"),
        ({"subscribePatern": "a.*"}, "did you mean 'subscribePattern'"),
        ({"group": "g"}, "group has no meaning for a batch .*kafka_rdd"),
        ({"kafka.group.instance.id": "i"}, "is a setting of group members"),
        ({"kafka.auto.offset.reset": "earliest"}, "the plan decides it"),
        ({"kafka.kohort.tape": "tape"}, "a tape has one client, .*option=kafka.kohort.tape"),
    ],
)
def test_a_wrong_option_is_refused_with_the_right_one(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"group": "g", "kafka.group.id": "h"}, "exclude each other"),
        ({"group": ""}, "group is empty"),
        ({"group": "g", "startingOffsets": '{"a":{"0":1}}'}, "starts at its committed offsets"),
        ({"group": "g", "startingOffsetsByTimestamp": '{"a":{"0":1}}'}, "starts at its committed offsets"),
        ({"maxTriggerDelay": "soon"}, "must be a time such as 15m"),
        ({"maxTriggerDelay": "5 weeks"}, "must be a time such as 15m"),
        ({"maxTriggerDelay": "1" * 400 + "s"}, "must be a time such as 15m"),
        ({"maxTriggerDelay": "٣s"}, "must be a time such as 15m"),
        ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, r"\(20\) is above maxOffsetsPerTrigger \(15\)"),
        ({"minOffsetsPerTrigger": "0"}, "must be a whole number above 0"),
    ],
)
def test_what_a_stream_cannot_have(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options(given, streaming=True)


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ({"assign": '{"a":[0]}', "group": "g"}, "assigns partitions itself"),
        ({"assign": "{}"}, "no partition is named"),
        ({"assign": '{"a":"01"}'}, "partitions must be numbers in lists"),
        ({"assign": '{"a":{"0":23}}'}, "partitions must be numbers in lists"),
        ({"assign": '{"a":[0.7]}'}, "partitions must be numbers in lists"),
        ({"assign": '{"a":[true]}'}, "partitions must be numbers in lists"),
        ({"subscribePattern": "a(("}, "not a regular expression.*Python's re, not of Java"),
        ({"subscribePattern": "a{99999999999}"}, "not a regular expression.*Python's re, not of Java"),
        ({"subscribePattern": r"\p{Alpha}1"}, "not a regular expression.*Python's re, not of Java"),
        ({"subscribePattern": r"\Qa1\E"}, "not a regular expression.*Python's re, not of Java"),
        ({"subscribePattern": "^[a-z&&[^b]]1"}, "Java reads && in a class in another way"),
        ({"subscribePattern": "^[a[bc]]1"}, r"Java reads \[ in a class in another way"),
        ({"subscribePattern": r"a\101"}, r"Java reads \\101, a character by its octal number"),
        ({"subscribePattern": "(?ix)[a b]"}, "Java reads a class under the flag x"),
        ({"subscribePattern": " "}, "no topic is named"),
    ],
)
def test_ways_to_say_what_to_read_that_cannot_be(way: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SourceOptions.of({"kafka.bootstrap.servers": "h:1", **way}, streaming=True)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("pay", "all-payments", True),
        ("^pay", "all-payments", False),
        ("^pay.*s$", "payments", True),
        ("a|b", "xbx", True),
        ("a|b", "xyz", False),
        ("(?i)PAY", "all-payments", True),
        ("PAY", "all-payments", False),
        (" ^pay.*s$\n", "payments", True),
        (r"^[\[a-p]ay\[?", "payments", True),
        ("[&p]a(y&&)?", "payments", True),
        (r"(p)ay.*(?:\1|s)", "payments", True),
    ],
)
def test_a_pattern_matches_anywhere_in_a_name(pattern: str, name: str, matches: bool) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern}
    found = SourceOptions.of(given, streaming=False).pattern
    assert found is not None
    assert (re.fullmatch(found, name) is not None) == matches


def test_a_pattern_and_what_only_a_member_says() -> None:
    found = SourceOptions.of(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribePattern": "a.*",
            "group": "g",
            "kafka.partition.assignment.strategy": "cooperative-sticky",
            "kafka.group.instance.id": "i",
        },
        streaming=True,
    )
    assert (found.topics, found.partitions, found.pattern) == ((), (), ".*(?:a.*).*")
    assert found.settings == {"assignors": ("cooperative-sticky",), "group_instance_id": "i"}
    assert found.connect == {"bootstrap": "h:1"}


@pytest.mark.parametrize(
    "given", [{"endingOffsets": "latest"}, {"maxOffsetsPerTrigger": "5"}, {"startingOffsets": "latest"}, {"group": "g"}]
)
def test_what_a_batch_or_a_stream_can_have_is_not_refused_too_early(given: dict[str, str]) -> None:
    SourceOptions.check(LEAST | given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endingOffset": "latest"}, "did you mean 'endingOffsets'"),
        ({"startingOffsets": "nowhere"}, "startingOffsets cannot be 'nowhere'"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be a whole number"),
        ({"endingOffsets": "latest", "group": "g"}, "endingOffsets has no meaning for a stream"),
        ({"assign": '{"a":[0]}'}, "exactly one of subscribe"),
    ],
)
def test_what_neither_can_have_is_refused_before_it_is_known_which_is_meant(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SourceOptions.check(LEAST | given)


JAAS = "org.apache.kafka.common.security.{}.{}LoginModule required {};"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required {};"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {
                "sasl.jaas.config": JAAS.format("plain", "Plain", 'username="al\\"ice" password="p w=1"'),
                "sasl.mechanism": "PLAIN",
            },
            {"sasl.mechanism": "PLAIN", "sasl.username": 'al"ice', "sasl.password": "p w=1"},
        ),
        (
            {"sasl.jaas.config": JAAS.format("scram", "Scram", "\n  username='bob'\n  password=secret")},
            {"sasl.username": "bob", "sasl.password": "secret"},
        ),
        (
            {
                "sasl.jaas.config": JAAS.format(
                    "oauthbearer",
                    "OAuthBearer",
                    'clientId="me" clientSecret="s" scope="a b" extension_pool="1" extension_lane="2"',
                ),
                "sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler",
            },
            {
                "sasl.oauthbearer.client.credentials.client.id": "me",
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
                "sasl.oauthbearer.extensions": "pool=1,lane=2",
            },
        ),
        (
            {
                "sasl.jaas.config": KERBEROS.format(
                    'useKeyTab=true storeKey=true keyTab="/me.keytab" principal="me@R"'
                ),
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.kinit.cmd": "/bin/kinit",
            },
            {
                "sasl.kerberos.keytab": "/me.keytab",
                "sasl.kerberos.principal": "me@R",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
        (
            {"sasl.jaas.config": KERBEROS.format('useTicketCache=true ticketCache="/tmp/cc" serviceName="events"')},
            {"kohort.sasl.kerberos.ccache": "/tmp/cc", "sasl.kerberos.service.name": "events"},
        ),
        (
            {"sasl.jaas.config": KERBEROS.format('useTicketCache=true useKeyTab=true keyTab="/k" ticketCache="/c"')},
            {"sasl.kerberos.keytab": "/k"},
        ),
        ({"sasl.jaas.config": KERBEROS.format("useTicketCache=true keyTab=/unused")}, {}),
        (
            {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM", "ssl.protocol": "TLSv1.3"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": "pem", "ssl.key.password": "x"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "x"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"kohort.ssl.check.hostname": "false"}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {"kohort.ssl.check.hostname": "true"}),
        ({"client.id": "c"}, {"client.id": "c"}),
    ],
)
def test_security_as_java_says_it_is_understood(given: dict[str, str], wanted: dict[str, str]) -> None:
    assert in_our_words(given) == wanted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sasl.jaas.config": JAAS.format("ldap", "Ldap", "secret=1")}, "LdapLoginModule is not supported"),
        ({"sasl.jaas.config": KERBEROS.format('principal="secret"')}, "would prompt for a password"),
        (
            {"sasl.jaas.config": JAAS.format("oauthbearer", "OAuthBearer", 'clientSecret="secret"')},
            "has no clientId and clientSecret",
        ),
        ({"sasl.jaas.config": JAAS.format("plain", "Plain", 'username="secret"')}, "has no username and password"),
        ({"sasl.jaas.config": "secret nonsense"}, "the JAAS line is not supported"),
        ({"ssl.truststore.location": "/ca.jks"}, "a JKS store can only be read by Java.*kafka.ssl.ca.location"),
        ({"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "PKCS12"}, "a PKCS12 store"),
    ],
)
def test_security_that_only_java_has_is_refused_without_a_word_of_the_secret(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        in_our_words(given)
    assert "secret" not in str(caught.value)


def test_what_only_a_batch_has_is_refused_for_a_stream() -> None:
    with pytest.raises(OptionError, match="endingOffsets has no meaning for a stream"):
        options({"endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize("gone", ["kafka.bootstrap.servers", "subscribe"])
def test_what_is_missing_is_named(gone: str) -> None:
    with pytest.raises(OptionError, match=gone):
        SourceOptions.of({name: value for name, value in LEAST.items() if name != gone}, streaming=False)


def test_kafkas_own_names_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"fetch.min.byte.*fetch.min.bytes"):
        options({"kafka.fetch.min.byte": "1"})
