"""DeleteAcls (31): remove the rules that filters match.

Sent to: any broker of a KRaft cluster (it forwards). Numbers are those of CreateAcls; 1 stands for any.

Errors (by filter, and by rule)
    SECURITY_DISABLED             the brokers have no authorizer
    INVALID_REQUEST               an UNKNOWN in the filter
    NOT_CONTROLLER                fresh metadata, send to the controller
    CLUSTER_AUTHORIZATION_FAILED  fatal: the caller needs ALTER on the cluster
"""

from kohort.protocol.primitives import int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DeleteAclsFilter(RequestPart):
    resource_type_filter: int = field(int8, "0+")
    """What kind of thing the rules are about."""
    resource_name_filter: str | None = field(string, "0+", null="0+")
    """Its name, or null for any."""
    pattern_type_filter: int = field(int8, "1+", default=3)
    """How names are meant: 1 any, 2 whatever applies to the name, 3 as it stands, 4 a beginning (KIP-290)."""
    principal_filter: str | None = field(string, "0+", null="0+")
    """Whom the rules are about, or null for anybody."""
    host_filter: str | None = field(string, "0+", null="0+")
    """From where, or null for anywhere."""
    operation: int = field(int8, "0+")
    """What the rules allow or deny."""
    permission_type: int = field(int8, "0+")
    """2 for rules that deny, 3 for those that allow."""


class DeleteAclsRequest(Request, key=31, versions="0-3", flexible="2+"):
    filters: tuple[DeleteAclsFilter, ...] = field([DeleteAclsFilter], "0+")
    """Which rules to remove: those that any of these matches."""


class DeleteAclsMatchingAcl(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why this rule stayed."""
    error_message: str | None = field(string, "0+", null="0+")
    """What went wrong in words, or null."""
    resource_type: int = field(int8, "0+")
    """What kind of thing the rule is about."""
    resource_name: str = field(string, "0+")
    """Its name."""
    pattern_type: int = field(int8, "1+", default=3)
    """How the name is meant."""
    principal: str = field(string, "0+")
    """Whom the rule is about."""
    host: str = field(string, "0+")
    """From where."""
    operation: int = field(int8, "0+")
    """What the rule allows or denies."""
    permission_type: int = field(int8, "0+")
    """2 denies, 3 allows."""


class DeleteAclsFilterResult(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what is wrong with the filter."""
    error_message: str | None = field(string, "0+", null="0+")
    """What went wrong in words, or null."""
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = field([DeleteAclsMatchingAcl], "0+")
    """The rules that it matched."""


class DeleteAclsResponse(Response, key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    filter_results: tuple[DeleteAclsFilterResult, ...] = field([DeleteAclsFilterResult], "0+")
    """One entry for each filter, in the order of the request."""
