"""Random histories of a stream: each record in range once, with its values, and a loss only where records were lost."""

import pytest

from kohort.spark import consumer_pool
from kohort.spark import stream as streams
from tests.spark.stream_world import StreamHistory

STEPS = 25


@pytest.mark.proves("B-39", "B-40")
@pytest.mark.parametrize("seed", range(6))
def test_a_stream_reads_each_record_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.01)
    history = StreamHistory(seed)
    try:
        history.play(STEPS)
    finally:
        history.close()
        while consumer_pool._idle:
            consumer_pool._idle.pop()[1].close()
