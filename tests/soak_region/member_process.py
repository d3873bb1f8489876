"""One member of the soaked region, as a process: BOOTSTRAP TOPIC MEMBER COORDINATOR static|dynamic hand-over|reset.

With TARGET and ROWS-URL behind these, it writes a record for each record to that topic, and a row for each that
`marked` selects to that database. Ends with code 3 and a line that names the error where the region ends it.
"""

import logging
import os
import sys
import threading
import time
import uuid
from typing import Any

from kohort import ConsistentRegion, KohortError
from kohort.consistent_region import KafkaSink, Periodic, SqlSink
from tests.soak_region.seen import Seen, marked

ENDED_BY_AN_ERROR, ENDED_BY = 3, "ended by"
LOOK_FOR_PARENT_S = 1.0
SCHEMA = "CREATE TABLE IF NOT EXISTS seen (name TEXT, number BIGINT, place BIGINT)"


def region(
    bootstrap: str,
    topic: str,
    member: str,
    coordinator: str,
    target: str | None,
    rows_url: str | None,
    *,
    static: bool,
    hand_over: bool,
) -> ConsistentRegion:
    settings: dict[str, Any] = {"group_instance_id": member} if static else {}

    def count(record: Any, state: Seen) -> None:
        state.add(record)

    handle = count
    if target is not None and rows_url is not None:
        records, rows = KafkaSink(bootstrap, target), SqlSink(rows_url, schema=SCHEMA)
        settings["sinks"] = {"records": records, "rows": rows}
        values = "(?, ?, ?)" if rows_url.startswith("sqlite") else "(%s, %s, %s)"

        def handle(record: Any, state: Seen) -> None:
            state.add(record)
            records.send(b"%d:%d" % (record.partition, record.offset), record.key)
            if marked(record.offset):
                rows.execute(
                    f"INSERT INTO seen VALUES {values}", [record.key.decode(), record.partition, record.offset]
                )

    return ConsistentRegion(
        "soak",
        group=f"soak-{topic}",
        topics=[topic],
        bootstrap=bootstrap,
        # The name is new at each restart: states follow their partitions.
        member=f"{member}-{uuid.uuid4().hex[:8]}",
        coordinator=coordinator,
        state=Seen,
        handler=handle,
        trigger=Periodic(1.0),
        start_position="beginning",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        reset_timeout_s=10.0,
        bootstrap_timeout_ms=120_000,  # brokers that are frozen or down all at once are to be waited for
        # Checkpoints are made impossible on purpose here, often for longer than a sound region would stand it.
        max_consecutive_resets=1_000,
        hand_over=hand_over,
        **settings,
    )


def end_with_parent(one: ConsistentRegion) -> None:
    """A soak that was killed leaves no member behind."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(LOOK_FOR_PARENT_S)
    one.stop()


def main(
    bootstrap: str,
    topic: str,
    member: str,
    coordinator: str,
    static: str,
    moving: str,
    target: str | None = None,
    rows_url: str | None = None,
) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    hand_over = moving == "hand-over"
    one = region(
        bootstrap, topic, member, coordinator, target, rows_url, static=static == "static", hand_over=hand_over
    )
    threading.Thread(target=end_with_parent, args=(one,), daemon=True).start()
    try:
        one.run()
    except KohortError as error:
        logging.exception("the region ended")
        print(f"{ENDED_BY} {type(error).__name__}: {error}", flush=True)
        return ENDED_BY_AN_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
