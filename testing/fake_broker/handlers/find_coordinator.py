"""FindCoordinator (10), versions 0-6: the coordinator of each group or transactional id in the request.

Not done: share coordinators, which are never available.
"""

from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 10
VERSIONS = (0, 6)
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


async def handle(work: Work, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if work.call.version >= 4:
        found = tuple(_coordinator(work, key, request.key_type) for key in request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=found)
    only = _coordinator(work, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(work: Work, key: str, key_type: int) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION, _SHARE) or (key_type == _SHARE and work.call.version < 6):
        return _none(key, ErrorCode.INVALID_REQUEST)
    if key_type == _SHARE:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    node = work.cluster.coordinator_of(key)
    host, port = work.cluster.address_of(node)
    return Coordinator(key=key, node_id=node, host=host, port=port, error_message=None)


def _none(key: str, error: int) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=None)
