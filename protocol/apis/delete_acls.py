"""DeleteAcls (31): deletes the ACL rules that match a filter.

Sent to: any broker of a KRaft cluster (it forwards). Numeric values are those of CreateAcls, where 1 is ANY.

Errors (by filter, and by rule)
    SECURITY_DISABLED             the brokers have no authorizer
    INVALID_REQUEST               UNKNOWN in the filter
    NOT_CONTROLLER                refresh metadata, send to the controller
    CLUSTER_AUTHORIZATION_FAILED  fatal: the caller needs ALTER on the cluster
"""

from kohort.protocol.primitives import int8, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DeleteAclsFilter(RequestPart):
    resource_type_filter: int = field(int8, "0+")
    """The resource type."""
    resource_name_filter: str | None = field(string, "0+", null="0+")
    """Its name, or null for any."""
    pattern_type_filter: int = field(int8, "1+", default=3)
    """The pattern type: 1 any, 2 every pattern that matches the name, 3 literal, 4 prefixed (KIP-290)."""
    principal_filter: str | None = field(string, "0+", null="0+")
    """The principal of the rules, or null for any."""
    host_filter: str | None = field(string, "0+", null="0+")
    """From where, or null for anywhere."""
    operation: int = field(int8, "0+")
    """The operation that is allowed or denied."""
    permission_type: int = field(int8, "0+")
    """2 for rules that deny, 3 for those that allow."""


class DeleteAclsRequest(Request, key=31, versions="0-3", flexible="2+"):
    filters: tuple[DeleteAclsFilter, ...] = field([DeleteAclsFilter], "0+")
    """The filters: a rule that matches any of them is removed."""


class DeleteAclsMatchingAcl(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why this rule stayed."""
    error_message: str | None = field(string, "0+", null="0+")
    """The error message, or null."""
    resource_type: int = field(int8, "0+")
    """The resource type."""
    resource_name: str = field(string, "0+")
    """Its name."""
    pattern_type: int = field(int8, "1+", default=3)
    """The pattern type."""
    principal: str = field(string, "0+")
    """The principal of the rule."""
    host: str = field(string, "0+")
    """From where."""
    operation: int = field(int8, "0+")
    """The operation that is allowed or denied."""
    permission_type: int = field(int8, "0+")
    """2 denies, 3 allows."""


class DeleteAclsFilterResult(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what is wrong with the filter."""
    error_message: str | None = field(string, "0+", null="0+")
    """The error message, or null."""
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = field([DeleteAclsMatchingAcl], "0+")
    """The rules that it matched."""


class DeleteAclsResponse(Response, key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    filter_results: tuple[DeleteAclsFilterResult, ...] = field([DeleteAclsFilterResult], "0+")
    """One entry for each filter, in the order of the request."""
