"""The metrics of a share consumer, under the names of Java's."""

import subprocess
import sys

import pytest

from kohort.share_consumer.share_metrics import SHARE_FIGURES
from kohort.share_consumer.share_sensors import ShareSensors
from tests.share_consumer.test_share_consumer import GROUP, broker_with, member, next_batch, until
from tests.support.java_metrics import names_of_java


def test_polls_fetches_acknowledgements_and_heartbeats_are_measured() -> None:
    with broker_with(10) as fake, member(fake, client_id="me", acknowledgement_mode="explicit") as consumer:
        before = consumer.metrics()
        assert (before.client_id, before.group, before.closed) == ("me", GROUP, False)
        assert (before.last_poll_ago_s, before.acquisition_lock_ms, before.fetch_size_avg_bytes) == (None, None, None)
        consumer.acknowledge(next_batch(consumer), "release")
        consumer.commit()
        batch = next_batch(consumer)
        fake.expire_share_locks(GROUP)
        consumer.acknowledge(batch)
        consumer.commit()
        seen = consumer.metrics()
        assert (seen.records_consumed_total, seen.redelivered_records_total) == (20, 10)
        assert (seen.acknowledgements_send_total, seen.acknowledgements_error_total) == (2, 1)
        assert (seen.records_per_request_avg, seen.records_per_request_max) == (10.0, 10.0)
        assert seen.fetch_size_max_bytes == seen.fetch_size_avg_bytes
        assert seen.fetch_size_max_bytes is not None
        assert seen.bytes_consumed_total == 2 * seen.fetch_size_max_bytes
        assert (seen.acquisition_lock_ms, seen.rebalance_total) == (30_000, 1)
        assert seen.heartbeat_total > 0
        assert seen.heartbeat_response_time_max_ms is not None
        assert seen.last_poll_ago_s is not None
        assert seen.time_between_poll_max_ms is not None
        assert {name: getattr(seen, name) for name in seen} == dict(seen)
        assert list(seen) == list(SHARE_FIGURES)
    assert consumer.metrics().closed


def test_a_lost_lock_is_counted() -> None:
    with broker_with(3) as fake, member(fake) as consumer:
        batch = next_batch(consumer)
        consumer.hold(batch)
        fake.disconnect()
        until(lambda: consumer.metrics().lost_locks_total == 1)


def test_the_idle_ratio_is_the_part_of_the_time_inside_polls() -> None:
    sensors = ShareSensors()
    sensors.polls.begin(10.0)
    sensors.polls.end(11.0)
    sensors.polls.begin(14.0)
    sensors.polls.end(15.0)
    sensors.polls.end(15.0)  # a call that is repeated changes nothing
    assert sensors.polls.idle_ratio.mean(15.0) == pytest.approx((1.0 + 0.25) / 2)
    assert sensors.polls.between_ms.most(15.0) == pytest.approx(4000.0)


def test_a_share_consumer_that_is_not_watched_loads_no_table() -> None:
    code = (
        "import sys; from kohort import ShareConsumer; c = ShareConsumer('127.0.0.1:1', group='g'); c.close(0);"
        "print([m for m in sys.modules if m.endswith('share_metrics')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_javas_names_are_those_of_its_share_consumer() -> None:
    named = [f"{one.java[0]}-metrics/{one.java[1]}" for one in SHARE_FIGURES.values() if one.java is not None]
    assert len(named) == len(set(named)) > 25
    assert set(named) <= names_of_java(share=True)


def test_figures_are_named_by_javas_words_with_the_unit_behind() -> None:
    for one in SHARE_FIGURES.values():
        if one.java is not None:
            assert one.name.startswith(one.java[1].replace("-seconds-ago", "-ago").replace("-", "_")), one
