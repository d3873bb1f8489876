"""KIP-447: requests for offsets that wait for open transactions, and those that do not."""

from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client.offsets.offset_lookups import Lookup
from kohort.network.offset_requests import LATEST, offset_fetch_request
from kohort.network.requests import ResponseReceived
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from tests.coordinator_client.core_rig import Rig, metadata

P0 = TopicPartition("t", 0)


def ready(**settings: object) -> Rig:
    """A core that knows its leaders and its group's coordinator."""
    rig = Rig(group="g", **settings)
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    rig.turn(0.0)
    return rig


def requested(rig: Rig, api: str, version: int) -> list[Any]:
    return [one.request(version) for _endpoint, one in rig.open if one.api == api]


@pytest.mark.proves("S-02")
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("stable", [None, True, False])
def test_the_end_of_a_log_is_that_of_its_isolation_unless_another_is_requested(level: str, stable: bool | None) -> None:
    rig = ready(isolation_level=level)
    given = {} if stable is None else {"stable": stable}
    rig.core.lookups.look_up({P0: LATEST}, 60.0, **given)
    rig.core.lookups.put(Lookup({P0: LATEST}, 60.0, lambda _found: None, **given))
    rig.turn(0.0)
    wanted = 1 if level == "read_committed" and stable is not False else 0
    assert [request.isolation_level for request in requested(rig, "ListOffsets", 6)] == [wanted] * 2


@pytest.mark.proves("S-02")
@pytest.mark.parametrize("stable", [None, True, False])
def test_committed_offsets_are_stable_ones_unless_others_are_requested(stable: bool | None) -> None:
    rig = ready()
    given: dict[str, Any] = {} if stable is None else {"stable": stable}
    rig.core.lookups.look_up_committed([P0], 60.0, **given)
    rig.turn(0.0)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 0.0)
    rig.turn(0.0)
    assert [request.require_stable for request in requested(rig, "OffsetFetch", 8)] == [stable is not False]
    assert offset_fetch_request("g", [P0], **given)(8).require_stable is (stable is not False)


@pytest.mark.proves("S-02")
def test_where_reading_starts_is_a_stable_offset() -> None:
    rig = Rig(group="g")
    rig.core.assign(frozenset(), {}, {})
    rig.turn(0.0)
    rig.core.assign(frozenset({P0}), {}, {})
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    rig.turn(0.0)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 0.0)
    rig.turn(0.0)
    assert [request.require_stable for request in requested(rig, "OffsetFetch", 8)] == [True]
