"""CreateAcls (30): creates ACL rules, which allow or deny operations to principals.

Sent to: any broker of a KRaft cluster (it forwards). Numeric values are those of Kafka's ResourceType, PatternType,
AclOperation and AclPermissionType. Version 0 has literal patterns only.

Errors (by creation)
    SECURITY_DISABLED             the brokers have no authorizer
    INVALID_REQUEST               ANY or UNKNOWN where a specific value is required
    NOT_CONTROLLER                refresh metadata, send to the controller
    CLUSTER_AUTHORIZATION_FAILED  fatal: the caller needs ALTER on the cluster
"""

from kohort.protocol.primitives import int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class AclCreation(RequestPart):
    resource_type: int = field(int8, "0+")
    """The resource type."""
    resource_name: str = field(string, "0+")
    """Its name, or what names begin with, or `*`."""
    resource_pattern_type: int = field(int8, "1+", default=3)
    """The pattern type: 3 literal, 4 prefixed (KIP-290)."""
    principal: str = field(string, "0+")
    """The principal of the rule, for example `User:alice`."""
    host: str = field(string, "0+")
    """From where, or `*`."""
    operation: int = field(int8, "0+")
    """The operation that is allowed or denied."""
    permission_type: int = field(int8, "0+")
    """2 denies, 3 allows."""


class CreateAclsRequest(Request, key=30, versions="0-3", flexible="2+"):
    creations: tuple[AclCreation, ...] = field([AclCreation], "0+")
    """The rules, one entry each."""


class AclCreationResult(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+")
    """The error message, or null."""


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    results: tuple[AclCreationResult, ...] = field([AclCreationResult], "0+")
    """One entry for each creation, in the order of the request."""
