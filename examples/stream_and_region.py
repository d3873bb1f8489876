"""A Spark stream and a consistent region side by side: one topic, one PostgreSQL, each record once in both.

    python examples/stream_and_region.py localhost:9092 payments postgresql://localhost/counts /tmp/checkpoint

Spark adds up what is there, batch by batch: the table `counts`, by spark_postgres.py. The region looks at each record
when it comes, and knows how many of its key came before, which a batch of sums does not: every hundredth of a key is a
row of `milestones`, written with the checkpoint that has counted it. The two share nothing but the database. End either
with kill -9, start it again, and when both have caught up, no row of this is wrong:

    SELECT key, records / 100 AS due, coalesce(found, 0) AS found FROM counts
    LEFT JOIN (SELECT key, count(*) AS found FROM milestones GROUP BY key) AS reached USING (key)

One member judges here. State belongs to members: of several, each would count for itself what it has read.
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
    """The region that writes `milestones`; what it remembers of its checkpoints is in the same database."""
    sink = SqlSink(url, schema=MILESTONES)
    return ConsistentRegion(
        f"milestones-{topic}",
        group=f"milestones-{topic}",
        topics=[topic],
        bootstrap=bootstrap,
        member="judge",
        coordinator=url,
        start_position="beginning",
        handler=marks(sink),
        sinks={"milestones": sink},
        **{"trigger": Periodic(1.0)} | settings,
    )


def marks(sink: SqlSink) -> Callable[[Record, DictState], None]:
    """What is done with a record: the state changes at once, the table with the checkpoint."""

    def mark(record: Record, seen: DictState) -> None:
        if record.key is None:
            return
        key = bytes(record.key).decode()
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
