"""IncrementalAlterConfigs (44), versions 0-1: settings of share groups.

Not done: other resources (INVALID_REQUEST), bounds of values, authorization.
"""

from kohort.protocol.apis.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.shares import GROUP_CONFIGS, OTHER_CONFIGS

KEY = 44
VERSIONS = (0, 1)
GROUP, SET = 32, 0


async def handle(work: Work, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=_changed(work, one, request.validate_only),
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        )
    )


def _changed(work: Work, resource: AlterConfigsResource, validate_only: bool) -> int:
    if resource.resource_type != GROUP:
        return ErrorCode.INVALID_REQUEST
    if any(one.name not in {**GROUP_CONFIGS, **OTHER_CONFIGS} for one in resource.configs):
        return ErrorCode.INVALID_CONFIG
    configs = work.cluster.shares.configs.setdefault(resource.resource_name, {})
    for one in resource.configs if not validate_only else ():
        if one.config_operation == SET and one.value is not None:
            configs[one.name] = one.value
        else:
            configs.pop(one.name, None)
    return ErrorCode.NONE
