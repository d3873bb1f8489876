"""DescribeCluster (60): lists the brokers or the controllers of the cluster (KIP-700).

Sent to: any broker; from version 1 on a controller too (KIP-919).

Errors
    MISMATCHED_ENDPOINT_TYPE      a controller received a request for brokers, or the reverse
    UNSUPPORTED_ENDPOINT_TYPE     the endpoint type is neither brokers nor controllers
    UNSUPPORTED_VERSION           the controllers do not support it
    CLUSTER_AUTHORIZATION_FAILED  fatal
"""

from kohort.protocol.primitives import boolean, int8, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = field(boolean, "0+")
    """True adds the caller's authorized operations on the cluster to the response (KIP-430)."""
    endpoint_type: int = field(int8, "1+", default=1)
    """Endpoint type to list: 1 brokers, 2 controllers (KIP-919)."""
    include_fenced_brokers: bool = field(boolean, "2+")
    """True adds fenced brokers to the response (KIP-1073)."""


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
    """True if the broker is registered but fenced."""


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    endpoint_type: int = field(int8, "1+", default=1)
    """Endpoint type of the entries: 1 brokers, 2 controllers."""
    cluster_id: str = field(string, "0+")
    """The cluster's id."""
    controller_id: int = field(int32, "0+", default=-1)
    """The broker id that clients use as the controller; -1 if there is none."""
    brokers: tuple[DescribeClusterBroker, ...] = field([DescribeClusterBroker], "0+")
    """The nodes."""
    cluster_authorized_operations: int = field(int32, "0+", default=-(2**31))
    """The caller's authorized operations on the cluster, as a bit field; -2**31 if not requested."""
