from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.fetch.fetcher import Fetcher, FetchOrder
from kohort.network._follow_up import FollowUp
from kohort.network.metadata import ClusterView

class SteadySession:
    """One fetch session from a request of a full turn on, for as long as each request follows from a response."""

    def __init__(self, fetcher: Fetcher, order: FetchOrder) -> None: ...
    def follow_up(self, frame: memoryview, version: int, view: ClusterView) -> tuple[bytes, int] | None: ...

class SteadyFetch(FollowUp):
    """The `follow_up` of the Fetch requests to one node, from the request of a full turn on.

    `sent_at` is the time (monotonic s) of the last request.
    """

    @property
    def sent_at(self) -> float: ...
    def __init__(self, context: ConsumerContext, session: SteadySession, now: float) -> None: ...
