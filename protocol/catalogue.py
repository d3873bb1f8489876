"""All declared APIs in key order, and the choice of a version."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kohort.protocol.codec import Message
from kohort.protocol.errors import UnsupportedVersion


class Api:
    """One API: its key and name, and the codecs of its two messages.

    A declaration is imported at its first use. A consumer needs about twelve of them, so this shortens the start.
    """

    def __init__(self, key: int, name: str, module: str) -> None:
        self.key = key
        self.name = name
        self.module = module

    @functools.cached_property
    def request(self) -> Message[Any]:
        return self._message("Request")

    @functools.cached_property
    def response(self) -> Message[Any]:
        return self._message("Response")

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest declared version, as (lowest, highest)."""
        return self.request.versions

    def _message(self, direction: str) -> Message[Any]:
        return Message.of(getattr(import_module(f"kohort.protocol.apis.{self.module}"), self.name + direction))


APIS: tuple[Api, ...] = (
    Api(0, "Produce", "produce"),
    Api(1, "Fetch", "fetch"),
    Api(2, "ListOffsets", "list_offsets"),
    Api(3, "Metadata", "metadata"),
    Api(8, "OffsetCommit", "offset_commit"),
    Api(9, "OffsetFetch", "offset_fetch"),
    Api(10, "FindCoordinator", "find_coordinator"),
    Api(11, "JoinGroup", "join_group"),
    Api(12, "Heartbeat", "heartbeat"),
    Api(13, "LeaveGroup", "leave_group"),
    Api(14, "SyncGroup", "sync_group"),
    Api(15, "DescribeGroups", "describe_groups"),
    Api(16, "ListGroups", "list_groups"),
    Api(17, "SaslHandshake", "sasl_handshake"),
    Api(18, "ApiVersions", "api_versions"),
    Api(19, "CreateTopics", "create_topics"),
    Api(20, "DeleteTopics", "delete_topics"),
    Api(21, "DeleteRecords", "delete_records"),
    Api(22, "InitProducerId", "init_producer_id"),
    Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch"),
    Api(24, "AddPartitionsToTxn", "add_partitions_to_txn"),
    Api(25, "AddOffsetsToTxn", "add_offsets_to_txn"),
    Api(26, "EndTxn", "end_txn"),
    Api(28, "TxnOffsetCommit", "txn_offset_commit"),
    Api(30, "CreateAcls", "create_acls"),
    Api(31, "DeleteAcls", "delete_acls"),
    Api(32, "DescribeConfigs", "describe_configs"),
    Api(36, "SaslAuthenticate", "sasl_authenticate"),
    Api(37, "CreatePartitions", "create_partitions"),
    Api(42, "DeleteGroups", "delete_groups"),
    Api(44, "IncrementalAlterConfigs", "incremental_alter_configs"),
    Api(47, "OffsetDelete", "offset_delete"),
    Api(60, "DescribeCluster", "describe_cluster"),
    Api(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat"),
    Api(69, "ConsumerGroupDescribe", "consumer_group_describe"),
    Api(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions"),
    Api(72, "PushTelemetry", "push_telemetry"),
    Api(75, "DescribeTopicPartitions", "describe_topic_partitions"),
    Api(76, "ShareGroupHeartbeat", "share_group_heartbeat"),
    Api(77, "ShareGroupDescribe", "share_group_describe"),
    Api(78, "ShareFetch", "share_fetch"),
    Api(79, "ShareAcknowledge", "share_acknowledge"),
    Api(88, "StreamsGroupHeartbeat", "streams_group_heartbeat"),
    Api(89, "StreamsGroupDescribe", "streams_group_describe"),
    Api(90, "DescribeShareGroupOffsets", "describe_share_group_offsets"),
    Api(91, "AlterShareGroupOffsets", "alter_share_group_offsets"),
    Api(92, "DeleteShareGroupOffsets", "delete_share_group_offsets"),
)


API: Mapping[int | str, Api] = {api.key: api for api in APIS} | {api.name: api for api in APIS}
"""The APIs by key and by name: `API[11]` and `API["JoinGroup"]` are one."""


def choose_version(
    api_key: int | str,
    broker_ranges: Mapping[int, tuple[int, int]],
    at_most: int | None = None,
    at_least: int | None = None,
) -> int:
    """Return the highest version that both kohort and the broker support, within `at_least` and `at_most`.

    `broker_ranges` maps API key to (lowest, highest), as in the ApiVersions response. Raises UnsupportedVersion, with
    the API and both ranges, if there is no common version.
    """
    api = API[api_key]
    ours_low, ours_high = api.versions
    if at_most is not None:
        ours_high = min(ours_high, at_most)
    if at_least is not None:
        ours_low = max(ours_low, at_least)
    if api.key not in broker_ranges:
        raise UnsupportedVersion(
            f"the broker does not support {api.name}",
            api=api.name,
            ours=f"{ours_low}-{ours_high}",
            broker="none",
            hint="check the broker's version, and that the listener offers this API",
        )
    low, high = broker_ranges[api.key]
    chosen = min(ours_high, high)
    if chosen < max(ours_low, low):
        raise UnsupportedVersion(
            f"no common version of {api.name} with the broker",
            api=api.name,
            ours=f"{ours_low}-{ours_high}",
            broker=f"{low}-{high}",
            hint="upgrade the broker, or kohort",
        )
    return chosen
