"""What a consumer has done so far, as plain numbers. Counters only ever grow; gauges say how it is now."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Written under the driver's lock by whoever did the thing."""

    polls: int = 0
    hooks: int = 0
    slices: int = 0
    records: int = 0
    fetches: int = 0
    fetch_failures: int = 0
    fetched_bytes: int = 0
    corrupt_batches: int = 0
    commits: int = 0
    commits_refused: int = 0
    resets: int = 0
    requests: int = 0
    requests_unanswered: int = 0
    throttled_ms: int = 0
    connections_opened: int = 0
    connections_ended: int = 0

    def as_mapping(self) -> dict[str, int]:
        return {f"{one.name}_total": getattr(self, one.name) for one in fields(self)}
