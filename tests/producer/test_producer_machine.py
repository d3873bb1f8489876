"""The requests of a producer, their order and sequence numbers: on the machine, without a socket or a clock."""

from typing import Any
from uuid import UUID

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import AuthorizationFailed, IllegalState, UnknownTopic
from kohort.fastpath._encode import BatchBuilder, seal
from kohort.fastpath.batches import batches
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import NoResponse, ResponseReceived
from kohort.producer import DeliveryTimeout, ProducerClosed, RecordTooLarge, record_accumulator
from kohort.producer._open_batch import BufferedBytes, encoded_headers, record_size
from kohort.producer.producer_batch import NO_PRODUCER_ID, SEQUENCES, PartitionQueue, ProducerBatch, ProducerId
from kohort.protocol.errors import BrokerError
from tests.producer.producer_world import OUT_OF_ORDER, TOPIC, World, Written

P0 = TopicPartition(TOPIC, 0)
NOT_ALLOWED = 29  # TOPIC_AUTHORIZATION_FAILED


def ready(**settings: Any) -> World:
    """A world whose producer knows the topic and has its id."""
    world = World(1, **settings)
    world.faults = 0.0
    idempotent = world.core.sender.idempotent
    while world.partitions() is None or (idempotent and world.core.transactions.producer is NO_PRODUCER_ID):
        world.turn()
        world.respond_to_one()
    return world


def acquainted(**settings: Any) -> World:
    """A world whose broker has a batch of the producer in its log."""
    world = ready(**settings)
    world.send(b"first", 0)
    world.calm()
    return world


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_every_record_is_in_the_log_once_and_in_order_under_any_faults(first: int) -> None:
    resent, lean, alone = 0, (0, 0), 0
    for seed in range(first, first + 20):
        world = World(seed, linger_ms=5 * (seed % 2))
        if not seed % 2:
            world.sends, world.faults = 0.15, 0.1
        world.run(600)
        world.calm()
        expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for delivery, value in world.sent:
            reported = delivery.result()
            assert reported.offset == len(expected[reported.partition]), f"seed {seed}"
            expected[reported.partition].append(value)
        assert {place.partition: log.values for place, log in world.logs.items()} == expected, f"seed {seed}"
        assert world.core.accumulator.buffered == 0
        resent += world.requested.count("Produce")
        lean = (lean[0] + world.turns_for_records, lean[1] + world.followed_up)
        alone += world.sent_alone
    assert resent > 20 * len(expected)  # the faults did happen
    assert min(*lean, alone) > 20, "the short ways were taken"


def test_a_producer_is_at_rest_when_its_batches_are_acknowledged_and_needs_a_poll_before() -> None:
    world = ready()
    rests = world.core.is_at_rest
    assert rests()
    world.send(b"waits", 0)
    assert not rests()
    codes = iter([7])
    world.code_of = lambda place: next(codes, 0)
    world.turn()
    assert not rests()  # in flight
    world.respond_to_one()
    assert not rests()  # to be sent again
    world.calm()
    assert rests()
    assert not world.core.accumulator.busy
    world.core.retired = True
    assert not rests()  # it is to be stopped
    assert world.logs[P0].values == [b"waits"]


def test_without_the_numbers_the_same_faults_double_and_reorder() -> None:
    """The world detects faults: a broker that takes everything shows the faults that the numbers cure."""
    broken = 0
    for seed in range(30):
        world = World(seed)
        for log in world.logs.values():
            log.append = lambda records, log=log: (0, log.values.extend(_values(records)) or 0)  # type: ignore[method-assign, misc]
        world.run(600)
        world.calm()
        per_partition: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for delivery, value in world.sent:
            per_partition[delivery.batch.partition.partition].append(value)
        broken += {place.partition: log.values for place, log in world.logs.items()} != per_partition
    assert broken > 20


def _values(records: bytes) -> list[bytes]:
    from kohort.fastpath import decode

    return [bytes(value or b"") for value in decode(records).values]


