"""Time after the kill of the coordinator's broker until the group commits and reads that broker's partitions again.

There are three brokers and a group of three members. A bare socket measures the time until
another broker returns the group's offsets, and until every partition has a leader that serves. The rest of the time is
the client's. There may be no rebalance and no lost commit.
"""

import contextlib
import struct
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.report import OURS, Report
from kohort import Consumer, RebalanceHooks, TopicPartition
from kohort.coordinator_client import Assigned, Lost, Revoked
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.testing import RealCluster
from kohort.testing.plain_wire import send, string
from kohort.testing.real_broker import OPTIMIZING
from kohort.testing.topics import create_topic, leaders, serves

PARTITIONS = 6
MEMBERS = 3
RECORDS = 48_000
VALUE = b"x" * 100
PATIENCE_S = 120.0
TIMES = 3
QUIET_S = 4.0  # more than the 3 s between heartbeats, so that every member knows of a rebalance
_OFFSET_FETCH, _FIND_COORDINATOR = 9, 10


def run(report: Report) -> None:
    """The median of three, each on a cluster that is whole again."""
    with RealCluster(3, jvm_options=OPTIMIZING) as cluster:
        seen = []
        for _ in range(TIMES):
            seen.append(fail_over(cluster))
            cluster.start()
    by_commit = sorted(seen, key=lambda one: one.ours_commits_s - one.group_served_s)[TIMES // 2]
    report.add("coordinator killed: the group is served again", "bare socket", by_commit.group_served_s, "s")
    report.add("coordinator killed: the group is served again", OURS, by_commit.ours_commits_s, "s", "first commit")
    by_read = sorted(seen, key=lambda one: one.ours_reads_s - one.leaders_serve_s)[TIMES // 2]
    report.add("leader killed: its partitions are served again", "bare socket", by_read.leaders_serve_s, "s")
    report.add("leader killed: its partitions are served again", OURS, by_read.ours_reads_s, "s", "next record")
    report.add("coordinator killed: rebalances", OURS, sum(one.rebalances for one in seen), "rebalances")
    report.add("coordinator killed: commits lost", OURS, sum(one.lost_commits for one in seen), "commits")


@dataclass(frozen=True, slots=True)
class Failover:
    """The results of one kill. Times are seconds after it.

    `ours_reads_s`: until every partition of the dead broker was read again; 0.0 if it had none. `lost_commits`:
    partitions whose committed offset is behind an accepted one. `partitions_read`: the number of partitions that were
    read after the kill. `repeated`: slices after the kill that did not begin where
    the one before had ended. `errors`: of commits that were refused after the kill, and of members that died."""

    group_served_s: float
    leaders_serve_s: float
    ours_commits_s: float
    ours_reads_s: float
    rebalances: int
    lost_commits: int
    partitions_read: int
    repeated: int
    errors: tuple[str, ...]


@dataclass(slots=True)
class Watched:
    """The observations of the group's members, written by their threads.

    `refused`: commits that failed. `died`: the reason of a member's end. `rebalanced_at`: `time.monotonic()` of the
    last hook.
    """

    started: int = 0
    rebalances: int = 0
    rebalanced_at: float = 0.0
    repeated: int = 0
    following: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    reads: dict[int, list[float]] = field(default_factory=lambda: {one: [] for one in range(PARTITIONS)})
    commits: list[tuple[float, dict[TopicPartition, int]]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def rebalanced(self) -> None:
        """Called by every hook."""
        self.rebalances += 1
        self.rebalanced_at = time.monotonic()

    @property
    def settled(self) -> bool:
        """True if all members are there, everything is read and committed, and the group has been quiet for long."""
        quiet = time.monotonic() - self.rebalanced_at > QUIET_S
        return quiet and self.started == MEMBERS and all(self.reads.values()) and len(self.commits) > 3


def fail_over(cluster: RealCluster, protocol: GroupProtocol = "classic") -> Failover:
    """Kill the broker that coordinates a group of ours, as soon as it is no replica's only one, and watch. The broker
    stays dead."""
    await_whole(cluster)
    topic = f"failover-{uuid.uuid4().hex[:8]}"
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3)
    _fill(cluster.bootstrap, topic)
    watched = Watched()
    members = [
        threading.Thread(target=_member, args=(cluster.bootstrap, topic, protocol, watched)) for _ in range(MEMBERS)
    ]
    for member in members:
        member.start()
    try:
        _until(lambda: watched.settled, watched)
        victim = next(
            node for node in cluster.nodes if node.bootstrap == coordinator(cluster.nodes[0].bootstrap, topic)
        )
        witness = next(node.bootstrap for node in cluster.nodes if node is not victim)
        others = [node.bootstrap for node in cluster.nodes if node is not victim]
        led = [one for one, leader in enumerate(leaders(witness, topic)) if leader == victim.node_id]
        before = watched.rebalances, watched.repeated, len(watched.refused)  # rebalances of the members' joins
        victim.kill()
        killed = time.monotonic()
        probes = [_Probe(lambda: _serves_group(others, topic)), _Probe(lambda: serves(witness, topic, PARTITIONS))]
        for probe in probes:
            probe.start()
        _until(lambda: any(at > killed for at, _ in watched.commits), watched)
        _until(lambda: all(watched.reads[one][-1] > killed + 1.0 for one in range(PARTITIONS)), watched)
        for probe in probes:
            probe.join(PATIENCE_S)
        # The leaves of the members do not count.
        rebalances, refused = watched.rebalances - before[0], watched.refused[before[2] :]
    finally:
        watched.stop.set()
        for member in members:
            member.join(PATIENCE_S)
    group_served, leaders_serve = (probe.at - killed for probe in probes)
    return Failover(
        group_served_s=group_served,
        leaders_serve_s=leaders_serve,
        ours_commits_s=min(at for at, _ in watched.commits if at > killed) - killed,
        ours_reads_s=max((_back_at(watched.reads[one], killed) - killed for one in led), default=0.0),
        rebalances=rebalances,
        lost_commits=_lost(cluster.bootstrap, topic, watched),
        partitions_read=sum(reads[-1] > killed for reads in watched.reads.values()),
        repeated=watched.repeated - before[1],
        errors=(*watched.died, *refused),
    )


def coordinator(address: str, group: str) -> str:
    """The address of a group's coordinator, as the broker at `address` reports it; "" while it knows none."""
    response = send(address, _FIND_COORDINATOR, 0, string(group), timeout_s=5)
    code, _node, size = struct.unpack_from(">hih", response)
    host = response[8 : 8 + size].decode()
    (port,) = struct.unpack_from(">i", response, 8 + size)
    return "" if code else f"{host}:{port}"


def _serves_group(addresses: list[str], group: str) -> bool:
    """True if a broker that is alive coordinates the group, has its offsets and gives them out."""
    found = coordinator(addresses[0], group)
    if found not in addresses:
        return False
    requested = struct.pack(">i", 1) + string(group) + struct.pack(">ii", 1, 0)  # topic and group have one name here
    response = send(found, _OFFSET_FETCH, 1, string(group) + requested, timeout_s=5)
    (code,) = struct.unpack_from(">h", response, len(response) - 2)
    return not code


class _Probe(threading.Thread):
    """Repeats a request. `at` is the time of the first positive response."""

    def __init__(self, responded: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._responded = responded
        self.at = float("inf")

    def run(self) -> None:
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            with contextlib.suppress(OSError):
                if self._responded():
                    self.at = time.monotonic()
                    return
            time.sleep(0.01)


def _member(bootstrap: str, topic: str, protocol: GroupProtocol, watched: Watched) -> None:
    class Hooks(RebalanceHooks):
        def on_assigned(self, event: Assigned) -> None:
            watched.rebalanced()

        def on_revoked(self, event: Revoked) -> None:
            watched.rebalanced()

        def on_lost(self, event: Lost) -> None:
            watched.rebalanced()

    try:
        with Consumer(
            bootstrap,
            group=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=1_000,
            protocol=protocol,
        ) as consumer:
            consumer.subscribe([topic], hooks=Hooks())
            while not consumer.assignment:
                consumer.poll(0.1)
            watched.started += 1
            while not watched.stop.is_set():
                for columns in consumer.poll(0.1):
                    watched.reads[columns.partition].append(time.monotonic())
                    watched.repeated += columns.offsets[0] != watched.following[columns.partition]
                    watched.following[columns.partition] = columns.next_offset
                    consumer.commit_async(
                        columns.next_offsets, lambda offsets, error: _settled(watched, offsets, error)
                    )
                time.sleep(0.05)
    except Exception as error:
        watched.died.append(f"{type(error).__name__}: {error}")


def _settled(watched: Watched, offsets: object, error: Exception | None) -> None:
    if error is not None:
        watched.refused.append(str(error))
        return
    assert isinstance(offsets, dict)
    watched.commits.append((time.monotonic(), {one: to.offset for one, to in offsets.items()}))


def _lost(bootstrap: str, topic: str, watched: Watched) -> int:
    stored: dict[TopicPartition, int] = {}
    for _, offsets in watched.commits:
        stored |= {one: max(offset, stored.get(one, 0)) for one, offset in offsets.items()}
    with Consumer(bootstrap, group=topic) as consumer:
        found = consumer.committed(stored)
    return sum(1 for one, offset in stored.items() if (at := found[one]) is None or at.offset < offset)


def _back_at(reads: list[float], killed: float) -> float:
    """The end of the longest time without records since the kill."""
    after = [at for at in reads if at > killed]
    before = max((at for at in reads if at <= killed), default=killed)
    gaps = [(later - earlier, later) for earlier, later in zip([before, *after], after, strict=False)]
    return max(gaps)[1]


def _fill(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    # With small batches a fetch returns a few records, so that reading needs responses of the brokers.
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 16, "linger.ms": 5, "acks": 1})
    for number in range(RECORDS):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
        if number % 5_000 == 0:
            producer.flush()
    producer.flush()


def await_whole(cluster: RealCluster) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        topics = admin.list_topics(timeout=10).topics.values()
        if all(len(one.isrs) == len(one.replicas) for topic in topics for one in topic.partitions.values()):
            return
        time.sleep(0.2)
    raise TimeoutError("the cluster did not become whole again")


def _until(reached: Callable[[], bool], watched: Watched) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > limit or watched.died:
            raise TimeoutError(f"not reached; members that died: {watched.died}; refused commits: {watched.refused}")
        time.sleep(0.005)
