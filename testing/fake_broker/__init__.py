"""A scripted broker: real bytes, a real group coordinator in memory, and control over every response."""

from kohort.testing.fake_broker.broker import FakeBroker
from kohort.testing.fake_broker.classic_coordinator import GroupCoordinator
from kohort.testing.fake_broker.classic_group import Committed, GroupSnapshot, GroupState
from kohort.testing.fake_broker.consumer_group import ConsumerGroupSnapshot, ConsumerGroupState
from kohort.testing.fake_broker.interventions import Action, Alter, Answer, Call, Close, Delay, Drop, Hold, Instead, Raw
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_group import ShareGroupSnapshot, ShareGroupState
from kohort.testing.fake_broker.share_partition import OffsetState

__all__ = [
    "Action",
    "Alter",
    "Answer",
    "Call",
    "Close",
    "Committed",
    "ConsumerGroupSnapshot",
    "ConsumerGroupState",
    "CoordinatorSettings",
    "Delay",
    "Drop",
    "FakeBroker",
    "GroupCoordinator",
    "GroupSnapshot",
    "GroupState",
    "Hold",
    "Instead",
    "OffsetState",
    "Raw",
    "ShareGroupSnapshot",
    "ShareGroupState",
]
