class Counters:
    """Counters of a client, which only grow, from 0. Some are used by consumers only."""

    hooks: int
    slices: int
    records: int
    fetches: int
    fetch_failures: int
    fetched_bytes: int
    corrupt_batches: int
    commits: int
    commits_refused: int
    resets: int
    requests: int
    request_failures: int
    throttled_ms: int
    connections_opened: int
    connections_ended: int
