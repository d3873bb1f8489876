"""Sinks: each record's effect is outside exactly once, after any death at any place."""

import gc
import itertools
import sqlite3
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import ConsistentRegion, Consumer, Producer, TopicPartition
from kohort.consistent_region import (
    DictState,
    DueEffects,
    KafkaSink,
    MemoryStore,
    Periodic,
    SinkPlace,
    SqlSink,
    StateHandle,
    TaskId,
    TaskTerm,
    TransactionalSink,
    Witness,
)
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStart
from kohort.consistent_region.effects import packed as packed_effects
from kohort.consistent_region.effects import unpacked
from kohort.consistent_region.errors import (
    ConfigurationError,
    FencedError,
    RegionError,
    ResetFailedError,
    SinkUnavailable,
    StateVersionError,
)
from kohort.consistent_region.kafka_sink import FENCED_ATTEMPTS, packed
from kohort.consistent_region.kafka_sink import unpacked as unpacked_records
from kohort.consistent_region.manifest import StateReference, TaskState
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.consistent_region.sql_dialects import POSTGRES, SQLITE
from kohort.consistent_region.states import RegionState
from kohort.consistent_region.store import SqliteStore
from kohort.consistent_region.task_states import TaskStates
from kohort.consistent_region.witness import continued
from kohort.network.errors import ConfigError, OperationTimeout
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing import FakeBroker, RealPostgres
from kohort.testing.fake_broker import Answer, Drop
from tests.consistent_region.region_hand import Listed
from tests.consistent_region.running_region import running
from tests.coordinator_client.consumer_helpers import wait_until
from tests.support.broker_selection import SelectedBroker

P0 = TopicPartition("in", 0)
T0 = TaskId("", 0)
LINEAGE = "5f"
AT = Witness(LINEAGE, 1)
TERMS = itertools.count(1)
RECORDS, A_CHECKPOINT = 14, 4
SCHEMA = "CREATE TABLE IF NOT EXISTS seen (n INTEGER)"


class Killed(BaseException):
    """kill -9, at this very line."""


