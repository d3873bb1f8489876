"""Memory that 1 MiB of hostile batches costs: ours beside the Python clients, each in a fresh process.

No peer has a cap of its own; a process that asks for more than 3 GiB of address space is stopped there.
"""

from benchmarks.report import Report
from tests.fastpath.hostile_batches import HOSTILE, MIB, READERS, measured


def run(report: Report) -> None:
    for title, make in HOSTILE.items():
        data = make()
        for who in READERS:
            peak, outcome = measured(data, who)
            report.add(f"peak memory: {title}", who, peak / MIB, "MB", outcome)
