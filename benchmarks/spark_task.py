"""What one Spark task costs, without Spark: CPU and memory to read a range and make Spark's Arrow batches of it.

python -m benchmarks.spark_task --bootstrap localhost:9092 [--records 1000000] [--size 100] [--codec none]

CPU seconds (all threads of this process) do not depend on what else the machine does, as the time that passes would.
"""

import argparse
import json
import resource
import time
import uuid

from kohort.producer import Producer
from kohort.spark import OffsetRange
from kohort.spark.reader import read_range
from kohort.spark.source import SCHEMA, arrow_schema, as_spark
from kohort.testing.topics import create_topic


def fill(bootstrap: str, records: int, size: int, codec: str) -> str:
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--codec", default="none")
    given = parser.parse_args()
    topic = fill(given.bootstrap, given.records, given.size, given.codec)
    settings = {"bootstrap": given.bootstrap}
    schema = arrow_schema(SCHEMA)
    list(read_range(OffsetRange(topic, 0, 0, 1), settings))  # codecs are compiled at their first use
    small = time.process_time()
    for start in range(50):
        list(read_range(OffsetRange(topic, 0, start, start + 1), settings))
    small = (time.process_time() - small) / 50
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, rows, largest = time.process_time(), 0, 0
    for columns in read_range(OffsetRange(topic, 0, 0, given.records), settings):
        batch = as_spark(columns, schema)
        rows += batch.num_rows
        largest = max(largest, batch.nbytes)
    cpu = time.process_time() - cpu
    print(
        json.dumps({
            "records": rows, "bytes_each": given.size, "codec": given.codec, "cpu_s": round(cpu, 3),
            "records_per_cpu_s": round(rows / cpu), "largest_batch_mib": round(largest / 2**20, 1),
            "memory_more_mib": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1),
            "a_task_that_reads_one_record_cpu_ms": round(small * 1000, 2),
        })
    )  # fmt: skip


if __name__ == "__main__":
    main()
