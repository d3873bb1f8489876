"""Fill the topic: chunks of the dataset, each by one producer with one codec, so that every pair of them is read."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from kohort.cli.demo.dataset import FlightEvent
from kohort.cli.demo.producers import CODECS, WRITERS, FlightWriter, ProducerFailed

PROGRESS_EVERY = 20_000


@dataclass(frozen=True, slots=True)
class FilledChunk:
    """Some records in a row, all by one producer with one codec."""

    producer: str
    codec: str
    records: int


@dataclass(frozen=True, slots=True)
class Filled:
    """The written chunks, and the time it took until the last acknowledgement."""

    chunks: tuple[FilledChunk, ...]
    seconds: float

    @property
    def records(self) -> int:
        return sum(chunk.records for chunk in self.chunks)


def chunks(total: int, producers: Sequence[str]) -> tuple[FilledChunk, ...]:
    """Split `total` records over every pair of producer and codec, as evenly as whole numbers allow."""
    pairs = [(producer, codec) for codec in CODECS for producer in producers]
    size, over = divmod(total, len(pairs))
    return tuple(FilledChunk(*pair, size + (1 if index < over else 0)) for index, pair in enumerate(pairs))


def fill(
    bootstrap: str,
    topic: str,
    events: Iterable[FlightEvent],
    plan: Sequence[FilledChunk],
    on_progress: Callable[[int, FilledChunk], None],
) -> Filled:
    """Write the plan's records and wait for every acknowledgement.

    Raises ProducerFailed if a producer refuses, or acknowledges another number than it was given.
    """
    started = time.monotonic()
    supply = iter(events)
    written = 0
    with ExitStack() as stack:
        writers: dict[str, FlightWriter] = {
            name: stack.enter_context(WRITERS[name](bootstrap, topic))
            for name in dict.fromkeys(chunk.producer for chunk in plan)
        }
        for chunk in plan:
            writer = writers[chunk.producer]
            writer.use(chunk.codec)
            for event in islice(supply, chunk.records):
                writer.write(event)
                written += 1
                if written % PROGRESS_EVERY == 0:
                    on_progress(written, chunk)
        for name, writer in writers.items():
            _check(name, writer.close(), plan)
    return Filled(tuple(plan), time.monotonic() - started)


def _check(name: str, acknowledged: object, plan: Sequence[FilledChunk]) -> None:
    wanted = {chunk.codec: chunk.records for chunk in plan if chunk.producer == name}
    if acknowledged != wanted:
        raise ProducerFailed(f"it acknowledged {acknowledged}, and was given {wanted}", producer=name)
