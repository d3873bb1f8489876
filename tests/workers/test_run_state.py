"""Retries, held jobs and dead letters of a run, with jobs and a sender that only note their calls."""

from collections.abc import Iterator

import pytest

from kohort.common import TopicPartition
from kohort.fastpath import Record, RecordColumns, decode, encode
from kohort.workers import Retry, RunTotals
from kohort.workers.dead_letters import DeadLetters
from kohort.workers.job import Job
from kohort.workers.keyed_jobs import KeyedJobs
from kohort.workers.run_state import RunState


def record() -> Record:
    return decode(encode([(b"k", b"v")]), topic="t", partition=0)[0]


class Jobs:
    """Jobs of one record. `calls` are the methods that were called."""

    def __init__(self, *attempts: int, releases: bool = True) -> None:
        self.jobs = [Job(record(), attempt, None) for attempt in attempts]
        self.calls: list[str] = []
        self.releases = releases

    blocked = False

    def add(self, polled: object) -> None:
        raise AssertionError

    def next(self) -> Job | None:
        return self.jobs[0] if self.jobs else None

    def started(self, job: Job) -> None:
        assert self.jobs.pop(0) is job

    def is_last(self, attempt: int) -> bool:
        return attempt >= 4

    def is_gone(self, job: Job) -> bool:
        return False

    def done(self, job: Job) -> None:
        self.calls.append("done")

    def again(self, job: Job) -> None:
        self.calls.append("again")

    def dead(self, job: Job) -> None:
        self.calls.append("dead")

    def failed(self, job: Job, error: Exception) -> None:
        self.calls.append("failed")

    def put_back(self, job: Job) -> None:
        self.calls.append("put_back")

    def stop(self) -> None:
        self.calls.append("stop")


def started(state: RunState) -> Job | None:
    if (job := state.next()) is not None:
        state.started(job)
    return job


class Letters(DeadLetters):
    """A sender whose outcomes the test sets."""

    def __init__(self) -> None:
        super().__init__(None, "dead", "g")
        self.sent: list[tuple[Job, Exception]] = []
        self.outcomes: list[tuple[Job, Exception, BaseException | None]] = []

    def send(self, job: Job, error: Exception) -> None:
        self.sent.append((job, error))

    def settled(self) -> Iterator[tuple[Job, Exception, BaseException | None]]:
        found, self.outcomes = self.outcomes, []
        return iter(found)

    @property
    def waiting(self) -> int:
        return len(self.sent)


def fail(state: RunState, now: float = 0.0, error: Exception | None = None) -> Job:
    job = started(state)
    assert job is not None
    state.finished(job, error or ValueError("no"), now)
    return job


def test_a_delay_grows_up_to_its_limit() -> None:
    retry = Retry(delay_s=1.0, factor=3.0, max_delay_s=20.0)
    assert [retry.after_s(attempt) for attempt in (1, 2, 3, 4, 500)] == [1.0, 3.0, 9.0, 20.0, 20.0]


@pytest.mark.proves("W-02")
def test_a_failed_job_is_held_for_its_delay() -> None:
    jobs = Jobs(1)
    state = RunState(jobs, Retry(delay_s=2.0), None, 10)
    fail(state, 100.0)
    assert state.wait_s(100.5, 60.0) == 1.5
    assert state.wait_s(100.5, 1.0) == 1.0
    assert state.wait_s(103.0, 60.0) == 0.001
    state.tick(101.9)
    assert jobs.calls == []
    state.tick(102.0)
    assert jobs.calls == ["again"]
    assert state.totals == RunTotals(retries=1)


@pytest.mark.proves("W-02")
def test_more_than_max_held_are_released_at_once_or_stop_the_start_of_others() -> None:
    jobs = Jobs(1, 1, 1)
    state = RunState(jobs, Retry(), None, 1)
    fail(state)
    fail(state)
    assert jobs.calls == ["again"]
    keyed = Jobs(1, 1, releases=False)
    state = RunState(keyed, Retry(delay_s=1.0), None, 1)
    fail(state)
    assert [started(state) for _ in range(2)] == [None, None]
    state.tick(1.0)
    fail(state)


def polled(partition: int) -> RecordColumns:
    return decode(encode([(b"k", b"v")]), topic="t", partition=partition)