@pytest.mark.parametrize("code", [45, 59, 47])
def test_a_broker_that_lost_count_is_counted_for_again_under_the_next_epoch(code: int) -> None:
    world = ready()
    world.send(b"first", 0)
    world.calm()
    assert world.logs[P0].epoch == 0
    refused = iter([code])
    world.code_of = lambda place: next(refused, 0)
    batch = world.send(b"second", 0)
    world.calm()
    assert world.core.transactions.producer == ProducerId(7, 1)
    assert (world.logs[P0].epoch, world.logs[P0].values) == (1, [b"first", b"second"])
    assert batch is not None
    assert batch.base_offset == 1


def test_out_of_order_behind_an_unsettled_batch_is_only_sent_again() -> None:
    world = acquainted()
    for _ in range(3):
        world.send(b"x" * 120, 0)
        world.turn()
    codes = iter([7, OUT_OF_ORDER, OUT_OF_ORDER])  # the first times out at its replicas, which the others follow from
    world.code_of = lambda place: next(codes, 0)
    world.calm()
    assert world.core.transactions.producer == ProducerId(7, 0)
    assert world.logs[P0].next_sequence == 4


def test_a_refused_batch_gives_its_numbers_back_and_the_next_goes_through() -> None:
    world = ready()
    codes = iter([10])
    world.code_of = lambda place: next(codes, 0)
    refused = world.send(b"too large, says the topic", 0)
    world.calm()
    assert refused is not None
    assert isinstance(refused.error, BrokerError)
    assert refused.error.code == 10
    world.send(b"fits", 0)
    world.calm()
    assert world.logs[P0].values == [b"fits"]
    assert world.core.transactions.producer.epoch == 0


@pytest.mark.parametrize("before", [20, 7, None])
def test_the_numbers_of_a_refused_batch_that_may_be_in_the_log_are_no_others(before: int | None) -> None:
    """The next batch under them would be a duplicate to the broker: acknowledged, and not written."""
    world = ready()
    codes = iter([0, 29])
    world.code_of = lambda place: next(codes, 0)
    refused = world.send(b"written, and its response lost", 0)
    world.turn()
    world.now += 1
    world.turn()
    (pending,) = [pipe.popleft() for pipe in world._pipes.values() if pipe]
    written = world.carry_out(pending)
    if before is None:
        pending.done(NoResponse(ConnectionFailed("it broke")), world.now)
    else:
        assert isinstance(written, ResponseReceived)
        (topic,) = written.value.responses
        (partition,) = topic.partition_responses
        reported = topic._replace(partition_responses=(partition._replace(error_code=before),))
        pending.done(ResponseReceived(written.value._replace(responses=(reported,)), 11), world.now)
    world.calm()
    assert refused is not None
    assert isinstance(refused.error, AuthorizationFailed)
    world.send(b"the next one", 0)
    world.calm()
    assert world.logs[P0].values == [b"written, and its response lost", b"the next one"]


def test_a_broker_that_does_not_know_what_went_wrong_may_have_written_the_batch() -> None:
    world = ready()
    log = world.logs[P0]
    append, reported = log.append, iter([-1])
    log.append = lambda records: (next(reported, 0), append(records)[1])  # type: ignore[method-assign]
    world.send(b"written all the same", 0)
    world.calm()
    world.send(b"the next one", 0)
    world.calm()
    assert log.values == [b"written all the same", b"the next one"]


def test_numbers_that_others_took_meanwhile_cost_one_epoch_and_no_record() -> None:
    world = acquainted()
    world.send(b"x" * 120, 0)
    world.turn()
    world.send(b"y" * 120, 0)
    world.turn()
    codes = iter([87])
    world.code_of = lambda place: next(codes, 0)
    world.calm()
    assert world.logs[P0].values == [b"first", b"y" * 120]
    assert world.core.transactions.producer.epoch == 1


