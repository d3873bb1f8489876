"""A group member with at-least-once delivery: it commits after the records are handled.

python examples/consume.py localhost:9092 billing payments
"""

import contextlib
import sys

from kohort import Assigned, Consumer, RebalanceHooks, Revoked


class Say(RebalanceHooks):
    """Prints the rebalances of this member."""

    def on_assigned(self, event: Assigned) -> None:
        print(f"generation {event.generation}: now reading {sorted(map(str, event.assignment))}")

    def on_revoked(self, event: Revoked) -> None:
        print(f"releasing {sorted(map(str, event.partitions))}: {event.cause}")


def main(bootstrap: str, group: str, topic: str) -> None:
    with Consumer(bootstrap, group=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic], hooks=Say())
        for columns in consumer:
            for record in columns:
                print(record.partition, record.offset, record.key, record.value)
            consumer.commit(columns.next_offsets)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/consume.py BOOTSTRAP GROUP TOPIC, as in localhost:9092 billing payments")
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
