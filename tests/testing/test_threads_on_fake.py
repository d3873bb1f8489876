"""One producer that threads share, and one consumer for each thread, on a fake broker."""

import threading

from kohort import Consumer, Producer
from kohort.testing import FakeBroker

THREADS, RECORDS = 4, 500


def test_threads_share_a_producer_and_each_has_its_own_consumer() -> None:
    read: list[list[bytes | None]] = [[] for _ in range(THREADS)]
    written = sorted(b"%d %d" % (number, i) for number in range(THREADS) for i in range(RECORDS))
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        start.wait()
        for delivery in [producer.send("shared", b"%d %d" % (number, i)) for i in range(RECORDS)]:
            delivery.result(60)
        with Consumer(broker.bootstrap, group=f"thread-{number}", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["shared"])
            while len(read[number]) < len(written) and (slices := consumer.poll(60)):
                read[number] += [record.value for columns in slices for record in columns]
                consumer.commit()

    with FakeBroker(topics={"shared": THREADS}) as broker, Producer(broker.bootstrap) as producer:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [sorted(value or b"" for value in values) for values in read] == [written] * THREADS
