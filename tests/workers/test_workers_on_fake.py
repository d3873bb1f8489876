"""`workers.run` and `run_async` on the fake broker: share members and consumers, failures, stops, rebalances."""

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from kohort import AsyncConsumer, AsyncShareConsumer, Consumer, RebalanceHooks, Revoked, ShareConsumer, TopicPartition
from kohort.fastpath import Record
from kohort.network.errors import ConcurrentUseError, ConfigError, IllegalState, UnknownTopic
from kohort.protocol.apis.describe_configs import DescribeConfigsResourceResult
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Hold, OffsetState
from kohort.workers import HandlerFailed, Retry, RunTotals, run, run_async
from kohort.workers.keyed_jobs import KeyedJobs
from kohort.workers.run import _Handlers
from kohort.workers.run_plan import WAIT_S
from kohort.workers.run_state import RunState
from kohort.workers.share_jobs import ShareJobs
from kohort.workers.turns import KeyedTurn

PATIENCE_S = 60.0
GROUP, TOPIC, DEAD = "jobs", "work", "work.dead"
P0 = TopicPartition(TOPIC, 0)


class Odd(Exception):
    def __repr__(self) -> str:
        return str(self)


QUICK = Retry(attempts=3, delay_s=0.01)
WATCHES: list[tuple[threading.Event, threading.Thread]] = []


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={TOPIC: 1, DEAD: 1}, versions={"DescribeConfigs": (1, 4)}) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        yield broker
        while WATCHES:  # a run that raises leaves its own
            ended, thread = WATCHES.pop()
            ended.set()
            thread.join()
        assert broker.faults == []


def fill(fake: FakeBroker, count: int, keys: int = 0) -> None:
    fake.produce(TOPIC, 0, [(b"%d" % (i % keys) if keys else None, b"%d" % i) for i in range(count)])


def share(fake: FakeBroker, **settings: Any) -> ShareConsumer:
    consumer = ShareConsumer(fake.bootstrap, group=GROUP, fetch_max_wait_ms=50, **settings)
    consumer.subscribe([TOPIC])
    return consumer


def consumer_of(fake: FakeBroker, hooks: RebalanceHooks | None = None, **settings: Any) -> Consumer:
    consumer = Consumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest", **settings)
    consumer.subscribe([TOPIC], hooks=hooks)
    return consumer


def stop_when(condition: Callable[[], bool], stop: threading.Event) -> None:
    """Set `stop` on another thread once the condition holds."""
    ended = threading.Event()

    def watch() -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < until:
            if ended.wait(0.005):
                return
        stop.set()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    WATCHES.append((ended, thread))


def settled(fake: FakeBroker) -> bool:
    return fake.share_states(GROUP, TOPIC, 0) == (fake.end_offset(TOPIC, 0), {})


def committed(fake: FakeBroker) -> int | None:
    with Consumer(fake.bootstrap, group=GROUP) as reader:
        found = reader.committed([P0])[P0]
        return None if found is None else found.offset


def dead_letters(fake: FakeBroker) -> list[Record]:
    with Consumer(fake.bootstrap) as reader:
        reader.assign([TopicPartition(DEAD, 0)])
        reader.seek_to_beginning()
        return [record for columns in reader.poll(PATIENCE_S) for record in columns]


@pytest.mark.proves("W-01")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_every_record_is_handled_once_and_accepted(fake: FakeBroker, mode: str) -> None:
    fill(fake, 300)
    seen: Counter[int] = Counter()
    stop = threading.Event()
    with share(fake, acknowledgement_mode=mode, max_poll_records=20) as consumer:
        stop_when(lambda: sum(seen.values()) >= 300, stop)
        totals = run(consumer, lambda record: seen.update([record.offset]), concurrency=8, stop=stop)
        assert consumer.commit() == {}
    assert seen == Counter(range(300))
    assert totals == RunTotals(done=300)
    assert settled(fake)


@pytest.mark.proves("W-01", "SH-77")
def test_a_lock_is_renewed_while_the_handler_works(fake: FakeBroker) -> None:
    fake.configure_group(GROUP, {"share.record.lock.duration.ms": "800"})
    fill(fake, 3)
    begun, stop, stolen = threading.Event(), threading.Event(), list[object]()

    def slow(_record: Record) -> None:
        begun.set()
        time.sleep(1.8)  # more than two locks

    def steal() -> None:
        begun.wait(PATIENCE_S)
        with share(fake) as other:
            stolen.extend(other.poll(1.5))
        stop.set()

    thief = threading.Thread(target=steal)
    with share(fake) as consumer:
        thief.start()
        totals = run(consumer, slow, concurrency=3, stop=stop)
        thief.join()
    assert stolen == []
    assert totals == RunTotals(done=3)
    assert settled(fake)


@pytest.mark.proves("W-01")
def test_records_beyond_the_busy_handlers_are_left_to_other_members(fake: FakeBroker) -> None:
    for _batch in range(50):
        fill(fake, 10)
    started, release, stop = threading.Semaphore(0), threading.Event(), threading.Event()

    def acquired() -> int:
        return sum(state is OffsetState.ACQUIRED for state, _count in fake.share_states(GROUP, TOPIC, 0)[1].values())

    def handler(_record: Record) -> None:
        started.release()
        release.wait(PATIENCE_S)

    def watch() -> None:
        for _ in range(2):
            started.acquire(timeout=PATIENCE_S)
        time.sleep(0.5)  # ten polls
        held.append(acquired())
        release.set()
        stop_when(lambda: settled(fake), stop)

    held: list[int] = []
    threading.Thread(target=watch, daemon=True).start()
    with share(fake, max_poll_records=10) as consumer:
        assert run(consumer, handler, concurrency=2, stop=stop) == RunTotals(done=500)
        fill(fake, 5)
        assert sum(map(len, consumer.poll(PATIENCE_S))) == 5  # it is not paused after the run
    assert held <= [30]  # of a poll, of the request under way, and of the one after the last wait


