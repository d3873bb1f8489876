"""Planning a Spark read of 10 TB: 10,000 partitions of 100 topics, cut by bytes, on a fake broker.

The first partition of each topic has half of its bytes. Records have 100 bytes to 10 kB, by topic. The fake broker runs
in a process of its own. Its logs have one batch each, which a plan by bytes fetches from their middle. The figures are
those of the driver.
"""

import multiprocessing
import resource
import time
from collections import Counter
from multiprocessing.connection import Connection

from benchmarks.report import OURS, Report
from kohort.common import TopicPartition
from kohort.spark import ReadPlan, plan
from kohort.testing.fake_broker import FakeBroker

TOPICS, PARTITIONS, NODES = 100, 100, 3
TOTAL_BYTES = 10 * 10**12
TASK_BYTES = 256 << 20
SAMPLE_BYTES = 60_000
RECORD_BYTES = (100, 1_000, 10_000)
WORK = f"plan {TOTAL_BYTES // 10**12} TB in {TOPICS * PARTITIONS:,} partitions"


def record_bytes(topic: str) -> int:
    return RECORD_BYTES[int(topic[1:]) % len(RECORD_BYTES)]


def log_end(place: TopicPartition) -> int:
    half = TOTAL_BYTES // TOPICS // 2
    return (half if place.partition == 0 else half // (PARTITIONS - 1)) // record_bytes(place.topic)


def serve(pipe: Connection) -> None:
    """Send the address, and after the next message the number of requests by API."""
    topics = [f"t{number:02}" for number in range(TOPICS)]
    with FakeBroker(topics=dict.fromkeys(topics, PARTITIONS), nodes=NODES) as fake:
        for topic in topics:
            size = record_bytes(topic)
            for number in range(PARTITIONS):
                end = log_end(TopicPartition(topic, number))
                fake.skip(topic, number, end // 2)
                fake.produce(topic, number, [(None, bytes(size))] * (SAMPLE_BYTES // size))
                fake.skip(topic, number, end)
        pipe.send(fake.bootstrap)
        pipe.recv()
        pipe.send(Counter(call.api for call in fake.calls))


def run(report: Report) -> None:
    ours, theirs = multiprocessing.Pipe()
    broker = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    broker.start()
    bootstrap = ours.recv()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    found = plan(bootstrap, pattern="t.*", max_bytes_per_partition=TASK_BYTES)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ours.send(None)
    requests = ours.recv()
    broker.join()
    report.add(WORK, OURS, wall, "s", f"{cpu:.1f} s of CPU; {_tasks(found)}; requests: {_counts(requests)}")
    report.add(f"{WORK}: memory", OURS, memory / 1024, "MB")


def _tasks(found: ReadPlan) -> str:
    sizes = [len(one) * record_bytes(one.topic) for one in found]
    assert sum(sizes) > 0.99 * TOTAL_BYTES
    return f"{len(found):,} tasks of {min(sizes) >> 20} to {max(sizes) >> 20} MiB"


def _counts(requests: Counter[str]) -> str:
    return ", ".join(f"{number:,} {api}" for api, number in sorted(requests.items()))
