"""ApiVersions (18), versions 0-5: what the fake offers, as narrowed by its `versions`, and its `features`.

A request that names another cluster or node gets REBOOTSTRAP_REQUIRED (KIP-1242). A newer version gets a response of
version 0 with UNSUPPORTED_VERSION and the list, as KIP-511 requires. A client whose name contains letters that are not
allowed, or that names only the cluster or only the node, gets INVALID_REQUEST and the list.
"""

import re
from collections.abc import Mapping
from typing import Final

from kohort.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 18
VERSIONS = (0, 5)
NO_NODE: Final = -1
_SUPPORTED: Final[Mapping[str, int]] = {"transaction.version": 2}
_NEEDED: Final = (
    (0, 12),
    (22, 5),
    (26, 5),
    (28, 5),
)  # keys and versions of Produce, InitProducerId, EndTxn, TxnOffsetCommit
_NAMED = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(work: Work, request: ApiVersionsRequest) -> ApiVersionsResponse:
    named = (request.client_software_name, request.client_software_version)
    expected = (request.cluster_id, request.node_id)
    is_half = (request.cluster_id is None) != (request.node_id == NO_NODE)
    is_odd = work.call.version >= 3 and (is_half or not all(map(_NAMED.fullmatch, named)))
    if not is_odd and request.cluster_id is not None and expected != (work.cluster.cluster_id, work.call.node):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        error_code=ErrorCode.INVALID_REQUEST if is_odd else ErrorCode.NONE,
        api_keys=_listed(work.versions),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in _SUPPORTED.items()
        ),
        finalized_features_epoch=0,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in work.cluster.features.items()
        ),
    )


def refusal(versions: Mapping[int, tuple[int, int]]) -> ApiVersionsResponse:
    """The response to a version that is not offered; to be written in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_listed(versions))


def finalized(versions: Mapping[int, tuple[int, int]]) -> Mapping[str, int]:
    """The features of a new cluster of Kafka 4, or of an older one if it does not have the versions for them."""
    return _SUPPORTED if all(key in versions and versions[key][1] >= least for key, least in _NEEDED) else {}


def _listed(versions: Mapping[int, tuple[int, int]]) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(versions.items())
    )
