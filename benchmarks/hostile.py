"""Memory that 1 MiB of hostile batches costs: ours beside the peers, each in a fresh process.

No peer has a cap of its own; a process that asks for more than 3 GiB of address space is stopped there. Decoders are
given the bytes; consumers get them from a broker, and their own threads and buffers count.
"""

from benchmarks.report import Report
from tests.fastpath.hostile_batches import CONSUMERS, HOSTILE, MIB, READERS, measured, served


def run(report: Report) -> None:
    for title, make in HOSTILE.items():
        data = make()
        for who in READERS:
            peak, outcome = measured(data, who)
            report.add(f"peak memory: {title}", who, peak / MIB, "MB", outcome)
        for who in CONSUMERS:
            with served(data) as address:
                peak, outcome = measured(address, who)
            report.add(f"peak memory: {title}", who, peak / MIB, "MB", outcome)
