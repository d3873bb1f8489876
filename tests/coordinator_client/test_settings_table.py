"""Every setting's default and bounds as they are documented: a change of one is a change for every user."""

import pytest

from kohort.coordinator_client.consumer_config import SETTINGS, ConsumerConfig
from kohort.network.errors import ConfigError
from kohort.network.settings_table import checked

INT32 = 2_147_483_647  # what Kafka's own clients can hold

# name: default, least, most
NUMBERS: dict[str, tuple[int, int, int | None]] = {
    "session_timeout_ms": (45_000, 1, INT32),
    "heartbeat_interval_ms": (3_000, 1, INT32),
    "max_poll_interval_ms": (300_000, 1, INT32),
    "auto_commit_interval_ms": (5_000, 1, INT32),
    "fetch_min_bytes": (1, 0, INT32),
    "fetch_max_wait_ms": (500, 0, INT32),
    "fetch_max_bytes": (8_388_608, 1, INT32),
    "max_partition_fetch_bytes": (8_388_608, 1, INT32),
    "max_buffered_bytes": (67_108_864, 1, None),
    "max_poll_records": (0, 0, None),
    "max_decompressed_bytes": (67_108_864, 1, INT32),
    "max_frame_bytes": (134_217_728, 1, INT32),
    "request_timeout_ms": (30_000, 1, INT32),
    "default_api_timeout_ms": (60_000, 1, INT32),
    "bootstrap_timeout_ms": (10_000, 0, INT32),
    "connection_setup_timeout_ms": (10_000, 1, INT32),
    "reconnect_backoff_ms": (50, 0, INT32),
    "reconnect_backoff_max_ms": (1_000, 0, INT32),
    "retry_backoff_ms": (100, 0, INT32),
    "retry_backoff_max_ms": (1_000, 0, INT32),
    "metadata_max_age_ms": (300_000, 1, INT32),
    "receive_buffer_bytes": (-1, -1, INT32),
    "send_buffer_bytes": (-1, -1, INT32),
    "sasl_oauth_timeout_ms": (10_000, 1, INT32),
}

# name: default, and whether None is allowed
OTHERS: dict[str, tuple[object, bool]] = {
    "bootstrap": ((), False),
    "group": (None, True),
    "group_instance_id": (None, True),
    "client_id": ("kohort", False),
    "enable_metrics_push": (True, False),
    "rack": (None, True),
    "assignors": (("range",), False),
    "protocol": ("classic", False),
    "remote_assignor": (None, True),
    "exclude_internal_topics": (True, False),
    "allow_auto_create_topics": (False, False),
    "auto_offset_reset": ("latest", False),
    "enable_auto_commit": (False, False),
    "isolation_level": ("read_uncommitted", False),
    "on_corrupt": ("raise", False),
    "metadata_recovery_strategy": ("rebootstrap", False),
    "metadata_cluster_check_enable": (True, False),
    "tape": (None, True),
    "security_protocol": ("PLAINTEXT", False),
    "ssl_ca_path": (None, True),
    "ssl_cert_path": (None, True),
    "ssl_key_path": (None, True),
    "ssl_key_password": (None, True),
    "ssl_check_hostname": (True, False),
    "ssl_context": (None, True),
    "sasl_mechanism": (None, True),
    "sasl_username": (None, True),
    "sasl_password": (None, True),
    "sasl_oauth_token": (None, True),
    "sasl_oauth_token_endpoint_url": (None, True),
    "sasl_oauth_allowed_urls": ((), False),
    "sasl_oauth_client_id": (None, True),
    "sasl_oauth_client_secret": (None, True),
    "sasl_oauth_header_urlencode": (False, False),
    "sasl_oauth_scope": (None, True),
    "sasl_oauth_extensions": ((), False),
    "sasl_oauth_ca_path": (None, True),
    "sasl_kerberos_service_name": ("kafka", False),
    "sasl_kerberos_principal": (None, True),
    "sasl_kerberos_keytab": (None, True),
    "sasl_kerberos_ccache": (None, True),
}


def made(**settings: object) -> ConsumerConfig:
    return ConsumerConfig.of(**{"bootstrap": "b:9092", "group": "g"} | settings)


def test_the_tables_hold_every_setting() -> None:
    assert NUMBERS.keys() | OTHERS.keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    default, least, most = NUMBERS[name]
    assert getattr(made(), name) == default
    for number in (least, default, most if most is not None else 2**40):
        assert checked(SETTINGS[name], number) == number  # settings that limit each other have tests of their own
    for number in (least - 1, *([] if most is None else [most + 1])):
        with pytest.raises(ConfigError, match=rf"{name} must be at (least|most) -?\d+, not {number}"):
            made(**{name: number})
    with pytest.raises(ConfigError, match=name):
        made(**{name: None})


@pytest.mark.parametrize("name", OTHERS)
def test_other_settings(name: str) -> None:
    default, optional = OTHERS[name]
    if name not in ("bootstrap", "group"):
        assert getattr(made(), name) == default
    if optional:
        assert getattr(made(**{name: None}), name) is None
    else:
        with pytest.raises(ConfigError, match=name):
            made(**{name: None})
