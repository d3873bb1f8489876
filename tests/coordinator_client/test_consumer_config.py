"""Settings: one table, two doors, and errors that help."""

import pytest

from kohort.coordinator_client.consumer_config import SETTINGS, ConsumerConfig
from kohort.network.errors import ConfigError
from kohort.network.settings_table import split_address


def test_the_table_is_complete_and_its_names_are_unique() -> None:
    assert len({setting.kafka for setting in SETTINGS.values()}) == len(SETTINGS)
    for setting in SETTINGS.values():
        assert setting.about.endswith("."), setting.name
        assert setting.kind in ("int", "bool", "str", "sent", "list", "callable", "any")
        if setting.kind == "int":
            assert setting.low is not None, f"{setting.name} has no lower bound"
            assert setting.name.endswith(("_ms", "_bytes", "_records")), f"{setting.name} does not name its unit"


def test_defaults_are_those_of_kafka_where_kafka_has_them() -> None:
    config = ConsumerConfig.of(bootstrap="localhost:9092")
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (45_000, 3_000)
    assert (config.max_poll_interval_ms, config.auto_offset_reset) == (300_000, "latest")
    assert config.bootstrap == ("localhost:9092",)


def test_from_kafkas_names_with_values_as_in_a_properties_file() -> None:
    config = ConsumerConfig.from_kafka(
        {
            "bootstrap.servers": "a:9092, b:9093",
            "group.id": "billing",
            "session.timeout.ms": "30000",
            "enable.auto.commit": "true",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor,range",
        }
    )
    assert config.bootstrap == ("a:9092", "b:9093")
    assert config.session_timeout_ms == 30_000
    assert config.enable_auto_commit is True
    assert config.assignors == ("roundrobin", "range")


def test_properties_are_read_as_other_clients_read_them() -> None:
    config = ConsumerConfig.from_kafka(
        {
            "bootstrap.servers": "a:9092",
            "group.id": "billing\t",
            "client.rack": "",
            "enable.auto.commit": "true ",
            "isolation.level": " read_committed",
            "security.protocol": "sasl_ssl",
            "group.protocol": "CONSUMER",
            "sasl.mechanism": "PLAIN ",
            "sasl.username": "me",
            "sasl.password": " blank ",
        }
    )
    assert (config.group, config.rack, config.enable_auto_commit) == ("billing", None, True)
    assert (config.isolation_level, config.security_protocol) == ("read_committed", "SASL_SSL")
    assert config.protocol == "consumer"
    assert (config.sasl_mechanism, config.sasl_password) == ("PLAIN", " blank ")


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("session_timeout", "session_timeout_ms"), ("session.timeout.ms", "session_timeout_ms"), ("groupe", "group")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(given: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{nearest}'"):
        ConsumerConfig.of(bootstrap="localhost:9092", **{given: 1})


@pytest.mark.parametrize("text", ["30_000", "3e4", "30 000", "9" * 5000])
def test_text_that_is_no_number_to_java_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="session_timeout_ms must be int, not str"):
        ConsumerConfig.from_kafka({"bootstrap.servers": "a:1", "session.timeout.ms": text})


def test_an_unknown_property_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'fetch\.max\.bytes'"):
        ConsumerConfig.from_kafka({"bootstrap.servers": "a:1", "fetch.max.byte": 1})


def test_a_serializer_is_refused_with_what_to_do_instead() -> None:
    for name in ("key.deserializer", "value.serializer"):
        with pytest.raises(
            ConfigError, match=rf"unknown property '{name}'.*bytes, which your code encodes and decodes"
        ):
            ConsumerConfig.from_kafka({"bootstrap.servers": "a:1", name: "org.example.Text"})
    with pytest.raises(ConfigError, match=r"unknown setting 'value_deserializer'.*bytes"):
        ConsumerConfig.of(bootstrap="a:1", value_deserializer=str)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"session_timeout_ms": "45000"}, "must be int"),
        ({"session_timeout_ms": True}, "must be int"),
        ({"session_timeout_ms": 0}, "at least 1"),
        ({"enable_auto_commit": 1, "group": "g"}, "must be bool"),
        ({"isolation_level": "read_commited"}, "did you mean 'read_committed'"),
        ({"auto_offset_reset": "oldest"}, "earliest"),
        ({"auto_offset_reset": "by_duration:1h"}, "ISO 8601"),
        ({"client_id": None}, "must be str"),
        ({"assignors": []}, "at least one"),
        ({"assignors": ["range"], "protocol": "consumer"}, "the coordinator assigns"),
        ({"assignors": [42], "group": "g"}, "not an assignor"),
        ({"heartbeat_interval_ms": 45_000}, "below"),
        ({"group_instance_id": "i"}, "without a group"),
        ({"enable_auto_commit": True}, "without a group"),
        ({"fetch_max_bytes": 2**30}, "max_frame_bytes"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_username"),
    ],
)
def test_what_cannot_work_is_refused_by_name(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ConsumerConfig.of(**{"bootstrap": "localhost:9092", **settings})


def test_passwords_do_not_show() -> None:
    config = ConsumerConfig.of(
        bootstrap="a:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="u",
        sasl_password="secret",
    )
    assert "secret" not in repr(config)
    assert "sasl_username='u'" in repr(config)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("PLAINTEXT://broker.example:19092", ("broker.example", 19092)),
    ],
)
def test_addresses(address: str, found: tuple[str, int]) -> None:
    assert split_address(address) == found


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:", ":9092", "localhost:http", "localhost:0", "h:65536", "h:" + "9" * 5_000, ""]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        ConsumerConfig.of(bootstrap=address or ())


@pytest.mark.parametrize("addresses", ["a:9092 b:9092", "a:9092;b:9092", ["a:9092,b:9092"], "a/b:9092", "a b:9092"])
def test_several_addresses_without_commas_are_no_host(addresses: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="commas between several"):
        ConsumerConfig.of(bootstrap=addresses)
