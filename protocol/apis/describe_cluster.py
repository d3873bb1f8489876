"""DescribeCluster (60): which brokers, or controllers, make up the cluster (KIP-700)?

Sent to: any broker; from version 1 on a controller too (KIP-919).

Errors
    MISMATCHED_ENDPOINT_TYPE      brokers were asked for at a controller, or the other way
    UNSUPPORTED_ENDPOINT_TYPE     neither brokers nor controllers were asked for
    UNSUPPORTED_VERSION           the controllers are too old for it
    CLUSTER_AUTHORIZATION_FAILED  fatal
"""

from kohort.protocol.primitives import boolean, int8, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = field(boolean, "0+")
    """Whether to answer with what the caller may do to the cluster (KIP-430)."""
    endpoint_type: int = field(int8, "1+", default=1)
    """1 asks about brokers, 2 about controllers (KIP-919)."""
    include_fenced_brokers: bool = field(boolean, "2+")
    """Whether to list brokers that are registered and not in service (KIP-1073)."""


class DescribeClusterBroker(ResponsePart):
    broker_id: int = field(int32, "0+")
    """The node's id."""
    host: str = field(string, "0+")
    """The name or address to connect to."""
    port: int = field(int32, "0+")
    """The port to connect to."""
    rack: str | None = field(string, "0+", null="0+", default=None)
    """The broker's rack, or null."""
    is_fenced: bool = field(boolean, "2+")
    """Whether it is registered and not in service."""


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """What went wrong in words, or null."""
    endpoint_type: int = field(int8, "1+", default=1)
    """What is described: 1 brokers, 2 controllers."""
    cluster_id: str = field(string, "0+")
    """The cluster's id."""
    controller_id: int = field(int32, "0+", default=-1)
    """The controller's broker id as clients may use it; -1 where there is none."""
    brokers: tuple[DescribeClusterBroker, ...] = field([DescribeClusterBroker], "0+")
    """The nodes."""
    cluster_authorized_operations: int = field(int32, "0+", default=-(2**31))
    """What the caller may do to the cluster, as a bit field; the lowest int32 where not asked for."""
