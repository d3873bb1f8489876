"""Administration of groups, offsets and topics (KIP-222, KIP-496, KIP-848, KIP-932)."""

from kohort.admin.admin import Admin
from kohort.admin.admin_config import AdminConfig
from kohort.admin.cluster import BrokerDescription
from kohort.admin.groups import GroupDescription, GroupListing, GroupMissing, GroupNotEmpty, MemberDescription
from kohort.admin.offsets import OffsetChange, PartitionLag
from kohort.admin.request_driver import AdminClosed
from kohort.admin.share_groups import SharePartitionOffset
from kohort.admin.streams_groups import (
    StreamsGroupDescription,
    StreamsMemberDescription,
    SubtopologyDescription,
    Task,
)
from kohort.admin.topics import TopicDescription, TopicExists

SETTINGS = AdminConfig.table

__all__ = [
    "SETTINGS",
    "Admin",
    "AdminClosed",
    "AdminConfig",
    "BrokerDescription",
    "GroupDescription",
    "GroupListing",
    "GroupMissing",
    "GroupNotEmpty",
    "MemberDescription",
    "OffsetChange",
    "PartitionLag",
    "SharePartitionOffset",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "SubtopologyDescription",
    "Task",
    "TopicDescription",
    "TopicExists",
]
