"""The leader epochs that offsets of checkpoints have, by what was polled."""

from typing import NamedTuple
from uuid import UUID

import pytest

from kohort import TopicPartition
from kohort.consistent_region.errors import TopicRecreatedError
from kohort.consistent_region.log_lineage import Lineage
from kohort.consistent_region.offsets import RegionPosition

P0 = TopicPartition("t", 0)
OLD, NEW = UUID(int=1), UUID(int=2)


class Here(NamedTuple):
    offset: int
    leader_epoch: int


class Reader:
    """A lineage, and the consumer's position."""

    def __init__(self) -> None:
        self.here = Here(0, -1)
        self.topic_id = OLD
        self.lineage = Lineage(lambda _topic: self.topic_id, lambda _partition: self.here)

    def polls_up_to(self, offset: int, epoch: int) -> None:
        self.here = Here(offset, epoch)
        self.lineage.polled([P0])

    def epoch_at(self, offset: int) -> int:
        return self.lineage.reported({P0: RegionPosition(offset, leader_epoch=0)})[P0].leader_epoch


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_an_offset_has_the_epoch_of_the_poll_that_brought_the_record_before_it(reader: Reader) -> None:
    for offset, epoch in ((5, 1), (8, 1), (12, 2)):
        reader.polls_up_to(offset, epoch)
    assert [reader.epoch_at(offset) for offset in (3, 8, 9, 12)] == [1, 1, 2, 2]


def test_what_was_polled_before_a_seek_back_counts_no_more(reader: Reader) -> None:
    reader.polls_up_to(10, 1)
    reader.polls_up_to(5, 2)
    assert reader.epoch_at(4) == 2


def test_what_was_polled_before_another_start_counts_no_more(reader: Reader) -> None:
    reader.polls_up_to(10, 1)
    reader.lineage.placed([P0])
    assert reader.epoch_at(7) == 0
    reader.polls_up_to(20, 3)
    assert reader.epoch_at(8) == 3


def test_a_start_in_a_topic_that_was_created_again_is_refused(reader: Reader) -> None:
    start = {P0: RegionPosition(3, topic_id=OLD)}
    reader.lineage.check(start)
    reader.topic_id = NEW
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        reader.lineage.check(start)
