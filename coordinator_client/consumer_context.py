"""The narrow view of a consumer that its parts receive."""

from collections.abc import Callable

from kohort.common import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.group.events import Event
from kohort.coordinator_client.group.ready import MemberView
from kohort.coordinator_client.sensors import Sensors
from kohort.network._samples import Counters
from kohort.network.backoff import Backoff
from kohort.network.errors import ConnectionFailed
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.requests import ConnectionPurpose, NoResponse, PendingRequest, UnsentRequest


class ConsumerContext(NamedTuple):
    """Values and functions of a consumer that several of its parts use, under the driver's lock.

    `request_s`: the time-out of a request (s). `chance` returns numbers in [0, 1). `view`, `fatal`, `closing` and
    `wall_ms` return the current value. `offsets_purpose` returns the coordinator's connection for OffsetCommit and
    OffsetFetch. `post_event` passes an event to the group's state machine, if there is one. `notify` makes a waiting
    poll look again.
    """

    config: ConsumerConfig
    request_s: float
    backoff: Backoff
    metadata: MetadataRefresher
    counters: Counters
    sensors: Sensors
    chance: Callable[[], float]
    view: Callable[[], MemberView | None]
    fatal: Callable[[], KohortError | None]
    closing: Callable[[], bool]
    wall_ms: Callable[[], int]
    offsets_purpose: Callable[[], ConnectionPurpose]
    post_event: Callable[[Event], None]
    notify: Callable[[], None]
    fail: Callable[[KohortError], None]
    put_error: Callable[[KohortError], None]

    def to_node(
        self, node: int, purpose: ConnectionPurpose, request: PendingRequest, now: float
    ) -> tuple[UnsentRequest, ...]:
        """The request, with the address of a broker of the metadata.

        Empty if the broker is not there any more. The request has failed then.
        """
        broker = self.metadata.view.brokers.get(node)
        if broker is None:
            request.done(NoResponse(ConnectionFailed("the broker is not known any more", node=node)), now)
            return ()
        return (UnsentRequest(purpose, broker.endpoint, request),)
