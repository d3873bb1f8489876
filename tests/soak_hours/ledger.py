"""The log that the region and Spark read: written in transactions, of which a third is aborted, while brokers fall."""

import random
import threading
import time
from typing import Any

import confluent_kafka

KEYS = 1_000
EVERY_S = 0.5
TRANSACTION_S = 60.0


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
        """Ends every partition with a record outside of any transaction, so that who has read all is at the end."""
        self._over.set()
        self.join()
        plain = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "log_level": 0}
        )
        for partition in range(self._partitions):
            plain.produce(self._topic, key="end", value=f"end of {partition}", partition=partition)
        if left := plain.flush(120):
            raise TimeoutError(f"{left} last records of {self._topic} were not acknowledged")

    def run(self) -> None:
        producer: Any = None
        while not self._over.wait(EVERY_S):
            try:
                producer = producer or self._producer()
                self._transaction(producer)
            except confluent_kafka.KafkaException:
                producer = None
                self.given_up += 1
        while not self._ended():  # what is under way would hide all that comes after it from who reads the committed
            time.sleep(1.0)

    def _ended(self) -> bool:
        try:
            self._producer()
        except confluent_kafka.KafkaException:
            return False
        return True

    def _producer(self) -> Any:
        settings = {
            "bootstrap.servers": self._servers,
            "transactional.id": self._topic,
            "linger.ms": 5,
            "log_level": 0,
        }
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(TRANSACTION_S)
        return producer

    def _transaction(self, producer: Any) -> None:
        producer.begin_transaction()
        for _ in range(int(self._rate * EVERY_S)):
            self._number += 1
            key = f"k{self._chance.randrange(KEYS)}"
            partition = self._chance.randrange(self._partitions)
            producer.produce(self._topic, key=key, value=str(self._number), partition=partition)
        if self._chance.random() < 1 / 3:
            producer.abort_transaction(TRANSACTION_S)
            self.aborted += 1
        else:
            producer.commit_transaction(TRANSACTION_S)
            self.committed += 1
