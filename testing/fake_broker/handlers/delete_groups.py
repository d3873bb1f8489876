"""DeleteGroups (42), versions 0-3: groups without members, with their offsets.

Not done: authorization.
"""

from kohort.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.testing.fake_broker.handler_context import Work

KEY = 42
VERSIONS = (0, 3)


async def handle(work: Work, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=work.group_error(group_id) or _deleted(work, group_id))
            for group_id in request.groups_names
        )
    )


def _deleted(work: Work, group_id: str) -> int:
    error = work.groups.delete(group_id)
    if not error:
        work.cluster.shares.delete_group(group_id)
    return error
