"""Slips of a newcomer: each is refused by the call it is made in, and the message says what to write instead."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, Producer, RebalanceHooks, ShareConsumer, TopicPartition
from kohort.admin import Admin
from kohort.common import KohortError
from kohort.coordinator_client import ConfigError, IllegalState
from kohort.coordinator_client.consumer_config import SETTINGS
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.fastpath import RecordColumns
from kohort.network.arguments import LONGEST_S, seconds_given
from kohort.producer.producer_config import ProducerConfig
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until

P0 = TopicPartition("t", 0)
Call = Callable[[Any], object]


class Coroutines(RebalanceHooks):
    async def on_assigned(self, event: object) -> None: ...


async def no_hook(*_given: object) -> None: ...


SLIPS: list[tuple[str, Call, type[Exception], str]] = [
    ("assign(tp)", lambda c: c.assign(P0), TypeError, r"not one partition; write \[TopicPartition"),
    ("assign(pair)", lambda c: c.assign(("t", 0)), TypeError, r"not one partition; write \[\('t', 0\)\]"),
    ("assign(str)", lambda c: c.assign("t"), TypeError, r"write \[TopicPartition\('t', 0\)\], or subscribe"),
    ("assign([str])", lambda c: c.assign(["t"]), TypeError, r"\(topic, number\), not one string"),
    ("assign(two letters)", lambda c: c.assign(["t0"]), TypeError, r"\(topic, number\), not one string"),
    ("assign(None)", lambda c: c.assign(None), TypeError, "a list of partitions is needed, not None"),
    ("assign([3])", lambda c: c.assign([3]), TypeError, r"as in TopicPartition\('payments', 0\), not 3"),
    ("assign offset", lambda c: c.assign({P0: "5"}), TypeError, "an offset is an int, not '5'"),
    ("until", lambda c: c.assign([P0], until=[P0]), TypeError, "offsets by partition are needed"),
    ("seek_to_beginning(tp)", lambda c: c.seek_to_beginning(P0), TypeError, "not one partition"),
    ("seek_to_end(str)", lambda c: c.seek_to_end("t"), TypeError, "not one string"),
    ("seek(str)", lambda c: c.seek(P0, "5"), TypeError, "an offset is an int, not '5'"),
    ("seek(early)", lambda c: c.seek(P0, 5), IllegalState, r"not assigned \(topic=t, partition=0\); assign\(\) it, or"),
    ("pause(tp)", lambda c: c.pause(P0), TypeError, "not one partition"),
    ("resume(tp)", lambda c: c.resume(P0), TypeError, "not one partition"),
    ("hold(tp)", lambda c: c.hold(P0), TypeError, "not one partition"),
    ("subscribe(None)", lambda c: c.subscribe(None), IllegalState, "neither was given.*subscribe\\(\\[...\\]\\)"),
    ("subscribe(both)", lambda c: c.subscribe(["t"], pattern="t"), IllegalState, "and not to both"),
    ("hooks=print", lambda c: c.subscribe(["t"], hooks=print), TypeError, "subclass of RebalanceHooks"),
    ("hooks=class", lambda c: c.subscribe(["t"], hooks=RebalanceHooks), TypeError, r"write hooks=RebalanceHooks\(\)"),
    ("on_done", lambda c: c.commit_async({P0: 1}, 3), TypeError, "on_done is a function, not 3"),
    ("on_done async", lambda c: c.commit_async({P0: 1}, no_hook), TypeError, "on_done is a plain function"),
]
WAITING: list[tuple[str, Call, type[Exception], str]] = [
    ("poll(None)", lambda c: c.poll(None), TypeError, "a number of seconds, not None"),
    ("poll(str)", lambda c: c.poll("1"), TypeError, "a number of seconds, not '1'"),
    ("poll(nan)", lambda c: c.poll(math.nan), ValueError, "not NaN"),
    ("poll(timeout_ms)", lambda c: c.poll(timeout_ms=100), TypeError, r"'timeout_ms'.*timeout_s=0\.1"),
    ("poll(timeout)", lambda c: c.poll(timeout=2), TypeError, "'timeout'.*timeout_s=2"),
    ("poll(max_records)", lambda c: c.poll(max_records=2), TypeError, "no argument 'max_records'"),
    ("poll()", lambda c: c.poll(0), IllegalState, "not subscribed to any topics or assigned any partitions"),
    ("committed(tp)", lambda c: c.committed(P0), TypeError, "not one partition"),
    ("end_offsets(tp)", lambda c: c.end_offsets(P0), TypeError, "not one partition"),
    ("beginning_offsets(str)", lambda c: c.beginning_offsets("t"), TypeError, "not one string"),
    ("offsets_for_times", lambda c: c.offsets_for_times([P0]), TypeError, "times .* by partition are needed"),
    ("offsets_for_times(s)", lambda c: c.offsets_for_times({P0: 1.5}), TypeError, "a time is an int, in ms"),
    ("partitions_for", lambda c: c.partitions_for(["t"]), TypeError, "a topic's name is a str"),
    ("commit(str)", lambda c: c.commit({"t": 1}), TypeError, r"\(topic, number\), not one string"),
    ("commit([tp])", lambda c: c.commit([P0]), TypeError, "offsets by partition are needed, as in"),
    ("commit(offset and metadata)", lambda c: c.commit({P0: (1, "note", -1)}), TypeError, "leader epoch, metadata"),
    ("commit(metadata)", lambda c: c.commit({P0: (1, -1, "x" * 40_000)}), ValueError, "40000 bytes.*limit is 32767"),
    ("commit(surrogate)", lambda c: c.commit({P0: (1, -1, "\ud800")}), ValueError, "the metadata of an offset cannot"),
    ("commit(no metadata)", lambda c: c.commit({P0: (1, -1, None)}), TypeError, "the metadata of an offset is a str"),
    ("commit(2**63)", lambda c: c.commit({P0: 2**63}), ValueError, "an offset has 63 bits"),
    ("commit(nan)", lambda c: c.commit({P0: 1}, timeout_s=math.nan), ValueError, "not NaN"),
    ("position(str)", lambda c: c.position("t"), TypeError, "not one string"),
    ("close(nan)", lambda c: c.close(math.nan), ValueError, "not NaN"),
    ("close(None)", lambda c: c.close(None), TypeError, "a number of seconds, not None"),
]


def by_name(slips: list[tuple[str, Call, type[Exception], str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("call", "kind", "says"), [pytest.param(*rest, id=name) for name, *rest in slips])


@by_name(SLIPS + WAITING)
def test_a_slip_is_raised_at_the_call_and_the_consumer_goes_on(call: Call, kind: type[Exception], says: str) -> None:
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        with pytest.raises(kind, match=says):
            call(consumer)
        assert consumer.commit_log() == ()  # nothing was begun
        assert consumer.end_offsets([P0]) == {P0: 0}


def test_the_asynchronous_consumer_says_the_same() -> None:
    async def try_all(bootstrap: str) -> None:
        async with AsyncConsumer(bootstrap, group="g") as consumer:
            for _name, call, kind, says in SLIPS:
                with pytest.raises(kind, match=says):
                    call(consumer)
            for _name, call, kind, says in WAITING:
                with pytest.raises(kind, match=says):
                    await _awaitable(call(consumer))
            consumer.subscribe(["t"], hooks=Coroutines())  # which it awaits
            assert await consumer.end_offsets([P0]) == {P0: 0}

    with FakeBroker(topics={"t": 1}) as fake:
        asyncio.run(try_all(fake.bootstrap))


def _awaitable(found: object) -> Awaitable[object]:
    assert isinstance(found, Awaitable)
    return found


def test_coroutine_hooks_are_for_the_asynchronous_consumer() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        with pytest.raises(TypeError, match="on_assigned is a coroutine function, which only AsyncConsumer awaits"):
            consumer.subscribe(["t"], hooks=Coroutines())
        assert consumer.subscription is None


@pytest.mark.parametrize("kind", [Consumer, Producer, Admin])
@pytest.mark.parametrize("name", ["bootstrap_servers", "servers", "brokers", "hosts", "broker_list"])
def test_the_brokers_by_another_name_are_pointed_to_bootstrap(kind: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{name}'.*did you mean 'bootstrap'"):
        kind(**{name: "localhost:9092"})
    with pytest.raises(ConfigError, match=r"bootstrap names no broker.*host:port"):
        kind()


def _made(kind: Any, settings: dict[str, Any]) -> object:
    return kind("a:1", **settings)


@pytest.mark.parametrize(
    ("make", "name", "meant"),
    [
        (lambda name: _made(Consumer, {name: "range"}), "partition_assignment_strategy", "assignors"),
        (lambda name: _made(Consumer, {name: "a"}), "client_rack", "rack"),
        (lambda name: _made(Consumer, {name: "ca.pem"}), "ssl_cafile", "ssl_ca_path"),
        (lambda name: _made(Producer, {name: 5}), "max_batch_size", "batch_bytes"),
        (lambda name: _made(Producer, {name: 5}), "queue.buffering.max.ms", "linger_ms"),
        (lambda name: Consumer.from_config({name: "5"}), "socket.timeout.ms", "request.timeout.ms"),
        (lambda name: Consumer.from_config({name: "5"}), "topic.metadata.refresh.interval.ms", "metadata.max.age.ms"),
        (lambda name: Consumer.from_config({name: "5"}), "session_timeout_ms", "session.timeout.ms"),
        (lambda name: Producer.from_config({name: "5"}), "message.max.bytes", "max.request.size"),
    ],
)
def test_a_setting_by_the_name_of_another_client_is_pointed_to_kohorts(make: Call, name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown .* '{name}'.*; did you mean '{meant}'"):
        make(name)


@pytest.mark.parametrize(
    ("make", "name", "reason"),
    [
        (lambda name: _made(Producer, {name: 5}), "retries", "a record is sent again until"),
        (lambda name: _made(Producer, {name: True}), "enable_idempotence", "acks='all' is always idempotent"),
        (lambda name: _made(Consumer, {name: 5}), "consumer_timeout_ms", "poll has a time-out"),
        (lambda name: Consumer.from_config({name: "false"}), "enable.auto.offset.store", "commit the offsets"),
        (lambda name: Producer.from_config({name: "5"}), "message.send.max.retries", "a record is sent again until"),
        (lambda name: Consumer.from_config({name: "x"}), "key.deserializer", "keys and values are bytes"),
    ],
)
def test_a_setting_of_other_clients_without_a_counterpart_is_to_be_left_out(make: Call, name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown .* '{name}'.*; leave it out: {reason}"):
        make(name)


@pytest.mark.parametrize("kind", [Consumer, Producer, Admin, ShareConsumer])
def test_settings_by_kafkas_names_are_pointed_to_from_config(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap must be .*, not a dict .*from_config takes") as raised:
        kind({"bootstrap.servers": "localhost:9092", "sasl.password": "secret"})
    assert "secret" not in str(raised.value)


def test_a_share_consumer_without_a_group_is_not_advised_to_leave_it_out() -> None:
    with pytest.raises(ConfigError, match=r"group must not be empty \(setting=group\); give it a value"):
        ShareConsumer("localhost:9092")


@pytest.mark.parametrize("name", ["on_delivery", "partitioner", "sasl_oauth_token"])
def test_a_coroutine_function_as_a_setting_is_refused(name: str) -> None:
    async def awaited(*_given: object) -> None: ...

    with pytest.raises(ConfigError, match=f"{name} must be a plain function, which is not awaited"):
        Producer("localhost:9092", **{name: awaited})  # type: ignore[arg-type]


def test_a_reset_callback_that_cannot_be_called_is_refused() -> None:
    for wrong in (3, no_hook):
        with pytest.raises(TypeError, match="on_reset is a"):
            Consumer("localhost:9092", on_reset=wrong)  # type: ignore[arg-type]


def read_one(consumer: Consumer) -> RecordColumns:
    consumer.assign({P0: 0})
    while not (found := consumer.poll(1.0)):
        pass
    return found[0]


def test_what_is_committed_instead_of_offsets_points_to_them() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        fake.produce("t", 0, [(None, b"v")])
        columns = read_one(consumer)
        with pytest.raises(TypeError, match=r"not RecordColumns; write columns\.next_offsets"):
            consumer.commit(columns)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"not a Record; write \{TopicPartition\(record.topic, record.partition\)"):
            consumer.commit(columns[0])  # type: ignore[arg-type]
        record = columns[0]
        consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})  # as the message says
        consumer.commit(columns.next_offsets)


def parted(consumer: Consumer) -> None:
    """A member that got its partitions, and left."""
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: bool(consumer.assignment))
    consumer.unsubscribe()


def set_down(consumer: Consumer) -> None:
    consumer.assign([P0])
    consumer.unsubscribe()


@pytest.mark.parametrize("unsaid", [lambda c: None, lambda c: c.unsubscribe(), parted, set_down])
def test_a_poll_of_nothing_is_refused_and_iteration_too(unsaid: Call) -> None:
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        unsaid(consumer)
        for attempt in (lambda: consumer.poll(60), lambda: next(iter(consumer))):
            with pytest.raises(IllegalState, match="not subscribed to any topics"):
                attempt()
        consumer.assign([P0])
        assert consumer.poll(0.01) == []


@pytest.mark.parametrize("said", [lambda c: c.assign([]), lambda c: c.subscribe([])])
def test_nothing_that_was_requested_is_polled(said: Call) -> None:
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap, group="g") as consumer:
        said(consumer)
        assert consumer.poll(0.01) == []


@pytest.mark.parametrize("endless", [math.inf, 1e12, 10**400])
def test_a_time_without_end_works_everywhere(endless: float) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        consumer = Consumer(fake.bootstrap, group="g", auto_offset_reset="earliest")
        consumer.assign([P0])
        assert len(consumer.poll(endless)) == 1
        assert consumer.position(P0, endless) == 1
        consumer.commit(timeout_s=endless)
        assert consumer.end_offsets([P0], endless) == {P0: 1}
        (committed,) = consumer.committed([P0], endless).values()
        assert committed is not None
        assert committed.offset == 1
        assert consumer.partitions_for("t", endless) == (P0,)
        consumer.close(endless)
        producer = Producer(fake.bootstrap)
        delivery = producer.send("t", b"v")
        producer.flush(endless)
        assert delivery.result(endless).offset == 1
        producer.close(endless)


def test_a_time_is_seconds_and_has_bounds() -> None:
    assert seconds_given(1.5) == 1.5
    assert seconds_given(-3) == 0.0
    assert seconds_given(math.inf) == seconds_given(10**400) == LONGEST_S
    assert seconds_given(-math.inf) == seconds_given(-(10**400)) == 0.0
    assert LONGEST_S * 1000 < 2**31  # selectors count milliseconds in an int32


def test_a_producer_refuses_what_is_no_time_and_no_member() -> None:
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap) as producer:
        for call in (producer.flush, producer.begin, producer.commit, producer.abort, producer.close):
            with pytest.raises(ValueError, match="not NaN"):
                call(math.nan)
        with pytest.raises(TypeError, match=r"group is consumer.group_metadata\(\), not 'g'"):
            producer.send_offsets({P0: 1}, "g")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="offsets by partition"):
            producer.send_offsets([P0], "g")  # type: ignore[arg-type]
        for topic in ("x" * 40_000, "\ud800", "", None):
            with pytest.raises(IllegalState, match="a topic name is"):
                producer.send(topic, b"v")  # type: ignore[arg-type]
        assert producer.send("t", b"v").result(120).offset == 0


SENT = [name for name, one in ({**SETTINGS, **ProducerConfig.table}).items() if one.kind == "sent"]


@pytest.mark.parametrize("name", SENT)
@pytest.mark.parametrize("text", ["half \ud800", "x" * 40_000, "a\0b"], ids=["surrogate", "long", "NUL"])
def test_a_setting_that_no_request_can_carry_is_refused_by_its_name(name: str, text: str) -> None:
    kind: Any = Consumer if name in SETTINGS else Producer
    with pytest.raises(ConfigError, match=f"{name} cannot be sent.*at most 32767 bytes") as raised:
        kind("localhost:9092", **{name: text})
    assert raised.value.place["setting"] == name
    assert "password" not in name or text[:8] not in str(raised.value)


def test_the_settings_that_are_sent_are_all_of_them() -> None:
    sent = {"client_id", "group", "group_instance_id", "rack", "remote_assignor", "transactional_id"}
    assert sent < set(SENT)


ADMIN: list[tuple[str, Call, type[Exception], str]] = [
    ("end_offsets(tp)", lambda a: a.end_offsets(P0), TypeError, "not one partition"),
    ("first_offsets(str)", lambda a: a.first_offsets("t"), TypeError, "not one string"),
    ("newest_ms(tp)", lambda a: a.newest_ms(P0), TypeError, "not one partition"),
    ("offsets_at", lambda a: a.offsets_at([P0]), TypeError, "times .* by partition"),
    ("offsets_at(2**64)", lambda a: a.offsets_at({P0: 2**64}), ValueError, "a time .* is from -6 to"),
    ("delete_topics", lambda a: a.delete_topics(["t"]), TypeError, r"must be separate arguments.*\*names"),
    ("delete_groups", lambda a: a.delete_groups(["g"]), TypeError, r"must be separate arguments.*\*names"),
    ("describe_topics", lambda a: a.describe_topics("t"), TypeError, r"not one string; write \['t'\]"),
    ("topic_configs", lambda a: a.topic_configs("t"), TypeError, "not one string"),
    ("remove_members", lambda a: a.remove_members("g", "m"), TypeError, "members is a list of names"),
    ("remove_members(reason)", lambda a: a.remove_members("g", reason=5), TypeError, "reason is a str, not 5"),
    ("remove_members(text)", lambda a: a.remove_members("g", reason="\ud800"), ValueError, "reason cannot be sent"),
    ("reset_offsets", lambda a: a.reset_offsets("g", [P0]), TypeError, "offsets by partition"),
    ("reset_offsets(str)", lambda a: a.reset_offsets("g", {P0: "1"}), TypeError, "an offset is an int, not '1'"),
    ("create_topic(str)", lambda a: a.create_topic("x", partitions="3"), TypeError, "partitions is an int"),
    ("create_topic(many)", lambda a: a.create_topic("x", replication_factor=2**15), ValueError, "from 1 to 32767"),
    ("create_topic(long)", lambda a: a.create_topic("x" * 40_000), ValueError, "limit is 32767"),
    ("create_topic(configs)", lambda a: a.create_topic("x", configs={"a": 3}), TypeError, "setting a is a str"),
    ("create_topic(config)", lambda a: a.create_topic("x", configs={"a": "\ud800"}), ValueError, "setting a cannot"),
    ("committed", lambda a: a.committed("\ud800"), ValueError, "group cannot be sent"),
    ("lag", lambda a: a.lag("x" * 40_000), ValueError, "group cannot be sent.*limit is 32767"),
    ("describe_group", lambda a: a.describe_group(None), TypeError, "group is a str, not None"),
    ("describe_topic", lambda a: a.describe_topic("\ud800"), ValueError, "invalid topic name"),
]


@by_name(ADMIN)
def test_admin_refuses_before_any_request(call: Call, kind: type[Exception], says: str) -> None:
    with FakeBroker(topics={"t": 1}) as fake, Admin(fake.bootstrap) as admin:
        with pytest.raises(kind, match=says) as raised:
            call(admin)
        assert not isinstance(raised.value, KohortError)
        assert admin.end_offsets([P0]) == {P0: 0}


@pytest.mark.parametrize(
    ("text", "back_ms"),
    [
        ("PT1H", 3_600_000),
        ("pt1h", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2M", 86_520_000),
        ("PT1,5S", 1_500),
        ("PT1.5S", 1_500),
        ("PT1.S", 1_000),
        ("PT0.0019S", 1),
        ("PT+1H", 3_600_000),
        ("-PT-1H", 3_600_000),
        ("PT1H-30M", 1_800_000),
        ("PT0S", 0),
        ("PT1M-0.5S", 59_500),
        ("+p1dt1s", 86_401_000),
    ],
)
def test_durations_are_those_of_java(text: str, back_ms: int) -> None:
    """As java.time.Duration.parse takes them (KIP-1106)."""
    assert ResetPolicy.of(f"by_duration:{text}").back_ms == back_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1H",
        "PT1",
        "PTH",
        "P1W",
        "P1M",
        "PT1.5H",
        "PT.5S",
        "PT1.1234567891S",
        "PT1H ",
        "PT1S1M",
        "-PT1H",
        "PT-1H",
        "PT٣H",
        "P99999999999999999999D",
    ],
)
def test_durations_that_java_refuses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset cannot be"):
        ResetPolicy.of(f"by_duration:{text}")
