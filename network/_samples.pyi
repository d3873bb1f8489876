WINDOW_S: float

class SampledWindow:
    """Mean, maximum and rate of what was measured in the last 30 to 60 s, as Java's client has it by default.

    Two halves: the one being filled, and the one before it. Times are monotonic seconds. `count`: all measurements.
    """

    @property
    def count(self) -> int: ...
    def add(self, value: float, now: float) -> None: ...
    def mean(self, now: float) -> float | None: ...
    def most(self, now: float) -> float | None: ...
    def rate(self, now: float) -> float: ...

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

class PollTimes:
    """Begin and end of polls (monotonic s), used under the driver's lock.

    `begun` and `ended` are their numbers, `began_at` and `ended_at` the times of the last ones, -inf without one.
    `between_ms` are the times from one begin to the next. `idle_ratio` is the part of the time that is inside poll.
    """

    @property
    def begun(self) -> int: ...
    @property
    def ended(self) -> int: ...
    @property
    def began_at(self) -> float: ...
    @property
    def ended_at(self) -> float: ...
    @property
    def between_ms(self) -> SampledWindow: ...
    @property
    def idle_ratio(self) -> SampledWindow: ...
    def begin(self, now: float) -> None: ...
    def end(self, now: float) -> None: ...