def test_a_record_that_no_broker_takes_is_given_up_and_said_whether_it_left() -> None:
    world = ready(delivery_timeout_ms=60_000, request_timeout_ms=1_000)
    world.code_of = lambda place: 19
    batch = world.send(b"x", 0)
    until = world.now + 70
    while world.now < until:
        world.turn()
        world.respond_to_one()
    assert batch is not None
    assert isinstance(batch.error, DeliveryTimeout)
    assert batch.error.place["sent"] is True
    assert world.core.accumulator.buffered == 0
    world.code_of = lambda place: 0
    world.send(b"later", 0)
    world.calm()
    assert world.logs[P0].values == [b"later"]


@pytest.mark.parametrize("code", [6, 19])
def test_no_batch_overtakes_the_first_one_of_a_producer_id(code: int) -> None:
    """A broker that does not know the id takes a batch with any number, also behind a refused one."""
    world = ready(nodes=1, partitions=1)
    log, codes = world.logs[P0], iter([code])
    world.code_of = lambda place: next(codes, 0)
    for number in range(9):
        world.send(b"%d" % number * 120, 0)
    for _ in range(20):
        world.turn()
    lane = world.core.accumulator.lanes[P0]
    assert (lane.in_flight, lane.known) == (1, False)
    world.calm()
    assert lane.known
    assert [value[:1] for value in log.values] == [b"%d" % number for number in range(9)]


def test_no_batch_overtakes_the_first_one_of_a_topic_that_was_created_again() -> None:
    """Its log does not know the id."""
    world = acquainted(nodes=1, partitions=1)
    world.topic_id, world.logs[P0] = UUID(int=2), Written()
    world.core.metadata.request_update()
    while world.core.metadata.view.topic_id(TOPIC) != world.topic_id:
        world.now += 1
        world.turn()
        world.respond_to_one()
    for number in range(9):
        world.send(b"%d" % number * 120, 0)
    for _ in range(20):
        world.turn()
    lane = world.core.accumulator.lanes[P0]
    assert (lane.in_flight, lane.known) == (1, False)
    world.calm()
    assert lane.known
    assert [value[:1] for value in world.logs[P0].values] == [b"%d" % number for number in range(9)]


def test_at_most_five_requests_wait_for_a_broker() -> None:
    world = acquainted(nodes=1, partitions=1)
    for _ in range(9):
        world.send(b"x" * 120, 0)
    for _ in range(20):
        world.turn()
    (pipe,) = [pipe for pipe in world._pipes.values() if pipe]
    assert [pending.api for pending in pipe] == ["Produce"] * 5
    assert world.core.accumulator.lanes[P0].in_flight == 5


def test_no_more_than_the_buffer_is_taken_and_room_comes_back() -> None:
    world = ready(buffer_bytes=1_000, max_request_bytes=500, batch_bytes=200)
    taken = 0
    while world.send(b"x" * 100, 0) is not None:
        taken += 1
    assert taken * 100 <= world.core.accumulator.buffered <= 1_000
    world.calm()
    assert world.core.accumulator.buffered == 0
    assert world.send(b"again", 0) is not None
    with pytest.raises(RecordTooLarge) as raised:
        world.send(b"x" * 501, 0)
    assert raised.value.place["max_request_bytes"] == 500


def test_the_error_of_a_record_that_compression_could_make_small_names_its_size_before_that() -> None:
    size = record_size(None, b"x" * 1_000, None)
    for codec, text in (
        ("none", f"a record of {size} bytes"),
        ("gzip", f"a record of {size} bytes before compression"),
    ):
        world = ready(compression=codec, max_request_bytes=1_000, batch_bytes=200)
        with pytest.raises(RecordTooLarge) as raised:
            world.send(b"x" * 1_000, 0)
        assert raised.value.message == text


