"""The lag of a group: the requests for it, and the result of responses in any order."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.group.events import LagKnown
from kohort.coordinator_client.group.ready import BacklogOrder
from kohort.coordinator_client.offsets.group_lag import GroupLag
from kohort.coordinator_client.offsets.offset_lookups import Lookup
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import EARLIEST, LATEST, ListedOffset
from kohort.network.promise import Promise

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
COMMITTED = {T0: OffsetAndMetadata(40), T1: None, U0: OffsetAndMetadata(2)}
FOUND = {LATEST: {T0: 100, T1: 30, U0: 9}, EARLIEST: {T0: 0, T1: 10, U0: 5}}


class Core:
    """Takes the requests of a measurement, and the results that the member receives."""

    def __init__(self, policy: str) -> None:
        self.reads_old = policy != "latest"
        self.committed: Promise[Mapping[TopicPartition, OffsetAndMetadata | None]] = Promise()
        self.lookups: dict[tuple[str, int], Lookup] = {}
        self.reported: list[LagKnown] = []

    def look_up_committed(self, partitions: list[TopicPartition], deadline: float, *, stable: bool) -> Promise[Any]:
        assert (sorted(partitions), deadline, stable) == ([T0, T1, U0], 5.0, False)
        return self.committed

    def put(self, lookup: Lookup) -> None:
        (timestamp,) = set(lookup.wanted.values())
        (topic,) = lookup.topics
        self.lookups[topic, timestamp] = lookup

    def measure(self) -> None:
        lag = GroupLag(self, self.reported.append, reads_old=self.reads_old)  # type: ignore[arg-type]
        lag.measure(BacklogOrder(7, {"t": 2, "u": 1}, 5.0))

    def list_ends(self, place: tuple[str, int], error: KohortError | None = None) -> None:
        lookup = self.lookups[place]
        if error is None:
            found = {one: ListedOffset(FOUND[place[1]][one], -1, -1) for one in lookup.wanted}
            lookup.found.update(found)
        lookup.finished(error or lookup.found)


@pytest.mark.parametrize(
    ("policy", "requested", "lag"),
    [
        ("earliest", {LATEST, EARLIEST}, {T0: 60, T1: 20, U0: 4}),  # below the log's start nothing is left
        ("latest", {LATEST}, {T0: 60, T1: 0, U0: 7}),  # where nothing is committed nothing waits
    ],
)
def test_the_member_gets_one_event_when_the_last_response_has_come(
    policy: str, requested: set[int], lag: dict[TopicPartition, int]
) -> None:
    places: list[tuple[str, int] | None] = [None, *((topic, time) for topic in "tu" for time in requested)]
    for order in permutations(places):
        core = Core(policy)
        core.measure()
        assert core.lookups.keys() == {place for place in places if place is not None}
        for place in order:
            assert core.reported == []
            if place is None:
                core.committed.set_result(COMMITTED)
            else:
                core.list_ends(place)
        assert core.reported == [LagKnown(7, lag, 0, "")]


def test_the_first_reason_is_reported_and_how_many_partitions_it_leaves_unknown() -> None:
    core = Core("earliest")
    core.measure()
    core.list_ends(("t", LATEST), KohortError("no leader"))
    core.committed.set_result(COMMITTED)
    for place in (("t", EARLIEST), ("u", LATEST)):
        core.list_ends(place)
    core.list_ends(("u", EARLIEST), KohortError("too late"))
    assert core.reported == [LagKnown(7, {}, 3, "no leader")]
