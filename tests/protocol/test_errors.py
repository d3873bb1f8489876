"""The error table against Kafka's own, and the exception that carries a line of it."""

from __future__ import annotations

import pickle

import pytest

from kohort.common.errors import KohortError
from kohort.protocol.errors import ERRORS, BrokerError, error_name
from tests.protocol.kafka_jvm import jvm


def test_the_table_is_that_of_the_newest_release() -> None:
    ours = {code: (info.name, info.retriable) for code, info in ERRORS.items()}
    assert ours == jvm("4.4.0").errors()
    assert all(info == code and info.advice for code, info in ERRORS.items())


def test_an_older_release_has_fewer_errors_and_no_others() -> None:
    older = jvm("3.9.1").errors()
    assert len(older) < len(ERRORS)
    assert {code: name for code, (name, _) in older.items()} == {code: error_name(code) for code in older}


def test_a_broker_error_says_what_where_and_what_to_do() -> None:
    error = BrokerError(25, "who?", group="billing", member="m-1")
    assert (error.code, error.name, error.retriable) == (25, "UNKNOWN_MEMBER_ID", False)
    assert str(error) == ("UNKNOWN_MEMBER_ID [25]: who? (group=billing, member=m-1); rejoin with an empty member id")
    assert isinstance(error, KohortError)
    assert BrokerError(7).retriable


def test_a_code_newer_than_the_table_is_kept() -> None:
    error = BrokerError(9999, topic="t")
    assert (error.code, error.name, error.retriable, error.hint) == (9999, "ERROR_9999", False, None)


@pytest.mark.parametrize("message", [None, "why"])
def test_a_broker_error_survives_pickling(message: str | None) -> None:
    error = BrokerError(16, message, group="g")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is BrokerError
    assert (str(copy), copy.code, copy.place) == (str(error), 16, {"group": "g"})