def test_a_record_whose_room_another_thread_takes_leaves_no_batch_that_is_never_sent() -> None:
    world = ready(buffer_bytes=500, max_request_bytes=500, batch_bytes=500)
    core = world.core
    world.send(b"open", 0)

    def fill() -> None:  # as another thread, whose records need no lock
        core.wake = lambda: None
        while core.accumulator.open.append(TOPIC, None, b"x" * 30, None, 0, 1):
            pass

    core.wake = fill
    assert world.send(b"y" * 200, 1) is None
    world.calm()
    assert world.send(b"next", 1) is not None
    world.calm()
    assert world.logs[TopicPartition(TOPIC, 1)].values == [b"next"]
    assert core.accumulator.buffered == 0


def test_batches_linger_and_a_full_one_does_not() -> None:
    world = ready(linger_ms=1_000)
    world.send(b"x", 0)
    world.turn()
    assert not any(world._pipes.values())
    world.send(b"x" * 200, 1)
    world.turn()
    assert sum(map(len, world._pipes.values())) == 1
    world.now += 1.0
    world.turn()
    assert sum(map(len, world._pipes.values())) == 2


def test_what_cannot_be_sent_yet_gathers_in_few_batches() -> None:
    world = acquainted(linger_ms=0, batch_bytes=100_000, max_in_flight=2)
    for n in range(500):
        world.send(b"%d" % n, 0)
        world.turn()  # its next two batches have one record each, and no response
    lane = world.core.accumulator.lanes[P0]
    assert [batch.count for batch in lane.queue if batch.closed] == [1, 1]
    assert lane.open is not None
    world.calm()
    assert world.logs[P0].values == [b"first", *(b"%d" % n for n in range(500))]
    assert len(world.requested) - world.requested.index("Produce") == 4


def test_while_a_partition_cannot_be_sent_to_records_without_a_key_go_elsewhere() -> None:
    world = ready(linger_ms=0, batch_bytes=100_000, max_in_flight=1)
    for _ in range(300):
        world.send(b"x")
        world.turn()  # no response
    gathered = [lane.open.count for lane in world.core.accumulator.lanes.values() if lane.open is not None]
    assert len(gathered) == 3
    assert min(gathered) > 50


def test_a_batch_that_cannot_be_sent_takes_no_late_comers_and_is_given_up_in_time() -> None:
    world = ready(linger_ms=0, batch_bytes=100_000, request_timeout_ms=1_000, delivery_timeout_ms=10_000)
    world.core.metadata.view = world.core.metadata.view.with_leaders([(P0, 99, 9)])  # which is unknown
    began = world.now
    first, second = world.send(b"1", 0), world.send(b"2", 0)
    assert first is second
    assert first is not None
    world.now = began + 0.9
    world.turn()
    assert world.send(b"3", 0) is first
    world.now = began + 1.1
    world.turn()
    late = world.send(b"4", 0)
    assert late is not None
    assert late is not first
    world.now = began + 9.9
    world.turn()
    assert not first.done
    world.now = began + 10.0
    world.turn()
    assert isinstance(first.error, DeliveryTimeout)
    assert not late.done
    world.now = began + 11.2
    world.turn()
    assert isinstance(late.error, DeliveryTimeout)


def test_a_partition_that_moves_is_followed_only_when_nothing_is_in_flight() -> None:
    world = ready(nodes=2)
    world.send(b"x" * 120, 0)
    world.turn()
    world.logs[P0].leader = 1
    world.core.metadata.view = world.core.metadata.view.with_leaders([(P0, 1, 9)])
    world.send(b"y" * 120, 0)
    world.turn()
    assert world.core.accumulator.lanes[P0].in_flight == 1
    world.calm()
    assert world.core.accumulator.lanes[P0].node == 1
    assert world.logs[P0].values == [b"x" * 120, b"y" * 120]


def test_a_request_holds_no_more_than_it_may_and_no_partition_starves() -> None:
    world = ready(nodes=1, max_request_bytes=250, batch_bytes=100, max_in_flight=1)
    for _ in range(3):
        for partition in range(3):
            world.send(b"x" * 100, partition)
    world.turn()
    (pipe,) = [pipe for pipe in world._pipes.values() if pipe]
    sizes = [len(data.records) for topic in pipe[0].request(11).topic_data for data in topic.partition_data]
    assert len(sizes) == 2
    world.calm()
    assert [len(log.values) for log in world.logs.values()] == [3, 3, 3]


