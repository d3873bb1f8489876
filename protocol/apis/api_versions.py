"""ApiVersions (18): which APIs in which versions does this broker speak? The first question on every connection.

Sent to: any broker, before authentication too.
A broker that does not know the request's version answers in version 0 with UNSUPPORTED_VERSION, and (KIP-511) lists
its versions of this one API, so the client retries. Hence the response's header is always version 0, even where
the body is flexible: the client must be able to read it before it knows what the broker speaks.

Errors
    UNSUPPORTED_VERSION   retry with the highest version in the answer, or 0 if it lists none
    INVALID_REQUEST       the software name or version has characters that are not allowed
"""

from kohort.protocol.primitives import boolean, int16, int32, int64, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    client_software_name: str = field(string, "3+", ignorable=True)
    """The client library's name, which must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])? (KIP-511)."""
    client_software_version: str = field(string, "3+", ignorable=True)
    """The client library's version, of the same alphabet."""


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


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    api_keys: tuple[ApiVersion, ...] = field([ApiVersion], "0+")
    """Every API the broker speaks."""
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    supported_features: tuple[SupportedFeatureKey, ...] = field(
        [SupportedFeatureKey], "3+", ignorable=True, tag=0, tagged="3+"
    )
    """Cluster features that this broker could run with (KIP-584)."""
    finalized_features_epoch: int = field(int64, "3+", default=-1, ignorable=True, tag=1, tagged="3+")
    """Grows with every change of the finalized features; -1 where it is unknown."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = field(
        [FinalizedFeatureKey], "3+", ignorable=True, tag=2, tagged="3+"
    )
    """Features as the whole cluster runs them; to be believed only where the epoch is 0 or more."""
    zk_migration_ready: bool = field(boolean, "3+", default=False, ignorable=True, tag=3, tagged="3+")
    """Set by a KRaft controller that is ready to take a ZooKeeper cluster over."""
