"""Memory for 1 MiB of hostile batches: kohort and other clients, each in a fresh process.

The other clients have no limit. The address space of a process is limited to 3 GiB. Decoders get the bytes. Consumers
get them from a broker, and their threads and buffers count.
"""

from benchmarks.report import Report
from tests.fastpath.hostile_batches import CONSUMERS, HOSTILE, MIB, READERS, measured, served


def run(report: Report) -> None:
    for title, make in HOSTILE.items():
        data = make()
        for client in READERS:
            peak, outcome = measured(data, client)
            report.add(f"peak memory: {title}", client, peak / MIB, "MB", outcome)
        for client in CONSUMERS:
            with served(data) as address:
                peak, outcome = measured(address, client)
            report.add(f"peak memory: {title}", client, peak / MIB, "MB", outcome)
