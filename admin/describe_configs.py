"""DescribeConfigs requests for topics, brokers and groups, and their results."""

from collections.abc import Iterable
from typing import Final

from kohort.network.errors import AuthorizationFailed
from kohort.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kohort.protocol.errors import BrokerError, ErrorCode

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
KINDS: Final = {BROKER: ("broker", "the cluster"), TOPIC: ("topic", "the topic"), GROUP: ("group", "the group")}
"""Resource type -> its name in errors, and the resource that needs the authorization."""
REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)


def describe_configs(kind: int, names: Iterable[str], keys: tuple[str, ...] | None = None) -> DescribeConfigsRequest:
    """A request for these settings (None: all) of each resource of a kind."""
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
    )
    return DescribeConfigsRequest(resources=resources)


def described_configs(result: DescribeConfigsResult) -> tuple[DescribeConfigsResourceResult, ...]:
    """The settings in a result. Raises AuthorizationFailed, and BrokerError for any other error in it."""
    if not result.error_code:
        return result.configs
    noun, what = KINDS[result.resource_type]
    place = {noun: result.resource_name}
    if result.error_code in REFUSED:
        raise AuthorizationFailed("not allowed to see settings", hint=f"grant DESCRIBE_CONFIGS on {what}", **place)
    raise BrokerError(result.error_code, result.error_message, api="DescribeConfigs", **place)
