from kohort.network.broker_connection import BrokerConnection

class FollowUp:
    """A `PendingRequest.follow_up` of compiled code."""

    def __call__(self, frame: memoryview, version: int, now: float) -> bytes | None: ...

def follow_up(connection: BrokerConnection, frame: memoryview, now: float) -> bytes | None: ...
