"""Every API this library declares, in key order, and how to choose a version of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kohort.protocol.apis import (
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.message import Message, Request, Response


@dataclasses.dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and name, and the codecs of its two messages."""

    key: int
    name: str
    request: Message[Any]
    response: Message[Any]

    @property
    def versions(self) -> tuple[int, int]:
        """(lowest, highest), both spoken."""
        return self.request.versions


def _api(request: type[Request], response: type[Response]) -> Api:
    if request._key is None:
        raise TypeError(f"{request.__name__} has no key")
    return Api(request._key, request.__name__.removesuffix("Request"), Message.of(request), Message.of(response))


APIS: tuple[Api, ...] = (
    _api(produce.ProduceRequest, produce.ProduceResponse),
    _api(fetch.FetchRequest, fetch.FetchResponse),
    _api(list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    _api(metadata.MetadataRequest, metadata.MetadataResponse),
    _api(offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse),
    _api(offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse),
    _api(find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse),
    _api(join_group.JoinGroupRequest, join_group.JoinGroupResponse),
    _api(heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse),
    _api(leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse),
    _api(sync_group.SyncGroupRequest, sync_group.SyncGroupResponse),
    _api(api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    _api(create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
)


class Catalogue(Mapping[int | str, Api]):
    """The APIs by key and by name: `API[11]` and `API["JoinGroup"]` are one. Iteration gives the keys in order."""

    def __init__(self, apis: tuple[Api, ...]) -> None:
        self._by: dict[int | str, Api] = {api.key: api for api in apis} | {api.name: api for api in apis}
        self._keys = tuple(api.key for api in apis)

    def __getitem__(self, key: int | str) -> Api:
        return self._by[key]

    def __iter__(self) -> Iterator[int | str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


API = Catalogue(APIS)


def choose_version(api_key: int | str, broker_ranges: Mapping[int, tuple[int, int]], at_most: int | None = None) -> int:
    """The highest version that we and the broker speak, and no higher than `at_most`.

    `broker_ranges`: API key -> (lowest, highest), as the ApiVersions response gives them. Raises UnsupportedVersion,
    which names the API and both ranges, where the two have nothing in common.
    """
    api = API[api_key]
    ours_low, ours_high = api.versions
    if at_most is not None:
        ours_high = min(ours_high, at_most)
    if api.key not in broker_ranges:
        raise UnsupportedVersion(
            f"the broker does not speak {api.name}", api=api.name, ours=f"{ours_low}-{ours_high}", broker="none",
            hint="it may be too old, or may not offer this API on this listener",
        )  # fmt: skip
    low, high = broker_ranges[api.key]
    chosen = min(ours_high, high)
    if chosen < max(ours_low, low):
        raise UnsupportedVersion(
            f"no version of {api.name} in common with the broker", api=api.name, ours=f"{ours_low}-{ours_high}",
            broker=f"{low}-{high}", hint="use a broker or a release of this library nearer to the other",
        )  # fmt: skip
    return chosen
