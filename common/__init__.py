"""Errors, values and text that every layer shares. Imports nothing else of kohort."""

from kohort.common.errors import KohortError, WireError
from kohort.common.topic_partition import TopicPartition

__all__ = ["KohortError", "TopicPartition", "WireError"]
