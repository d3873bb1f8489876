"""`kohort group lag --watch` on 10,000 partitions: the time of one update.

One broker has five topics of 2,000 partitions, with a committed offset for each partition. The command runs in a pipe
with --json and in a terminal of 50 lines. An update has all its requests and the output. The other clients request the
same data for each update. They are Kafka's own tool, a process for each update since it has no --watch, and the admin
clients of two libraries.
"""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from benchmarks.report import OURS, Report, median_of
from kohort.admin import Admin
from kohort.common import TopicPartition
from kohort.testing import RealBroker
from kohort.testing.real_broker import OPTIMIZING
from kohort.testing.topics import kafka_tool

TOPICS, PARTITIONS = 5, 2_000  # a controller refuses to make 10,000 at once
GROUP = "wide"
LOOKS = 10
SERVED_WITHIN_S = 300.0
WORK = f"a look at {TOPICS * PARTITIONS:,} partitions"
CAPTION = b"records wait"  # once in each drawing, below all else
TERMINAL = struct.pack("HHHH", 50, 160, 0, 0)


def run(report: Report) -> None:
    with wide_group() as bootstrap:
        piped, first_s = lines_of(bootstrap)
        report.add(f"{WORK}: --watch --json", OURS, middle(piped), "s", f"median of {LOOKS}")
        report.add(f"{WORK}: --watch --json, the slowest", OURS, max(piped), "s")
        report.add("from typing it to the first look", OURS, first_s, "s")
        report.add(f"{WORK}: --watch in a terminal", OURS, middle(screens_of(bootstrap)), "s", f"median of {LOOKS}")
        with Admin(bootstrap) as admin:
            report.add(f"{WORK}: the library", OURS, median_of(lambda: requested(len(admin.lag(GROUP)))), "s")
        report.add(f"{WORK}: the library", "confluent-kafka", median_of(librdkafka(bootstrap)), "s")
        report.add(f"{WORK}: the library", "kafka-python", median_of(kafka_python(bootstrap)), "s")
        report.add("from typing it to the first look", "Kafka's tool", median_of(lambda: tool(bootstrap), times=3), "s")


@contextmanager
def wide_group() -> Iterator[str]:
    """A broker's address while it serves all the partitions, with an offset of the group for each."""
    with (
        RealBroker(heap_mb=1536, jvm_options=OPTIMIZING) as broker,
        Admin(broker.bootstrap, default_api_timeout_ms=180_000) as admin,
    ):
        names = [f"wide-{number}" for number in range(TOPICS)]
        for name in names:
            admin.create_topic(name, partitions=PARTITIONS, configs={"segment.index.bytes": "4096"})
        places = [TopicPartition(name, number) for name in names for number in range(PARTITIONS)]
        limit = time.monotonic() + SERVED_WITHIN_S
        while len(admin.end_offsets(places)) < len(places):
            if time.monotonic() > limit:
                raise TimeoutError("the broker does not serve all partitions")
            time.sleep(0.5)
        admin.reset_offsets(GROUP, dict.fromkeys(places, 0))
        yield broker.bootstrap


def lines_of(bootstrap: str) -> tuple[list[float], float]:
    """Seconds from each line to the next, and from the start to the first."""
    began = time.perf_counter()
    with subprocess.Popen(command(bootstrap, "--json"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        at = []
        for line in process.stdout:
            requested(len(json.loads(line)["partitions"]))
            at.append(time.perf_counter())
            if len(at) > LOOKS:
                break
        process.kill()
    return steps(at), at[0] - began


def screens_of(bootstrap: str) -> list[float]:
    """Seconds from each drawing in a terminal to the next."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, TERMINAL)
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"}
    with subprocess.Popen(command(bootstrap), stdout=theirs, env=environment) as process:
        os.close(theirs)
        at: list[float] = []
        drawn = b""
        while len(at) <= LOOKS:
            drawn += os.read(ours, 1 << 16)
            while CAPTION in drawn:
                drawn = drawn.partition(CAPTION)[2]
                at.append(time.perf_counter())
        process.kill()
    os.close(ours)
    return steps(at)


def command(bootstrap: str, *options: str) -> list[str]:
    """Looks as fast as it can."""
    typed = ["group", "lag", GROUP, "--watch", "--every", "0.1", "-b", bootstrap, *options]
    return [sys.executable, "-m", "kohort.cli.main", *typed]


def librdkafka(bootstrap: str) -> Callable[[], None]:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def look() -> None:
        (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
        places = found.result(60).topic_partitions
        ends = admin.list_offsets({place: OffsetSpec.latest() for place in places})
        requested(len([end.result(60).offset for end in ends.values()]))

    return look


def kafka_python(bootstrap: str) -> Callable[[], None]:
    from kafka import KafkaConsumer
    from kafka.admin import KafkaAdminClient

    admin, consumer = KafkaAdminClient(bootstrap_servers=bootstrap), KafkaConsumer(bootstrap_servers=bootstrap)

    def look() -> None:
        places = admin.list_group_offsets(GROUP)[GROUP]
        requested(len(consumer.end_offsets(list(places))))

    return look


def tool(bootstrap: str) -> None:
    reported = kafka_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        bootstrap,
        "--describe",
        "--group",
        GROUP,
    )
    requested(reported.count(f"\n{GROUP} "))


def requested(count: int) -> None:
    """Every client must report all partitions."""
    if count != TOPICS * PARTITIONS:
        raise AssertionError(f"{count} partitions, not {TOPICS * PARTITIONS}")


def steps(at: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(at)]


def middle(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]
