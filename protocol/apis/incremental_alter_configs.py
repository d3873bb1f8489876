"""IncrementalAlterConfigs (44): changes single settings of topics, brokers or groups (KIP-339).

Sent to: any broker. Settings of a broker are sent to that broker. A group need not exist (KIP-848, KIP-932).

Errors (by resource)
    INVALID_CONFIG                no such setting, or a value outside of the broker's bounds
    UNKNOWN_TOPIC_OR_PARTITION    no such topic
    INVALID_REQUEST               an invalid resource type or name, or one setting twice
    CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED
                                  the caller lacks ALTER_CONFIGS
"""

from kohort.protocol.primitives import boolean, int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class AlterableConfig(RequestPart):
    name: str = field(string, "0+")
    """The setting's name."""
    config_operation: int = field(int8, "0+")
    """0 sets the value, 1 deletes it, 2 appends to a list, 3 removes from a list."""
    value: str | None = field(string, "0+", null="0+")
    """The setting's value; null to delete it."""


class AlterConfigsResource(RequestPart):
    resource_type: int = field(int8, "0+")
    """2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""
    resource_name: str = field(string, "0+")
    """The topic's or group's name, the broker's id; empty for the cluster's defaults."""
    configs: tuple[AlterableConfig, ...] = field([AlterableConfig], "0+")
    """The changes."""


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    resources: tuple[AlterConfigsResource, ...] = field([AlterConfigsResource], "0+")
    """The resources to change."""
    validate_only: bool = field(boolean, "0+")
    """True checks the changes and makes none."""


class AlterConfigsResourceResponse(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+")
    """The error message, or null."""
    resource_type: int = field(int8, "0+")
    """2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""
    resource_name: str = field(string, "0+")
    """The topic's or group's name, the broker's id; empty for the cluster's defaults."""


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    responses: tuple[AlterConfigsResourceResponse, ...] = field([AlterConfigsResourceResponse], "0+")
    """The resources, one entry each."""
