"""Streaming and writing with Spark: kohort and Spark's own connector, in alternating sessions.

An available-now stream reads two million records of 100 bytes. The floor is a Python source that has the same Arrow
batches in files. Micro-batches run for five seconds while records come steadily over eight partitions, in turns with
those of Spark's source `rate`. A write is two million values of 100 bytes.

Spark's connector runs with its defaults, and with larger polls, fetches and batches (`TUNING`, `TUNED_WRITES`). All
sessions use local[2] and the same PySpark. Figures are medians.
"""

import statistics
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from benchmarks.consume import filled
from benchmarks.report import OURS, Report
from benchmarks.spark import DISTINCT, FLOOR, SESSIONS, THEIRS, TUNED, Child, compare, running_sessions
from benchmarks.spark_floor import keep
from kohort.testing.topics import create_topic

TIMES = 5
RECORDS, SIZE = 2_000_000, 100
STREAM_PARTITIONS = 8
RATES = (50, 5_000)
STEADY_S = 5
RATE = "Spark's source `rate`"
WHOLE = "triggerExecution"
STAGES = (WHOLE, "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
TUNED_WRITES = {"kafka.linger.ms": "5", "kafka.batch.size": str(1 << 18), "kafka.buffer.memory": str(64 << 20)}


def run(report: Report) -> None:
    with running_sessions(SESSIONS) as (bootstrap, folder, sessions):
        for codec in ("none", "lz4"):
            topic = filled(bootstrap, codec, RECORDS, SIZE, DISTINCT)
            keep(bootstrap, topic, Path(folder))
            work = f"{RECORDS:,} x {SIZE} B, {codec}: an available-now stream"
            compare(report, work, sessions, {"do": "stream", "topic": topic}, RECORDS, RECORDS, TIMES)
        for rate in RATES:
            _micro_batches(report, rate, bootstrap, sessions)
    writing = {OURS: ("kohort", {}), THEIRS: ("kafka", {}), TUNED: ("kafka", TUNED_WRITES)}
    with running_sessions(writing) as (bootstrap, _, sessions):
        topic = f"bench-spark-write-{uuid.uuid4().hex[:8]}"
        create_topic(bootstrap, topic, partitions=4, config={"retention.bytes": str(256 << 20)})
        order = {"do": "write", "topic": topic, "records": str(RECORDS), "size": str(SIZE)}
        compare(report, f"{RECORDS:,} x {SIZE} B: a write", sessions, order, RECORDS, RECORDS, TIMES)


def _micro_batches(report: Report, rate: int, bootstrap: str, sessions: Mapping[str, Child]) -> None:
    """Each source in turn. A disk that slows down between two rounds slows all of them."""
    rounds = []
    for _ in range(TIMES):
        taken = {}
        for client, one in sessions.items():
            batches = _steady_rate(one, rate) if client == FLOOR else _steady(one, rate, bootstrap)
            taken[client] = {stage: statistics.median(batch.get(stage, 0) for batch in batches) for stage in STAGES}
        rounds.append(taken)
    whole = f"a micro-batch at {rate:,} records/s"
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
