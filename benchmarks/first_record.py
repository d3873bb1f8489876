"""Import, join, first record: the time from a consumer's start to its first record.

Each client runs in a fresh interpreter, in turns, so that the conditions are the same. The result is the best of nine
runs. A first round, which does not count, makes the bytecode, as for installed packages. The CPU time is that of the
whole process.
"""

import subprocess
import sys
import uuid

from benchmarks.consume import running_broker
from benchmarks.environment import with_bytecode
from benchmarks.report import OURS, Report

ROUNDS = 9

PROGRAMS = {
    OURS: """
from kohort import Consumer
with Consumer(B, group=G, assignors=["range"], auto_offset_reset="earliest") as consumer:
    consumer.subscribe([T])
    first = next(iter(consumer))[0].value
    done()
""",
    "confluent-kafka": """
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": B, "group.id": G, "auto.offset.reset": "earliest"})
consumer.subscribe([T])
while (message := consumer.poll(1.0)) is None: pass
first = message.value()
done()
consumer.close()
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer(T, bootstrap_servers=B, group_id=G, auto_offset_reset="earliest")
    await consumer.start()
    (await consumer.getone()).value
    done()
    await consumer.stop()
asyncio.run(main())
""",
    "kafka-python": """
from kafka import KafkaConsumer
consumer = KafkaConsumer(T, bootstrap_servers=B, group_id=G, auto_offset_reset="earliest")
next(consumer).value
done()
consumer.close()
""",
}
_PROLOGUE = """
import sys, time
start = time.perf_counter()
B, T, G = sys.argv[1:4]
def done(): print(time.perf_counter() - start, time.process_time(), flush=True)
"""


def run(report: Report) -> None:
    from confluent_kafka import Producer

    from kohort.testing.topics import create_topic

    with running_broker() as bootstrap:
        topic = f"bench-first-{uuid.uuid4().hex[:8]}"
        create_topic(bootstrap, topic, partitions=1)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, b"first")
        producer.flush()
        best = {client: (float("inf"), float("inf")) for client in PROGRAMS}
        for counted in (False,) + (True,) * ROUNDS:
            for client, program in PROGRAMS.items():
                wall_s, cpu_s = first_record(program, bootstrap, topic, with_bytecode())
                if counted:
                    best[client] = (min(best[client][0], wall_s), min(best[client][1], cpu_s))
        for client, (wall_s, cpu_s) in best.items():
            report.add("import + join + first record", client, wall_s, "s")
            report.add("import + join + first record, CPU", client, cpu_s, "s")


def first_record(program: str, bootstrap: str, topic: str, environment: dict[str, str]) -> tuple[float, float]:
    """(wall, CPU) seconds, as printed by the program."""
    group = f"bench-{uuid.uuid4().hex}"
    command = [sys.executable, "-c", _PROLOGUE + program, bootstrap, topic, group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    wall_s, cpu_s = map(float, done.stdout.split()[:2])
    return wall_s, cpu_s
