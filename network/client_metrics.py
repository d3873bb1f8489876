"""Counters of any client."""


class Counters:
    """Counters of a client, which only grow. Some are used by consumers only."""

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
    request_failures: int = 0
    throttled_ms: int = 0
    connections_opened: int = 0
    connections_ended: int = 0
