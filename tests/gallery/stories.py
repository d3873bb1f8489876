"""Published bugs of other clients, each as a story that runs on any client, with its rule and its result.

A story gets the scripted broker and a function that makes readers. It returns (the rule holds, the result). `since`
names the reports of users. Later versions may have fixed a bug, so `make gallery` runs the stories again.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.common.topic_partition import TopicPartition
from kohort.fastpath import encode
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.protocol.apis.offset_commit import OffsetCommitResponse
from kohort.testing.fake_broker import Alter, Answer, Call, Delay, FakeBroker, Hold
from tests.gallery.readers import TOPIC, Read, Reader, Wish, closing, poll_until

RECORDS = 20
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
INT32_MAX = 2**31 - 1
Make = Callable[[Wish], Reader]


class Seen(NamedTuple):
    """`holds` is None if the story cannot run on the client."""

    holds: bool | None
    said: str


@dataclass(frozen=True)
class Story:
    """`proves`: the behaviours that ours shows. `partitions` of the one topic, each with records from the start."""

    name: str
    since: str
    rule: str
    tell: Callable[[FakeBroker, Make], Seen]
    proves: tuple[str, ...] = ()
    partitions: int = 1
    records: int = RECORDS
    nodes: int = 1
    broker: Mapping[str, Any] = field(default_factory=dict)


def stage(story: Story) -> FakeBroker:
    """The broker as the story finds it."""
    broker = FakeBroker(topics={TOPIC: story.partitions}, nodes=story.nodes, **story.broker)
    for partition in range(story.partitions):
        for number in range(story.records):
            broker.produce(TOPIC, partition, [(None, b"%d" % number)])
    return broker


def everything(story_partitions: int = 1, records: int = RECORDS) -> Callable[[list[Read]], bool]:
    return lambda got: len({(each.partition, each.offset) for each in got}) >= story_partitions * records


# -- groups that never settle -----------------------------------------------------------------------------------------


def never_ending_rejoin(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap))) as reader:
        poll_until(reader, everything())
        before = len(broker.calls_of("JoinGroup"))
        broker.control("Heartbeat", lambda call: Answer(HeartbeatResponse(error_code=ILLEGAL_GENERATION)), times=1)
        broker.control("JoinGroup", lambda call: Delay(0.4), times=2)
        broker.produce(TOPIC, 0, [(None, b"late")])
        got = poll_until(reader, lambda got: any(each.offset == RECORDS for each in got))
        poll_until(reader, lambda got: False, 2.0)
        joins = len(broker.calls_of("JoinGroup")) - before
        read = any(each.offset == RECORDS for each in got)
    return Seen(
        read and joins <= 4, f"{joins} JoinGroups after one refused heartbeat; the next record was {_(read)}read"
    )


def rebalance_storm(broker: FakeBroker, make: Make) -> Seen:
    with ExitStack() as stack:
        first = stack.enter_context(closing(make(Wish(broker.bootstrap, cooperative=True))))
        poll_until(first, lambda got: broker.group("group").state.value == "Stable")
        second = stack.enter_context(closing(make(Wish(broker.bootstrap, cooperative=True))))
        end = time.monotonic() + 6
        while time.monotonic() < end:
            first.poll(0.05)
            second.poll(0.05)
        generations = broker.group("group").generation
        stable = broker.group("group").state.value == "Stable"
    return Seen(stable and generations <= 10, f"generation {generations} six seconds after a second member came")


# -- heartbeats and handlers ------------------------------------------------------------------------------------------


def slow_handler(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap, session_ms=1500, heartbeat_ms=200))) as reader:
        poll_until(reader, everything())
        member = set(broker.group("group").members)
        before = len(broker.calls_of("Heartbeat"))
        reader.work(3.0)
        beats = len(broker.calls_of("Heartbeat")) - before
        kept = bool(member) and set(broker.group("group").members) == member
    return Seen(
        kept,
        f"{beats} heartbeats while a handler worked for 3 s, twice the session timeout; "
        f"{'kept' if kept else 'expelled'}",
    )


def commit_while_rebalancing(broker: FakeBroker, make: Make) -> Seen:
    def refused(call: Call) -> Alter:
        def change(response: OffsetCommitResponse) -> OffsetCommitResponse:
            return response._replace(
                topics=tuple(
                    topic._replace(
                        partitions=tuple(entry._replace(error_code=REBALANCE_IN_PROGRESS) for entry in topic.partitions)
                    )
                    for topic in response.topics
                )
            )

        return Alter(change)

    with closing(make(Wish(broker.bootstrap, cooperative=True))) as reader:
        poll_until(reader, everything())
        laid = broker.control("OffsetCommit", refused, times=1)
        broker.control("Heartbeat", lambda call: Answer(HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS)), times=1)
        reader.commit_later()
        poll_until(reader, lambda got: TopicPartition(TOPIC, 0) in broker.group("group").offsets, 6.0)
        committed = broker.group("group").offsets.get(TopicPartition(TOPIC, 0))
    return Seen(
        laid.calls == 1 and committed is not None and committed.offset == RECORDS,
        f"{committed.offset if committed else 'nothing'} is committed after a refusal during a rebalance",
    )


def swallowed_hook(broker: FakeBroker, make: Make) -> Seen:
    raised: list[int] = []

    def boom() -> None:
        if not raised:
            raised.append(1)
            raise RuntimeError("the user's own")

    with closing(make(Wish(broker.bootstrap, assigned=boom))) as reader:
        try:
            poll_until(reader, everything(), 6.0)
        except Exception as error:  # each client has its own
            return Seen(
                "the user's own" in f"{error} {error.__cause__}", f"poll raised {type(error).__name__}: {error}"
            )
    return Seen(False, "the rebalance hook raised, and poll went on as if it had not")


def pause_forgotten(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap))) as reader:
        poll_until(reader, everything(2))
        reader.pause(0)
        poll_until(reader, lambda got: False, 1.0)
        generation = broker.group("group").generation
        broker.control("Heartbeat", lambda call: Answer(HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS)), times=1)
        poll_until(reader, lambda got: broker.group("group").generation > generation, 8.0)
        broker.produce(TOPIC, 0, [(None, b"while paused")])
        broker.produce(TOPIC, 1, [(None, b"as usual")])
        got = poll_until(reader, lambda got: any(each.partition == 1 for each in got), 6.0)
        got += poll_until(reader, lambda got: False, 1.0)
        leaked = [each for each in got if each.partition == 0]
    return Seen(not leaked, f"{len(leaked)} records of a paused partition after a rebalance that kept the partition")


# -- offsets and bytes ------------------------------------------------------------------------------------------------


def unheard_reset(broker: FakeBroker, make: Make) -> Seen:
    broker.commit("group", {TopicPartition(TOPIC, 0): 2})
    broker.trim(TOPIC, 0, 12)
    with closing(make(Wish(broker.bootstrap))) as reader:
        got = poll_until(reader, lambda got: bool(got), 8.0)
        gaps = getattr(reader, "gaps", [])
    start = got[0].offset if got else None
    return Seen(bool(gaps), f"read on at {start} instead of 2; {'reported: ' + str(gaps[0]) if gaps else 'no report'}")


def corrupted_bytes(broker: FakeBroker, make: Make) -> Seen:
    batch = bytearray(encode([(b"k", b"account=1000")]))
    batch[-2] ^= 0x01
    broker.append_raw(TOPIC, 0, bytes(batch))
    with closing(make(Wish(broker.bootstrap))) as reader:
        try:
            got = poll_until(reader, lambda got: bool(got), 4.0)
        except Exception as error:  # each client has its own
            return Seen(True, f"{type(error).__name__}: {str(error)[:90]}")
    if got:
        return Seen(False, f"gave {got[0].value!r} where b'account=1000' was written: the checksum was not checked")
    return Seen(False, "gave nothing, without an error")


def decompression_bomb(broker: FakeBroker, make: Make) -> Seen:
    from tests.fastpath.hostile_batches import HOSTILE

    title = "zeros in gzip"
    broker.append_raw(TOPIC, 0, HOSTILE[title]())
    before = _peak_mib()
    with closing(make(Wish(broker.bootstrap, request_timeout_ms=20_000))) as reader:
        try:
            got = poll_until(reader, lambda got: bool(got), 8.0)
            said = f"gave {len(got)} records"
        except Exception as error:  # each client has its own
            said = type(error).__name__
    grown = _peak_mib() - before
    return Seen(grown < 200, f"{title}: {grown:.0f} MiB more memory; {said}")


def _peak_mib() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def throttled_for_weeks(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap, heartbeat_ms=200))) as reader:
        poll_until(reader, everything())
        throttle = Alter(lambda response: response._replace(throttle_time_ms=INT32_MAX))
        laid = broker.control("Heartbeat", lambda call: throttle, times=1)
        poll_until(reader, lambda got: laid.calls > 0, 5.0)
        before = len(broker.calls_of("Heartbeat"))
        poll_until(reader, lambda got: False, 4.0)
        beats = len(broker.calls_of("Heartbeat")) - before
    return Seen(beats > 0, f"{beats} heartbeats in 4 s after one response with a throttle time of 24 days")


# -- health and causes ------------------------------------------------------------------------------------------------


def stuck_and_silent(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap, request_timeout_ms=1000, session_ms=1500, heartbeat_ms=200))) as reader:
        poll_until(reader, everything())
        poll_until(reader, lambda got: len(broker.calls_of("Heartbeat")) > 1, 5.0)
        silent = Hold()
        for api in ("Heartbeat", "FindCoordinator", "JoinGroup"):
            broker.control(api, lambda call: silent)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            reader.poll(0.2)
        health = getattr(getattr(reader, "consumer", None), "health", None)
        if health is None:
            return Seen(False, "polls go on without records; no public call shows that the group is unreachable")
        now = health()
        silent_s = now.last_heartbeat_s or 0.0
    told = now.reason or f"{now.state}, last heartbeat {silent_s:.1f} s ago"
    return Seen(not now.healthy or silent_s > 1.5, f"health(): {told}")


def why_did_it_rebalance(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap))) as reader:
        poll_until(reader, everything())
        timeline = getattr(getattr(reader, "consumer", None), "timeline", None)
        if timeline is None:
            return Seen(False, "no public call shows the cause or the duration of a rebalance")
        causes = [str(each.cause) for each in timeline()]
    return Seen(bool(causes), f"timeline(): {causes[0] if causes else 'nothing'}")


def poll_overstays(broker: FakeBroker, make: Make) -> Seen:
    silent = Hold()  # a single dropped response would test the next one
    broker.control("FindCoordinator", lambda call: silent)
    worst = 0.0
    with closing(make(Wish(broker.bootstrap, request_timeout_ms=6000))) as reader:
        for _unused in range(3):
            began = time.monotonic()
            reader.poll(0.5)
            worst = max(worst, time.monotonic() - began)
    return Seen(worst < 1.5, f"poll(0.5 s) took up to {worst:.1f} s without a response from a coordinator")


def close_hangs(broker: FakeBroker, make: Make) -> Seen:
    reader = make(Wish(broker.bootstrap, request_timeout_ms=30_000, session_ms=20_000))
    poll_until(reader, everything())
    silent = Hold()
    for api in ("LeaveGroup", "OffsetCommit", "Heartbeat", "Fetch"):
        broker.control(api, lambda call: silent)
    poll_until(reader, lambda got: False, 1.0)
    began = time.monotonic()
    closing_thread = threading.Thread(target=reader.close, daemon=True)
    closing_thread.start()
    closing_thread.join(12)
    took = time.monotonic() - began
    return Seen(
        took < 7, f"close took {'more than 12' if closing_thread.is_alive() else f'{took:.1f}'} s on a dead broker"
    )


# -- processes and instances ------------------------------------------------------------------------------------------


def used_after_fork(broker: FakeBroker, make: Make) -> Seen:
    with closing(make(Wish(broker.bootstrap))) as reader:
        poll_until(reader, everything())
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                reader.poll(0.5)
                outcome = b"returned"
            except BaseException as error:  # the child's whole life
                outcome = type(error).__name__.encode()
            os.write(write, outcome)
            os._exit(0)
        os.close(write)
        said = _of_child(child, read)
    return Seen(said == "ForkError", f"a forked child that polls: {said}")


def _of_child(child: int, read: int) -> str:
    end = time.monotonic() + 6
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            said = os.read(read, 100).decode()
            os.close(read)
            return said or "died"
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    return "hangs"


def two_of_one_name(broker: FakeBroker, make: Make) -> Seen:
    with ExitStack() as stack:
        older = stack.enter_context(closing(make(Wish(broker.bootstrap, instance="i-1"))))
        poll_until(older, everything())
        newer = stack.enter_context(closing(make(Wish(broker.bootstrap, instance="i-1"))))
        told = ""
        end = time.monotonic() + 6
        while time.monotonic() < end and not told:
            try:
                older.poll(0.1)
            except Exception as error:  # each client has its own
                told = type(error).__name__
            newer.poll(0.1)
        joins = len(broker.calls_of("JoinGroup"))
    return Seen(bool(told) and joins <= 6, f"the older got {told or 'no error'}; {joins} JoinGroups")


def _(done: bool) -> str:
    return "" if done else "never "


STORIES: tuple[Story, ...] = (
    Story(
        "a refused heartbeat ends in rejoining for ever",
        "aiokafka#727",
        "one refusal, one rejoin, and reading goes on",
        never_ending_rejoin,
        ("B-21",),
    ),
    Story(
        "a second cooperative member starts a storm of rebalances",
        "confluent-kafka-python#1090",
        "a handful of generations, then Stable",
        rebalance_storm,
        partitions=4,
    ),
    Story(
        "a slow handler is expelled",
        "aiokafka#678, aiokafka#700",
        "heartbeats do not depend on the user's code",
        slow_handler,
    ),
    Story(
        "a commit during a rebalance is lost",
        "arroyo#168, librdkafka#4908, quix-streams#705",
        "the commit is kept, and sent again in the next generation",
        commit_while_rebalancing,
    ),
    Story(
        "an exception in a rebalance hook disappears",
        "aiokafka#335",
        "poll raises it",
        swallowed_hook,
        ("B-43",),
    ),
    Story(
        "pause is forgotten in a rebalance",
        "KAFKA-13425, quix-streams#1146",
        "a kept partition stays paused",
        pause_forgotten,
        partitions=2,
    ),
    Story(
        "offsets are reset without a report",
        "librdkafka#521, PostHog#20283",
        "a hook gets the skipped offsets",
        unheard_reset,
        ("B-40",),
    ),
    Story(
        "corrupt records are returned",
        "librdkafka: check.crcs is off by default",
        "an error with topic, partition and offset",
        corrupted_bytes,
        ("B-09",),
        records=0,
    ),
    Story(
        "a small batch takes all memory",
        "KAFKA-14063",
        "refused at a limit, with bounded memory",
        decompression_bomb,
        ("B-13",),
        records=0,
    ),
    Story(
        "a throttle time of 24 days stops heartbeats",
        "KIP-219",
        "the wait is limited and heartbeats go on",
        throttled_for_weeks,
        ("B-46",),
    ),
    Story(
        "an unreachable group is not visible",
        "aiokafka#1154, librdkafka#1605",
        "health() shows that the membership is in doubt",
        stuck_and_silent,
        ("B-24",),
    ),
    Story(
        "a rebalance has no visible cause",
        "librdkafka#3790, apache/kafka#22270",
        "every rebalance has its cause",
        why_did_it_rebalance,
    ),
    Story(
        "poll takes longer than its timeout",
        "kafka-python#1985, kafka-python#2459",
        "poll returns at its timeout",
        poll_overstays,
    ),
    Story(
        "close hangs on a dead broker",
        "librdkafka#1605, aiokafka#575",
        "close ends within its timeout",
        close_hangs,
    ),
    Story(
        "a forked child hangs or crashes",
        "confluent-kafka-python#1797, librdkafka#2374",
        "ForkError in the child",
        used_after_fork,
        ("B-35",),
    ),
    Story(
        "two processes of one instance id fence each other in turns",
        "librdkafka#3437, confluent-kafka-go#494",
        "the older gets one error that it is fenced",
        two_of_one_name,
        ("B-42",),
    ),
)
