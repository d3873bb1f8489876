"""Backoff as values, and where reading starts when there is no offset."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.common import TopicPartition
from kohort.coordinator_client.offset_reset import OffsetReset, ResetPolicy
from kohort.network.backoff import FRESH, Backoff
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import ConfigError, ConnectionFailed
from kohort.network.network_client import NUMBERS_AT_ONCE, chance
from kohort.network.offset_requests import EARLIEST, LATEST
from kohort.network.requests import Endpoint

BACKOFF = Backoff(initial_ms=100, max_ms=1000, jitter=0.2)


def test_delays_double_up_to_the_ceiling() -> None:
    assert [BACKOFF.delay_s(failures, 0.5) for failures in range(7)] == [0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_its_part_of_the_delay(failures: int, number: float) -> None:
    middle = BACKOFF.delay_s(failures, 0.5)
    assert 0.8 * middle - 1e-9 <= BACKOFF.delay_s(failures, number) <= 1.2 * middle + 1e-9


def test_random_numbers_fill_the_range_from_zero_to_one() -> None:
    tenths = {int(10 * chance()) for _ in range(1000)}
    assert tenths == set(range(10))


def test_a_forked_process_draws_numbers_of_its_own() -> None:
    chance()  # others are drawn in advance
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, json.dumps([chance() for _ in range(NUMBERS_AT_ONCE)]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    with open(read_end) as of_child:
        assert not set(json.load(of_child)) & {chance() for _ in range(NUMBERS_AT_ONCE)}


def test_attempts_are_values() -> None:
    once = FRESH.failed(10.0, BACKOFF, 0.5)
    assert FRESH.failures == 0
    assert (once.failures, once.not_before) == (1, 10.1)
    assert not once.may_try(10.05)
    assert once.may_try(10.1)


@pytest.mark.proves("G-11")
@pytest.mark.parametrize(
    ("policy", "below_start", "timestamp"),
    [
        ("earliest", None, EARLIEST),
        ("latest", True, LATEST),
        ("none", None, None),
        ("nearest", True, EARLIEST),
        ("nearest", False, LATEST),
        ("nearest", None, EARLIEST),
        ("by_duration:PT1H", None, 10_000_000 - 3_600_000),
        ("by_duration:P1DT1M0.5S", True, 0),
    ],
)
def test_what_each_policy_requests(policy: str, below_start: bool | None, timestamp: int | None) -> None:
    assert ResetPolicy.of(policy).timestamp(10_000_000, below_start=below_start) == timestamp


@pytest.mark.parametrize(
    "text",
    [
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P" + "1" * 5000 + "D",
        "latest:PT1H",
        "x",
    ],
)
def test_policies_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError):
        ResetPolicy.of(text)


def test_a_gap_counts_what_is_never_seen() -> None:
    partition = TopicPartition("t", 0)
    assert OffsetReset(partition, 5, 100, "").skipped == 95
    assert OffsetReset(partition, None, 100, "").skipped is None


@pytest.mark.proves("B-27", "B-28")
def test_the_address_that_failed_least_is_called_and_bootstrap_again_when_all_failed() -> None:
    seed, one, two = Endpoint("seed", 1), Endpoint("one", 1), Endpoint("two", 1)
    endpoints = ConnectionStates((seed,), BACKOFF, lambda: 0.5)
    error = ConnectionFailed("refused")
    assert endpoints.pick([], 0.0) == seed
    endpoints.failed(one, error, 0.0)
    assert endpoints.pick([one, two], 0.0) == two
    endpoints.failed(two, error, 0.0)
    assert endpoints.pick([one, two], 0.0) == seed  # KIP-899
    endpoints.failed(seed, error, 0.0)
    assert endpoints.pick([one, two], 0.05) is None  # all are given time
    assert set(endpoints.next_poll_at()) == {0.1}
    assert endpoints.pick([one, two], 0.1) in (one, two, seed)
    endpoints.responded(two)
    assert endpoints.last_error is None
    assert endpoints.pick([one, two], 0.1) == two


def test_without_rebootstrap_only_known_brokers_are_called() -> None:
    seed, one = Endpoint("seed", 1), Endpoint("one", 1)
    endpoints = ConnectionStates((seed,), BACKOFF, lambda: 0.5, rebootstrap=False)
    endpoints.failed(one, ConnectionFailed("refused"), 0.0)
    assert endpoints.pick([one], 0.0) is None
    assert endpoints.pick([one], 0.2) == one
