"""DescribeConfigs (32), versions 1-4: settings of share groups.

Not done: other resources (INVALID_REQUEST), synonyms, documentation, authorization.
"""

from kohort.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.incremental_alter_configs import GROUP
from kohort.testing.fake_broker.shares import GROUP_CONFIGS, OTHER_CONFIGS

KEY = 32
VERSIONS = (1, 4)
OF_GROUP, DEFAULT = 8, 5


async def handle(work: Work, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=tuple(_described(work, one) for one in request.resources))


def _described(work: Work, requested: DescribeConfigsResource) -> DescribeConfigsResult:
    if requested.resource_type != GROUP:
        return DescribeConfigsResult(
            error_code=ErrorCode.INVALID_REQUEST,
            resource_type=requested.resource_type,
            resource_name=requested.resource_name,
        )
    shares = work.cluster.shares
    own = shares.configs.get(requested.resource_name, {})
    names = [*GROUP_CONFIGS, *OTHER_CONFIGS]
    return DescribeConfigsResult(
        resource_type=GROUP,
        resource_name=requested.resource_name,
        configs=tuple(
            DescribeConfigsResourceResult(
                name=name,
                value=shares.config(requested.resource_name, name),
                config_source=OF_GROUP if name in own else DEFAULT,
            )
            for name in sorted(names)
            if requested.configuration_keys is None or name in requested.configuration_keys
        ),
    )
