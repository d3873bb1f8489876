"""A Spark stream and a consistent region read one topic and write to one PostgreSQL. Each counts every record once.

    python examples/stream_and_region.py localhost:9092 payments postgresql://localhost/counts /tmp/checkpoint

Spark adds up batches into the table `counts` (spark_postgres.py). The region handles each record, with the number of
earlier records of its key, which a batch of sums does not have. Every hundredth record of a key is a row of
`milestones`, written with its checkpoint. The two share only the database. End either with kill -9 and start it again.
After both have read the topic, `due` equals `found` in every row of this query:

    SELECT key, records / 100 AS due, coalesce(found, 0) AS found FROM counts
    LEFT JOIN (SELECT key, count(*) AS found FROM milestones GROUP BY key) AS reached USING (key)

Each partition has a state of its own, so all records of a key must be in one partition. Producers that partition by
key see to it.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort import ConsistentRegion, Record
from kohort.consistent_region import DictState, Periodic, SqlSink

EVERY = 100
MILESTONES = "CREATE TABLE IF NOT EXISTS milestones (key text, records bigint, PRIMARY KEY (key, records))"


def region(bootstrap: str, topic: str, url: str, **settings: Any) -> ConsistentRegion:
    """The region that writes `milestones`. Its checkpoints are in the same database."""
    sink = SqlSink(url, schema=MILESTONES)
    return ConsistentRegion(
        f"milestones-{topic}",
        group=f"milestones-{topic}",
        topics=[topic],
        bootstrap=bootstrap,
        coordinator=url,
        start_position="beginning",
        state=DictState,
        handler=marks(sink),
        sinks={"milestones": sink},
        **{"trigger": Periodic(1.0)} | settings,
    )


def marks(sink: SqlSink) -> Callable[[Record, DictState], None]:
    """The handler of records. It changes the state at once, and the table with the checkpoint."""

    def mark(record: Record, seen: DictState) -> None:
        if record.key is None:
            return
        key = record.key.decode()
        seen[key] = count = seen.get(key, 0) + 1
        if count % EVERY == 0:
            sink.execute("INSERT INTO milestones VALUES (%s, %s)", [key, count])

    return mark


def main(bootstrap: str, topic: str, url: str, checkpoint: str) -> None:
    stream = Path(__file__).with_name("spark_postgres.py")
    with subprocess.Popen([sys.executable, stream, bootstrap, topic, url, checkpoint]) as beside:
        try:
            region(bootstrap, topic, url).run()
        finally:
            beside.terminate()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
