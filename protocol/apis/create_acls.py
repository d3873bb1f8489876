"""CreateAcls (30): give users rights, or take them away expressly.

Sent to: any broker of a KRaft cluster (it forwards). Numbers are those of Kafka's ResourceType, PatternType,
AclOperation and AclPermissionType. Version 0 knew only patterns that are names.

Errors (by creation)
    SECURITY_DISABLED             the brokers have no authorizer
    INVALID_REQUEST               an ANY or UNKNOWN where something definite must stand
    NOT_CONTROLLER                fresh metadata, send to the controller
    CLUSTER_AUTHORIZATION_FAILED  fatal: the caller needs ALTER on the cluster
"""

from kohort.protocol.primitives import int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class AclCreation(RequestPart):
    resource_type: int = field(int8, "0+")
    """What kind of thing the rule is about."""
    resource_name: str = field(string, "0+")
    """Its name, or what names begin with, or `*`."""
    resource_pattern_type: int = field(int8, "1+", default=3)
    """How the name is meant: 3 as it stands, 4 as a beginning (KIP-290)."""
    principal: str = field(string, "0+")
    """Whom the rule is about, such as `User:alice`."""
    host: str = field(string, "0+")
    """From where, or `*`."""
    operation: int = field(int8, "0+")
    """What it is that may be done, or may not."""
    permission_type: int = field(int8, "0+")
    """2 denies, 3 allows."""


class CreateAclsRequest(Request, key=30, versions="0-3", flexible="2+"):
    creations: tuple[AclCreation, ...] = field([AclCreation], "0+")
    """The rules, one entry each."""


class AclCreationResult(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+")
    """What went wrong in words, or null."""


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    results: tuple[AclCreationResult, ...] = field([AclCreationResult], "0+")
    """One entry for each creation, in the order of the request."""
