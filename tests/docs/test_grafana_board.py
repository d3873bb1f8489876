"""The Grafana board: the file is made from its table, and each of its queries returns data."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from docs.grafana import PANELS, board
from kohort import Consumer
from kohort.coordinator_client.exporting.prometheus import ConsumerCollector
from kohort.testing import FakeBroker
from kohort.testing.debian import unpacked
from kohort.testing.ports import free_ports
from tests.docs.pages import blocks_of

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
METRIC = re.compile(r"\bkohort_consumer_\w+")
PATIENCE_S = 60


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    """The metrics of a consumer that has read and committed a record."""
    registry = CollectorRegistry()
    with (
        FakeBroker({"topic": 1}) as fake,
        Consumer(fake.bootstrap, group="group", auto_offset_reset="earliest", heartbeat_interval_ms=100) as consumer,
    ):
        fake.produce("topic", 0, [(None, b"value")])
        consumer.subscribe(["topic"])
        while not consumer.poll(1.0):
            pass
        consumer.commit()
        consumer.poll(0)  # the time between two polls is a metric
        while not consumer.metrics().heartbeat_total:
            consumer.poll(0.05)
        registry.register(ConsumerCollector(consumer))
        yield registry


def test_the_file_is_made_from_the_table() -> None:
    assert (RECIPES / "grafana.json").read_text() == board()
    queries = [panel["targets"][0]["expr"] for panel in json.loads(board())["panels"]]
    assert queries == [panel.query for panel in PANELS]


def test_each_metric_of_the_board_and_of_the_alerts_is_exposed(registry: CollectorRegistry) -> None:
    exposed = set(METRIC.findall(generate_latest(registry).decode()))
    alerts = files_of("prometheus.md")["alerts.yml"]
    named = [METRIC.findall(text) for text in (*(panel.query for panel in PANELS), alerts)]
    assert all(named)
    assert {metric for metrics in named for metric in metrics} <= exposed


def files_of(page: str) -> dict[str, str]:
    """The files that a recipe writes."""
    return {one.file: one.text for one in blocks_of((RECIPES / page).read_text()) if one.file is not None}


@pytest.fixture
def prometheus(registry: CollectorRegistry, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus server that scrapes the consumer each second."""
    scraped, own = free_ports(2)
    start_http_server(scraped, "127.0.0.1", registry)
    files = files_of("prometheus.md")
    (tmp_path / "alerts.yml").write_text(files["alerts.yml"])
    config = re.sub(r"targets: .*", f'targets: ["127.0.0.1:{scraped}"]', files["prometheus.yml"].replace("15s", "1s"))
    (tmp_path / "prometheus.yml").write_text(config)
    programs = unpacked("prometheus", ("prometheus",)) / "usr/bin"
    subprocess.run([programs / "promtool", "check", "config", tmp_path / "prometheus.yml"], check=True)
    command = [str(programs / "prometheus"), f"--web.listen-address=127.0.0.1:{own}", "--storage.tsdb.path=data"]
    with subprocess.Popen([*command, "--config.file=prometheus.yml"], cwd=tmp_path) as server:
        try:
            yield f"http://127.0.0.1:{own}"
        finally:
            server.terminate()


@pytest.mark.full
def test_each_query_of_the_board_returns_data_from_prometheus(prometheus: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    without = list(PANELS)
    while without:
        assert time.monotonic() < deadline, [panel.query for panel in without]
        time.sleep(0.5)
        without = [panel for panel in without if not has_data(prometheus, panel.query)]


def has_data(server: str, query: str) -> bool:
    """True if the query returns a series with a number."""
    address = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(address) as response:
            result = json.load(response)["data"]["result"]
    except OSError:  # the server starts
        return False
    return any(series["value"][1] != "NaN" for series in result)