@pytest.mark.proves("W-01")
def test_a_share_consumer_that_a_run_has_paused_is_not_paused_after_it(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fake, 10)
    stop = threading.Event()
    with share(fake) as consumer:
        pause = consumer.pause

        def pause_and_stop() -> None:
            pause()
            stop.set()

        monkeypatch.setattr(consumer, "pause", pause_and_stop)
        assert run(consumer, lambda _record: stop.wait(PATIENCE_S), concurrency=1, stop=stop).done < 10
        assert consumer.poll(PATIENCE_S)


@pytest.mark.proves("W-02")
def test_a_failed_record_comes_again_with_the_next_delivery_count(fake: FakeBroker) -> None:
    fill(fake, 4)
    attempts: Counter[int] = Counter()
    stop = threading.Event()

    def handler(record: Record) -> None:
        attempts[record.offset] += 1
        if record.offset == 2 and attempts[2] < 3:
            raise ValueError("not yet")

    with share(fake) as consumer:
        stop_when(lambda: settled(fake), stop)
        totals = run(consumer, handler, retry=Retry(delay_s=0.05), stop=stop)
    assert attempts == {0: 1, 1: 1, 2: 3, 3: 1}
    assert totals == RunTotals(done=4, retries=2)


@pytest.mark.proves("W-03")
@pytest.mark.parametrize("attempts", [2, 9])
def test_a_record_is_rejected_after_its_dead_letter_is_in_the_log(fake: FakeBroker, attempts: int) -> None:
    """With nine attempts the delivery limit of the group, which is five, comes first."""
    fake.produce(TOPIC, 0, [(b"k", b"v", 1, [("h", b"1")])])
    stop = threading.Event()
    rejected_without: list[int] = []

    def look(call: Any) -> None:
        types = [
            kind
            for topic in call.request.topics
            for place in topic.partitions
            for batch in place.acknowledgement_batches
            for kind in batch.acknowledge_types
        ]
        if 3 in types and fake.end_offset(DEAD, 0) == 0:
            rejected_without.append(1)

    def handler(record: Record) -> None:
        raise ValueError("bad")

    fake.control("ShareFetch", look)
    fake.control("ShareAcknowledge", look)
    with share(fake) as consumer:
        stop_when(lambda: settled(fake), stop)
        totals = run(consumer, handler, retry=QUICK._replace(attempts=attempts), dead_letter=DEAD, stop=stop)
    assert totals == RunTotals(retries=min(attempts, 5) - 1, dead_letters=1)
    assert rejected_without == []
    (letter,) = dead_letters(fake)
    assert (letter.key, letter.value) == (b"k", b"v")
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    assert headers["__dlq.errors.offset"] == b"0"
    assert headers["__dlq.errors.group"] == GROUP.encode()
    assert headers["__dlq.errors.delivery.count"] == b"%d" % min(attempts, 5)
    assert headers["__dlq.errors.message"] == b"ValueError('bad')"


@pytest.mark.proves("W-03")
def test_an_error_with_any_text_has_a_dead_letter(fake: FakeBroker) -> None:
    """The text of an error often has the record's value, and would make the dead letter larger than any record."""
    fill(fake, 2)
    stop = threading.Event()

    def handler(record: Record) -> None:
        raise Odd("\x80" * 300_000 if record.offset == 0 else "\udc80")

    with consumer_of(fake) as consumer:
        stop_when(lambda: fake.end_offset(DEAD, 0) == 2, stop)
        totals = run(consumer, handler, retry=Retry(attempts=1), dead_letter=DEAD, stop=stop, stop_timeout_s=0.1)
    assert totals.dead_letters == 2
    assert max(len(dict(one.headers)["__dlq.errors.message"] or b"") for one in dead_letters(fake)) < 1_100


@pytest.mark.proves("W-06")
def test_sigterm_waits_for_running_handlers_and_releases_the_others(fake: FakeBroker) -> None:
    fill(fake, 20)
    begun = threading.Semaphore(0)
    seen: list[int] = []

    def handler(record: Record) -> None:
        if record.offset < 2:
            begun.release()
            begun_by_both.wait(PATIENCE_S)
            time.sleep(0.2)
        seen.append(record.offset)

    begun_by_both = threading.Event()

    def end() -> None:
        begun.acquire()
        begun.acquire()
        os.kill(os.getpid(), signal.SIGTERM)
        begun_by_both.set()

    former = signal.getsignal(signal.SIGTERM)
    with share(fake) as consumer:
        threading.Thread(target=end, daemon=True).start()
        totals = run(consumer, handler, concurrency=2)
        start, states = fake.share_states(GROUP, TOPIC, 0)
    assert signal.getsignal(signal.SIGTERM) is former
    assert totals.done == len(seen) == start
    assert {0, 1} <= set(seen)
    assert set(states.values()) == {(OffsetState.AVAILABLE, 1)}


