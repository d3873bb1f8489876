"""ApiVersions (18), versions 0-4: what the fake offers, as narrowed by its `versions`.

A newer version gets a response of version 0 with UNSUPPORTED_VERSION and the list, as KIP-511 requires. A client whose
name contains letters that are not allowed gets INVALID_REQUEST and the list.
Not done: features.
"""

import re
from collections.abc import Mapping

from kohort.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 18
VERSIONS = (0, 4)
_NAMED = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(work: Work, request: ApiVersionsRequest) -> ApiVersionsResponse:
    named = (request.client_software_name, request.client_software_version)
    is_odd = work.call.version >= 3 and not all(map(_NAMED.fullmatch, named))
    return ApiVersionsResponse(
        error_code=ErrorCode.INVALID_REQUEST if is_odd else ErrorCode.NONE, api_keys=_listed(work.versions)
    )


def refusal(versions: Mapping[int, tuple[int, int]]) -> ApiVersionsResponse:
    """The response to a version that is not offered; to be written in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_listed(versions))


def _listed(versions: Mapping[int, tuple[int, int]]) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(versions.items())
    )
