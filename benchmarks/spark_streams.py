"""Streaming and writing with Spark: kohort and Spark's own connector, in alternating sessions.

An available-now stream reads two million records of 100 bytes for the length of their values. kohort makes all columns
of a record, as the connector does, or only the values (`.schema("value binary")`, which the connector refuses). The
floor is a Python source that has the same Arrow batches in files. Micro-batches run for five seconds while records come
steadily over eight partitions, in turns with those of Spark's source `rate`. A write is two million values of 100 B.

Spark's connector runs with its defaults, and with larger polls, fetches and batches (`TUNING`, `TUNED_WRITES`). All
sessions use local[2] and PySpark 4.0.0, whose Python archives have bytecode (`python -m kohort.spark.precompile`). In
the rows "Spark as installed" they have none. On the newest PySpark only kohort is measured. Figures are medians after
three runs of each query.
"""

import statistics
import time
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from pyspark.sql.types import StructType

from benchmarks.consume import filled
from benchmarks.report import OURS, Report
from benchmarks.spark import (
    DISTINCT,
    FLOOR,
    PYSPARK,
    SESSIONS,
    THEIRS,
    TUNED,
    WARM_UPS,
    Child,
    add_rates,
    compare,
    connecting,
    in_turn,
    precompiled,
    running_sessions,
    session,
)
from benchmarks.spark_floor import keep
from kohort.spark.source import SCHEMA
from kohort.testing.topics import create_topic

TIMES = 5
NEWEST = version("pyspark")
AS_INSTALLED = f"{OURS}, Spark as installed"
RECORDS, SIZE = 2_000_000, 100
STREAM_PARTITIONS = 8
RATES = (50, 5_000)
STEADY_S = 5
RATE = "Spark's source `rate`"
WHOLE = "triggerExecution"
STAGES = (WHOLE, "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
TUNED_WRITES = {"kafka.linger.ms": "5", "kafka.batch.size": str(1 << 18), "kafka.buffer.memory": str(64 << 20)}


def run(report: Report) -> None:
    with precompiled(PYSPARK) as spark_home:
        with (
            running_sessions(SESSIONS, spark_home=spark_home) as (bootstrap, folder, sessions),
            session("kohort", connecting("kohort", bootstrap, folder)) as as_installed,
        ):
            _available_now(report, "", bootstrap, folder, {**sessions, AS_INSTALLED: as_installed})
            _micro_batches(report, "", bootstrap, sessions)
        writing = {OURS: ("kohort", {}), THEIRS: ("kafka", {}), TUNED: ("kafka", TUNED_WRITES)}
        with running_sessions(writing, spark_home=spark_home) as (bootstrap, _, sessions):
            topic = f"bench-spark-write-{uuid.uuid4().hex[:8]}"
            create_topic(bootstrap, topic, partitions=4, config={"retention.bytes": str(256 << 20)})
            order = {"do": "write", "topic": topic, "records": str(RECORDS), "size": str(SIZE)}
            compare(report, f"{RECORDS:,} x {SIZE} B: a write", sessions, order, RECORDS, RECORDS, TIMES)
    without_connector = {client: one for client, one in SESSIONS.items() if client in (OURS, FLOOR)}
    with (
        precompiled(NEWEST) as spark_home,
        running_sessions(without_connector, NEWEST, spark_home) as (bootstrap, folder, sessions),
    ):
        _available_now(report, f"PySpark {NEWEST}: ", bootstrap, folder, sessions)
        _micro_batches(report, f"PySpark {NEWEST}: ", bootstrap, sessions)


def _available_now(report: Report, prefix: str, bootstrap: str, folder: str, sessions: Mapping[str, Child]) -> None:
    orders: dict[str, dict[str, str]] = {}
    for codec in ("none", "lz4"):
        topic = filled(bootstrap, codec, RECORDS, SIZE, DISTINCT)
        stream = {"do": "stream", "topic": topic}
        title = f"{prefix}{RECORDS:,} x {SIZE} B, {codec}: an available-now stream"
        orders |= {title: stream, f"{title} of values": stream | {"schema": "value binary"}}
        for columns in (SCHEMA, StructType([SCHEMA["value"]])):
            keep(bootstrap, topic, Path(folder), columns)
    for order in orders.values():
        in_turn(sessions, order, RECORDS, WARM_UPS)
    for title, order in orders.items():
        took = in_turn(sessions, order, RECORDS, TIMES)
        as_installed = took.pop(AS_INSTALLED, None)
        add_rates(report, title, took, RECORDS)
        if as_installed is not None:
            theirs = {client: took[client] for client in (THEIRS, TUNED)}
            add_rates(report, f"{title}, Spark as installed", {OURS: as_installed, **theirs}, RECORDS)


def _micro_batches(report: Report, prefix: str, bootstrap: str, sessions: Mapping[str, Child]) -> None:
    for rate in RATES:
        _micro_batches_at(report, f"{prefix}a micro-batch at {rate:,} records/s", rate, bootstrap, sessions)


def _micro_batches_at(report: Report, whole: str, rate: int, bootstrap: str, sessions: Mapping[str, Child]) -> None:
    """Each source in turn. A disk that slows down between two rounds slows all of them."""
    rounds = []
    for _ in range(TIMES):
        taken = {}
        for client, one in sessions.items():
            batches = _steady_rate(one, rate) if client == FLOOR else _steady(one, rate, bootstrap)
            taken[client] = {stage: statistics.median(batch.get(stage, 0) for batch in batches) for stage in STAGES}
        rounds.append(taken)
    for client in sessions:
        for stage in STAGES:
            value = statistics.median(taken[client][stage] for taken in rounds)
            work = whole if stage == WHOLE else f"{whole}: {stage}"
            report.add(work, RATE if client == FLOOR else client, value, "ms")
        if client != FLOOR:
            more = statistics.median(taken[client][WHOLE] - taken[FLOOR][WHOLE] for taken in rounds)
            report.add(f"{whole}: above `rate`", client, max(more, 0), "ms")


def _steady(one: Child, rate: int, bootstrap: str) -> list[dict[str, float]]:
    """The stages of each micro-batch while records come steadily."""
    from confluent_kafka import Producer

    topic = f"bench-spark-live-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=STREAM_PARTITIONS)
    one.send({"do": "begin", "topic": topic})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    started = time.monotonic()
    total, burst = rate * STEADY_S, max(rate // 100, 1)
    for number in range(total):
        producer.produce(topic, bytes(SIZE), partition=number % STREAM_PARTITIONS)
        if number % burst == 0:
            producer.poll(0)
            time.sleep(max(started + number / rate - time.monotonic(), 0))
    producer.flush()
    found = one.send({"do": "end", "rows": str(total)})
    if found["rows"] != total:
        raise AssertionError(f"a stream gave {found['rows']} of {total}")
    return list(found["stages_ms"])


def _steady_rate(one: Child, rate: int) -> list[dict[str, float]]:
    one.send({"do": "begin", "rate": str(rate)})
    time.sleep(STEADY_S)
    return list(one.send({"do": "end", "rows": "1"})["stages_ms"])
