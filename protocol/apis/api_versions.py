"""ApiVersions (18): the APIs and versions that the broker supports. It is the first request on every connection.

Sent to: any broker, before authentication too.
A broker that does not support the request's version responds in version 0 with UNSUPPORTED_VERSION. With KIP-511 that
response lists the versions of ApiVersions, and the client retries. The response header is always version 0, also
where the body is flexible, because the client reads it before it knows the broker's versions.

Errors
    UNSUPPORTED_VERSION   retry with the highest version in the response, or 0 if it lists none
    INVALID_REQUEST       the software name or version has characters that are not allowed, or only one id is given
    REBOOTSTRAP_REQUIRED  another cluster or broker than the request expects (version 5 on): forget all addresses
"""

from kohort.protocol.primitives import boolean, int16, int32, int64, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class ApiVersionsRequest(Request, key=18, versions="0-5", flexible="3+"):
    client_software_name: str = field(string, "3+", ignorable=True)
    """The client library's name, which must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])? (KIP-511)."""
    client_software_version: str = field(string, "3+", ignorable=True)
    """The client library's version, of the same alphabet."""
    cluster_id: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The id of the cluster that the client expects here (KIP-1242); null if `node_id` is -1."""
    node_id: int = field(int32, "5+", default=-1, ignorable=True)
    """The id of the broker that the client expects here; -1 if `cluster_id` is null."""


class ApiVersion(ResponsePart):
    api_key: int = field(int16, "0+")
    """The API's key."""
    min_version: int = field(int16, "0+")
    """The lowest version that the broker takes."""
    max_version: int = field(int16, "0+")
    """The highest version that the broker takes."""


class SupportedFeatureKey(ResponsePart):
    name: str = field(string, "3+")
    """The feature's name."""
    min_version: int = field(int16, "3+")
    """The lowest level of the feature that the broker supports."""
    max_version: int = field(int16, "3+")
    """The highest level of the feature that the broker supports."""


class FinalizedFeatureKey(ResponsePart):
    name: str = field(string, "3+")
    """The feature's name."""
    max_version_level: int = field(int16, "3+")
    """The highest level in force."""
    min_version_level: int = field(int16, "3+")
    """The lowest level in force."""


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+"):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    api_keys: tuple[ApiVersion, ...] = field([ApiVersion], "0+")
    """The APIs that the broker supports."""
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    supported_features: tuple[SupportedFeatureKey, ...] = field(
        [SupportedFeatureKey], "3+", ignorable=True, tag=0, tagged="3+"
    )
    """Cluster features that this broker could run with (KIP-584)."""
    finalized_features_epoch: int = field(int64, "3+", default=-1, ignorable=True, tag=1, tagged="3+")
    """The epoch of the finalized features, which grows with every change; -1 if unknown."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = field(
        [FinalizedFeatureKey], "3+", ignorable=True, tag=2, tagged="3+"
    )
    """The cluster's finalized features. They are valid only if `finalized_features_epoch` is 0 or more."""
    zk_migration_ready: bool = field(boolean, "3+", default=False, ignorable=True, tag=3, tagged="3+")
    """Set by a KRaft controller that is ready to take a ZooKeeper cluster over."""
