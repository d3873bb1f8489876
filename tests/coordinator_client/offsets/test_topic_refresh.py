"""A lookup of topics as they are now does not get the response to an earlier request."""

from typing import Any

import pytest

from kohort.network.requests import ResponseReceived
from tests.coordinator_client.core_rig import Rig, metadata


@pytest.mark.parametrize("everything", [True, False], ids=["all topics", "one"])
def test_a_response_that_was_under_way_is_not_how_it_is_now(everything: bool) -> None:
    rig = Rig()
    lookups = rig.core.lookups
    if everything:
        lookups.look_up_topics(30.0)  # another caller's, which is under way
    rig.turn(0.0)
    found: Any = lookups.look_up_topics(30.0) if everything else lookups.look_up_topic("t", 30.0, fresh=True)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1}), 12), 0.0)
    rig.turn(0.0)
    assert not found.done()
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 0.0)
    rig.turn(0.0)
    partitions = found.result(0)["t"] if everything else found.result(0)
    assert [one.partition for one in partitions] == [0, 1]
