"""DescribeConfigs requests for topics, brokers and groups."""

from collections.abc import Iterable
from typing import Final

from kohort.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32


def describe_configs(kind: int, names: Iterable[str], keys: tuple[str, ...] | None = None) -> DescribeConfigsRequest:
    """A request for these settings (None: all) of each resource of a kind."""
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
    )
    return DescribeConfigsRequest(resources=resources)
