"""Consume, transform, produce: one result for every record, through kill -9 and rebalances (KIP-447).

    python examples/transform.py localhost:9092 payments totals one &
    python examples/transform.py localhost:9092 payments totals two &

The results of a poll and its offsets are one transaction. Their consumers need isolation_level="read_committed".
Each process has its own name, and keeps it after a restart. `kohort.Transform` describes its reactions to errors.
"""

import signal
import sys
from typing import Any

from kohort import Producer, Record, RecordColumns, Transform


def shout(record: Record) -> bytes | None:
    """Replace this by your own function."""
    return None if record.value is None else record.value.upper()


def shouting(bootstrap: str, source: str, target: str, name: str, **more: Any) -> Transform:
    """A member of the group that reads `source`, and writes each record in capitals to `target`."""

    def handle(columns: RecordColumns, producer: Producer) -> None:
        for record in columns:
            producer.send(target, shout(record), key=record.key)

    given = {"handler": handle, "producer": {"transaction_timeout_ms": 30_000}, **more}
    return Transform(bootstrap, group=f"transform-{source}", name=name, topics=[source], **given)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    transform = shouting(*sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: transform.stop())
    transform.run()
