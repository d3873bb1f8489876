"""A plan that fails affects its leader alone. Its group goes on at once."""

from typing import Any

import pytest

from kohort.assignors import GroupView, Plan
from kohort.assignors.range import RangeAssignor
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group.leader_assignment import AssignorFailed
from kohort.testing import RealBroker
from tests.coordinator_client.consumer_helpers import poll_until


class ForAnyMember(RangeAssignor):
    name = "mine"


class ForOne(ForAnyMember):
    def assign(self, group: GroupView) -> Plan:
        if len(group.members) > 1:
            raise ValueError("for one only")
        return super().assign(group)


@pytest.mark.broker
def test_a_group_goes_on_without_the_leader_whose_plan_failed(broker: RealBroker, topic: str) -> None:
    """Otherwise the group would wait for a plan until the leader's session ends, and no member would read: 45 s by
    default, here ten minutes."""
    patient: dict[str, Any] = {"group": topic, "session_timeout_ms": 600_000, "heartbeat_interval_ms": 300}
    with (
        Consumer(broker.bootstrap, assignors=[ForOne()], **patient) as first,
        Consumer(broker.bootstrap, assignors=[ForAnyMember()], **patient) as second,
    ):
        first.subscribe([topic])
        poll_until(first, lambda: len(first.assignment) == 3)
        second.subscribe([topic])
        with pytest.raises(AssignorFailed):
            poll_until(first, lambda: bool(second.assignment))
        poll_until(second, lambda: len(second.assignment) == 3)
        with pytest.raises(AssignorFailed):
            first.poll(0.1)
