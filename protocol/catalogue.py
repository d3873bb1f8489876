"""Every API this library declares, in key order, and how to choose a version of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kohort.protocol.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
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
    _api(describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse),
    _api(list_groups.ListGroupsRequest, list_groups.ListGroupsResponse),
    _api(sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse),
    _api(api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    _api(create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
    _api(delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse),
    _api(delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse),
    _api(init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse),
    _api(offset_for_leader_epoch.OffsetForLeaderEpochRequest, offset_for_leader_epoch.OffsetForLeaderEpochResponse),
    _api(add_partitions_to_txn.AddPartitionsToTxnRequest, add_partitions_to_txn.AddPartitionsToTxnResponse),
    _api(add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse),
    _api(end_txn.EndTxnRequest, end_txn.EndTxnResponse),
    _api(txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse),
    _api(describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse),
    _api(sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse),
    _api(create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse),
    _api(delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse),
    _api(offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    _api(describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse),
    _api(
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
    ),
    _api(consumer_group_describe.ConsumerGroupDescribeRequest, consumer_group_describe.ConsumerGroupDescribeResponse),
    _api(share_group_heartbeat.ShareGroupHeartbeatRequest, share_group_heartbeat.ShareGroupHeartbeatResponse),
    _api(share_group_describe.ShareGroupDescribeRequest, share_group_describe.ShareGroupDescribeResponse),
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
