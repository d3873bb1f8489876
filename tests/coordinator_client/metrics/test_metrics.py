"""The metrics of a consumer: windows, the table and its names, and figures of a running consumer."""

import copy
import dataclasses
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort import AsyncConsumer, Consumer, TopicPartition
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.coordinator_client.group.states import MemberState, Timeline
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.coordinator_client.sensors import Sensors
from kohort.network._samples import WINDOW_S, Counters, SampledWindow
from kohort.network.metric_spec import MetricKind
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker
from tests.support.java_metrics import names_of_java

DOCS = Path(__file__).parents[3] / "docs"
BY_PARTITION = {"records-lag", "records-lead"}  # Java registers them with the partition


def test_a_window_forgets_what_is_old() -> None:
    window = SampledWindow()
    assert (window.mean(0.0), window.most(0.0), window.rate(0.0)) == (None, None, 0.0)
    window.add(10.0, 100.0)
    window.add(20.0, 101.0)
    assert (window.mean(101.0), window.most(101.0)) == (15.0, 20.0)
    window.add(60.0, 100.0 + WINDOW_S)  # the first half is full, and still counts
    assert (window.mean(131.0), window.most(131.0)) == (30.0, 60.0)
    assert window.most(100.0 + 2 * WINDOW_S) == 60.0
    assert window.mean(100.0 + 2 * WINDOW_S) == 60.0  # 10 and 20 are gone
    assert window.mean(100.0 + 5 * WINDOW_S) is None
    assert window.count == 3


def test_the_rate_is_of_the_time_that_the_window_covers() -> None:
    window = SampledWindow()
    for second in range(90):
        window.add(1.0, 100.0 + second)
    assert window.rate(189.999) == pytest.approx(1.0, rel=0.02)
    once = SampledWindow()
    once.add(1.0, 100.0)
    assert once.rate(100.001) == pytest.approx(1 / WINDOW_S)  # and not a thousand


def test_polls_are_measured_apart_from_what_the_user_does_between() -> None:
    meters = Sensors()
    for start in (0.0, 10.0, 30.0):
        meters.polls.begin(start)
        meters.polls.end(start + 1.0)
    assert meters.polls.between_ms.mean(31.0) == 15_000.0
    assert meters.polls.between_ms.most(31.0) == 20_000.0
    assert meters.polls.idle_ratio.mean(31.0) == pytest.approx((1 / 1 + 1 / 10 + 1 / 20) / 3)


def test_a_callback_is_measured_from_its_own_begin_under_its_event() -> None:
    meters = Sensors()
    for event, began, ended in (("revoked", 5.0, 5.25), ("assigned", 7.0, 8.0), ("revoked", 9.0, 9.75)):
        meters.hook_began(began)
        meters.hook_ended(event, ended)
    assert (meters.hooks["revoked"].mean(10.0), meters.hooks["revoked"].most(10.0)) == (500.0, 750.0)
    assert (meters.hooks["assigned"].mean(10.0), meters.hooks["lost"].mean(10.0)) == (1000.0, None)


def test_nothing_is_counted_before_it_happens() -> None:
    counters = {name: getattr(Counters(), name) for name in dir(Counters) if not name.startswith("_")}
    assert counters == dict.fromkeys(counters, 0)
    assert "records" in counters
    meters = Sensors()
    assert (meters.rebalances, meters.failed_rebalances, meters.rebalancing_s) == (0, 0, 0.0)
    assert (meters.polls.begun, meters.polls.ended) == (0, 0)


def test_each_rebalance_is_counted_once_as_what_it_came_to() -> None:
    timeline, meters = Timeline(), Sensors()
    ends = [MemberState.STABLE, MemberState.STALLED, MemberState.STABLE, MemberState.FAILED, MemberState.OUT]
    for number, outcome in enumerate(ends):
        timeline.begin(RebalanceCause(RebalanceReason.ENFORCED), 10.0 * number)
        meters.rebalanced(timeline.rebalances)  # one under way is none yet
        timeline.end(outcome, 10.0 * number + 2)
        meters.rebalanced(timeline.rebalances)
        meters.rebalanced(timeline.rebalances)
    assert (meters.rebalances, meters.failed_rebalances, meters.rebalancing_s) == (2, 2, 4.0)


@pytest.fixture(scope="module")
def javas() -> set[str]:
    return names_of_java()


def test_names_said_to_be_javas_are(javas: set[str]) -> None:
    said = {f"{group}-metrics/{name}" for _, _, _, (group, name) in places()}
    assert len(said) == len(list(places()))  # none twice
    assert {name for name in said if name not in javas} == {
        f"consumer-fetch-manager-metrics/{name}" for name in BY_PARTITION
    }


def places() -> list[tuple[str, MetricKind, str, tuple[str, str]]]:
    return [(one.name, one.kind, one.unit, one.java) for one in FIGURES.values() if one.java is not None]


