"""The Grafana board of a consumer's metrics, made from a table of panels. `make docs` writes it."""

import json
from typing import Any, NamedTuple

WIDTH, HEIGHT, COLUMNS = 12, 8, 24
MEMBER = "{{client_id}} {{consumer}}"


class Panel(NamedTuple):
    """One graph. `query` is PromQL; `legend` names a line; `unit` is Grafana's name of a unit."""

    title: str
    query: str
    legend: str = MEMBER
    unit: str = "short"


PANELS = (
    Panel("Lag by topic", "sum by (group, topic) (kohort_consumer_records_lag)", "{{group}} {{topic}}"),
    Panel("Largest lag of a partition", "max by (group) (kohort_consumer_records_lag_max)", "{{group}}"),
    Panel("Records", "rate(kohort_consumer_records_consumed_total[1m])", unit="ops"),
    Panel("Bytes", "rate(kohort_consumer_bytes_consumed_total[1m])", unit="Bps"),
    Panel("Partitions", "kohort_consumer_assigned_partitions"),
    Panel("Rebalances", "increase(kohort_consumer_rebalance_total[10m])"),
    Panel("Duration of a rebalance", "kohort_consumer_rebalance_latency_max_seconds", unit="s"),
    Panel("Age of the last heartbeat", "kohort_consumer_last_heartbeat_ago_seconds", unit="s"),
    Panel("Time between polls", "kohort_consumer_time_between_poll_max_seconds", unit="s"),
    Panel("Latency of a fetch", "kohort_consumer_fetch_latency_avg_seconds", unit="s"),
    Panel("Commits", "rate(kohort_consumer_commit_total[1m])", unit="ops"),
    Panel("Refused commits", "increase(kohort_consumer_commits_refused_total[10m])"),
    Panel("Requests without a response", "increase(kohort_consumer_request_failures_total[10m])"),
    Panel("Fetched bytes that are not polled", "kohort_consumer_parked_bytes", unit="bytes"),
)

SOURCE = {"type": "prometheus", "uid": "${source}"}


def board() -> str:
    """The board as JSON, for Grafana's import."""
    whole: dict[str, Any] = {
        "title": "kohort consumers",
        "uid": "kohort-consumers",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "panels": [_panel(number, one) for number, one in enumerate(PANELS)],
    }
    return json.dumps(whole, indent=2) + "\n"


def _panel(number: int, one: Panel) -> dict[str, Any]:
    """A panel in its place: two beside each other."""
    place = number * WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": one.title,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": place % COLUMNS, "y": place // COLUMNS * HEIGHT},
        "fieldConfig": {"defaults": {"unit": one.unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": SOURCE, "expr": one.query, "legendFormat": one.legend}],
    }
