"""Jobs of a Consumer by key, and the offsets that may be committed, without a broker."""

import random
from types import SimpleNamespace

import pytest

from kohort import TopicPartition
from kohort.fastpath import decode, encode
from kohort.workers.completed_offsets import MAX_OPEN
from kohort.workers.errors import HandlerFailed
from kohort.workers.job import Job
from kohort.workers.keyed_jobs import MOST_WAITING_BYTES, KeyedJobs
from kohort.workers.turns import RunHooks

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def columns(keys: str, *, partition: int = 0, start: int = 0):  # type: ignore[no-untyped-def]
    """A record for each letter, which is its key; "-" has none."""
    batch = encode([(None if key == "-" else key.encode(), b"") for key in keys], base_offset=start)
    return decode(batch, topic="t", partition=partition)


def started(source: KeyedJobs) -> list[Job]:
    found = []
    while (job := source.next()) is not None:
        found.append(job)
    return found


def offsets(jobs: list[Job]) -> list[int]:
    return [job.record.offset for job in jobs]


@pytest.mark.proves("W-04")
def test_one_record_of_a_key_runs_at_a_time_and_records_without_a_key_all_run() -> None:
    source = KeyedJobs()
    source.add([columns("aab--b")])
    first = started(source)
    assert offsets(first) == [0, 2, 3, 4]
    assert source.blocked
    source.done(first[0])
    assert offsets(started(source)) == [1]
    source.done(first[1])
    assert offsets(started(source)) == [5]
    assert not source.blocked


@pytest.mark.proves("W-04")
def test_a_failed_record_runs_again_before_later_ones_of_its_key() -> None:
    source = KeyedJobs()
    source.add([columns("aa")])
    (job,) = started(source)
    source.again(job)
    (again,) = started(source)
    assert (again.record.offset, again.attempt) == (0, 2)
    source.done(again)
    assert offsets(started(source)) == [1]


@pytest.mark.proves("W-05")
def test_a_commit_never_passes_a_record_that_is_not_done() -> None:
    source = KeyedJobs()
    source.add([columns("----", start=10), columns("--", partition=1)])
    jobs = {(job.record.partition, job.record.offset): job for job in started(source)}
    assert source.due() == {P0: 10, P1: 0}
    source.done(jobs[0, 11])
    source.done(jobs[0, 13])
    source.done(jobs[1, 0])
    assert source.due() == {P0: 10, P1: 1}
    source.done(jobs[0, 10])
    assert source.due() == {P0: 12, P1: 1}
    source.committed({P0: 12, P1: 1})
    assert source.due() == {}
    source.done(jobs[0, 12])
    assert source.due() == {P0: 14}


@pytest.mark.proves("W-05")
def test_random_orders_commit_exactly_the_finished_prefix() -> None:
    chance = random.Random(5)
    for _ in range(50):
        source, running, done, tops = KeyedJobs(), list[Job](), set[int](), 0
        while len(done) < 60:
            if tops < 60 and chance.random() < 0.2:
                source.add([columns("".join(chance.choices("abc-", k=10)), start=tops)])
                tops += 10
            running += started(source)
            if running:
                job = running.pop(chance.randrange(len(running)))
                if chance.random() < 0.3:
                    source.again(job)
                else:
                    source.done(job)
                    done.add(job.record.offset)
            gap = next(offset for offset in range(61) if offset not in done)
            assert source.due() == ({P0: gap} if tops else {})


def test_no_more_than_so_many_offsets_are_open() -> None:
    source = KeyedJobs()
    source.add([columns("-" * (MAX_OPEN + 5))])
    first = started(source)
    assert len(first) == MAX_OPEN
    assert source.full == {P0}
    for job in first[1:]:
        source.done(job)
    assert started(source) == []
    source.done(first[0])
    assert len(started(source)) == 5
    assert source.full == set()


@pytest.mark.proves("W-06")
def test_a_partition_is_unfinished_until_its_last_record_is_done() -> None:
    source = KeyedJobs()
    source.add([columns("--", start=5)])
    assert source.unfinished() == {P0: 5}  # polled
    first, second = started(source)
    source.done(second)
    assert source.unfinished() == {P0: 5}  # started
    source.done(first)
    assert source.unfinished() == {}


@pytest.mark.proves("W-07")
def test_a_dropped_partition_starts_nothing_and_commits_nothing() -> None:
    source = KeyedJobs()
    source.add([columns("--"), columns("-", partition=1)])
    job = source.next()
    assert job is not None
    source.drop([P0])
    assert [one.record.partition for one in started(source)] == [1]
    source.done(job)
    assert source.due() == {P1: 0}


@pytest.mark.proves("W-07")
def test_a_revoked_partition_is_forgotten_once_its_offset_is_returned() -> None:
    source = KeyedJobs()
    source.add([columns("--"), columns("-", partition=1)])
    for job in started(source):
        source.done(job)
    assert RunHooks(source, None, 0.0).done_of(frozenset({P0})) == {P0: 2}
    assert source.due() == {P1: 1}
    source.add([columns("-", start=5)])
    assert source.due() == {P0: 5, P1: 1}


def test_offsets_behind_the_last_record_are_committed_too() -> None:
    """As after a transaction, whose end has an offset and is no record."""
    source = KeyedJobs()
    records = columns("--")
    with_end = SimpleNamespace(topic="t", partition=0, offsets=records.offsets, next_offset=7)
    with_end_type = type(
        "WithEnd", (SimpleNamespace,), {"__iter__": lambda self: iter(records), "__len__": lambda self: 2}
    )
    source.add([with_end_type(**vars(with_end))])
    for job in started(source):
        source.done(job)
    assert source.due() == {P0: 7}


def test_a_last_failure_without_dead_letters_ends_the_run() -> None:
    source = KeyedJobs()
    source.add([columns("-")])
    (job,) = started(source)
    with pytest.raises(HandlerFailed, match="last attempt") as caught:
        source.failed(job, ValueError("no"))
    assert caught.value.place == {"topic": "t", "partition": 0, "offset": 0}
    assert source.due() == {P0: 0}


@pytest.mark.proves("W-04")
def test_the_bytes_that_wait_for_their_key_are_bounded() -> None:
    source, value = KeyedJobs(), bytes(MOST_WAITING_BYTES // 4)
    for start in range(8):
        source.add([decode(encode([(b"a", value)], base_offset=start), topic="t", partition=0)])
    handled: list[int] = []
    jobs = started(source)
    assert source.full == {P0}  # before, all of them waited in memory, and more were polled
    while jobs:
        (job,) = jobs
        handled.append(job.record.offset)
        source.done(job)
        jobs = started(source)
    assert handled == list(range(8))
    assert not source.full
