"""Random elections that cut the log, seeks, resets and late responses: reading never goes on in another log unnoticed.

The model has one line of leaders, each of which may have lost the end of its predecessor's log. A broker that responds
fences requests of other epochs (KIP-320), as real ones do.
"""

import random
import uuid
from types import MappingProxyType

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.coordinator_client.offsets.positions import FetchState, ListOffsetsLookup, Positions
from kohort.network.backoff import FRESH
from kohort.network.metadata import BrokerNode, ClusterView, PartitionView, TopicView
from kohort.network.offset_requests import EARLIEST, LATEST, EpochLookup, ListedOffset

P = TopicPartition("t", 0)
STEPS, MOST_CUT = 200, 6
Log = list[tuple[int, int]]  # (leader epoch, value) by offset
STEP_WEIGHTS = {
    "append": 3,
    "cut": 0.6,
    "elect": 0.4,
    "refresh": 3,
    "turn": 3,
    "list": 3,
    "validate": 2,
    "fetch": 4,
    "consume": 3,
    "consume a part": 1,
    "seek": 0.2,
}


def epoch_end(log: Log, newest: int, requested: int) -> tuple[int, int]:
    """As a leader of the epoch `newest` responds to OffsetForLeaderEpoch."""
    if requested >= newest:
        return (newest, len(log)) if requested == newest else (-1, -1)
    end = next((offset for offset, (epoch, _) in enumerate(log) if epoch > requested), len(log))
    return (log[end - 1][0], end) if end else (requested, 0)


class Model:
    """One partition's log and a consumer of it. `expected`: the log up to the position as the consumer knows it, or
    None if the consumer does not know the log before it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.positions = Positions(ResetPolicy.of(self.random.choice(["earliest", "latest", "nearest"])))
        self.positions.assign(P, start=None, has_group=False, wall_ms=0)
        self.log: Log = []
        self.epoch = self.known_epoch = 0
        self.written = self.fetches = self.resets = 0
        self.expected: Log | None = None
        self.parked: list[tuple[int, int, Log, int]] = []  # serial, first offset, records, fetched under
        self.lists: list[ListOffsetsLookup] = []
        self.validations: list[EpochLookup] = []

    @property
    def view(self) -> ClusterView:
        partition = PartitionView(1, self.known_epoch, (1,), ())
        topic = TopicView("t", uuid.UUID(int=1), False, {0: partition})
        return ClusterView(brokers={1: BrokerNode(1, "a", 1, None)}, topics=MappingProxyType({"t": topic}))

    def run(self) -> None:
        names, weights = list(STEP_WEIGHTS), list(STEP_WEIGHTS.values())
        for name in self.random.choices(names, weights, k=STEPS):
            getattr(self, "_" + name.replace(" ", "_"))()
            self._reported()

    def _reported(self) -> None:
        assert self.positions.take_error() is None
        if self.positions.take_gaps():
            self.resets += 1
            state = self.positions.state(P)
            self.expected = self.log[: state.offset] if state.phase is FetchState.FETCHING else None

    def _append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.log.append((self.epoch, self.written))
            self.written += 1

    def _cut(self) -> None:
        del self.log[max(0, len(self.log) - self.random.randint(0, MOST_CUT)) :]
        self.epoch += 1

    def _elect(self) -> None:
        self.epoch += 1

    def _refresh(self) -> None:
        self.known_epoch = self.epoch

    def _turn(self) -> None:
        self.lists += [lookup for lookups in self.positions.owed_lists(self.view, 0.0).values() for lookup in lookups]
        self.validations += [
            lookup for lookups in self.positions.owed_validations(self.view, 0.0).values() for lookup in lookups
        ]

    def _fenced(self, lookup: ListOffsetsLookup | EpochLookup) -> bool:
        if lookup.leader_epoch == self.epoch:
            return False
        if self.positions.is_current(P, lookup.serial):
            self.positions.lookup_failed([P], FRESH)
        return True

    def _list(self) -> None:
        if not self.lists or self._fenced(lookup := self.lists.pop(self.random.randrange(len(self.lists)))):
            return
        offset = len(self.log) if lookup.timestamp == LATEST else 0
        epoch = self.log[offset][0] if offset < len(self.log) else self.epoch
        before = self.positions.state(P)
        self.positions.listed(lookup, ListedOffset(offset, -1, epoch))
        if before.phase is FetchState.NEEDS_RESET and self.positions.point(P) is not None:
            self.expected = self.log[:offset]

    def _validate(self) -> None:
        if self.validations:
            lookup = self.validations.pop(self.random.randrange(len(self.validations)))
            if not self._fenced(lookup):
                epoch, end = epoch_end(self.log, self.epoch, lookup.epoch)
                self.positions.validated(lookup, end, epoch, 0)

    def _fetch(self) -> None:
        self._turn()
        point = self.positions.point(P)
        if point is None or self.known_epoch != self.epoch:
            return
        ahead = [one for one in self.parked if one[0] == point.serial]
        offset = ahead[-1][1] + len(ahead[-1][2]) if ahead else point.offset
        if ahead and ahead[-1][3] < self.known_epoch:
            return  # as `Fetcher._want` does: what an older leader gave is read and validated first
        if offset > len(self.log):
            self.positions.out_of_range(P, point.serial, offset, 0, 0)
            return
        if not ahead:
            assert self.expected in (None, self.log[:offset]), f"a silent gap at {offset}"
        if records := self.log[offset : offset + self.random.randint(1, 5)]:
            self.fetches += 1
            self.parked.append((point.serial, offset, records, self.known_epoch))

    def _consume(self, *, whole: bool = True) -> None:
        if not self.parked:
            return
        serial, offset, records, fetched_under = self.parked.pop(0)
        count = len(records) if whole else self.random.randint(1, len(records))
        if self.positions.consumed(P, serial, offset + count, records[-1][0], fetched_under):
            if self.expected is not None:
                self.expected = self.expected + records[:count]
            if count < len(records):
                self.parked.insert(0, (serial, offset + count, records[count:], fetched_under))

    def _consume_a_part(self) -> None:
        self._consume(whole=False)

    def _seek(self) -> None:
        self.positions.seek_by_time(P, self.random.choice([EARLIEST, LATEST]))
        self.expected = None


@pytest.mark.proves("B-38", "E-08")
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_cut_log_is_never_read_on_silently(first: int) -> None:
    models = []
    for seed in range(first, first + 100):
        models.append(Model(seed))
        try:
            models[-1].run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert sum(one.fetches for one in models) > 500, "else nothing is shown"
    assert sum(one.resets for one in models) > 60
