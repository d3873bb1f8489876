"""One file an API key. The head of each lists its versions and what it leaves out."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from kohort.common.named_tuple import NamedTuple
from kohort.protocol.schema import Response
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_share_group_offsets,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    delete_groups,
    delete_share_group_offsets,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_share_group_offsets,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
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
    push_telemetry,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)


class Handler(NamedTuple):
    """The versions of an API, (lowest, highest), and its function. The function returns None if no response is due."""

    VERSIONS: tuple[int, int]
    handle: Callable[[Work, Any], Awaitable[Response | None]]


HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {
        module.KEY: Handler(module.VERSIONS, module.handle)
        for module in (
            produce,
            fetch,
            list_offsets,
            metadata,
            offset_commit,
            offset_fetch,
            find_coordinator,
            join_group,
            heartbeat,
            leave_group,
            sync_group,
            api_versions,
            create_topics,
            delete_topics,
            describe_groups,
            list_groups,
            delete_groups,
            offset_delete,
            offset_for_leader_epoch,
            init_producer_id,
            add_partitions_to_txn,
            add_offsets_to_txn,
            end_txn,
            txn_offset_commit,
            consumer_group_heartbeat,
            consumer_group_describe,
            share_group_heartbeat,
            share_group_describe,
            share_fetch,
            share_acknowledge,
            describe_share_group_offsets,
            alter_share_group_offsets,
            delete_share_group_offsets,
            streams_group_heartbeat,
            streams_group_describe,
            describe_configs,
            incremental_alter_configs,
            get_telemetry_subscriptions,
            push_telemetry,
        )
    }
)

UNASKED: frozenset[int] = frozenset({get_telemetry_subscriptions.KEY, push_telemetry.KEY, describe_configs.KEY})
"""Offered only if a test enables them: telemetry as by brokers only with a plugin, and settings of groups only."""
