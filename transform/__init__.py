"""Consume, compute, produce: the results of records and the group's offsets are one transaction (KIP-447)."""

from kohort.transform.transform import Handler as Handler
from kohort.transform.transform import OnRetry as OnRetry
from kohort.transform.transform import Transform as Transform

__all__ = ["Handler", "OnRetry", "Transform"]
