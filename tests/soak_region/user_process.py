"""One member of a region with sinks, as a process: NAME BOOTSTRAP SOURCE TARGET URL GROUP hand-over|reset."""

import faulthandler
import logging
import signal
import sys
from typing import Any

from kohort import ConsistentRegion
from kohort.consistent_region import DictState, KafkaSink, Periodic, SqlSink


def main(name: str, bootstrap: str, source: str, target: str, url: str, group: str, moving: str) -> int:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} %(name)s %(message)s")
    rows = SqlSink(url, schema="CREATE TABLE IF NOT EXISTS first (name TEXT)")
    records = KafkaSink(bootstrap, target)

    def handle(record: Any, state: DictState) -> None:
        user = record.key.decode()
        if user not in state:
            rows.execute("INSERT INTO first VALUES (%s)", [user])
        state[user] = state.get(user, 0) + 1
        records.send(bytes(record.value))

    region = ConsistentRegion(
        "users",
        group=group,
        topics=[source],
        bootstrap=bootstrap,
        member=name,
        coordinator=url,
        state=DictState,
        handler=handle,
        sinks={"rows": rows, "records": records},
        trigger=Periodic(0.3),
        start_position="beginning",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        lease_s=6.0,
        max_consecutive_resets=1_000,
        hand_over=moving == "hand-over",
    )
    faulthandler.register(signal.SIGUSR2)
    # A shell that runs the soak in the background has its processes ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: region.stop())
    try:
        print("running", flush=True)
        region.run()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
