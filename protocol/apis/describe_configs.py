"""DescribeConfigs (32): returns the settings of topics, brokers or groups, with their sources.

Sent to: any broker. Settings of a broker are requested from that broker.

Errors (by resource)
    UNKNOWN_TOPIC_OR_PARTITION    no such topic
    INVALID_REQUEST               an invalid resource type or name, or another broker's id
    INVALID_TOPIC_EXCEPTION       the topic name is invalid
    CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED   the caller lacks DESCRIBE
"""

from kohort.protocol.primitives import boolean, int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DescribeConfigsResource(RequestPart):
    resource_type: int = field(int8, "0+")
    """2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""
    resource_name: str = field(string, "0+")
    """The topic's or group's name, the broker's id; empty for the cluster's defaults."""
    configuration_keys: tuple[str, ...] | None = field([string], "0+", null="0+")
    """The setting names to describe; null means all."""


class DescribeConfigsRequest(Request, key=32, versions="0-4", flexible="4+"):
    resources: tuple[DescribeConfigsResource, ...] = field([DescribeConfigsResource], "0+")
    """The resources to describe."""
    include_synonyms: bool = field(boolean, "1+", default=False)
    """True adds every source of each setting to the response."""
    include_documentation: bool = field(boolean, "3+", default=False)
    """True adds the documentation of each setting to the response."""


class DescribeConfigsSynonym(ResponsePart):
    name: str = field(string, "1+")
    """The setting's name there."""
    value: str | None = field(string, "1+", null="0+")
    """Its value there, or null."""
    source: int = field(int8, "1+")
    """The place, numbered as `config_source` is."""


class DescribeConfigsResourceResult(ResponsePart):
    name: str = field(string, "0+")
    """The setting's name."""
    value: str | None = field(string, "0+", null="0+")
    """The setting's value; null where it is a secret or has none."""
    read_only: bool = field(boolean, "0+")
    """True if the setting cannot be changed."""
    is_default: bool = field(boolean, "0")
    """True if the value is the default."""
    config_source: int = field(int8, "1+", default=-1, ignorable=True)
    """The source of the value, -1 or 0 if unknown.

    - 1 topic, 2 broker, 3 all brokers, 4 the broker's static file
    - 5 Kafka's default, 6 a broker's logger, 7 client metrics, 8 group.
    """
    is_sensitive: bool = field(boolean, "0+")
    """True if the value is a secret and therefore null."""
    synonyms: tuple[DescribeConfigsSynonym, ...] = field([DescribeConfigsSynonym], "1+", ignorable=True)
    """Every place where the setting is made, the one in force first."""
    config_type: int = field(int8, "3+", default=0, ignorable=True)
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password; 0 unknown."""
    documentation: str | None = field(string, "3+", null="0+", ignorable=True)
    """The setting's documentation, or null."""


class DescribeConfigsResult(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+")
    """The error message, or null."""
    resource_type: int = field(int8, "0+")
    """2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""
    resource_name: str = field(string, "0+")
    """The topic's or group's name, the broker's id; empty for the cluster's defaults."""
    configs: tuple[DescribeConfigsResourceResult, ...] = field([DescribeConfigsResourceResult], "0+")
    """The settings."""


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    results: tuple[DescribeConfigsResult, ...] = field([DescribeConfigsResult], "0+")
    """The resources, one entry each."""
