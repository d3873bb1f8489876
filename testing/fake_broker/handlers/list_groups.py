"""ListGroups (16), versions 0-5: the groups whose coordinator this node is, filtered by state and type.

Not done: authorization.
"""

from kohort.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 16
VERSIONS = (0, 5)


async def handle(work: Work, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.kind,
            )
            for group in work.groups.all()
            if (not kinds or group.kind in kinds)
            and (not states or group.state.value.lower() in states)
            and work.group_error(group.group_id) == ErrorCode.NONE
        )
    )
