"""Effects that their target refuses: they end the member with the cause, or become dead letters, one by one."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kohort import Consumer, TopicPartition
from kohort.consistent_region import KafkaSink, SqlSink, TaskTerm
from kohort.consistent_region.effects import DueEffects
from kohort.consistent_region.errors import ConfigurationError, RegionError
from kohort.consistent_region.sql_dialects import POSTGRES, SQLITE
from kohort.consistent_region.witness import Witness
from kohort.producer import RecordTooLarge
from kohort.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kohort.testing import FakeBroker, RealPostgres
from kohort.testing.fake_broker.interventions import Answer
from tests.consistent_region.test_region_sinks import AT, LINEAGE, T0, due, opened, place

PAID = "CREATE TABLE IF NOT EXISTS paid (name TEXT PRIMARY KEY, amount INTEGER CHECK (amount > 0))"
TOPIC_AUTHORIZATION_FAILED = 29
ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", -1), ("d", 4)]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/out.db"
    server: RealPostgres = request.getfixturevalue("postgres")
    return server.fresh()


def paying(url: str, **settings: Any) -> SqlSink:
    sink = opened(SqlSink(url, schema=PAID, **settings))
    mark = sink._dialect.mark
    for row in ROWS:
        sink.execute(f"INSERT INTO paid VALUES ({mark}, {mark})", row)
    return sink


def rows(url: str, query: str) -> list[Any]:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            found = database.execute(query).fetchall()
        database.close()
        return found
    with psycopg.connect(url) as server:
        return server.execute(query.encode()).fetchall()


@pytest.mark.proves("CR-90")
def test_a_refused_statement_ends_the_member_with_its_cause_and_its_text(url: str) -> None:
    sink = paying(url)
    with pytest.raises(RegionError, match="rejected the transaction") as raised:
        sink.commit(due(sink), AT)
    assert "unique" in str(raised.value).lower()
    assert str(raised.value.place["statement"]).startswith("INSERT INTO paid")
    assert "dead_letters" in str(raised.value.hint)
    assert rows(url, "SELECT name FROM paid") == []
    sink.close()


@pytest.mark.proves("CR-90")
def test_refused_statements_become_dead_letters_and_the_others_are_carried_out_once(url: str) -> None:
    sink = paying(url, on_refused="dead_letters")
    for _ in range(2):
        sink.commit(due(sink), AT)
    assert rows(url, "SELECT name, amount FROM paid ORDER BY name") == [("a", 1), ("b", 2), ("d", 4)]
    dead = rows(url, "SELECT task, sink, sequence, statement_values, cause FROM kohort_dead_letters ORDER BY 4")
    assert [(task, name, number, json.loads(values)) for task, name, number, values, _ in dead] == [
        ("0", "out", 1, ["a", 3]),
        ("0", "out", 1, ["c", -1]),
    ]
    assert "unique" in dead[0][-1].lower()
    assert "check" in dead[1][-1].lower()
    assert sink.refused_total == 2
    sink.close()


@pytest.mark.proves("CR-90")
@pytest.mark.parametrize("places", [0, 2])
def test_a_statement_that_is_wrong_in_itself_is_refused(url: str, places: int) -> None:
    """No set-up cures it, and a mended handler does not replace what is owed."""
    first = paying(url)
    first.execute("INSRT INTO paid VALUES (5)")
    first.execute("INSERT INTO paid VALUES (" + ", ".join([first._dialect.mark] * places) + ")", ("e",))
    owed = due(first)
    with pytest.raises(RegionError, match="rejected the transaction"):
        first.commit(owed, AT)
    first.close()
    second = opened(SqlSink(url, schema=PAID, on_refused="dead_letters"))
    second.commit(owed, AT)
    assert rows(url, "SELECT name, amount FROM paid ORDER BY name") == [("a", 1), ("b", 2), ("d", 4)]
    assert second.refused_total == 4
    second.close()


def test_the_error_of_a_statement_that_is_wrong_in_itself_has_the_cure(url: str) -> None:
    for wrong, values in (("INSRT INTO paid VALUES (5)", ()), ("INSERT INTO paid VALUES (5, 5)", ("e",))):
        sink = opened(SqlSink(url, schema=PAID))
        sink.execute(wrong, values)
        with pytest.raises(RegionError, match="rejected the transaction") as raised:
            sink.commit(due(sink), AT)
        assert "dead_letters" in str(raised.value.hint)
        sink.close()


@pytest.mark.proves("CR-90")
def test_an_error_of_the_set_up_makes_no_dead_letters(url: str) -> None:
    sink = paying(url, on_refused="dead_letters")
    sink.execute("INSERT INTO nowhere VALUES (1)")
    with pytest.raises(RegionError, match="nowhere"):
        sink.commit(due(sink), AT)
    assert rows(url, "SELECT * FROM kohort_dead_letters") == rows(url, "SELECT * FROM paid") == []
    sink.close()


def test_only_errors_of_data_are_refusals() -> None:
    states = (("23505", True), ("22003", True), ("42601", True), ("42P01", False), ("57P01", False))
    for state, refuses in states:
        assert POSTGRES.refuses(psycopg.errors.lookup(state)()) is refuses
    assert not POSTGRES.refuses(psycopg.OperationalError("gone"))
    assert SQLITE.refuses(sqlite3.IntegrityError("x"))
    assert not SQLITE.refuses(sqlite3.OperationalError("no such table"))
    with pytest.raises(ConfigurationError, match="on_refused"):
        SqlSink("sqlite:///x.db", on_refused="ignore")  # type: ignore[arg-type]


# --- Kafka


def sending(bootstrap: str, values: list[bytes], **settings: Any) -> tuple[KafkaSink, list[DueEffects]]:
    sink = KafkaSink(bootstrap, "out", **settings)
    sink.open(place())
    sink.take([T0], TaskTerm(LINEAGE, 1))
    sink.select(T0)
    for number, value in enumerate(values):
        sink.send(value, key=b"%d" % number, headers=[("h", b"1")], partition=0)
    return sink, due(sink)


def test_a_partition_that_the_topic_lacks_is_refused_before_a_checkpoint_owes_its_record() -> None:
    with FakeBroker(topics={"out": 2}) as broker:
        sink = KafkaSink(broker.bootstrap, "out", linger_ms=0)
        sink.open(place())
        sink.take([T0], TaskTerm(LINEAGE, 1))
        sink.select(T0)
        sink.send(b"one", partition=1)
        for beyond in (2, 1 << 40):
            with pytest.raises(ConfigurationError) as raised:
                sink.send(b"lost", partition=beyond)
            assert raised.value.place == {"topic": "out", "partition": beyond}
        broker.add_partitions("out", 3)
        sink.send(b"two", partition=2)
        looked_up = len(broker.calls_of("Metadata"))
        sink.send(b"three", partition=1)
        assert len(broker.calls_of("Metadata")) == looked_up
        sink.commit(due(sink), AT)
        sink.close()
        sink.send(b"any", partition=-1)
        assert [one.value for one in read(broker.bootstrap, "out", 1, partition=2)] == [b"two"]


def read(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[Any]:
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(topic, partition)])
        found: list[Any] = []
        while len(found) < count:
            found += [record for columns in reader.poll(5.0) for record in columns]
        assert not reader.poll(0.2)
    return found


def refusing(broker: FakeBroker, code: int, word: bytes, *topics: str) -> None:
    """The broker refuses batches with this word for these topics."""

    def name_of(topic: Any) -> str:
        found = broker._cluster.topic_by_id(topic.topic_id)
        assert found is not None
        return found.name

    def control(call: Any) -> Any:
        sent = [(topic, one) for topic in call.request.topic_data for one in topic.partition_data]
        if not any(name_of(topic) in topics and word in bytes(one.records) for topic, one in sent):
            return None
        assert len(sent) == 1
        (topic, one) = sent[0]
        refused = PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
        of_topic = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=(refused,))
        return Answer(ProduceResponse(responses=(of_topic,)))

    broker.control("Produce", control)


@pytest.mark.proves("CR-90")
@pytest.mark.parametrize(("code", "name"), [(10, "MESSAGE_TOO_LARGE"), (87, "INVALID_RECORD")])
def test_a_refused_record_ends_the_member_with_its_cause_in_the_text(code: int, name: str) -> None:
    with FakeBroker(topics={"out": 1}) as broker:
        refusing(broker, code, b"bad", "out")
        sink, effects = sending(broker.bootstrap, [b"good", b"bad", b"fine"])
        with pytest.raises(RegionError, match=f"the sink's records were not written: {name}") as raised:
            sink.commit(effects, AT)
        assert "dead_letter_topic" in str(raised.value.hint)
        sink.close()


@pytest.mark.proves("CR-90")
@pytest.mark.parametrize("code", [10, 18, 87])
def test_refused_records_become_dead_letters_in_the_same_transaction(code: int) -> None:
    with FakeBroker(topics={"out": 1, "dead": 1}) as broker:
        refusing(broker, code, b"bad", "out")
        values = [b"one", b"bad1", b"two", b"bad2", b"three"]
        sink, effects = sending(broker.bootstrap, values, dead_letter_topic="dead")
        sink.commit(effects, AT)
        sink.commit(effects, AT)
        assert [one.value for one in read(broker.bootstrap, "out", 3)] == [b"one", b"two", b"three"]
        dead = read(broker.bootstrap, "dead", 2)
        assert [(one.key, one.value) for one in dead] == [(b"1", b"bad1"), (b"3", b"bad2")]
        headers = dict(dead[0].headers)
        assert {name: headers[name] for name in ("h", "kohort.topic", "kohort.task", "kohort.checkpoint")} == {
            "h": b"1",
            "kohort.topic": b"out",
            "kohort.task": b"0",
            "kohort.checkpoint": b"1",
        }
        assert b"[%d]" % code in headers["kohort.error"]
        assert sink.refused_total == 2
        sink.close()


@pytest.mark.proves("CR-90")
def test_a_record_that_the_dead_letter_topic_refuses_ends_the_member() -> None:
    with FakeBroker(topics={"out": 1, "dead": 1}) as broker:
        refusing(broker, 10, b"bad", "out", "dead")
        sink, effects = sending(broker.bootstrap, [b"bad"], dead_letter_topic="dead")
        with pytest.raises(RegionError, match="MESSAGE_TOO_LARGE"):
            sink.commit(effects, AT)
        sink.close()


def test_a_record_larger_than_a_request_is_a_refused_record() -> None:
    with FakeBroker(topics={"out": 1, "dead": 1}) as broker:
        settings = {"max_request_bytes": 2_000, "batch_bytes": 1_000}
        sink, effects = sending(broker.bootstrap, [b"a", b"x" * 3_000], **settings)
        with pytest.raises(RegionError, match="not written") as raised:
            sink.commit(effects, AT)
        assert "dead_letter_topic" in str(raised.value.hint)
        sink.close()
        assert issubclass(RecordTooLarge, Exception)


def test_other_ends_of_a_transaction_have_their_cause_in_the_text() -> None:
    with FakeBroker(topics={"out": 1, "dead": 1}) as broker:
        refusing(broker, TOPIC_AUTHORIZATION_FAILED, b"a", "out")
        sink, effects = sending(broker.bootstrap, [b"a"], dead_letter_topic="dead")
        with pytest.raises(RegionError, match="not allowed to write") as raised:
            sink.commit(effects, Witness(LINEAGE, 2))
        assert raised.value.hint is None
        sink.close()
