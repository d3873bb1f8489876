"""The log that the region and Spark read: written in transactions, of which a third is aborted, while brokers fall."""

import random
import threading
import time
from contextlib import suppress

from kohort.common import KohortError
from kohort.producer import Producer

KEYS = 1_000
EVERY_S = 0.5
TRANSACTION_S = 60.0
PATIENT_MS = 300_000


class Ledger(threading.Thread):
    """Writes about `rate` records a second until `finish`. Nothing is ever promised here: the log is what was written.

    A transaction in which anything goes wrong is given up, and so is its producer; the next one with its transactional
    id aborts it (KIP-98). `given_up`: how often that was.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int, seed: int) -> None:
        super().__init__(name="ledger", daemon=True)
        self.committed = self.aborted = self.given_up = 0
        self._servers, self._topic, self._partitions, self._rate = bootstrap, topic, partitions, rate
        self._chance = random.Random(seed)
        self._number = 0
        self._over = threading.Event()

    def finish(self) -> None:
        """Ends every partition with a record outside of any transaction, so that a reader of all is at the end."""
        self._over.set()
        self.join()
        with Producer(self._servers, max_block_ms=PATIENT_MS) as plain:
            for partition in range(self._partitions):
                plain.send(self._topic, b"end of %d" % partition, b"end", partition=partition)

    def run(self) -> None:
        producer: Producer | None = None
        while not self._over.wait(EVERY_S):
            try:
                producer = producer or self._producer()
                self._transaction(producer)
            except KohortError:
                _leave(producer)
                producer = None
                self.given_up += 1
        _leave(producer)
        while (
            not self._ended()
        ):  # what is under way would hide all that comes after it from readers of committed records
            time.sleep(1.0)

    def _ended(self) -> bool:
        try:
            with self._producer() as producer:
                producer.begin(TRANSACTION_S)
        except KohortError:
            return False
        return True

    def _producer(self) -> Producer:
        return Producer(self._servers, transactional_id=self._topic, max_block_ms=PATIENT_MS)

    def _transaction(self, producer: Producer) -> None:
        producer.begin(TRANSACTION_S)
        for _ in range(int(self._rate * EVERY_S)):
            self._number += 1
            key = b"k%d" % self._chance.randrange(KEYS)
            partition = self._chance.randrange(self._partitions)
            producer.send(self._topic, b"%d" % self._number, key, partition=partition)
        if self._chance.random() < 1 / 3:
            producer.abort(TRANSACTION_S)
            self.aborted += 1
        else:
            producer.commit(TRANSACTION_S)
            self.committed += 1


def _leave(producer: Producer | None) -> None:
    if producer is not None:
        with suppress(KohortError):  # its successor ends what it left
            producer.close(1.0)
