"""The stamp in each record of `light`, and the meter of a consumer's process that reads it.

A phase is a number of records at one rate. Phase 0 has no measurement. Its records show that all partitions are read.
The meter prints one JSON line when all partitions have been seen, and one for each phase.
"""

import json
import resource
import struct
import time
from collections.abc import Sequence
from statistics import quantiles
from typing import NamedTuple

STAMP = struct.Struct(">IIIq")
"""Phase, number of its records, partition, time (ns since 1970)."""
PROBE = 0
VALUE_BYTES = 100
Value = bytes | memoryview
_PADDING = bytes(VALUE_BYTES - STAMP.size)


def stamped(phase: int, records: int, partition: int) -> bytes:
    """A value with the present time."""
    return STAMP.pack(phase, records, partition, time.time_ns()) + _PADDING


class Usage(NamedTuple):
    """CPU time (s) and voluntary context switches of all threads of this process."""

    cpu_s: float
    wake_ups: int


def usage() -> Usage:
    reported = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(reported.ru_utime + reported.ru_stime, reported.ru_nvcsw)


class Meter:
    """Counts what is delivered. CPU and wake-ups are those from the first delivery of a phase to its last one."""

    def __init__(self, partitions: int) -> None:
        self.ready = False
        self.finished = PROBE
        self._unseen = set(range(partitions))
        self._phase = PROBE
        self._began = usage()
        self._first = self._deliveries = 0
        self._delays_ns: list[int] = []

    def delivered(self, values: Sequence[Value]) -> None:
        """Record the values of one return of the client's poll. An empty list is no delivery."""
        now_ns = time.time_ns()
        if not values:
            return
        phase = records = 0
        for value in values:
            phase, records, partition, sent_ns = STAMP.unpack_from(value)
            if phase == PROBE:
                self._unseen.discard(partition)
                continue
            if phase != self._phase:
                self._phase, self._delays_ns, self._deliveries = phase, [], 0
            self._delays_ns.append(now_ns - sent_ns)
        if phase != PROBE:
            self._count(phase, records)
        elif not self._unseen and not self.ready:
            self.ready = True
            _say(ready=True)

    def _count(self, phase: int, records: int) -> None:
        self._deliveries += 1
        if self._deliveries == 1:
            self._began, self._first = usage(), len(self._delays_ns)
        if len(self._delays_ns) < records or self.finished == phase:
            return
        used, counted = usage(), max(1, records - self._first)
        self.finished = phase
        percentiles_ns = quantiles(self._delays_ns, n=100, method="inclusive")
        _say(
            phase=phase,
            deliveries=self._deliveries,
            cpu_us=(used.cpu_s - self._began.cpu_s) * 1e6 / counted,
            wake_ups=(used.wake_ups - self._began.wake_ups) / max(1, self._deliveries - 1),
            p50_ms=percentiles_ns[49] / 1e6,
            p99_ms=percentiles_ns[98] / 1e6,
        )


def _say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)
