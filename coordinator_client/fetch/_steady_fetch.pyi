from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.fetch.fetcher import Fetcher, FetchOrder
from kohort.coordinator_client.offsets.positions import Positions
from kohort.network.metadata import ClusterView
from kohort.protocol.apis.fetch import FetchRequest

class SteadyFetch:
    """The `follow_up` of the Fetch requests to one node, from the request of a full turn on.

    `sent_at` is the time (monotonic s) of the last request.
    """

    @property
    def sent_at(self) -> float: ...
    def __init__(
        self, context: ConsumerContext, fetcher: Fetcher, positions: Positions, order: FetchOrder, now: float
    ) -> None: ...
    def __call__(self, frame: memoryview, version: int, now: float) -> bytes | None: ...

def follow_up(
    fetcher: Fetcher,
    node: int,
    request: FetchRequest,
    frame: memoryview,
    version: int,
    positions: Positions,
    view: ClusterView,
) -> tuple[bytes, int] | None: ...
