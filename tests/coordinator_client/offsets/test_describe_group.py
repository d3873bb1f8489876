"""The members of the group: possible responses of a coordinator, and their results."""

from typing import Any

import pytest

from kohort import Consumer
from kohort.network.errors import OperationTimeout
from kohort.network.requests import ResponseReceived
from kohort.protocol.apis.describe_groups import DescribedGroup, DescribeGroupsResponse
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.testing.fake_broker import Alter, FakeBroker
from tests.coordinator_client.core_rig import Rig, metadata


@pytest.mark.parametrize("reported", ["nothing", "of another group"])
def test_a_response_without_the_group_is_none(reported: str) -> None:
    def bend(response: Any) -> Any:
        others = tuple(one._replace(group_id="another") for one in response.groups)
        return response._replace(groups=() if reported == "nothing" else others)

    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        odd = fake.control("DescribeGroups", lambda _call: Alter(bend))
        with pytest.raises(OperationTimeout):
            consumer.group_members(0.5)
        assert odd.calls > 1, "it was requested again"
        odd.remove()
        assert consumer.group_members() == ()


@pytest.mark.proves("B-27")
def test_a_search_that_found_nothing_waits_before_the_next() -> None:
    rig = Rig(group="g", retry_backoff_ms=100)
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    rig.core.lookups.describe_group(60.0)
    rig.turn(0.0)
    for now in (0.0, 1.0):
        rig.settle("FindCoordinator", ResponseReceived(FindCoordinatorResponse(error_code=15), 3), now)
        rig.turn(now)
        assert searches(rig) == 0
        rig.turn(now + 1.0)
        assert searches(rig) == 1


@pytest.mark.parametrize("code", [15, 16])
def test_a_broker_that_does_not_coordinate_the_group_has_its_coordinator_looked_for(code: int) -> None:
    rig = Rig(group="g")
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    requested = rig.core.lookups.describe_group(60.0)
    rig.turn(0.0)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 0.0)
    rig.turn(0.0)
    refusal = DescribedGroup(error_code=code, group_id="g")
    rig.settle("DescribeGroups", ResponseReceived(DescribeGroupsResponse(groups=(refusal,)), 5), 0.0)
    rig.turn(1.0)
    assert searches(rig) == 1
    assert not requested.done()


def searches(rig: Rig) -> int:
    return sum(lookup.api == "FindCoordinator" for _endpoint, lookup in rig.open)
