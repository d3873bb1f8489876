"""DescribeConfigs (32): which settings do these topics, brokers or groups have, and who made them?

Sent to: any broker; for a broker's own settings that broker.

Errors (by resource)
    UNKNOWN_TOPIC_OR_PARTITION    no such topic
    INVALID_REQUEST               a resource type or name that makes no sense, or a broker asked about another
    INVALID_TOPIC_EXCEPTION       a name that no topic can have
    CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED   the caller may not see it
"""

from kohort.protocol.primitives import boolean, int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DescribeConfigsResource(RequestPart):
    resource_type: int = field(int8, "0+")
    """2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""
    resource_name: str = field(string, "0+")
    """The topic's or group's name, the broker's id; empty for the cluster's defaults."""
    configuration_keys: tuple[str, ...] | None = field([string], "0+", null="0+")
    """The settings asked for; null means all."""


class DescribeConfigsRequest(Request, key=32, versions="0-4", flexible="4+"):
    resources: tuple[DescribeConfigsResource, ...] = field([DescribeConfigsResource], "0+")
    """What to describe."""
    include_synonyms: bool = field(boolean, "1+", default=False)
    """Whether to answer with every place where a setting is made."""
    include_documentation: bool = field(boolean, "3+", default=False)
    """Whether to answer with what each setting means."""


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
    """Whether it cannot be changed."""
    is_default: bool = field(boolean, "0")
    """Whether nobody set it."""
    config_source: int = field(int8, "1+", default=-1, ignorable=True)
    """Where the value comes from: 1 the topic, 2 the broker, 3 all brokers, 4 the broker's file, 5 Kafka's default, 6 a
    broker's logger, 7 client metrics, 8 the group; 0 or -1 unknown."""
    is_sensitive: bool = field(boolean, "0+")
    """Whether the value is a secret and therefore hidden."""
    synonyms: tuple[DescribeConfigsSynonym, ...] = field([DescribeConfigsSynonym], "1+", ignorable=True)
    """Every place where the setting is made, the one in force first."""
    config_type: int = field(int8, "3+", default=0, ignorable=True)
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password; 0 unknown."""
    documentation: str | None = field(string, "3+", null="0+", ignorable=True)
    """What it means, or null."""


class DescribeConfigsResult(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+")
    """What went wrong in words, or null."""
    resource_type: int = field(int8, "0+")
    """2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."""
    resource_name: str = field(string, "0+")
    """The topic's or group's name, the broker's id; empty for the cluster's defaults."""
    configs: tuple[DescribeConfigsResourceResult, ...] = field([DescribeConfigsResourceResult], "0+")
    """The settings."""


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    results: tuple[DescribeConfigsResult, ...] = field([DescribeConfigsResult], "0+")
    """The resources, one entry each."""