def test_a_handler_of_sigterm_that_python_did_not_set_ends_no_run(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, set_handler, stop = signal.getsignal(signal.SIGTERM), signal.signal, threading.Event()
    stop.set()
    with share(fake) as consumer, monkeypatch.context() as patch:
        patch.setattr(signal, "signal", lambda number, handler: (set_handler(number, handler), None)[1])
        try:
            assert run(consumer, print, stop=stop) == RunTotals()
        finally:
            set_handler(signal.SIGTERM, former)


class Interrupted(threading.Event):
    """Another SIGTERM comes while it is being set."""

    def __init__(self) -> None:
        super().__init__()
        self._setting, self._signals = threading.Lock(), 1

    def set(self) -> None:
        assert self._setting.acquire(timeout=5), "the signal's handler waits for the code that it has interrupted"
        if self._signals:
            self._signals -= 1
            os.kill(os.getpid(), signal.SIGTERM)
        super().set()
        self._setting.release()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.proves("W-06")
def test_a_second_sigterm_during_the_first_one_is_harmless(fake: FakeBroker) -> None:
    fill(fake, 1)
    with share(fake) as consumer:
        assert run(consumer, lambda _record: os.kill(os.getpid(), signal.SIGTERM), stop=Interrupted()).done == 1


async def awaited(*_given: object) -> None:
    """A handler for `run_async` only."""


@pytest.mark.proves("W-05")
def test_a_coroutine_that_a_handler_returns_ends_the_run_before_its_record(fake: FakeBroker) -> None:
    fill(fake, 9)

    def handler(record: Record) -> object:
        return awaited(record) if record.offset >= 3 else None

    stop = threading.Event()
    with consumer_of(fake) as consumer:
        stop_when(lambda: committed(fake) == 9, stop)
        for _ in range(2):
            with pytest.raises(TypeError, match="handler is a plain function: a coroutine function is not awaited"):
                run(consumer, handler, retry=QUICK, dead_letter=DEAD, stop=stop)
        stop.set()
    assert committed(fake) == 3
    assert fake.end_offset(DEAD, 0) == 0


@pytest.mark.proves("W-08")
def test_bad_arguments_are_refused(fake: FakeBroker) -> None:
    def own_dead_letters(_call: object) -> Alter:
        def change(response: Any) -> Any:
            (one,) = response.results
            name = "errors.deadletterqueue.topic.name"
            added = DescribeConfigsResourceResult(name=name, value="dlq.work", config_source=8)
            return response._replace(results=(one._replace(configs=(*one.configs, added)),))

        return Alter(change)

    stopped = threading.Event()
    stopped.set()
    with share(fake) as consumer:
        with pytest.raises(UnknownTopic, match="nowhere"):
            run(consumer, print, dead_letter="nowhere")
        with pytest.raises(ValueError, match="concurrency"):
            run(consumer, print, concurrency=0)
        with pytest.raises(TypeError, match="the handler is a function of a record, not None"):
            run(consumer, None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="handler is a plain function: a coroutine function is not awaited"):
            run(consumer, awaited, stop=stopped)
        with pytest.raises(TypeError, match=r"retry is a workers\.Retry"):
            run(consumer, print, retry=3)  # type: ignore[arg-type]
        no_numbers: tuple[dict[str, Any], ...] = (
            {"attempts": 0},
            {"delay_s": -1.0},
            {"delay_s": math.nan},
            {"delay_s": math.inf},
            {"factor": math.nan},
            {"max_delay_s": math.nan},
        )
        for given in no_numbers:
            with pytest.raises(ValueError, match="attempts is 1 or more"):
                run(consumer, print, retry=Retry(**given), stop=stopped)
        no_types: tuple[dict[str, Any], ...] = (
            {"attempts": "3"},
            {"delay_s": "1"},
            {"no_retry": [ValueError]},
            {"no_retry": ("ValueError",)},
        )
        for given in no_types:
            with pytest.raises(TypeError):
                run(consumer, print, retry=Retry(**given), stop=stopped)
        least = Retry(attempts=1, delay_s=0.0, factor=0.0, max_delay_s=0.0)
        assert run(consumer, print, retry=least, concurrency=1, max_held=1, stop=stopped).done == 0
        fake.control("DescribeConfigs", own_dead_letters)
        with pytest.raises(ConfigError, match=r"dlq\.work"):
            run(consumer, print, dead_letter=DEAD)
    with consumer_of(fake, enable_auto_commit=True) as auto, pytest.raises(ConfigError, match="commit"):
        run(auto, print)
    no_times: tuple[Any, ...] = ("30", math.nan, -1.0)
    for no_time in no_times:
        with consumer_of(fake) as keyed, pytest.raises((TypeError, ValueError)):
            run(keyed, print, stop_timeout_s=no_time, stop=stopped)
    with Consumer(fake.bootstrap) as alone:
        alone.assign([P0])
        with pytest.raises(ConfigError, match="offsets of a group"):
            run(alone, print, stop=stopped)
        with pytest.raises(TypeError, match="is of AsyncConsumer or AsyncShareConsumer, not of Consumer"):
            asyncio.run(run_async(alone, awaited))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is of Consumer or ShareConsumer, not of NoneType"):
        run(None, print)  # type: ignore[arg-type]


def test_a_dead_letter_topic_that_the_run_reads_is_refused(fake: FakeBroker) -> None:
    """A record that always fails would come again for ever."""
    stopped = threading.Event()
    stopped.set()
    with ShareConsumer(fake.bootstrap, group=GROUP) as both:
        both.subscribe([TOPIC, DEAD])
        with pytest.raises(ConfigError, match="the consumer reads the topic of its dead letters"):
            run(both, print, dead_letter=DEAD, stop=stopped)
    with Consumer(fake.bootstrap, group=GROUP) as reader:
        ways: tuple[Callable[[], object], ...] = (
            lambda: reader.subscribe([TOPIC, DEAD]),
            lambda: reader.subscribe(pattern="work.*"),
            lambda: reader.assign([P0, TopicPartition(DEAD, 0)]),
        )
        for subscribe in ways:
            subscribe()
            with pytest.raises(ConfigError, match="the consumer reads the topic of its dead letters"):
                run(reader, print, dead_letter=DEAD, stop=stopped)
            reader.unsubscribe()
        reader.subscribe(pattern="wor[k]")
        run(reader, print, dead_letter=DEAD, stop=stopped)


# ---------------------------------------------------------------------------------------------- consumers


@pytest.mark.proves("W-04", "W-05")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_runs_by_key_and_commits_what_is_done(fake: FakeBroker, protocol: str) -> None:
    fill(fake, 200, keys=7)
    order: dict[bytes | None, list[int]] = defaultdict(list)
    running: set[bytes | None] = set()
    clashes: list[bytes | None] = []
    stop = threading.Event()

    def handler(record: Record) -> None:
        if record.key in running:
            clashes.append(record.key)
        running.add(record.key)
        time.sleep(0.001)
        order[record.key].append(record.offset)
        running.discard(record.key)
        if sum(map(len, order.values())) == 200:
            stop.set()

    with consumer_of(fake, protocol=protocol) as consumer:
        totals = run(consumer, handler, concurrency=10, stop=stop)
    assert totals == RunTotals(done=200)
    assert clashes == []
    assert all(offsets == sorted(offsets) for offsets in order.values())
    assert committed(fake) == 200


@pytest.mark.proves("W-05")
def test_a_failure_without_dead_letters_ends_the_run_before_its_record(fake: FakeBroker) -> None:
    fill(fake, 50)
    seen: list[int] = []

    def handler(record: Record) -> None:
        if record.offset == 20:
            raise ValueError("bad")
        seen.append(record.offset)

    with consumer_of(fake) as consumer, pytest.raises(HandlerFailed) as caught:
        run(consumer, handler, retry=QUICK, concurrency=4)
    assert caught.value.place["offset"] == 20
    assert isinstance(caught.value.__cause__, ValueError)
    assert committed(fake) == 20


@pytest.mark.proves("W-05", "W-06")
def test_the_next_run_of_a_consumer_begins_with_the_record_that_failed(fake: FakeBroker) -> None:
    fill(fake, 50)
    seen, stop = list[int](), threading.Event()

    def failing(record: Record) -> None:
        if record.offset == 20:
            raise ValueError("bad")

    def handler(record: Record) -> None:
        seen.append(record.offset)
        if record.offset == 49:
            stop.set()

    with consumer_of(fake) as consumer:
        with pytest.raises(HandlerFailed):
            run(consumer, failing, retry=Retry(attempts=1), concurrency=4)
        assert consumer.position(P0) == 20
        run(consumer, handler, concurrency=1, stop=stop)
    assert seen == list(range(20, 50))
    assert committed(fake) == 50


@pytest.mark.proves("W-06")
def test_a_consumer_that_a_run_has_paused_reads_on_after_it(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(fake, 50)
    seen, stop, again = Counter[int](), threading.Event(), threading.Event()

    def handler(record: Record) -> None:
        stop.wait(PATIENCE_S)
        seen[record.offset] += 1
        if len(seen) == 50:
            again.set()

    with consumer_of(fake) as consumer:
        pause = consumer.pause

        def pause_and_stop(partitions: Any) -> None:
            pause(partitions)
            stop.set()

        monkeypatch.setattr(consumer, "pause", pause_and_stop)
        assert run(consumer, handler, concurrency=1, stop=stop).done < 50
        assert consumer.paused() == {}
        run(consumer, handler, stop=again)
    assert seen == Counter(range(50))


@pytest.mark.proves("W-06", "W-07")
@pytest.mark.parametrize("stops", [False, True])
def test_a_paused_partition_that_an_eager_rebalance_returns_is_read_on(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    """`stops`: the run ends while the partition is not assigned, and another one goes on."""
    fill(fake, 50)
    seen, paused, stop, held = Counter[int](), threading.Event(), threading.Event(), Hold()

    def handler(record: Record) -> None:
        paused.wait(PATIENCE_S)
        seen[record.offset] += 1

    with consumer_of(fake, assignors=["range"]) as consumer:
        pause, poll = consumer.pause, consumer.poll

        def pause_and_join(partitions: Any) -> None:
            pause(partitions)
            if not paused.is_set():
                fake.control("JoinGroup", lambda _call: held)
                consumer.enforce_rebalance()
                paused.set()

        def is_revoked() -> bool:
            return paused.is_set() and not held.released.is_set() and not consumer.assignment

        def poll_before_join(timeout_s: float) -> Any:
            if is_revoked():
                held.release()
            polled = poll(timeout_s)
            if stops and is_revoked():
                stop.set()
            return polled

        monkeypatch.setattr(consumer, "pause", pause_and_join)
        monkeypatch.setattr(consumer, "poll", poll_before_join)
        stop_when(lambda: len(seen) == 50, stop)
        run(consumer, handler, concurrency=1, stop=stop)
        if stops:
            assert len(seen) < 50
            stop.clear()
            held.release()
            run(consumer, handler, concurrency=1, stop=stop)
    assert len(seen) == 50


@pytest.mark.proves("W-05", "W-06")
def test_a_run_that_ends_by_a_failure_settles_the_other_handlers(fake: FakeBroker) -> None:
    fill(fake, 10)
    begun, ended = threading.Barrier(10), list[int]()

    def handler(record: Record) -> None:
        begun.wait(PATIENCE_S)
        if record.offset in (5, 6):
            raise ValueError("bad")
        if record.offset == 9:
            time.sleep(0.5)
        ended.append(record.offset)

    with consumer_of(fake) as consumer, pytest.raises(HandlerFailed) as caught:
        run(consumer, handler, retry=Retry(attempts=1), concurrency=10)
    assert caught.value.place["offset"] in (5, 6)
    assert sorted(ended) == [0, 1, 2, 3, 4, 7, 8, 9]
    assert committed(fake) == 5


@pytest.mark.proves("W-05", "W-06")
def test_a_failure_after_the_stop_is_raised_once_the_others_are_committed(fake: FakeBroker) -> None:
    fill(fake, 4)
    stop, begun = threading.Event(), threading.Barrier(4)

    def handler(record: Record) -> None:
        begun.wait(PATIENCE_S)
        stop.set()
        time.sleep(0.3 + 0.1 * record.offset)  # until the run ends
        if record.offset == 1:
            raise ValueError("bad")

    with consumer_of(fake) as consumer, pytest.raises(HandlerFailed) as caught:
        run(consumer, handler, retry=Retry(attempts=1), concurrency=4, stop=stop)
    assert caught.value.place["offset"] == 1
    assert committed(fake) == 1


@pytest.mark.proves("W-02", "W-03")
def test_a_dead_letter_lets_the_commit_pass(fake: FakeBroker) -> None:
    fill(fake, 30, keys=3)
    attempts: Counter[int] = Counter()
    stop = threading.Event()

    def handler(record: Record) -> None:
        attempts[record.offset] += 1
        if record.offset in (4, 11):
            raise ValueError("bad")

    with consumer_of(fake) as consumer:
        stop_when(lambda: fake.end_offset(DEAD, 0) == 2 and len(attempts) == 30, stop)
        totals = run(consumer, handler, retry=QUICK, dead_letter=DEAD, stop=stop)
    assert totals == RunTotals(done=28, retries=4, dead_letters=2)
    assert attempts[4] == attempts[11] == 3
    assert committed(fake) == 30


@pytest.mark.proves("W-07")
def test_revoked_partitions_are_finished_and_committed_before_they_go() -> None:
    revoked: list[frozenset[TopicPartition]] = []

    class Hooks(RebalanceHooks):
        def on_revoked(self, event: Revoked) -> None:
            revoked.append(event.partitions)

    with FakeBroker(topics={TOPIC: 2}) as fake:
        for partition in (0, 1):
            fake.produce(TOPIC, partition, [(None, b"%d" % i) for i in range(100)])
        seen: Counter[tuple[int, int]] = Counter()
        stop = threading.Event()

        def handler(record: Record) -> None:
            time.sleep(0.02)
            seen[record.partition, record.offset] += 1

        def work(hooks: RebalanceHooks | None) -> None:
            with consumer_of(fake, hooks, assignors=["cooperative-sticky"], heartbeat_interval_ms=50) as consumer:
                run(consumer, handler, concurrency=2, stop=stop)

        first = threading.Thread(target=work, args=[Hooks()])
        first.start()
        stop_when(lambda: len(seen) == 200, stop)
        while len(seen) < 20:
            time.sleep(0.005)
        second = threading.Thread(target=work, args=[None])
        second.start()
        first.join(PATIENCE_S)
        second.join(PATIENCE_S)
        assert len(seen) == 200
        assert set(seen.values()) == {1}
        assert revoked[0] in ({TopicPartition(TOPIC, 0)}, {TopicPartition(TOPIC, 1)})


@pytest.mark.proves("W-05")
def test_a_failure_during_a_revocation_leaves_out_no_hook_and_no_commit(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    revoked: list[frozenset[TopicPartition]] = []
    begun, revoking, stop = threading.Barrier(3), threading.Event(), threading.Event()
    close = KeyedJobs.close

    class Hooks(RebalanceHooks):
        def on_revoked(self, event: Revoked) -> None:
            revoked.append(event.partitions)

    def closed(jobs: KeyedJobs, partitions: frozenset[TopicPartition]) -> None:
        close(jobs, partitions)
        revoking.set()

    def handler(record: Record) -> None:
        begun.wait(PATIENCE_S)
        revoking.wait(PATIENCE_S)
        if record.offset == 1:
            raise ValueError("bad")

    def other() -> None:
        begun.wait(PATIENCE_S)
        with consumer_of(fake) as consumer:
            while not stop.is_set():
                consumer.poll(0.05)

    fill(fake, 2)
    monkeypatch.setattr(KeyedJobs, "close", closed)
    second = threading.Thread(target=other)
    second.start()
    with consumer_of(fake, Hooks(), heartbeat_interval_ms=50) as consumer:
        with pytest.raises(HandlerFailed, match="bad"):
            run(consumer, handler, concurrency=2, retry=Retry(attempts=1))
        assert revoked == [{P0}]
        assert committed(fake) == 1
        stop.set()
    second.join()


@pytest.mark.proves("W-05")
@pytest.mark.parametrize("shrinks", [False, True])
def test_records_below_the_committed_offset_are_committed_anew(fake: FakeBroker, shrinks: bool) -> None:
    """A caller has sought back to replay the log, or the log has lost its end."""
    for _ in range(5):
        fill(fake, 10)
    fake.commit(GROUP, {P0: 40})
    if shrinks:
        fake.truncate(TOPIC, 0, 20)
    seen, stop = Counter[int](), threading.Event()

    def handler(record: Record) -> None:
        seen[record.offset] += 1
        if record.offset == 2:
            time.sleep(1.2)  # commits are sent each second

    with consumer_of(fake) as consumer:
        while not (consumer.assignment or shrinks):
            consumer.poll(0.1)
        if not shrinks:
            consumer.seek(P0, 0)
        stop_when(lambda: len(seen) == fake.end_offset(TOPIC, 0), stop)
        run(consumer, handler, concurrency=1, stop=stop)
    assert committed(fake) == fake.end_offset(TOPIC, 0)


@pytest.mark.proves("W-01", "W-06")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_an_interrupt_between_a_poll_and_its_jobs_accepts_no_record(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    fill(fake, 9)
    seen, stop = Counter[int](), threading.Event()

    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    with share(fake, acknowledgement_mode=mode) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(consumer, "hold", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(consumer, lambda record: seen.update([record.offset]), stop=stop)
        assert fake.share_states(GROUP, TOPIC, 0)[0] == len(seen) == 0
        stop_when(lambda: settled(fake), stop)
        assert run(consumer, lambda record: seen.update([record.offset]), stop=stop).done == 9
    assert seen == Counter(range(9))


@pytest.mark.proves("W-05", "W-06")
def test_the_next_run_has_the_records_of_a_poll_behind_which_an_interrupt_came(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fake, 9)
    seen, stop = Counter[int](), threading.Event()

    def interrupted(_jobs: KeyedJobs, polled: Any) -> None:
        if polled:
            patch.undo()
            raise KeyboardInterrupt

    with consumer_of(fake) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(KeyedJobs, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(consumer, lambda record: seen.update([record.offset]), stop=stop)
        stop_when(lambda: len(seen) == 9, stop)
        run(consumer, lambda record: seen.update([record.offset]), stop=stop)
    assert seen == Counter(range(9))
    assert committed(fake) == 9


@pytest.mark.proves("W-05", "W-06")
def test_the_next_run_has_the_records_of_a_run_whose_end_an_interrupt_cut_off(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a second Ctrl-C while handlers end. The next run committed offsets behind records that no handler had."""
    fill(fake, 9)
    seen, stop, goes_on = Counter[int](), threading.Event(), threading.Event()

    def handler(record: Record) -> None:
        stop.set()
        goes_on.wait(PATIENCE_S)
        seen[record.offset] += 1

    def interrupted(*_given: object) -> None:
        goes_on.set()
        raise KeyboardInterrupt

    with consumer_of(fake) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(RunState, "stop", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(consumer, handler, concurrency=1, stop=stop)
        stop.clear()
        stop_when(lambda: len(seen) == 9, stop)
        run(consumer, lambda record: seen.update([record.offset]), stop=stop)
    assert seen.keys() == set(range(9))
    assert committed(fake) == 9


@pytest.mark.proves("W-06")
def test_a_run_whose_end_an_interrupt_cut_off_releases_the_records_without_a_handler(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fake, 9)
    stop, goes_on = threading.Event(), threading.Event()

    def handler(_record: Record) -> None:
        stop.set()
        goes_on.wait(PATIENCE_S)

    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    with share(fake) as consumer:
        monkeypatch.setattr(_Handlers, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(consumer, handler, concurrency=1, stop=stop)
        _start, states = fake.share_states(GROUP, TOPIC, 0)
        assert [states[offset][0] for offset in range(2, 9)] == [OffsetState.AVAILABLE] * 7
        goes_on.set()


@pytest.mark.proves("W-06")
def test_a_record_behind_whose_selection_an_interrupt_comes_is_given_back(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = ShareJobs.next

    def interrupted(jobs: ShareJobs) -> None:
        if select(jobs) is not None:
            raise KeyboardInterrupt

    fill(fake, 3)
    with share(fake) as consumer:
        monkeypatch.setattr(ShareJobs, "next", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(consumer, print, stop_timeout_s=3600.0)
        assert fake.share_states(GROUP, TOPIC, 0) == (0, dict.fromkeys(range(3), (OffsetState.AVAILABLE, 1)))


@pytest.mark.proves("W-06")
def test_a_record_for_which_no_thread_can_be_started_is_given_back(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_given: object) -> None:
        raise RuntimeError("can't start new thread")

    fill(fake, 3)
    with share(fake) as consumer:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            run(consumer, print, stop_timeout_s=3600.0)
        assert fake.share_states(GROUP, TOPIC, 0) == (0, dict.fromkeys(range(3), (OffsetState.AVAILABLE, 1)))


@pytest.mark.proves("W-06")
def test_a_run_without_time_for_its_end_gives_back_the_records_whose_handler_has_not_begun(fake: FakeBroker) -> None:
    """On one thread two jobs are started. The consumer would have renewed the lock of the second."""
    fill(fake, 3)
    stop, goes_on = threading.Event(), threading.Event()

    def handler(_record: Record) -> None:
        stop.set()
        goes_on.wait(PATIENCE_S)

    with share(fake) as consumer:
        run(consumer, handler, concurrency=1, stop=stop, stop_timeout_s=0)
        _start, states = fake.share_states(GROUP, TOPIC, 0)
        goes_on.set()
    assert [states[offset][0] for offset in range(3)] == [OffsetState.ACQUIRED, *[OffsetState.AVAILABLE] * 2]


@pytest.mark.proves("W-06")
def test_a_record_whose_handler_returned_before_an_interrupt_is_given_back(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_given: object) -> None:
        patch.undo()
        raise KeyboardInterrupt

    fill(fake, 3)
    with share(fake) as consumer, monkeypatch.context() as patch:
        patch.setattr(_Handlers, "_settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(consumer, lambda _record: None, concurrency=1, stop_timeout_s=3600.0)
        states = fake.share_states(GROUP, TOPIC, 0)[1]
        assert states[0] == (OffsetState.AVAILABLE, 1)
        assert OffsetState.ACQUIRED not in {state for state, _count in states.values()}


@pytest.mark.proves("W-06")
def test_an_acknowledgement_that_fails_gives_the_record_back(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_given: object) -> None:
        patch.undo()
        raise ConcurrentUseError("another thread is inside")

    fill(fake, 1)
    with share(fake) as consumer, monkeypatch.context() as patch:
        patch.setattr(consumer, "acknowledge", refused)
        with pytest.raises(ConcurrentUseError):
            run(consumer, lambda _record: None, concurrency=1)
        assert fake.share_states(GROUP, TOPIC, 0) == (0, {0: (OffsetState.AVAILABLE, 1)})


@pytest.mark.proves("W-05", "W-06")
def test_the_next_run_has_the_records_of_a_partition_beside_one_that_goes_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The assignment may change between a look at it and a seek."""
    sought: list[TopicPartition] = []
    with FakeBroker(topics={TOPIC: 2}) as fake, consumer_of(fake) as consumer:
        for partition in range(2):
            fake.produce(TOPIC, partition, [(b"k", b"v")])
        turn, seek, deadline = KeyedTurn(consumer, None), consumer.seek, time.monotonic() + PATIENCE_S
        while len(turn.jobs.unfinished()) < 2 and time.monotonic() < deadline:
            turn.result = consumer.poll(0.1)
            turn.take_result()

        def refused_once(partition: TopicPartition, offset: int) -> None:
            sought.append(partition)
            if len(sought) == 1:
                raise IllegalState("not assigned")
            seek(partition, offset)

        monkeypatch.setattr(consumer, "seek", refused_once)
        turn.last_commit()
        assert len(sought) == 2
        assert [(one.partition, one.offsets[0]) for one in consumer.poll(PATIENCE_S)] == [(sought[1].partition, 0)]


@pytest.mark.proves("W-02")
def test_the_end_of_a_pool_of_the_handlers_own_is_a_failure(fake: FakeBroker) -> None:
    fill(fake, 1)
    attempts, stop = list[int](), threading.Event()

    def handler(_record: Record) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise BrokenExecutor("a process of the handler's pool has died")
        stop.set()

    with consumer_of(fake) as consumer:
        assert run(consumer, handler, retry=QUICK, stop=stop) == RunTotals(done=1, retries=1)


def test_a_generator_that_a_handler_returns_ends_the_run_before_its_record(fake: FakeBroker) -> None:
    """None of its code has run."""
    fill(fake, 2)
    stop = threading.Event()

    def handler(_record: Record) -> Iterator[None]:
        yield

    with share(fake) as consumer:
        stop_when(lambda: settled(fake), stop)
        with pytest.raises(TypeError, match="handler is a plain function: nothing runs the generator"):
            run(consumer, handler, stop=stop)
    assert fake.share_states(GROUP, TOPIC, 0)[0] == 0


# ---------------------------------------------------------------------------------------------- asyncio


@pytest.mark.proves("W-01", "W-03")
def test_tasks_share_the_rules_of_threads(fake: FakeBroker) -> None:
    fill(fake, 100)
    seen: Counter[int] = Counter()
    most = 0

    async def main() -> RunTotals:
        stop, running = asyncio.Event(), 0

        async def handler(record: Record) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.002)
            running -= 1
            seen[record.offset] += 1
            if record.offset == 50:
                raise ValueError("bad")
            if len(seen) == 100 and fake.end_offset(DEAD, 0):
                stop.set()

        async with AsyncShareConsumer(fake.bootstrap, group=GROUP, fetch_max_wait_ms=50) as consumer:
            consumer.subscribe([TOPIC])
            task = asyncio.ensure_future(
                run_async(consumer, handler, concurrency=7, retry=QUICK, dead_letter=DEAD, stop=stop)
            )
            while not settled(fake) and not task.done():
                await asyncio.sleep(0.01)
            stop.set()
            return await task

    totals = asyncio.run(main())
    assert totals == RunTotals(done=99, retries=2, dead_letters=1)
    assert most == 7
    assert seen[50] == 3
    assert len(dead_letters(fake)) == 1


@pytest.mark.proves("W-05", "W-06")
def test_a_cancelled_run_of_tasks_commits_what_is_done(fake: FakeBroker) -> None:
    fill(fake, 40)

    async def main() -> None:
        started: list[int] = []

        async def handler(record: Record) -> None:
            started.append(record.offset)
            await asyncio.sleep(3600 if record.offset == 25 else 0)

        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            task = asyncio.ensure_future(run_async(consumer, handler, concurrency=3, stop_timeout_s=0.1))
            while len(started) < 40:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert committed(fake) == 25


@pytest.mark.proves("W-06")
def test_a_run_of_tasks_without_time_for_its_end_gives_back_what_it_has_cancelled(fake: FakeBroker) -> None:
    fill(fake, 3)

    async def main() -> None:
        started: list[int] = []
        stop = asyncio.Event()

        async def handler(record: Record) -> None:
            started.append(record.offset)
            if len(started) == 3:
                stop.set()
            await asyncio.sleep(3600)

        async with AsyncShareConsumer(fake.bootstrap, group=GROUP, fetch_max_wait_ms=50) as consumer:
            consumer.subscribe([TOPIC])
            await run_async(consumer, handler, stop=stop, stop_timeout_s=0)
            states = fake.share_states(GROUP, TOPIC, 0)[1]
            assert states == dict.fromkeys(range(3), (OffsetState.AVAILABLE, 1))

    asyncio.run(main())


@pytest.mark.proves("W-05", "W-06")
def test_the_next_run_of_tasks_has_the_records_of_one_that_was_cancelled_twice(fake: FakeBroker) -> None:
    fill(fake, 9)
    started: list[int] = []

    async def handler(record: Record) -> None:
        started.append(record.offset)
        if len(started) == 1:
            await asyncio.sleep(3600)

    async def main() -> None:
        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            for cancellations in (2, 1):
                task = asyncio.ensure_future(run_async(consumer, handler, concurrency=1))
                while len(started) < (1 if cancellations == 2 else 10):
                    await asyncio.sleep(0.01)
                for _ in range(cancellations):
                    task.cancel()
                    await asyncio.sleep(0.05)
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    assert started == [0, *range(9)]
    assert committed(fake) == 9


@pytest.mark.proves("W-06")
def test_no_handler_runs_behind_a_run_whose_end_was_cancelled(fake: FakeBroker) -> None:
    fill(fake, 1)

    async def main() -> None:
        begun, stop = asyncio.Event(), asyncio.Event()
        ended: list[bool] = []

        async def handler(_record: Record) -> None:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(True)

        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            task = asyncio.ensure_future(run_async(consumer, handler, stop=stop, stop_timeout_s=3600.0))
            await begun.wait()
            stop.set()
            await asyncio.sleep(2 * WAIT_S)  # the run waits for the handler
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended == [True]

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert committed(fake) == 0


@pytest.mark.proves("W-05", "W-06")
def test_tasks_that_end_beside_a_failure_are_settled(fake: FakeBroker) -> None:
    fill(fake, 10)

    async def main() -> None:
        begun = asyncio.Barrier(10)

        async def handler(record: Record) -> None:
            await begun.wait()  # all end in one turn of the loop
            if record.offset in (5, 6):
                raise ValueError("bad")

        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            with pytest.raises(HandlerFailed) as caught:
                await run_async(consumer, handler, retry=Retry(attempts=1), concurrency=10, stop_timeout_s=3600.0)
            assert caught.value.place["offset"] in (5, 6)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert committed(fake) == 5


@pytest.mark.proves("W-02")
def test_a_handler_that_a_task_of_its_own_cancelled_has_failed(fake: FakeBroker) -> None:
    fill(fake, 10, keys=1)
    attempts: Counter[int] = Counter()

    async def main() -> RunTotals:
        stop = asyncio.Event()

        async def handler(record: Record) -> None:
            attempts[record.offset] += 1
            if record.offset == 3 and attempts[3] == 1:
                other = asyncio.ensure_future(asyncio.sleep(3600))
                other.cancel()
                await other
            if record.offset == 9:
                stop.set()

        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            return await run_async(consumer, handler, retry=QUICK, stop=stop)

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == RunTotals(done=10, retries=1)
    assert attempts[3] == 2
    assert committed(fake) == 10


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.proves("W-06")
def test_sigterm_ends_all_runs_of_a_loop_and_calls_its_former_handler(fake: FakeBroker) -> None:
    async def one(group: str, ended: asyncio.Event | None) -> RunTotals:
        async def handler(_record: Record) -> None: ...

        async with AsyncConsumer(fake.bootstrap, group=group) as consumer:
            consumer.subscribe([TOPIC])
            return await run_async(consumer, handler, stop=ended)

    async def main() -> None:
        loop, former, first = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, former.set)
        try:
            runs = [asyncio.ensure_future(one(group, first if group == "a" else None)) for group in "abc"]
            while len(fake.calls_of("SyncGroup")) < 3:
                await asyncio.sleep(0.01)
            first.set()
            await runs[0]
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.gather(*runs) == [RunTotals()] * 3
            await former.wait()
            former.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await former.wait()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


class Stray(BaseException):
    """No Exception, as the failures of some test tools."""


@pytest.mark.proves("W-02", "W-06")
def test_a_handler_that_is_no_coroutine_function_fails_as_one_or_ends_the_run(fake: FakeBroker) -> None:
    fill(fake, 1)
    attempts: list[int] = []

    async def main(handler: Callable[[asyncio.Event], Any]) -> RunTotals:
        stop = asyncio.Event()
        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            run = run_async(consumer, lambda _record: handler(stop), retry=QUICK, stop=stop, stop_timeout_s=3600.0)
            return await asyncio.wait_for(run, PATIENCE_S)

    async def stray() -> None:
        raise Stray

    def late(stop: asyncio.Event) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("before it returns what is awaited")
        stop.set()
        return asyncio.sleep(0)

    with pytest.raises(TypeError, match="awaitable"):
        asyncio.run(main(lambda _stop: None))
    with pytest.raises(Stray):
        asyncio.run(main(lambda _stop: stray()))
    assert asyncio.run(main(late)) == RunTotals(done=1, retries=1)


@pytest.mark.proves("W-05")
def test_records_of_a_batch_may_share_a_future(fake: FakeBroker) -> None:
    fill(fake, 9)

    async def main() -> RunTotals:
        stop, batches = asyncio.Event(), list[asyncio.Future[None]]()

        def handler(record: Record) -> "asyncio.Future[None]":
            loop = asyncio.get_running_loop()
            if record.offset % 3 == 0:
                batches.append(loop.create_future())
            if record.offset % 3 == 2:
                loop.call_later(0.01, batches[-1].set_result, None)
            if record.offset == 8:
                stop.set()
            return batches[-1]

        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            return await run_async(consumer, handler, concurrency=3, stop=stop)

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == RunTotals(done=9)
    assert committed(fake) == 9


@pytest.mark.proves("W-05", "W-06")
def test_a_run_whose_dead_letters_are_cancelled_with_it_commits_what_is_done(fake: FakeBroker) -> None:
    """A program may cancel all tasks of its loop."""
    fill(fake, 9)
    held = Hold()

    async def main() -> None:
        async def handler(record: Record) -> None:
            if record.offset == 5:
                raise ValueError("bad")
            await asyncio.sleep(3600 if record.offset == 8 else 0)

        async with AsyncConsumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            fake.control("Produce", lambda _call: held)
            running = run_async(consumer, handler, retry=Retry(attempts=1), dead_letter=DEAD, stop_timeout_s=0.1)
            task = asyncio.ensure_future(running)
            while not held.reached.is_set():
                await asyncio.sleep(0.01)
            for each in asyncio.all_tasks() - {asyncio.current_task()}:
                each.cancel()
            asyncio.get_running_loop().call_later(1.0, held.release)  # the end of the producer waits for it
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert committed(fake) == 5