class Fuse:
    """Burns at its `length`-th place."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.places = 0

    def burn(self) -> None:
        self.places += 1
        if self.places == self.length:
            raise Killed


class Cursor:
    def __init__(self, cursor: Any, fuse: Fuse) -> None:
        self._cursor, self._fuse = cursor, fuse

    def execute(self, *what: Any) -> Any:
        if what[0] == "ROLLBACK":  # what the dead do not say
            return None
        self._fuse.burn()
        response = self._cursor.execute(*what)
        if what[0] == "COMMIT":
            self._fuse.burn()
        return response

    def close(self) -> None: ...


class Connection:
    def __init__(self, connection: Any, fuse: Fuse) -> None:
        self._connection, self._fuse = connection, fuse

    def cursor(self) -> Cursor:
        return Cursor(self._connection.cursor(), self._fuse)


class BurningSqlSink(SqlSink):
    def __init__(self, url: str, fuse: Fuse, **settings: Any) -> None:
        super().__init__(url, schema=SCHEMA, **settings)
        self._fuse = fuse

    def _opened(self) -> Any:
        return Connection(super()._opened(), self._fuse)

    def add(self, number: int) -> None:
        self.execute(f"INSERT INTO seen VALUES ({self._dialect.mark})", (number,))


class BurningKafkaSink(KafkaSink):
    def __init__(self, bootstrap: str, topic: str, fuse: Fuse) -> None:
        super().__init__(bootstrap, topic, linger_ms=0)
        self._fuse = fuse

    def _transact(self, due: DueEffects, *arguments: Any) -> None:
        self._fuse.burn()
        producer = self._producers[due.task]
        send_offsets = producer.send_offsets
        try:
            producer.send_offsets = self._burning(send_offsets)  # type: ignore[method-assign]
            super()._transact(due, *arguments)
        finally:
            producer.send_offsets = send_offsets  # type: ignore[method-assign]
        self._fuse.burn()

    def _burning(self, real: Callable[..., None]) -> Callable[..., None]:
        def send_offsets(*arguments: Any) -> None:
            real(*arguments)
            self._fuse.burn()

        return send_offsets

    def add(self, number: int) -> None:
        self.send(str(number).encode(), headers=[("n", b"%d" % number)])


class Books:
    """The surviving state: complete checkpoints, each with its position and its number, which is never used again."""

    def __init__(self) -> None:
        self.complete: list[tuple[bytes, int, int]] = []
        self._numbers = itertools.count(1)

    def add(self, snapshot: bytes, offset: int) -> None:
        self.complete.append((snapshot, offset, next(self._numbers)))


def no_blocks(reference: StateReference) -> bytes:
    raise AssertionError(f"no state here has blocks: {reference}")


class Effects:
    """The task T0 in a process, with `state` and `sinks`. Each process has a later term."""

    def __init__(self, state: DictState, sinks: Mapping[str, TransactionalSink | None], books: Books | None = None):
        self.states = TaskStates(lambda _task: state, sinks)
        self.books = books or Books()
        self.term = TaskTerm(LINEAGE, next(TERMS))

    def open(self, place: SinkPlace) -> None:
        self.states.open(place)

    def close(self) -> None:
        self.states.close()

    def snapshot(self, at: Positions) -> bytes:
        self.states.take_cut({T0: at})
        return self.states.contribution()[T0].state

    def completed(self) -> None:
        self.states.completed(Witness(LINEAGE, self.books.complete[-1][2]))

    def restore(self, snapshot: bytes, at: Positions) -> None:
        number = self.books.complete[-1][2] if self.books.complete else 1
        self._start(TaskStart(at, TaskState(at, snapshot), number))

    def reset_initial(self) -> None:
        self._start(TaskStart({}))

    def _start(self, start: TaskStart) -> None:
        self.states.fence([T0], self.term)
        self.states.start({T0: start}, LINEAGE, no_blocks)
        self.states.select(T0)


def positions(offset: int) -> Positions:
    return {P0: RegionPosition(offset)}


def place(region: str = "r", group: str = "g") -> SinkPlace:
    return SinkPlace(region, group, lambda: ConsumerGroupMetadata(group))


def opened(sink: SqlSink, *, group: str = "g", task: TaskId = T0) -> SqlSink:
    """The sink of a process that owns a task."""
    sink.open(place(group=group))
    sink.take([task], TaskTerm(LINEAGE, next(TERMS)))
    sink.select(task)
    return sink


def due(sink: TransactionalSink, task: TaskId = T0) -> list[DueEffects]:
    return [DueEffects(task, [sink.pre_commit(task)], {})]


@contextmanager
def life(sink: TransactionalSink, state: DictState, books: Books) -> Iterator[tuple[Effects, int]]:
    """A process: opens, goes back, and closes unless it is killed."""
    effects = Effects(state, {"out": sink}, books)
    try:
        effects.open(place())
        offset = 0
        if books.complete:
            snapshot, offset, _ = books.complete[-1]
            effects.restore(snapshot, positions(offset))
        else:
            effects.reset_initial()
        yield effects, offset
    finally:
        effects.close()


def live(sink: BurningSqlSink | BurningKafkaSink, fuse: Fuse, books: Books) -> None:
    """Handle all records, with a checkpoint after every few; every second one is given up the first time."""
    state = DictState()
    with life(sink, state, books) as (effects, offset):
        while offset < RECORDS:
            for number in range(offset, min(offset + A_CHECKPOINT, RECORDS)):
                state["sum"] = state.get("sum", 0) + number
                sink.add(number)
                offset = number + 1
            if len(books.complete) % 2:
                effects.snapshot(positions(offset))  # its barrier ends without a manifest
                if offset < RECORDS:
                    state["sum"] += offset
                    sink.add(offset)
                    offset += 1
            fuse.burn()
            snapshot = effects.snapshot(positions(offset))
            fuse.burn()
            books.add(snapshot, offset)
            fuse.burn()
            effects.completed()
            fuse.burn()


def die_everywhere(made: Callable[[Fuse], Any], lengths: Any, seen: Callable[[], list[int]]) -> int:
    """One run for each place to die at, and one through. Returns how many places there are."""
    places = 0
    for length in lengths:
        fuse, books = Fuse(length), Books()
        try:
            live(made(fuse), fuse, books)
        except Killed:
            calm = Fuse(-1)
            live(made(calm), calm, books)
        places = max(places, fuse.places)
        found = Counter(seen())
        assert found == Counter(range(RECORDS)), (length, found)
        if fuse.places < length:
            break
    return places


@pytest.mark.proves("B-45")
def test_sqlite_holds_each_effect_once_wherever_the_process_dies(tmp_path: Path) -> None:
    paths: list[Path] = []

    def made(fuse: Fuse) -> BurningSqlSink:
        if fuse.length > 0:
            paths.append(tmp_path / f"{fuse.length}.db")
        return BurningSqlSink(f"sqlite:///{paths[-1]}", fuse)

    def seen() -> list[int]:
        with sqlite3.connect(paths[-1]) as database:
            found = [row[0] for row in database.execute("SELECT n FROM seen")]
        database.close()
        return found

    assert die_everywhere(made, range(1, 1_000), seen) > 40


def test_postgresql_holds_each_effect_once_wherever_the_process_dies(postgres: RealPostgres) -> None:
    url = postgres.fresh()

    def made(fuse: Fuse) -> BurningSqlSink:
        if fuse.length > 0:
            with psycopg.connect(url, autocommit=True) as database:
                database.execute("DROP TABLE IF EXISTS seen")
                database.execute("DROP TABLE IF EXISTS kohort_task")
        return BurningSqlSink(url, fuse)

    def seen() -> list[int]:
        with psycopg.connect(url) as database:
            return [row[0] for row in database.execute("SELECT n FROM seen").fetchall()]

    assert die_everywhere(made, range(1, 1_000), seen) > 40


def test_a_database_that_is_down_is_one_error_and_the_next_life_commits(postgres: RealPostgres) -> None:
    url, books, state = postgres.fresh(), Books(), DictState()
    sink = BurningSqlSink(url, Fuse(-1), retry_timeout_s=0.1)
    with life(sink, state, books) as (effects, _):
        sink.add(7)
        books.add(effects.snapshot(positions(1)), 1)
        postgres.kill()
        try:
            with pytest.raises(SinkUnavailable, match=r"database does not respond.*sink=out"):
                effects.completed()
            starting = life(BurningSqlSink(url, Fuse(-1)), state, books)
            with pytest.raises(SinkUnavailable, match="start the member again"), starting:
                pass
        finally:
            postgres.start()
    with life(BurningSqlSink(url, Fuse(-1)), state, books):
        pass
    with psycopg.connect(url) as database:
        assert database.execute("SELECT n FROM seen").fetchall() == [(7,)]


def test_a_database_that_restarts_is_waited_for(postgres: RealPostgres) -> None:
    url, books, state = postgres.fresh(), Books(), DictState()
    sink = BurningSqlSink(url, Fuse(-1))
    with life(sink, state, books) as (effects, _):
        sink.add(7)
        books.add(effects.snapshot(positions(1)), 1)
        postgres.kill()  # and the connection is open
        starting = threading.Timer(0.5, postgres.start)
        starting.start()
        effects.completed()
        starting.join()
    with psycopg.connect(url) as database:
        assert database.execute("SELECT n FROM seen").fetchall() == [(7,)]


@pytest.mark.proves("B-45")
def test_a_database_that_freezes_is_given_up_and_the_next_life_commits(
    postgres: RealPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.consistent_region.sql_dialects._WAIT_S", 1)
    url, books, state = postgres.fresh(), Books(), DictState()
    sink = BurningSqlSink(url, Fuse(-1), retry_timeout_s=0.1)
    with life(sink, state, books) as (effects, _):
        sink.add(7)
        books.add(effects.snapshot(positions(1)), 1)
        postgres.pause()
        try:
            with pytest.raises(SinkUnavailable, match="no response"):
                effects.completed()
        finally:
            postgres.resume()
    with life(BurningSqlSink(url, Fuse(-1)), state, books):
        pass
    with psycopg.connect(url) as database:
        assert database.execute("SELECT n FROM seen").fetchall() == [(7,)]


def test_statements_of_a_schema_may_take_longer_than_those_of_a_commit(
    postgres: RealPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.consistent_region.sql_dialects._WAIT_S", 0)
    sink = SqlSink(postgres.fresh(), schema="SELECT pg_sleep(1)", retry_timeout_s=0.3)
    sink.open(place())
    sink.take([T0], TaskTerm(LINEAGE, 1))
    sink.select(T0)
    sink.execute("SELECT pg_sleep(60)")
    with pytest.raises(SinkUnavailable, match="no response"):
        sink.commit([DueEffects(T0, [sink.pre_commit(T0)], {})], AT)
    sink.close()


@pytest.mark.parametrize(
    ("state", "passes"),
    [
        ("57P01", True),
        ("57P05", True),
        ("25P03", True),
        ("08006", True),
        ("53300", True),
        ("40P01", True),
        ("23505", False),
    ],
)
def test_only_errors_of_a_database_that_is_away_pass(state: str, passes: bool) -> None:
    assert POSTGRES.passes(psycopg.errors.lookup(state)()) is passes
    assert POSTGRES.passes(psycopg.OperationalError("connection refused"))
    assert not POSTGRES.passes(psycopg.ProgrammingError("the query has 0 placeholders"))
    assert not SQLITE.passes(sqlite3.OperationalError("database is locked"))


def test_of_two_owners_that_commit_the_first_time_one_waits_for_the_other(postgres: RealPostgres) -> None:
    url = postgres.fresh()
    old, new = (SqlSink(url, schema=SCHEMA) for _ in range(2))
    opened(old)
    new.open(place())
    new.select(T0)
    for sink in (old, new):
        sink.execute("INSERT INTO seen VALUES (%s)", (7,))
        sink.execute("SELECT pg_sleep(1)")
    slow = threading.Thread(target=old.commit, args=(due(old), AT))
    slow.start()
    time.sleep(0.5)
    new.take([T0], TaskTerm(LINEAGE, next(TERMS)))
    new.commit(due(new), AT)
    slow.join()
    with psycopg.connect(url) as database:
        assert database.execute("SELECT n FROM seen").fetchall() == [(7,)]
    for sink in (old, new):
        sink.close()


class Frozen(Fuse):
    """Stands still at its second place, behind BEGIN and the lock of the task's row."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.stands, self.goes_on = threading.Event(), threading.Event()

    def burn(self) -> None:
        super().burn()
        if self.places == 3:
            self.stands.set()
            assert self.goes_on.wait(120)


