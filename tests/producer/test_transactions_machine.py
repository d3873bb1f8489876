"""Transactions on the machine: brokers and coordinators that answer when the test says so, and what it says."""

from collections.abc import Callable
from typing import Any

from kohort.coordinator_client.connections import Answered, Ask, Outcome
from kohort.producer.states import TxnState
from kohort.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.init_producer_id import InitProducerIdResponse
from tests.producer.producer_world import TOPIC, World


class TxnWorld(World):
    """One broker, which coordinates everything, and a producer that has begun a transaction."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(1, nodes=1, transactional_id="tx", **settings)
        self.faults = 0.0
        self.epoch = -1
        self.transactions = self.core.transactions
        self.until(lambda: self.core.partitions(TOPIC) is not None and self.state is TxnState.IDLE)
        self.transactions.begin()

    @property
    def state(self) -> TxnState:
        return self.transactions.state

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(200):
            if reached():
                return
            self.turn()
            self.answer_one()
        raise AssertionError("it never came to that")

    def carry_out(self, ask: Ask, trouble: bool = False) -> Outcome:
        match ask.api:
            case "FindCoordinator":
                answer: Any = FindCoordinatorResponse(error_code=0, node_id=0, host="b", port=1, coordinators=())
            case "InitProducerId":
                self.epoch += 1
                answer = InitProducerIdResponse(
                    throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=self.epoch
                )
            case "AddPartitionsToTxn":
                answer = AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=())
            case "EndTxn":
                answer = EndTxnResponse(throttle_time_ms=0, error_code=0)
            case _:
                return super().carry_out(ask, trouble)
        self.asked.append(ask.api)
        return Answered(answer, 3)


def test_a_refusal_beside_what_the_same_request_brought_in_fails_the_transaction_and_nothing_else() -> None:
    world = TxnWorld()
    world.code_of = lambda place: 10 if place.partition == 0 else 0
    refused, taken = world.send(b"too large, says the topic", 0), world.send(b"fits", 1)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.FAILED)
    assert refused is not None
    assert taken is not None
    assert refused.error is not None
    assert (taken.error, taken.base_offset) == (None, 0)
    assert world.core.buffered == 0
    world.transactions.abort()
    world.code_of = lambda _place: 0
    world.transactions.begin()
    world.send(b"once more", 0)
    world.transactions.commit()
    world.until(lambda: world.state is TxnState.IDLE)
    assert [len(log.values) for log in world.logs.values()] == [1, 1, 0]
