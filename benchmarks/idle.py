"""CPU and memory of an idle group member.

Each client is a member of a separate group, in a separate process, all at the same time. It polls for a second again
and again, on an empty topic of 12 partitions. The measurement starts at the tenth second and takes KOHORT_IDLE_S
seconds (60 by default). Growth is the resident set at the end less that at the start.
"""

import os
import subprocess
import sys
import time
import uuid

from benchmarks.consume import running_broker
from benchmarks.report import OURS, Report

SETTLE_S = 10.0
PARTITIONS = 12

_POLLING = {
    OURS: """
from kohort import Consumer
consumer = Consumer(B, group=G)
consumer.subscribe([T])
def poll(): return consumer.poll(1.0)
""",
    "confluent-kafka": """
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": B, "group.id": G})
consumer.subscribe([T])
def poll(): return consumer.poll(1.0)
""",
    "kafka-python": """
from kafka import KafkaConsumer
consumer = KafkaConsumer(T, bootstrap_servers=B, group_id=G)
def poll(): return consumer.poll(timeout_ms=1000)
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer
loop = asyncio.new_event_loop()
async def start():
    consumer = AIOKafkaConsumer(T, bootstrap_servers=B, group_id=G)
    await consumer.start()
    return consumer
consumer = loop.run_until_complete(start())
def poll(): return loop.run_until_complete(consumer.getmany(timeout_ms=1000))
""",
}
_MEASURE = """
import os, sys, time
B, T, G, settle_s, for_s = sys.argv[1:6]
def resident_kb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1000
def poll_for(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not poll(), "the topic was to stay empty"
{client}
poll_for(float(settle_s))
began, cpu, memory = time.monotonic(), time.process_time(), resident_kb()
poll_for(float(for_s))
print((time.process_time() - cpu) / (time.monotonic() - began) * 100, resident_kb() - memory, resident_kb(), flush=True)
os._exit(0)
"""


def run(report: Report) -> None:
    from kohort.testing.topics import create_topic

    for_s = float(os.environ.get("KOHORT_IDLE_S", "60"))
    with running_broker() as bootstrap:
        topic = f"bench-idle-{uuid.uuid4().hex[:8]}"
        create_topic(bootstrap, topic, partitions=PARTITIONS)
        running = {}
        for client, program_text in _POLLING.items():
            program = _MEASURE.replace("{client}", program_text)
            arguments = [bootstrap, topic, f"{topic}-{client}", str(SETTLE_S), str(for_s)]
            running[client] = subprocess.Popen(
                [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
            )
        time.sleep(SETTLE_S + for_s)
        note = f"{for_s:g} s"
        for client, process in running.items():
            out, _ = process.communicate(timeout=60)
            cpu, growth_kb, memory_kb = map(float, out.split())
            report.add("an idle member: CPU", client, cpu, "% of a core", note)
            report.add("an idle member: growth of memory", client, growth_kb, "kB", note)
            report.add("an idle member: memory", client, memory_kb / 1000, "MB", note)
