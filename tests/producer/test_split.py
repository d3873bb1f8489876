"""A batch that is too large for the broker is sent in two, as often as it takes (KIP-126)."""

from functools import partial
from typing import Any

import pytest

from kohort.fastpath._encode import seal
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import NoResponse
from kohort.producer import DeliveryTimeout
from kohort.producer._open_batch import encoded_headers
from kohort.producer.callback_queue import CallbackQueue
from kohort.producer.producer_batch import Deliveries
from kohort.protocol.errors import BrokerError, ErrorCode
from tests.producer.producer_world import TOPIC, World
from tests.producer.test_producer_machine import P0, ready

TOO_LARGE = 10


def note(calls: list[Any], what: object, _delivery: object) -> None:
    calls.append(what)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_batch_is_halved_until_its_parts_fit(compression: str) -> None:
    world = ready(batch_bytes=10_000, compression=compression)
    world.most_bytes = 300
    calls: list[bytes] = []
    values = [b"%02d" % number * 20 for number in range(30)]
    for value in values:
        world.send(value, 0, partial(note, calls, value))
    batch = world.sent[0][0].batch
    world.calm()
    assert world.logs[P0].values == values
    assert [delivery.result() for delivery, _ in world.sent] == [(TOPIC, 0, number) for number in range(30)]
    assert world.core.accumulator.buffered == 0
    assert world.core.transactions.producer.epoch == 0, "the parts have the batch's sequence numbers"
    CallbackQueue(world.core.accumulator.callbacks, lambda: None).call()
    assert calls == values
    assert batch.done
    assert batch.error is None


def test_a_batch_that_is_larger_than_a_segment_of_the_log_is_halved_too() -> None:
    world = ready(batch_bytes=10_000)
    world.most_bytes, world.too_large = 300, ErrorCode.RECORD_LIST_TOO_LARGE
    values = [b"x" * 400 if number == 17 else b"%02d" % number * 20 for number in range(30)]
    for value in values:
        world.send(value, 0)
    world.calm()
    assert world.logs[P0].values == values[:17] + values[18:]
    assert isinstance(error := world.sent[17][0].exception(), BrokerError)
    assert error.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_parts_have_the_headers_of_their_records_byte_for_byte() -> None:
    world = ready(batch_bytes=10_000)
    given: list[Any] = [(b"\xff", b"1"), ("\xe4", None), (b"\xff", b"")]
    headers = encoded_headers(given)
    for _ in range(2):
        delivery = world.core.append(world.now, TOPIC, None, b"v", headers, 0, 1, None)
    world.core.accumulator.close_batches()
    assert delivery is not None
    assert headers is not None
    parts = [part.body for part in delivery.batch.split()]
    assert [body is not None and seal(body).endswith(headers) for body in parts] == [True, True]


def test_one_record_that_is_too_large_fails_alone() -> None:
    world = ready(batch_bytes=100_000, max_request_bytes=100_000)
    world.most_bytes = 1_000
    for number in range(40):
        world.send(b"x" * 3_000 if number == 17 else b"%d" % number, 0)
    batch = world.sent[0][0].batch
    world.calm()
    assert world.logs[P0].values == [b"%d" % number for number in range(40) if number != 17]
    for number, (delivery, _) in enumerate(world.sent):
        error = delivery.exception()
        assert (error is None) == (number != 17)
    assert isinstance(error := world.sent[17][0].exception(), BrokerError)
    assert error.code == TOO_LARGE
    assert world.sent[39][0].result().offset == 38
    with pytest.raises(BrokerError):  # rows that were sent together
        Deliveries({batch: batch.count}, world.core.accumulator.wait).result()
    assert world.core.accumulator.unraised() == (1, None), "the delivery has raised it"


def test_the_order_of_callbacks_is_kept_where_a_split_batch_is_settled_late() -> None:
    world = ready(batch_bytes=1_000)
    calls: list[int] = []
    world.most_bytes = 500
    for number in range(60):
        world.send(b"%03d" % number * 20, 0, partial(note, calls, number))
        world.turn()
    world.calm()
    CallbackQueue(world.core.accumulator.callbacks, lambda: None).call()
    assert calls == list(range(60))


def test_a_batch_whose_first_response_was_lost_is_split_too() -> None:
    """A broker looks at the size first, so that it has refused the lost attempt as well."""
    world = ready()
    world.most_bytes = 70
    world.send(b"1", 0)
    world.send(b"2", 0)
    world.core.accumulator.close_batches()
    world.turn()
    (pending,) = [pipe.popleft() for pipe in world._pipes.values() if pipe]
    world.carry_out(pending)
    pending.done(NoResponse(ConnectionFailed("it broke")), world.now)
    world.calm()
    assert world.logs[P0].values == [b"1", b"2"]


def test_parts_expire_as_their_batch_would() -> None:
    world = ready(batch_bytes=10_000, request_timeout_ms=1_000, delivery_timeout_ms=10_000)
    world.most_bytes = 300
    for number in range(30):
        world.send(b"%02d" % number * 20, 0)
    world.core.accumulator.close_batches()
    world.turn()
    world.respond_to_one()
    world.code_of = lambda place: 6
    while not world.sent[0][0].done():
        world.turn()
        world.respond_to_one()
        world.now += 0.1
    assert isinstance(world.sent[0][0].exception(), DeliveryTimeout)
    assert world.core.accumulator.buffered == 0


def test_a_failure_that_a_callback_gets_is_raised_by_no_flush_after_a_split_either() -> None:
    world = ready(batch_bytes=10_000)
    world.most_bytes = 300
    for number in range(4):
        world.send(b"x" * (500 if number == 1 else 10), 0, partial(note, [], number))
    world.calm()
    assert world.core.accumulator.unraised() == (1, None)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_splits_among_faults_lose_double_and_reorder_nothing(first: int) -> None:
    split = 0
    for seed in range(first, first + 20):
        world = World(seed, batch_bytes=400)
        world.most_bytes = 200
        world.run(600)
        world.calm()
        expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for delivery, value in world.sent:
            reported = delivery.result()
            assert reported.offset == len(expected[reported.partition]), f"seed {seed}"
            expected[reported.partition].append(value)
            split += bool(delivery.batch.parts)
        assert {place.partition: log.values for place, log in world.logs.items()} == expected, f"seed {seed}"
        assert world.core.accumulator.buffered == 0
    assert split > 20
