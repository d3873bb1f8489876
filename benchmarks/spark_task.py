"""The cost of one Spark task without Spark: it reads a range and makes Spark's Arrow batches, on a new broker.

python -m benchmarks.spark_task [--records 1000000] [--size 100] [--codec none]

CPU seconds (all threads of this process) do not depend on other load of the machine, unlike the elapsed time.
"""

import argparse
import json
import resource
import statistics
import time
import uuid
from collections.abc import Mapping
from typing import Any

from kohort.producer import Producer
from kohort.producer.producer_settings import CompressionType
from kohort.spark import OffsetRange
from kohort.spark.partition_reader import as_spark
from kohort.spark.reader import read_range
from kohort.spark.schema import arrow_schema
from kohort.spark.source import SCHEMA
from kohort.testing import RealBroker
from kohort.testing.broker_settings import PLAINTEXT
from kohort.testing.real_broker import OPTIMIZING
from kohort.testing.topics import create_topic
from tests.secured import LISTENERS, LOGINS, PASSWORD, USER

SMALL_TASKS = 50


def fill(bootstrap: str, records: int, size: int, codec: CompressionType) -> str:
    """A topic of one partition."""
    import pyarrow as pa

    topic = f"task-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic)
    chunk = 20_000
    with Producer(bootstrap, compression=codec) as producer:
        for at in range(0, records, chunk):
            values = [(b"%d-" % n) * (size // 8) for n in range(at, min(at + chunk, records))]
            producer.send_arrow(topic, pa.RecordBatch.from_pydict({"value": [value[:size] for value in values]}))
    return topic


def small(topic: str, settings: Mapping[str, Any], *, connecting: bool) -> str:
    """Medians of a task that reads one record: by the consumer that is kept, or `connecting` for itself."""
    walls, cpus = [], []
    for start in range(SMALL_TASKS):
        its_own = {"client_id": f"task-{start}"} if connecting else {}
        wall, cpu = time.perf_counter(), time.process_time()
        list(read_range(OffsetRange(topic, 0, start, start + 1), {**settings, **its_own}))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return f"{statistics.median(cpus) * 1000:.1f} ms of CPU, {statistics.median(walls) * 1000:.1f} ms of time"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--codec", default="none")
    given = parser.parse_args()
    with RealBroker(tls=True, users={USER: PASSWORD}, jvm_options=OPTIMIZING) as broker:
        layout, tls = broker.nodes[0].layout, {"ssl_ca_path": str(broker.ca_file)}
        ways = {"plain": {"bootstrap": layout.address(PLAINTEXT)}} | {
            kind: {"bootstrap": layout.address(LISTENERS[kind]), **tls, **login} for kind, login in LOGINS.items()
        }
        measure(given, ways)


def measure(given: argparse.Namespace, ways: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints what was found. `ways`: settings to reach the same broker, "plain" and by logins."""
    settings = ways["plain"]
    topic = fill(settings["bootstrap"], given.records, given.size, given.codec)
    schema = arrow_schema(SCHEMA)
    list(read_range(OffsetRange(topic, 0, 0, 1), settings))  # codecs are compiled at their first use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, rows, largest = time.process_time(), 0, 0
    for columns in read_range(OffsetRange(topic, 0, 0, given.records), settings):
        batch = as_spark(columns, schema)
        rows += batch.num_rows
        largest = max(largest, batch.nbytes)
    cpu = time.process_time() - cpu
    print(
        json.dumps(
            {
                "records": rows,
                "bytes_each": given.size,
                "codec": given.codec,
                "cpu_s": round(cpu, 3),
                "records_per_cpu_s": round(rows / cpu),
                "largest_batch_mib": round(largest / 2**20, 1),
                "memory_more_mib": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1),
                "a_task_that_reads_one_record": {
                    kind: {
                        "by a consumer that is kept": small(topic, way, connecting=False),
                        "connecting": small(topic, way, connecting=True),
                    }
                    for kind, way in ways.items()
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
