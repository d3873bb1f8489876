"""One member of the example's region, as a process: BOOTSTRAP TOPIC COORDINATOR."""

import logging
import sys

from examples.region_totals import region
from kohort.consistent_region import Periodic

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    bootstrap, topic, coordinator = sys.argv[1:]
    region(
        bootstrap,
        topic,
        coordinator,
        trigger=Periodic(0.5),
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        reset_timeout_s=10.0,
    ).run()