def test_errors_of_a_topic_are_for_calls_that_send_to_it() -> None:
    world = ready()
    assert world.partitions("secret") is None
    world.core.put_error(AuthorizationFailed("not allowed to read the topic", topic="secret"))
    with pytest.raises(AuthorizationFailed, match="write"):
        world.partitions("secret")
    with pytest.raises(UnknownTopic):
        world.send(b"x", 99)


def test_a_header_without_a_name_is_refused_and_harms_no_record_beside_it() -> None:
    world = ready()
    world.send(b"before", 0)
    with pytest.raises(ValueError, match="name"):
        encoded_headers([("a", b"1"), (None, b"2")])  # type: ignore[list-item]
    world.send(b"after", 0)
    world.calm()
    assert world.logs[P0].values == [b"before", b"after"]


def test_an_error_without_a_waiter_is_over_when_the_topic_is_there() -> None:
    world = ready()
    world.core.put_error(UnknownTopic("no such topic", topic=TOPIC))
    assert world.partitions() == 3
    world.core.metadata.view = world.core.metadata.view.forgetting(())  # one broker that does not know it yet
    assert world.partitions() is None


def test_a_topic_that_is_away_for_a_while_is_asked_about_while_records_wait_for_it() -> None:
    world = ready()
    accepted = world.send(b"accepted", 0)
    world.core.metadata.view = world.core.metadata.view.forgetting(())
    world.core.put_error(UnknownTopic("no such topic", topic=TOPIC))
    world.core.accumulator.close_batches()
    with pytest.raises(UnknownTopic):
        world.send(b"refused", 0)
    world.calm()
    assert accepted is not None
    assert (accepted.error, world.logs[P0].values) == (None, [b"accepted"])


@pytest.mark.parametrize("topic", [b"t", None, 5, "", "t\udcff"])
def test_what_is_no_topic_is_refused_before_a_request(topic: Any) -> None:
    world = ready()
    with pytest.raises(IllegalState, match="topic name"):
        world.core.add_topic(topic)
    world.send(b"x", 0)
    world.calm()
    assert world.logs[P0].values == [b"x"]


def _no_wait(_reached: object, _timeout_s: object) -> None:
    raise AssertionError("a test waits for nothing")


def test_sequence_numbers_begin_again_after_the_last() -> None:
    lane = PartitionQueue(P0)
    lane.producer, lane.next_sequence = ProducerId(7, 0), SEQUENCES - 2
    first, second = (ProducerBatch(P0, 0.0, BufferedBytes(1_000), 1_000, _no_wait) for _ in range(2))
    for batch, count in ((first, 5), (second, 1)):
        for _ in range(count):
            batch.append(None, b"x", None, 1)
    lane.number(first, lane.producer)
    lane.number(second, lane.producer)
    assert (first.sequence, second.sequence) == (SEQUENCES - 2, 3)


def test_a_used_up_epoch_requests_another_id() -> None:
    world = ready()
    world.core.transactions.producer = ProducerId(7, 32_767)
    codes = iter([OUT_OF_ORDER])
    world.code_of = lambda place: next(codes, 0)
    world.send(b"x", 0)
    world.calm()
    assert world.requested.count("InitProducerId") == 2
    assert world.core.transactions.producer == ProducerId(7, 0)


def test_a_body_is_sealed_as_often_as_it_is_sent() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v", 5)
    body = builder.finish("lz4")
    first, again = seal(body, producer_id=1, base_sequence=3), seal(body, producer_id=1, base_sequence=9)
    assert [one.base_sequence for data in (first, again) for one in batches(data)] == [3, 9]