@pytest.mark.proves("CR-94")
def test_an_owner_that_stands_still_in_a_commit_does_not_hold_up_the_next_one(
    postgres: RealPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.consistent_region.sql_dialects._IDLE_S", 1)
    monkeypatch.setattr("kohort.consistent_region.sql_dialects._WAIT_S", 10)
    url, frozen = postgres.fresh(), Frozen()
    old, new = BurningSqlSink(url, Fuse(-1)), BurningSqlSink(url, Fuse(-1))
    opened(old)
    old._fuse = frozen
    new.open(place())
    new.select(T0)
    for sink in (old, new):
        sink.add(7)
    stopped = threading.Thread(target=old.commit, args=(due(old), AT))
    stopped.start()
    try:
        assert frozen.stands.wait(60)
        new.take([T0], TaskTerm(LINEAGE, next(TERMS)))
        new.commit(due(new), AT)
    finally:
        frozen.goes_on.set()
        stopped.join(120)
    assert not stopped.is_alive()
    with psycopg.connect(url) as database:
        assert database.execute("SELECT n FROM seen").fetchall() == [(7,)]
    for sink in (old, new):
        sink.close()


def test_a_database_that_is_locked_is_called_so(tmp_path: Path) -> None:
    sink = opened(SqlSink(f"sqlite:///{tmp_path}/out.db", schema=SCHEMA))
    sink._connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "out.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegionError, match="database is locked"):
        sink.commit(due(sink), AT)
    other.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_in_wal_mode_that_is_unlinked_or_replaced_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = opened(SqlSink("sqlite:///out.db", schema=SCHEMA))
    sink.execute("INSERT INTO seen VALUES (1)")
    with sqlite3.connect("out.db") as database:
        database.execute("PRAGMA journal_mode=WAL")
    monkeypatch.chdir("/")
    sink.commit(due(sink), AT)
    (tmp_path / "out.db").unlink()
    if replaced:
        sqlite3.connect(tmp_path / "out.db").close()
    with pytest.raises(RegionError, match="unlinked or replaced"):
        sink.commit(due(sink), Witness(LINEAGE, AT.sequence + 1))


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_late_owner_of_an_earlier_term_takes_nothing_and_a_new_lineage_takes_all(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    if database == "postgres":
        url = request.getfixturevalue("postgres").fresh()
    first, late = (SqlSink(url, schema=SCHEMA) for _ in range(2))
    for sink, lineage, term in ((first, LINEAGE, 7), (late, LINEAGE, 6)):
        sink.open(place())
        sink.take([T0], TaskTerm(lineage, term))
        sink.select(T0)
        sink.execute(f"INSERT INTO seen VALUES ({term})")
    late.commit(due(late), AT)  # left out: the later owner commits it
    first.commit(due(first), AT)
    assert late.take([T0], TaskTerm("another", 1)) == {T0: AT}
    late.commit(due(late), Witness("another", 1))
    rows = late._connection.execute("SELECT n FROM seen ORDER BY n").fetchall()
    assert [row[0] for row in rows] == [6, 7]
    for sink in (first, late):
        sink.close()


@pytest.mark.parametrize("taken", [True, False])
def test_the_effects_of_a_task_that_another_region_has_taken_are_owed_and_not_left_out(
    tmp_path: Path, taken: bool
) -> None:
    """Two regions of one name and group, each on a cluster of its own, write to one database."""
    url = f"sqlite:///{tmp_path}/out.db"
    ours, theirs = opened(SqlSink(url, schema=SCHEMA)), SqlSink(url, schema=SCHEMA)
    theirs.open(place())
    if taken:
        theirs.take([T0], TaskTerm("another", 1))
    else:
        ours._connection.execute("DELETE FROM kohort_task")
    ours.execute("INSERT INTO seen VALUES (1)")
    with pytest.raises(FencedError, match=r"another region as the owner of the task, or none \(.*task=0"):
        ours.commit(due(ours), AT)
    ours.take([T0], TaskTerm(LINEAGE, next(TERMS)))
    ours.commit(due(ours), AT)
    assert ours._connection.execute("SELECT n FROM seen").fetchall() == [(1,)]
    for sink in (ours, theirs):
        sink.close()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_database_that_went_back_behind_the_start_of_a_task_leaves_its_effects_owed(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    """A replica that took over lacks the last commits. Effects would be left to a later owner, and there is none."""
    url = f"sqlite:///{tmp_path}/out.db"
    if database == "postgres":
        url = request.getfixturevalue("postgres").fresh()
    sink = SqlSink(url, schema=SCHEMA)
    sink.open(place())
    sink.take([T0], TaskTerm(LINEAGE, 7))
    sink.select(T0)
    sink.execute("INSERT INTO seen VALUES (1)")
    sink._connection.execute("UPDATE kohort_task SET term = 6")
    with pytest.raises(FencedError, match=r"database has an earlier owner of the task \(.*task=0.*an older copy"):
        sink.commit(due(sink), AT)
    sink.take([T0], TaskTerm(LINEAGE, 8))
    sink.commit(due(sink), AT)
    assert sink._connection.execute("SELECT n FROM seen").fetchall() == [(1,)]
    sink.close()


def test_one_transaction_has_the_effects_of_all_tasks_and_each_task_once(tmp_path: Path) -> None:
    sink = opened(SqlSink(f"sqlite:///{tmp_path}/out.db", schema=SCHEMA))
    other = TaskId("clicks", 3)
    sink.take([other], TaskTerm(LINEAGE, next(TERMS)))
    for number, task in ((1, T0), (2, other), (3, T0)):
        sink.select(task)
        sink.execute("INSERT INTO seen VALUES (?)", (number,))
    assert sink.pre_commit(TaskId("", 9)) == b""
    both = due(sink) + due(sink, other)
    sink.commit(both[:1], AT)
    sink.commit(both, AT)
    assert [row[0] for row in sink._connection.execute("SELECT n FROM seen")] == [1, 3, 2]
    sink.close()


@pytest.mark.broker
def test_kafka_holds_each_effect_once_wherever_the_process_dies(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topics: list[str] = []

    def made(fuse: Fuse) -> BurningKafkaSink:
        if fuse.length > 0:
            topics.append(make_topic(2))
        return BurningKafkaSink(broker.bootstrap, topics[-1], fuse)

    def seen() -> list[int]:
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": unique("reader"),
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        reader.assign([confluent_kafka.TopicPartition(topics[-1], number, 0) for number in range(2)])
        found, ended = [], 0
        while ended < 2:
            message = reader.poll(10)
            assert message is not None
            if message.error():
                ended += 1
            else:
                assert message.headers() == [("n", message.value())]
                found.append(int(message.value()))
        reader.close()
        return found

    # All of the first two commits' places: before, after each of the offsets, and behind the transaction.
    die_everywhere(made, range(1, 13), seen)


@pytest.mark.broker
@pytest.mark.proves("CR-94")
@pytest.mark.parametrize("written_by_the_next", [True, False])
def test_an_owner_of_a_task_that_was_fenced_writes_only_what_is_missing(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Callable[[str], str], written_by_the_next: bool
) -> None:
    topic = make_topic(1)
    late, following = (KafkaSink(broker.bootstrap, topic, linger_ms=0) for _ in range(2))
    region = place(group=unique("group"))
    for sink in (late, following):
        sink.open(region)

    def commit(sink: KafkaSink, sequence: int) -> None:
        effects = packed(str(sequence).encode(), None, (), None, None)
        sink.commit([DueEffects(T0, [effects], {})], Witness(LINEAGE, sequence))

    commit(late, 1)
    commit(following, 2 if written_by_the_next else 1)  # fences the first one, which does not know of it
    commit(late, 2)
    commit(following, 3)
    late.take([T0], TaskTerm(LINEAGE, 7))  # closes a producer that is fenced
    for sink in (late, following):
        sink.close()
    assert committed(broker.bootstrap, topic) == [b"1", b"2", b"3"]


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """The values in a topic of one partition, without those of transactions that are not committed."""
    partition = TopicPartition(topic, 0)
    found: list[bytes | None] = []
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.assign([partition])
        end = reader.end_offsets([partition])[partition]
        while reader.position(partition) < end:
            found += [record.value for columns in reader.poll(1.0) for record in columns]
    return found


@pytest.mark.proves("CR-94")
@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_a_commit_of_a_transaction_that_is_over_is_looked_up_and_written_again(code: ErrorCode) -> None:
    """A fenced owner's commit, or one behind the broker's time-out, may have INVALID_TXN_STATE as its response. Brokers
    forget the transactional id of a task that rested for a week: its commit has INVALID_PRODUCER_ID_MAPPING."""
    with FakeBroker(topics={"out": 1}) as broker:
        sink = KafkaSink(broker.bootstrap, "out", linger_ms=0)
        sink.open(place())
        sink.take([T0], TaskTerm(LINEAGE, 1))
        over = broker.control("EndTxn", lambda _call: Answer(EndTxnResponse(error_code=code)), times=1)
        try:
            sink.commit([DueEffects(T0, [packed(b"x", None, (), None, None)], {})], Witness(LINEAGE, 1))
        finally:
            sink.close()
        assert over.calls == 1
        assert committed(broker.bootstrap, "out") == [b"x"]


@pytest.mark.proves("CR-94")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning", "error::ResourceWarning")
def test_a_fence_that_brokers_do_not_respond_to_leaves_no_producer_open() -> None:
    with FakeBroker(topics={"out": 1}) as broker:
        sink = KafkaSink(broker.bootstrap, "out", max_block_ms=100)
        sink.open(place())
        sink.take([T0], TaskTerm(LINEAGE, 1))
        away = broker.control("InitProducerId", lambda _call: Drop())
        effects = [DueEffects(T0, [packed(b"x", None, (), None, None)], {})]
        with pytest.raises(OperationTimeout):
            sink.commit(effects, Witness(LINEAGE, 1))
        gc.collect()
        away.remove()
        sink.commit(effects, Witness(LINEAGE, 1))
        sink.close()
        assert committed(broker.bootstrap, "out") == [b"x"]


@pytest.mark.proves("CR-94")
@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_an_owner_that_is_fenced_again_and_again_ends_with_a_fenced_error(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes with one name would fence each other for ever."""
    waits_s: list[float] = []
    monkeypatch.setattr("kohort.consistent_region.kafka_sink.time", SimpleNamespace(sleep=waits_s.append))
    with FakeBroker(topics={"out": 1}) as broker:
        sink = KafkaSink(broker.bootstrap, "out", linger_ms=0)
        sink.open(place())
        fenced = broker.control("EndTxn", lambda _call: Answer(EndTxnResponse(error_code=code)))
        with pytest.raises(FencedError, match=r"fenced 5 attempts \(topic=out, task=\S+, sequence=7\); end one of two"):
            sink.commit([DueEffects(T0, [packed(b"x", None, (), None, None)], {})], Witness(LINEAGE, 7))
        assert fenced.calls >= FENCED_ATTEMPTS
        assert len(waits_s) == FENCED_ATTEMPTS - 1
        assert 0 < sum(waits_s) < 3.2
        fenced.remove()
        sink.commit([DueEffects(T0, [packed(b"x", None, (), None, None)], {})], Witness(LINEAGE, 7))
        sink.close()
        assert committed(broker.bootstrap, "out") == [b"x"]


@pytest.mark.proves("I16")
def test_records_of_an_accepted_checkpoint_are_not_written_again() -> None:
    with FakeBroker(topics={"out": 1}) as broker:
        accepted = continued(LINEAGE, 1, "6a")
        for value, at in ((b"x", AT), (b"x", Witness(accepted, 1)), (b"y", Witness(accepted, 2))):
            sink = KafkaSink(broker.bootstrap, "out", linger_ms=0)
            sink.open(place())
            sink.take([T0], TaskTerm(at.lineage, next(TERMS)))
            sink.select(T0)
            sink.send(value)
            sink.commit(due(sink), at)
            sink.close()
        assert committed(broker.bootstrap, "out") == [b"x", b"y"]


def test_a_task_in_kafka_that_another_region_has_written_is_not_written_again() -> None:
    """Two regions of one name and group, or a member that stood still while an operator accepted an empty store."""
    with FakeBroker(topics={"out": 1}) as broker:
        first, second = (KafkaSink(broker.bootstrap, "out", linger_ms=0) for _ in range(2))
        for sink in (first, second):
            sink.open(place())
            sink.take([T0], TaskTerm("of any", 1))

        def commit(sink: KafkaSink, at: Witness) -> None:
            effects = packed(b"%d of %s" % (at.sequence, at.lineage.encode()), None, (), None, None)
            sink.commit([DueEffects(T0, [effects], {})], at)

        accepted = continued("another", 0, "6a")
        commit(first, AT)
        with pytest.raises(FencedError, match=r"another region has written the task.*task=0.*begin --anew"):
            commit(second, Witness("another", 1))
        commit(second, Witness(accepted, 1))
        for sequence in (2, 3):  # also in the next life, which has no memory of its last commit
            with pytest.raises(FencedError, match=r"another region has written the task.*task=0"):
                commit(first, Witness(LINEAGE, sequence))
            first.take([T0], TaskTerm(LINEAGE, sequence))
        for sink in (first, second):
            sink.close()
        assert committed(broker.bootstrap, "out") == [b"1 of 5f", b"1 of 6a<0:another"]


def test_an_empty_store_that_an_operator_accepted_writes_behind_the_lost_one() -> None:
    """The new store has no checkpoint, so its lineage names that there was an acceptance."""
    coordinator = RegionCoordinator(MemoryStore(), "r", "g", lambda: 0.0)
    ticket = coordinator.register("a").ticket
    coordinator.deregister(ticket)
    before = coordinator.record().past.lineage
    lineage = coordinator.accept_store()
    assert not Witness(before, 1).is_accepted
    assert Witness(lineage, 1).is_accepted
    assert not Witness(before, 9).covers(Witness(lineage, 1))


def test_records_for_a_cluster_that_lacks_the_input_are_written_without_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its brokers respond UNKNOWN_TOPIC_OR_PARTITION, which is retriable."""
    monkeypatch.setattr("kohort.consistent_region.kafka_sink.OFFSETS_S", 0.3)

    def unknown(call: Any) -> Answer | None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        part = TxnOffsetCommitResponsePartition(partition_index=P0.partition, error_code=code)
        topic = TxnOffsetCommitResponseTopic(name=P0.topic, partitions=(part,))
        return Answer(TxnOffsetCommitResponse(topics=(topic,))) if call.request.group_id == "g" else None

    with FakeBroker(topics={"out": 1}) as broker:
        refused = broker.control("TxnOffsetCommit", unknown)
        sink = KafkaSink(broker.bootstrap, "out", linger_ms=0)
        sink.open(SinkPlace("r", "g", lambda: ConsumerGroupMetadata("g", 7, "a member")))
        sink.take([T0], TaskTerm(LINEAGE, 1))
        requests = []
        for sequence in (1, 2):
            effects = packed(b"%d" % sequence, None, (), None, None)
            sink.commit([DueEffects(T0, [effects], positions(sequence))], Witness(LINEAGE, sequence))
            requests.append(refused.calls)
        sink.close()
        assert committed(broker.bootstrap, "out") == [b"1", b"2"]
    assert requests[0] == requests[1] > 0


def test_offsets_that_a_group_refuses_are_sent_again_by_the_next_generation_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cluster that has the topics but not the group would refuse those of each task and checkpoint."""

    def refused(call: Any) -> Answer | None:
        if call.request.group_id != "g" or call.request.generation_id_or_member_epoch == 8:
            return None
        code = ErrorCode.ILLEGAL_GENERATION
        part = TxnOffsetCommitResponsePartition(partition_index=P0.partition, error_code=code)
        topic = TxnOffsetCommitResponseTopic(name=P0.topic, partitions=(part,))
        return Answer(TxnOffsetCommitResponse(topics=(topic,)))

    with FakeBroker(topics={"out": 1, P0.topic: 1}) as broker:
        requests = broker.control("TxnOffsetCommit", refused)
        members = [ConsumerGroupMetadata("g", 7, "a member")]
        sink = KafkaSink(broker.bootstrap, "out", linger_ms=0)
        sink.open(SinkPlace("r", "g", lambda: members[-1]))
        sink.take([T0], TaskTerm(LINEAGE, 1))
        calls = []
        for sequence in (1, 2, 3):
            effects = packed(b"%d" % sequence, None, (), None, None)
            sink.commit([DueEffects(T0, [effects], positions(sequence))], Witness(LINEAGE, sequence))
            calls.append(requests.calls)
            if sequence == 2:
                members.append(ConsumerGroupMetadata("g", 9, "a member"))
        sink.close()
        assert committed(broker.bootstrap, "out") == [b"1", b"2", b"3"]
    assert calls[2] > calls[1] == calls[0] > 0
    assert caplog.text.count("the group's offsets are left out") == 2


def test_a_limit_of_frames_is_the_producers_own() -> None:
    """The consumer that reads the notes would refuse one that is below a Fetch response."""
    with FakeBroker(topics={"out": 1}) as broker:
        sink = KafkaSink(broker.bootstrap, "out", linger_ms=0, max_frame_bytes=1 << 20)
        sink.open(place())
        sink.take([T0], TaskTerm(LINEAGE, 1))
        try:
            sink.commit([DueEffects(T0, [packed(b"x", None, (), None, None)], {})], AT)
        finally:
            sink.close()
        assert committed(broker.bootstrap, "out") == [b"x"]


def test_a_transaction_that_a_killed_member_left_open_delays_no_other_member() -> None:
    """It has offsets of the group. Brokers abort it after a minute, unless the next owner of the task does."""
    with FakeBroker(topics={P0.topic: 1}) as broker:
        broker.produce(P0.topic, P0.partition, [(b"k", b"v")] * 3)
        with Producer(broker.bootstrap, transactional_id="killed") as killed:
            killed.begin()
            killed.send_offsets({P0: OffsetAndMetadata(0)}, ConsumerGroupMetadata("g"))
            handled: list[int] = []
            region = ConsistentRegion(
                "r",
                group="g",
                topics=[P0.topic],
                bootstrap=broker.bootstrap,
                start_position="beginning",
                handler=lambda record, _state: handled.append(record.offset),
            )
            with running(region):
                wait_until(lambda: handled == [0, 1, 2], patience_s=30.0)
                with Consumer(broker.bootstrap, group="g") as reader:
                    assert reader.committed([P0], stable=False) == {P0: None}
                    with pytest.raises(OperationTimeout):
                        reader.committed([P0], 0.1)
            killed.abort()


def test_a_sinks_notes_are_read_as_its_records_are_written() -> None:
    with FakeBroker(topics={"out": 1}) as broker:
        sink = KafkaSink(broker.bootstrap, "out", client_id="mine", linger_ms=0)
        sink.open(place())
        sink.take([T0], TaskTerm(LINEAGE, 1))
        sink.select(T0)
        sink.send(b"x")
        try:
            sink.commit(due(sink), AT)
        finally:
            sink.close()
        assert {call.client_id for call in broker.calls_of("OffsetFetch")} == {"mine"}


def test_two_sinks_of_one_member_have_notes_of_their_own(tmp_path: Path) -> None:
    url, books, state = f"sqlite:///{tmp_path}/out.db", Books(), DictState()
    sinks = {name: SqlSink(url, schema=SCHEMA) for name in ("a", "b")}
    effects = Effects(state, sinks, books)
    effects.open(place())
    effects.reset_initial()
    for number, sink in enumerate(sinks.values()):
        sink.execute("INSERT INTO seen VALUES (?)", (number,))
    books.add(effects.snapshot(positions(1)), 1)
    effects.completed()
    effects.close()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert [row[0] for row in database.execute("SELECT n FROM seen ORDER BY n")] == [0, 1]
    database.close()


def test_one_regions_name_in_two_groups_is_two_histories(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    for _life in ("first", "second"):
        for group in ("staging", "production"):
            sink = opened(SqlSink(url, schema=SCHEMA), group=group)
            sink.execute("INSERT INTO seen VALUES (?)", (len(group),))
            sink.commit(due(sink), AT)
            sink.close()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert sorted(row[0] for row in database.execute("SELECT n FROM seen")) == [7, 10]
    database.close()


def test_two_sinks_into_kafka_do_not_fence_each_other() -> None:
    with FakeBroker(topics={"one": 1, "two": 1}) as broker:
        sinks = {name: KafkaSink(broker.bootstrap, name, linger_ms=0) for name in ("one", "two")}
        effects = Effects(DictState(), sinks)
        effects.open(place())
        effects.reset_initial()
        try:
            for number in range(2):
                for name, sink in sinks.items():
                    sink.send(f"{name}{number}".encode())
                effects.books.add(effects.snapshot(positions(number + 1)), number + 1)
                effects.completed()
        finally:
            effects.close()
        for name in sinks:
            with Consumer(broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
                reader.assign([TopicPartition(name, 0)])
                found: list[bytes | None] = []
                while len(found) < 2:
                    found += [record.value for columns in reader.poll(5.0) for record in columns]
            assert found == [f"{name}0".encode(), f"{name}1".encode()]


def test_names_that_look_alike_are_two_sinks() -> None:
    with FakeBroker(topics={"out": 1}) as broker:
        places = [("bills", "eu-1"), ("bills-eu", "1"), ("bills/eu", "1"), ("bills", "eu/1")]
        for region, group in places:
            sink = KafkaSink(broker.bootstrap, "out")
            sink.open(place(region, group))
            sink.take([T0], TaskTerm(LINEAGE, 1))
            sink.select(T0)
            sink.send(b"x")
            sink.commit(due(sink), AT)
            sink.close()
        requests: list[Any] = [call.request for call in broker.calls_of("InitProducerId")]
    ids = ("bills/eu-1/0", "bills-eu/1/0", "bills%2Feu/1/0", "bills/eu%2F1/0")
    assert {one.transactional_id for one in requests} == {f"kohort-sink/{one}/out" for one in ids}


def test_what_a_sink_owes_is_not_forgotten_with_its_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/out.db"
    sink = SqlSink(url, schema=SCHEMA)
    effects = Effects(DictState(), {"bills": sink})
    effects.open(place())
    effects.reset_initial()
    sink.execute("INSERT INTO seen VALUES (7)")
    snapshot = effects.snapshot(positions(1))  # complete, and the process died
    effects.close()
    renamed = Effects(DictState(), {"invoices": SqlSink(url, schema=SCHEMA)})
    renamed.open(place())
    with pytest.raises(ConfigurationError, match=r"a sink 'bills'.*\{'bills': None"):
        renamed.restore(snapshot, positions(1))
    renamed.close()
    given_up = Effects(DictState(), {"bills": None})
    given_up.restore(snapshot, positions(1))


@pytest.mark.parametrize("owes", [True, False])
def test_a_region_that_has_no_sink_any_more_takes_up_its_state_and_nothing_else(owes: bool) -> None:
    before = packed_effects(b'{"a":1}', {"bills": [b"[]"] if owes else []})
    at = {TopicPartition("t", 0): RegionPosition(0)}
    with FakeBroker(topics={"t": 1}) as broker:
        store = MemoryStore()
        coordinator = RegionCoordinator(store, "r", "g")
        ticket = coordinator.register("m").ticket
        coordinator.put_initial(ticket, at)
        coordinator.take(ticket, 0, 1, 1, {T0: list(at)})
        barrier = coordinator.begin_checkpoint(ticket, 0).barrier
        assert barrier is not None
        coordinator.contribute(ticket, barrier, {T0: TaskState(at, before)})
        coordinator.deregister(ticket)
        made = ConsistentRegion(
            "r",
            group="g",
            topics=["t"],
            bootstrap=broker.bootstrap,
            coordinator=store,
            handler=print,
            trigger=Periodic(0.05),
            on_moment=lambda moment: made.stop() if moment.checkpoint == 2 else None,
        )
        if owes:
            with pytest.raises(ConfigurationError, match=r"a sink 'bills'"):
                made.run()
        else:
            made.run()
            assert coordinator.checkpoints() == (1, 2)
            cut = coordinator.manifest(2).of(T0)
            assert cut is not None
            assert coordinator.state(cut.state) == b'{"a":1}'


def test_a_schema_may_hold_semicolons(tmp_path: Path, postgres: RealPostgres) -> None:
    trigger = """
        CREATE TABLE IF NOT EXISTS log (text TEXT DEFAULT 'a;b'); -- one; two
        CREATE TRIGGER IF NOT EXISTS noted AFTER INSERT ON seen BEGIN INSERT INTO log VALUES ('a;b'); SELECT 1; END;
    """
    function = """; CREATE TABLE log (text TEXT); CREATE VIEW per_cent AS SELECT text FROM log WHERE text LIKE 'a%';
        CREATE FUNCTION noted() RETURNS trigger AS $$ BEGIN INSERT INTO log VALUES ('a;b'); RETURN NEW; END $$
        LANGUAGE plpgsql; CREATE TRIGGER noted AFTER INSERT ON seen FOR EACH ROW EXECUTE FUNCTION noted()"""
    urls = {f"sqlite:///{tmp_path}/out.db": trigger, postgres.fresh(): function}
    for url, schema in urls.items():
        sink = opened(SqlSink(url, schema=SCHEMA + ";" + schema))
        sink.execute("INSERT INTO seen VALUES (1)")
        sink.commit(due(sink), AT)
        assert sink._connection.execute("SELECT text FROM log").fetchall() == [("a;b",)]
        sink.close()


# --- the frame, and what is refused


def test_after_an_operators_reset_what_comes_then_is_committed(tmp_path: Path) -> None:
    books, state = Books(), DictState()
    url = f"sqlite:///{tmp_path}/out.db"
    for number in range(3):
        sink = BurningSqlSink(url, Fuse(-1))
        with life(sink, state, books) as (effects, offset):
            sink.add(number)
            books.add(effects.snapshot(positions(offset + 1)), offset + 1)
            effects.completed()
    del books.complete[1:]  # back to the first
    sink = BurningSqlSink(url, Fuse(-1))
    with life(sink, state, books) as (effects, offset):
        sink.add(100)
        books.add(effects.snapshot(positions(offset + 1)), offset + 1)
        effects.completed()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert [row[0] for row in database.execute("SELECT n FROM seen")] == [0, 1, 2, 100]
    database.close()


def test_two_resets_of_an_operator_have_that_checkpoints_effects_once(tmp_path: Path) -> None:
    books, state = Books(), DictState()
    for number in range(4):
        del books.complete[1:]  # back to the first
        sink = BurningSqlSink(f"sqlite:///{tmp_path}/out.db", Fuse(-1))
        with life(sink, state, books) as (effects, offset):
            sink.add(number)
            books.add(effects.snapshot(positions(offset + 1)), offset + 1)
            effects.completed()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert [row[0] for row in database.execute("SELECT n FROM seen")] == [0, 1, 2, 3]
    database.close()


def test_an_older_owner_that_was_stopped_in_a_commit_leaves_it_to_the_later_one(tmp_path: Path) -> None:
    books = Books()
    old, new = (SqlSink(f"sqlite:///{tmp_path}/out.db", schema=SCHEMA) for _ in range(2))
    with life(old, DictState(), books) as (before, _):
        old.execute("INSERT INTO seen VALUES (?)", (1,))
        books.add(before.snapshot(positions(1)), 1)
        before.completed()
        old.execute("INSERT INTO seen VALUES (?)", (2,))
        before.snapshot(positions(2))  # its checkpoint is complete, and the process stopped
        with life(new, DictState(), books) as (after, _):  # an operator went back to the first
            new.execute("INSERT INTO seen VALUES (?)", (100,))
            books.add(after.snapshot(positions(2)), 2)
            before.completed()
            after.completed()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert [row[0] for row in database.execute("SELECT n FROM seen")] == [1, 100]
    database.close()


def test_a_state_from_before_there_were_sinks_is_restored() -> None:
    state = DictState(a=1)
    inner = DictState()
    effects = Effects(inner, {})
    effects.restore(state.snapshot({}), {})
    assert inner == {"a": 1}
    effects.reset_initial()
    assert inner == {}


def test_effects_of_two_owners_are_one_tasks_until_a_checkpoint_has_them(tmp_path: Path) -> None:
    first, second = (SqlSink(f"sqlite:///{tmp_path}/out.db", schema=SCHEMA) for _ in range(2))
    old, new = (Effects(DictState(), {"out": sink}) for sink in (first, second))
    for one in (old, new):
        one.open(place())
    old.reset_initial()
    first.execute("INSERT INTO seen VALUES (1)")
    handed = old.states.leave({T0: positions(1)})[T0]
    old.states.keep(())
    new.states.fence([T0], new.term)
    new.states.start({T0: TaskStart(handed.offsets, handed)}, LINEAGE, no_blocks)  # of no checkpoint: none is due
    assert second._connection.execute("SELECT count(*) FROM seen").fetchone() == (0,)
    new.states.select(T0)
    second.execute("INSERT INTO seen VALUES (2)")
    new.books.add(new.snapshot(positions(2)), 2)
    new.completed()
    new.snapshot(positions(2))
    new.completed()
    assert [row[0] for row in second._connection.execute("SELECT n FROM seen")] == [1, 2]
    for one in (old, new):
        one.close()


@pytest.mark.parametrize(("version", "migrates"), [(1, True), (2, True), (3, True), (1, False)])
def test_an_older_state_is_migrated_once_and_a_newer_one_is_refused(version: int, migrates: bool) -> None:
    def migrate(old: int, state: StateHandle) -> None:
        assert isinstance(state, DictState)
        state["migrated"] = old

    state = DictState()
    states = TaskStates(lambda _task: state, {}, version=2, migrate=migrate if migrates else None)
    start = {T0: TaskStart({}, TaskState({}, b'{"a":1}', version), 1)}
    if version > 2 or not migrates:
        with pytest.raises(StateVersionError, match="state_version=2"):
            states.start(start, LINEAGE, no_blocks)
        return
    states.start(start, LINEAGE, no_blocks)
    assert state == ({"a": 1} if version == 2 else {"a": 1, "migrated": 1})
    assert states.leave({T0: {}})[T0].version == 2


@pytest.mark.proves("CR-72")
def test_torn_effects_are_refused_before_anything_is_carried_out() -> None:
    class Refusing(DictState):
        def restore(self, snapshot: bytes, offsets: Positions) -> None:
            raise AssertionError("not to be reached")

    whole = packed_effects(b'{"a":1}', {"out": [b"one", b"two"], "none": []})
    assert unpacked(whole) == (b'{"a":1}', {"out": [b"one", b"two"]})
    assert unpacked(packed_effects(whole, {})) == (whole, {})
    assert unpacked(packed_effects(b'{"a":1}', {"none": []})) == (b'{"a":1}', {})
    for damaged in (whole[:-1], whole + b"x", whole[:10], whole.replace(b'"state":7', b'"state":"')):
        with pytest.raises(ResetFailedError):
            Effects(Refusing(), {}).restore(damaged, {})


Field = st.none() | st.binary(max_size=20)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            Field,
            Field,
            st.lists(st.tuples(st.text(max_size=5), Field), max_size=3),
            st.none() | st.integers(0, 2**31 - 1),
            st.none() | st.integers(0, 2**62),
        ),
        max_size=4,
    )
)
def test_records_come_back_as_they_were_and_torn_ones_never(records: list[Any]) -> None:
    data = b"".join(packed(*one) for one in records)
    assert list(unpacked_records(data)) == records
    for cut in range(1, len(data)):
        try:
            found = list(unpacked_records(data[:cut]))
        except ResetFailedError:
            continue
        assert found == records[: len(found)]  # cut between two records: the frame around it shows it


def test_a_record_of_any_bytes_comes_back_whole() -> None:
    numbers: Any = memoryview(array("i", [1, 2, 3]))
    key: Any = bytearray(b"key")
    data = packed(numbers, key, [("name", numbers[::2])], None, None)
    (record,) = unpacked_records(data)
    assert record == (bytes(numbers), b"key", [("name", bytes(numbers[::2]))], None, None)
    with pytest.raises(TypeError):
        packed("text", None, (), None, None)  # type: ignore[arg-type]


def test_an_error_of_one_producer_leaves_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "first":
                raise OperationTimeout("the abort")

    sink = KafkaSink("localhost:1", "t")
    monkeypatch.setattr(sink, "_producers", {T0: Closing("first"), TaskId("", 1): Closing("second")})
    with pytest.raises(OperationTimeout):
        sink.close()
    assert sorted(closed) == ["first", "second"]


class Reusing(DictState):
    """A state that makes each snapshot in one buffer."""

    buffer: Any = bytearray()

    def snapshot(self, offsets: Positions) -> Any:
        self.buffer[:] = super().snapshot(offsets)
        return self.buffer


class Clearing(Listed):
    """A sink that collects in one buffer, and clears that."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer: Any = bytearray()

    def pre_commit(self, task: TaskId) -> Any:
        return self.buffer

    def abort(self, task: TaskId) -> None:
        self.buffer.clear()


def test_what_a_cut_has_does_not_change_with_the_buffers_of_its_state_and_its_sinks() -> None:
    state, sink = Reusing(n=1), Clearing()
    effects = Effects(state, {"out": sink})
    effects.open(place())
    effects.states.states[T0] = state
    sink.buffer += b"effect"
    effects.states.take_cut({T0: positions(1)})
    state["n"] = 2
    state.snapshot({})
    assert unpacked(effects.states.contribution()[T0].state) == (b'{"n":1}', {"out": [b"effect"]})


class Dropping(Listed):
    """A sink that drops the list of a task that it forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[TaskId, list[str]] = {}

    def select(self, task: TaskId) -> None:
        self.collected = self.lists.setdefault(task, [])

    def pre_commit(self, task: TaskId) -> bytes:
        return ",".join(self.lists.get(task, ())).encode()

    def abort(self, task: TaskId) -> None:
        self.lists.pop(task, None)


def test_effects_after_a_cut_are_not_collected_into_what_a_sink_has_dropped() -> None:
    sink = Dropping()
    effects = Effects(DictState(), {"out": sink})
    effects.reset_initial()
    for number, parts in ((1, [b"1"]), (2, [b"1", b"2"])):
        effects.states.select(T0)
        sink.collected.append(str(number))
        assert unpacked(effects.snapshot(positions(number)))[1] == {"out": parts}


@pytest.mark.parametrize("wrong", ["text", 5])
def test_a_snapshot_and_effects_that_are_no_bytes_are_refused(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    state, sink = DictState(), Listed()
    effects = Effects(state, {"out": sink})
    effects.reset_initial()
    monkeypatch.setattr(sink, "pre_commit", lambda _task: wrong)
    with pytest.raises(ConfigurationError, match=r"pre_commit returns bytes, not .*task=0"):
        effects.snapshot(positions(1))
    monkeypatch.setattr(state, "snapshot", lambda _offsets: wrong)
    with pytest.raises(ConfigurationError, match=r"snapshot returns bytes, not .*task=0"):
        effects.snapshot(positions(1))


def test_a_relative_path_of_a_database_is_that_of_its_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that changed the directory would write to another file after the next error."""
    monkeypatch.chdir(tmp_path)
    sink = SqlSink("sqlite:///out.db", schema=SCHEMA)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    opened(sink).execute("INSERT INTO seen VALUES (1)")
    sink.commit(due(sink), AT)
    sink.close()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == []


def test_a_task_that_leaves_takes_its_producer_along() -> None:
    """A member that runs for long would have open files for each task that it ever had."""
    t1 = TaskId("", 1)
    with FakeBroker(topics={"out": 1}) as broker:
        sink = KafkaSink(broker.bootstrap, "out")
        states = TaskStates(lambda _task: DictState(), {"out": sink})
        states.open(place())
        states.fence([T0, t1], TaskTerm(LINEAGE, 1))
        states.start({T0: TaskStart({}), t1: TaskStart({})}, LINEAGE, no_blocks)
        for task in (T0, t1):
            states.select(task)
            sink.send(b"value")
        states.take_cut({T0: positions(1), t1: positions(1)})
        states.completed(AT)
        assert sink._producers.keys() == {T0, t1}
        states.keep([t1])
        assert sink._producers.keys() == {t1}
        states.close()


def test_a_sink_belongs_to_one_member_under_one_name(tmp_path: Path) -> None:
    """The handlers of two members would collect into each other's tasks."""
    shared = SqlSink(f"sqlite:///{tmp_path}/out.db", schema=SCHEMA)

    def made(broker: FakeBroker, sinks: dict[str, TransactionalSink | None]) -> ConsistentRegion:
        return ConsistentRegion("r", group="g", topics=["t"], bootstrap=broker.bootstrap, handler=print, sinks=sinks)

    with FakeBroker(topics={"t": 1}) as broker:
        first = made(broker, {"out": shared})
        with running(first):
            while first.region_state() is RegionState.INITIALIZED:
                time.sleep(0.01)
            with pytest.raises(ConfigurationError, match="belongs to another member of this process"):
                made(broker, {"out": shared}).run()
            assert shared._connection is not None
        with pytest.raises(ConfigurationError, match="has another name too"):
            made(broker, {"out": shared, "copy": shared}).run()
        with running(made(broker, {"out": shared})):
            pass


def test_what_cannot_work_is_refused_at_once() -> None:
    for url in ("mysql://x", "sqlite:x.db", "sqlite:///", "sqlite:///:memory:"):
        with pytest.raises(ConfigurationError, match="unknown database"):
            SqlSink(url)
    for wrong in ({"linger": 5}, {"acks": 1}, {"linger_ms": "5"}):
        with pytest.raises(ConfigError):
            KafkaSink("localhost:1", "t", **wrong)
    with pytest.raises(ConfigurationError, match="transactional id"):
        KafkaSink("localhost:1", "t", transactional_id="mine")
    no_topics: tuple[Any, ...] = ("", None, 5, "\ud800")
    for no_topic in no_topics:  # the first commit would end each owner of the task
        with pytest.raises(ConfigurationError, match="topic"):
            KafkaSink("localhost:1", no_topic)
        with pytest.raises(ConfigurationError, match="dead_letter_topic"):
            KafkaSink("localhost:1", "t", dead_letter_topic=no_topic if no_topic is not None else "t")
    no_urls: tuple[Any, ...] = (None, Path("x.db"))
    for no_url in no_urls:
        with pytest.raises(ConfigurationError, match="url"):
            SqlSink(no_url)
    with pytest.raises(ConfigurationError, match="schema"):
        SqlSink("sqlite:///x.db", schema=None)  # type: ignore[arg-type]
    wrong_places: tuple[dict[str, Any], ...] = ({"partition": -2}, {"timestamp_ms": -2})
    for wrong_place in wrong_places:  # in a checkpoint they would end each next owner
        with pytest.raises(ValueError, match="is not negative: -2"):
            KafkaSink("localhost:1", "t").send(b"value", **wrong_place)
    sink = SqlSink("sqlite:///x.db")
    wrongs: tuple[Any, ...] = ({"n": 7}, "7", b"7")  # SQLite would have stored the name, the letter and the number
    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="are a sequence"):
            sink.execute("INSERT INTO t VALUES (:n)", wrong)
    sink.select(T0)
    assert sink.pre_commit(T0) == b""
    no_statements: tuple[Any, ...] = (None, 7, ["SELECT 1"])  # in a checkpoint they would end each next owner
    for no_statement in no_statements:
        with pytest.raises(ConfigurationError, match="a statement is text"):
            sink.execute(no_statement)
    with pytest.raises(ConfigurationError, match="no NUL"):
        sink.execute("INSERT INTO t VALUES (?)\0", (7,))
    for statement, value in (("INSERT INTO t VALUES (?)", b"bytes"), ("INSERT INTO \ud800 VALUES (?)", 7)):
        sink.execute(statement, (value,))
        with pytest.raises(ConfigurationError, match="JSON"):
            sink.pre_commit(T0)
        sink.abort(T0)


def test_after_any_end_of_the_stop_of_a_member_its_sinks_and_its_store_are_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A second Ctrl-C ends the stopping in this way."""
    closed: list[object] = []

    def interrupted(_self: RegionCoordinator, _ticket: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RegionCoordinator, "deregister", interrupted)
    monkeypatch.setattr(SqlSink, "close", lambda self: closed.append(self))
    monkeypatch.setattr(SqliteStore, "close", lambda self: closed.append(self))
    sink = SqlSink(f"sqlite:///{tmp_path}/out.db")
    with FakeBroker(topics={"t": 1}) as fake:
        region = ConsistentRegion(
            "r",
            group="g",
            topics=["t"],
            bootstrap=fake.bootstrap,
            member="a",
            handler=print,
            coordinator=f"sqlite:///{tmp_path}/region.db",
            sinks={"out": sink},
        )
        region.stop()
        with pytest.raises(KeyboardInterrupt):
            region.run()
    assert closed == [sink, region.coordinator.store]