def test_names_are_javas_words_with_the_unit_behind() -> None:
    ending = {"ms": ("_ms", "_ms_total", "_total_ms"), "s": ("_s",), "bytes": ("_bytes", "_total"), "ratio": ("_avg",)}
    for name, kind, unit, (_, theirs) in places():
        words = theirs.replace("-seconds-ago", "-ago").replace("-", "_")
        assert name.startswith(words), (name, theirs)
        assert not unit or name.endswith(ending[unit]), name
        assert (kind is MetricKind.COUNTER) == ("total" in name), name


def test_figures_cannot_be_changed(topic_free: ConsumerMetrics) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        topic_free.polls_total = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        topic_free.records_lag[TopicPartition("t", 0)] = 3  # type: ignore[index]
    assert set(topic_free) == set(FIGURES)
    assert {name: topic_free[name] for name in FIGURES} == dict(topic_free)
    with pytest.raises(KeyError):
        topic_free["no_such_figure"]
    assert topic_free.last_poll_ago_s is None
    assert topic_free.heartbeat_rate == 0.0


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda seen: pickle.loads(pickle.dumps(seen))])
def test_metrics_can_be_copied_and_pickled(
    topic_free: ConsumerMetrics, again: Callable[[ConsumerMetrics], ConsumerMetrics]
) -> None:
    partition = TopicPartition("t", 0)
    seen = dataclasses.replace(topic_free, polls_total=1, records_lag={partition: 3}, records_lead={partition: 2})
    assert again(seen) == seen
    with pytest.raises(TypeError):
        again(seen).records_lag[partition] = 4  # type: ignore[index]


@pytest.fixture
def topic_free() -> ConsumerMetrics:
    """The figures of a consumer that has reached no broker."""
    consumer = Consumer("127.0.0.1:1", group="g")
    try:
        return consumer.metrics()
    finally:
        consumer.close(0.1)


def test_a_command_that_does_not_look_loads_no_table() -> None:
    code = (
        "import sys; from kohort import Consumer; c = Consumer('127.0.0.1:1', group='g'); c.subscribe(['t']);"
        "c.close(0); print([m for m in sys.modules if m.endswith('coordinator_client.metrics.metrics_table')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_page_is_what_the_table_says() -> None:
    spec = importlib.util.spec_from_file_location("docs_make_metrics", DOCS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    page = (DOCS / "metrics.md").read_text()
    assert page == make.metrics_page(), "run `make docs`"
    assert all(f"| `{name}` |" in page for name in FIGURES)


@pytest.mark.broker
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_figures_of_a_member_that_reads_and_commits(
    protocol: GroupProtocol, broker: SelectedBroker, topic: str, unique: Callable[[str], str]
) -> None:
    if protocol == "consumer" and broker.version < "4":
        pytest.skip("KIP-848 is off in brokers before 4.0")
    produce(broker.bootstrap, topic, numbers(0, 100))
    with Consumer(
        broker.bootstrap,
        group=unique("group"),
        protocol=protocol,
        auto_offset_reset="earliest",
        max_poll_records=30,
        heartbeat_interval_ms=100,
    ) as consumer:
        consumer.subscribe([topic])
        assert consumer.metrics().rebalance_total == 0
        read(consumer, 30)
        part = consumer.metrics()
        assert part.records_consumed_total == 30
        assert (part.records_lag_max, part.records_lead[TopicPartition(topic, 0)]) == (70, 30)
        read(consumer, 70)
        consumer.commit()
        poll_until(consumer, lambda: consumer.metrics().heartbeat_total >= 2)
        seen = consumer.metrics()
        assert seen.records_consumed_total == 100
        assert seen.records_lag_max == 0
        assert seen.records_lead_min is not None
        assert seen.bytes_consumed_total > 100
        assert seen.assigned_partitions == 3
        assert (seen.rebalance_total, seen.failed_rebalance_total) == (1, 0)
        assert seen.hooks_total >= 1
        assert seen.commit_total >= 1
        assert seen.commits_refused_total == 0
        positive = (
            "fetch_latency_avg_ms",
            "fetch_size_max_bytes",
            "commit_latency_max_ms",
            "rebalance_latency_avg_ms",
            "rebalance_latency_total_ms",
            "heartbeat_rate",
            "heartbeat_response_time_max_ms",
            "poll_idle_ratio_avg",
            "time_between_poll_avg_ms",
            "connection_count",
            "request_total",
            "fetch_total",
        )
        assert {name for name in positive if not (seen[name] or 0) > 0} == set()
        assert 0 < seen["poll_idle_ratio_avg"] <= 1
        for ago in ("last_poll_ago_s", "last_rebalance_ago_s", "last_heartbeat_ago_s"):
            assert seen[ago] is not None
            assert seen[ago] >= 0
        joined = protocol == "classic"
        assert (seen.join_total > 0, seen.sync_time_max_ms is not None) == (joined, joined)
        later = consumer.metrics()
        for name, one in FIGURES.items():
            if one.kind is MetricKind.COUNTER:
                assert later[name] >= seen[name], name
    assert isinstance(seen, ConsumerMetrics)


def test_both_faces_give_the_same() -> None:
    assert AsyncConsumer.metrics is Consumer.metrics