def test_what_is_in_flight_when_the_producer_is_closed_is_acknowledged_or_hung_up() -> None:
    world = ready()
    first, second = world.send(b"x" * 120, 0), world.send(b"y" * 120, 1)
    world.turn()
    closed = ProducerClosed("the producer was closed")
    world.core.fail(closed)
    assert first is not None
    assert second is not None
    assert not first.done
    world.faults = 0.0
    world.respond_to_one()  # its request is laid out only now
    assert sorted((batch.done, batch.error is None) for batch in (first, second)) == [(False, True), (True, True)]
    world.core.accumulator.fail_in_flight(closed)
    assert (world.core.accumulator.buffered, world.core.accumulator.idle) == (0, True)
    assert {first.error, second.error} == {None, closed}


def test_the_driver_is_woken_before_a_batch_is_opened() -> None:
    """An interrupt between the two would leave the batch, and what later joins it, to a driver that sleeps."""
    world = ready(linger_ms=0, batch_bytes=1_000)

    def interrupted() -> None:
        raise KeyboardInterrupt

    world.core.wake = interrupted
    with pytest.raises(KeyboardInterrupt):
        world.send(b"x", 0)
    assert not world.core.accumulator.lanes[P0].queue
    assert world.core.accumulator.buffered == 0
    woken: list[int] = []
    world.core.wake = lambda: woken.append(len(world.core.accumulator.lanes[P0].queue))
    world.send(b"y", 0)
    world.send(b"z", 0)
    assert woken == [0]


def test_a_record_that_is_refused_leaves_nothing_behind() -> None:
    world = ready()
    for value in ("not bytes", 5):
        with pytest.raises(TypeError):
            world.send(value, 0)  # type: ignore[arg-type]
    assert (world.core.accumulator.buffered, world.core.accumulator.lanes) == (0, {})
    world.send(b"x", 0)
    with pytest.raises(TypeError):
        world.send("not bytes", 0)  # type: ignore[arg-type]
    assert world.core.accumulator.lanes[P0].queue[0].count == 1
    world.calm()
    assert (world.logs[P0].values, world.core.accumulator.buffered) == ([b"x"], 0)


def refused(world: World) -> ProducerBatch:
    """A batch that the broker refuses."""
    world.code_of = lambda _place: NOT_ALLOWED
    batch = world.send(b"x" * 120, 0)
    assert batch is not None
    while not batch.done:
        world.turn()
        world.respond_to_one()
    return batch


def test_a_failure_that_no_call_has_raised_is_kept_among_any_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_accumulator, "FAILURES_KEPT", 10)
    world = ready()
    first = refused(world)
    for _ in range(25):
        refused(world).failure(0, 0)
    assert world.core.accumulator.unraised() == (26, first.error)
    assert len(world.core.accumulator.failures) <= 10


def test_of_too_many_failures_that_no_call_has_raised_the_first_and_the_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_accumulator, "FAILURES_KEPT", 10)
    world = ready()
    batches = []
    for _ in range(25):
        batches.append(refused(world))
        kept = [batch for _, batch in world.core.accumulator.failures]
        assert (kept[0], kept[-1]) == (batches[0], batches[-1])
        assert len(kept) <= 10
    world.core.accumulator.failures_raised = 24  # by a flush
    refused(world)
    assert world.core.accumulator.unraised() == (26, batches[-1].error)


def test_failures_are_raised_once_and_kept_until_then() -> None:
    world = ready(delivery_timeout_ms=1_000, request_timeout_ms=500)
    world.send(b"x" * 120, 0)
    world.send(b"y" * 120, 1)
    world.now += 2.0
    world.turn()
    counted, error = world.core.accumulator.unraised()
    assert (counted, world.core.accumulator.unraised()) == (2, (2, error))  # an interrupted flush raises it again
    assert isinstance(error, DeliveryTimeout)
    world.core.accumulator.failures_raised = counted
    assert world.core.accumulator.unraised() == (2, None)
    world.core.accumulator.unsettled()
    assert not world.core.accumulator.failures
