"""Kafka's consumer-group protocol from the wire up.

Public names are resolved at first use, so that `import kohort` stays light: it loads neither construct nor the
extensions, and never pyspark or pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kohort.common.version import __version__

if TYPE_CHECKING:
    from kohort import admin as admin
    from kohort import assignors as assignors
    from kohort import consistent_region as consistent_region
    from kohort import coordinator_client as coordinator_client
    from kohort import fastpath as fastpath
    from kohort import producer as producer
    from kohort import protocol as protocol
    from kohort import spark as spark
    from kohort import testing as testing
    from kohort import transform as transform
    from kohort import workers as workers
    from kohort.admin import Admin as Admin
    from kohort.assignors import Assignor as Assignor
    from kohort.assignors import GroupView as GroupView
    from kohort.assignors import Plan as Plan
    from kohort.common import KohortError as KohortError
    from kohort.common import TopicPartition as TopicPartition
    from kohort.consistent_region import ConsistentRegion as ConsistentRegion
    from kohort.coordinator_client import Assigned as Assigned
    from kohort.coordinator_client import AsyncConsumer as AsyncConsumer
    from kohort.coordinator_client import Consumer as Consumer
    from kohort.coordinator_client import Lost as Lost
    from kohort.coordinator_client import RebalanceHooks as RebalanceHooks
    from kohort.coordinator_client import Revoked as Revoked
    from kohort.fastpath import Record as Record
    from kohort.fastpath import RecordColumns as RecordColumns
    from kohort.producer import AsyncProducer as AsyncProducer
    from kohort.producer import Producer as Producer
    from kohort.share_consumer import AsyncShareConsumer as AsyncShareConsumer
    from kohort.share_consumer import ShareConsumer as ShareConsumer
    from kohort.transform import Transform as Transform

_HOME = {
    "Admin": "admin",
    "Assignor": "assignors",
    "GroupView": "assignors",
    "Plan": "assignors",
    "Assigned": "coordinator_client",
    "AsyncConsumer": "coordinator_client",
    "AsyncProducer": "producer",
    "AsyncShareConsumer": "share_consumer",
    "ConsistentRegion": "consistent_region",
    "Consumer": "coordinator_client",
    "Lost": "coordinator_client",
    "Producer": "producer",
    "RebalanceHooks": "coordinator_client",
    "Revoked": "coordinator_client",
    "KohortError": "common",
    "Record": "fastpath",
    "RecordColumns": "fastpath",
    "ShareConsumer": "share_consumer",
    "Transform": "transform",
    "TopicPartition": "common",
}
_SUBPACKAGES = frozenset(
    {
        "admin",
        "assignors",
        "consistent_region",
        "coordinator_client",
        "fastpath",
        "producer",
        "protocol",
        "share_consumer",
        "spark",
        "testing",
        "transform",
        "workers",
    }
)

__all__ = ["__version__", *sorted(_HOME)]


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name in _SUBPACKAGES:
            return import_module(f"kohort.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'kohort' has no attribute {name!r}")
        value = getattr(import_module(f"kohort.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
