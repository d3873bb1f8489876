"""Producers that write while brokers are killed, and note what is acknowledged or committed."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from kohort import Producer
from kohort.network.errors import OperationTimeout
from kohort.producer import Delivery, TransactionAborted

PARTITIONS = 6
PACE_S = 0.01
AT_ONCE = 20
MOST_OF_A_TRANSACTION = 60
UNSENT_BYTES = 1 << 20  # with so much that no broker has taken, nothing is added
PATIENT_MS = 600_000


class Writer:
    """Writes numbers to a topic on a thread of its own until `stop`. A number's partition follows from it."""

    settings: dict[str, Any] = {}

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.topic = topic
        self.written = 0
        self._bootstrap, self._chance = bootstrap, random.Random(f"{topic}-{seed}")
        self._over = threading.Event()
        self._thread = ThreadPoolExecutor(1, topic)
        self._done: Future[None] | None = None

    def start(self) -> None:
        self._done = self._thread.submit(self._run)

    def stop(self) -> None:
        """Write no more, and wait until everything is settled. Raises what has ended the writer."""
        self._over.set()
        assert self._done is not None
        self._done.result()
        self._thread.shutdown()

    def _run(self) -> None:
        with self._producer() as producer:
            while not self._over.wait(PACE_S):
                if producer.buffered_bytes < UNSENT_BYTES:
                    self._write(producer)

    def _producer(self) -> Producer:
        return Producer(
            self._bootstrap, max_block_ms=PATIENT_MS, delivery_timeout_ms=PATIENT_MS, compression="lz4", **self.settings
        )

    def _write(self, producer: Producer) -> None:
        raise NotImplementedError

    def _next(self) -> tuple[int, int]:
        """A number and its partition."""
        self.written += 1
        return self.written, self.written % PARTITIONS


class Acknowledged(Writer):
    """Notes the offset of each record that is acknowledged, and the error of each that has failed."""

    def __init__(self, bootstrap: str, topic: str, seed: int, **settings: Any) -> None:
        super().__init__(bootstrap, topic, seed)
        self.settings = settings
        self.offsets: dict[int, int] = {}
        self.called: dict[int, list[int]] = defaultdict(list)
        self.failed: dict[int, str] = {}

    def _write(self, producer: Producer) -> None:
        for _ in range(AT_ONCE):
            number, partition = self._next()
            producer.send(self.topic, b"%d" % number, partition=partition, on_delivery=self._note(number, partition))
        producer.poll()

    def _note(self, number: int, partition: int) -> Callable[[Delivery], None]:
        def note(delivery: Delivery) -> None:
            self.called[partition].append(number)
            error = delivery.exception(0)
            if error is None:
                self.offsets[number] = delivery.result(0).offset
            else:
                self.failed[number] = str(error)

        return note


class Transactional(Writer):
    """Writes transactions, of which it aborts some. `committed`: the numbers of those that were committed."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(bootstrap, topic, seed)
        self.settings = {"transactional_id": topic, "transaction_timeout_ms": 600_000}
        self.committed: list[int] = []
        self.commits = self.aborts = self.failures = 0

    def _write(self, producer: Producer) -> None:
        numbers: list[int] = []
        try:
            _settle(producer.begin)
            for _ in range(self._chance.randint(1, MOST_OF_A_TRANSACTION)):
                number, partition = self._next()
                numbers.append(number)
                producer.send(self.topic, b"%d" % number, partition=partition)
            if self._chance.random() < 0.2:
                _settle(producer.abort)
                self.aborts += 1
                return
            _settle(producer.commit)
        except TransactionAborted:
            _settle(producer.abort)
            self.failures += 1
            return
        self.committed += numbers
        self.commits += 1


def _settle(call: Callable[[], None]) -> None:
    """Call until the outcome is known."""
    while True:
        try:
            call()
        except OperationTimeout:
            continue
        return
