"""A consumer's counters of connections and requests, compared with what a broker did."""

import pytest

from kohort import Consumer, TopicPartition
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Close
from tests.coordinator_client.consumer_helpers import poll_until, read

P0 = TopicPartition("t", 0)


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_each_connection_that_ends_and_each_request_in_it_counts_once(lost: int, api: str) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v"), (None, b"w")])
        if lost:
            fake.control(api, lambda _call: Close(), times=lost)
        with Consumer(
            fake.bootstrap, auto_offset_reset="earliest", reconnect_backoff_ms=1, retry_backoff_ms=1
        ) as consumer:
            consumer.assign([P0])
            read(consumer, 2)
            metrics = consumer.metrics()
        assert (metrics.connection_close_total, metrics.request_failures_total) == (lost, lost)
        assert metrics.connection_creation_total == metrics.connection_count + lost
        assert metrics.fetch_failures_total == (lost if api == "Fetch" else 0)
        assert (metrics.records_consumed_total, metrics.slices_total, metrics.resets_total) == (2, 1, 1)
        assert (metrics.corrupt_batches_total, metrics.throttled_ms_total, metrics.hooks_total) == (0, 0, 0)


def test_what_a_broker_in_its_back_off_is_not_sent_counts_as_no_request() -> None:
    with FakeBroker(topics={"t": 1}, nodes=2) as fake:
        fake.set_leader("t", 0, 2)
        fake.control("Fetch", lambda _call: Close(), times=1)
        with Consumer(
            fake.bootstrap.split(",")[0],
            auto_offset_reset="earliest",
            reconnect_backoff_ms=60_000,
            reconnect_backoff_max_ms=60_000,
            retry_backoff_ms=1,
            retry_backoff_max_ms=1,
        ) as consumer:
            consumer.assign([P0])
            poll_until(consumer, lambda: consumer.metrics().fetch_failures_total > 0)
            tried = len(fake.calls_of("Metadata"))
            poll_until(consumer, lambda: len(fake.calls_of("Metadata")) > tried + 10)
            metrics = consumer.metrics()
        assert (metrics.fetch_failures_total, metrics.request_failures_total) == (1, 1)
        assert metrics.fetch_total == len(fake.calls_of("Fetch"))


def test_commits_and_callbacks_count_once() -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        with Consumer(fake.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            poll_until(consumer, lambda: consumer.metrics().records_consumed_total == 1)
            before = consumer.metrics()
            consumer.commit()
            after = consumer.metrics()
        assert (before.commit_total, before.commits_refused_total, before.commits_waiting) == (0, 0, 0)
        assert (after.commit_total, after.commits_refused_total, after.commits_waiting) == (1, 0, 0)
        assert (before.rebalance_total, before.failed_rebalance_total) == (1, 0)
