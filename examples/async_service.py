"""An asyncio service that produces: one AsyncProducer for all its tasks, opened and closed with the service.

    python examples/async_service.py localhost:9092 orders

Each order is one awaited delivery, so that a caller learns whether it is stored. `service` is opened once. In a web
framework it belongs into the lifespan of the application, as in FastAPI(lifespan=...), and a request calls `place`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kohort import AsyncProducer, KohortError


class Orders:
    """Stores orders in a topic. Any number of tasks may call it."""

    def __init__(self, producer: AsyncProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def place(self, customer: str, order: bytes) -> int:
        """Store an order, and return its offset. Raises the error of the record."""
        delivery = await self._producer.send(self._topic, order, key=customer.encode())
        return (await delivery).offset


@asynccontextmanager
async def service(bootstrap: str, topic: str) -> AsyncIterator[Orders]:
    """The service as long as it runs; the producer is flushed and closed at its end."""
    async with AsyncProducer(bootstrap, linger_ms=5) as producer:
        yield Orders(producer, topic)


async def main(bootstrap: str, topic: str, customers: int = 20) -> None:
    async with service(bootstrap, topic) as orders:

        async def customer(number: int) -> int:
            """Place five orders, and return the number of stored ones."""
            stored = 0
            for each in range(5):
                try:
                    await orders.place(f"customer-{number}", b"order %d" % each)
                    stored += 1
                except KohortError as error:
                    print(f"order {each} of customer {number} is not stored: {error}")
            return stored

        stored = await asyncio.gather(*(customer(number) for number in range(customers)))
    print(f"{sum(stored)} orders placed")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/async_service.py BOOTSTRAP TOPIC, as in localhost:9092 orders")
    asyncio.run(main(sys.argv[1], sys.argv[2]))