class InterruptedJobs(Jobs):
    def dead(self, job: Job) -> None:
        raise KeyboardInterrupt


class Undelivered:
    """A producer whose deliveries end when the test says so."""

    def __init__(self) -> None:
        self.over = False

    def send(self, *_given: object, **_settings: object) -> "Undelivered":
        return self

    def done(self) -> bool:
        return self.over

    def exception(self) -> None:
        return None


@pytest.mark.proves("W-06")
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_record_whose_dead_letter_has_no_outcome_at_the_end_is_put_back(interrupted: bool) -> None:
    jobs, producer = InterruptedJobs(1), Undelivered()
    state = RunState(jobs, Retry(attempts=1), DeadLetters(producer, "dead", "g"), 10)
    fail(state)
    if interrupted:
        producer.over = True
        with pytest.raises(KeyboardInterrupt):
            state.tick(0.0)
    state.give_up()
    assert jobs.calls == ["stop", "put_back"]
    assert state.idle


def test_held_records_of_partitions_that_are_gone_keep_no_others_from_starting() -> None:
    jobs = KeyedJobs()
    jobs.add([polled(0)])
    state = RunState(jobs, Retry(attempts=9, delay_s=600.0), None, 1)
    fail(state)
    jobs.add([polled(1)])
    assert started(state) is None
    jobs.drop([TopicPartition("t", 0)])
    following = started(state)
    assert following is not None
    assert following.record.partition == 1


@pytest.mark.parametrize("attempts", [1, 9])
def test_a_failure_behind_the_loss_of_its_partition_has_no_effect(attempts: int) -> None:
    jobs, letters = KeyedJobs(), Letters()
    jobs.add([polled(0)])
    state = RunState(jobs, Retry(attempts=attempts), letters, 1)
    job = started(state)
    assert job is not None
    jobs.drop([TopicPartition("t", 0)])
    state.finished(job, ValueError("no"), 0.0)
    assert (state.idle, letters.sent, state.totals) == (True, [], RunTotals())


def test_the_last_attempt_goes_to_the_dead_letters_and_is_dead_once_they_are_in_the_log() -> None:
    jobs, letters = Jobs(3), Letters()
    state = RunState(jobs, Retry(attempts=3, delay_s=1.0), letters, 10)
    job = fail(state)
    ((sent, error),) = letters.sent
    assert sent is job
    state.tick(0.0)
    assert jobs.calls == []
    assert bool(state.idle) is False
    letters.outcomes = [(sent, error, OSError("refused"))]
    state.tick(0.0)
    assert jobs.calls == []
    state.tick(state.wait_s(0.0, 60.0))
    assert [one for one, _ in letters.sent] == [job, job]
    letters.outcomes, letters.sent = [(sent, error, None)], []
    state.tick(9.0)
    assert jobs.calls == ["dead"]
    assert state.idle
    assert state.totals == RunTotals(dead_letters=1)


def test_the_delivery_limit_and_certain_errors_end_the_attempts_early() -> None:
    jobs = Jobs(4, 1)
    state = RunState(jobs, Retry(attempts=9, no_retry=(KeyError,)), None, 10)
    fail(state)
    fail(state, error=KeyError("x"))
    assert jobs.calls == ["failed", "failed"]


@pytest.mark.proves("W-06")
def test_a_stop_gives_up_delays_and_starts_nothing() -> None:
    jobs = Jobs(1, 1, 1, 1)
    state = RunState(jobs, Retry(), None, 10)
    fail(state)
    running, waiting = started(state), started(state)
    assert running is not None
    assert waiting is not None
    state.stop()
    assert jobs.calls == ["put_back", "stop"]
    assert started(state) is None
    state.cancelled(waiting)
    state.finished(running, ValueError("late"), 0.0)
    assert jobs.calls == ["put_back", "stop", "put_back", "again"]
    assert state.idle


@pytest.mark.proves("W-06")
def test_a_dead_letter_that_fails_after_the_stop_puts_its_record_back() -> None:
    jobs, letters = Jobs(4), Letters()
    state = RunState(jobs, Retry(), letters, 10)
    job = fail(state)
    state.stop()
    letters.outcomes = [(job, ValueError("no"), OSError("refused"))]
    state.tick(0.0)
    assert jobs.calls == ["stop", "put_back"]
    state.tick(3600.0)
    assert len(letters.sent) == 1
