"""Records of failed handlers on their way to the dead-letter topic."""

from asyncio import CancelledError
from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

from kohort.common.foreign_text import MOST_NOTICE_CHARACTERS, cut, escaped
from kohort.workers.job import Job

Headers = list[tuple[str, bytes | None]]


class Delivery(Protocol):
    """The outcome of a sent record."""

    def done(self) -> bool: ...
    def exception(self) -> BaseException | None: ...


SentLetter = tuple[Job, Exception, Delivery | Exception]
"""A job, the error of its handler, and the outcome of its record: a delivery, or the producer's refusal."""


def headers_of(job: Job, error: Exception, group: str) -> Headers:
    """The record's headers, then the place and the error under the names of KIP-1191."""
    record = job.record
    place: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": group,
        "delivery.count": job.attempt,
        # Often it has the record's value. A dead letter that is too large would keep its record here for ever.
        "message": cut(escaped(repr(error)), MOST_NOTICE_CHARACTERS),
    }
    return [*record.headers, *((f"__dlq.errors.{name}", str(value).encode()) for name, value in place.items())]


def _failure(sent: Delivery | Exception) -> BaseException | None:
    if isinstance(sent, Exception):
        return sent
    try:
        return sent.exception()
    except CancelledError as cancelled:  # a program may cancel all tasks of its loop
        return cancelled


class DeadLetters:
    """Sends records by a producer, with their values, keys and headers as they are."""

    def __init__(self, producer: Any, topic: str, group: str) -> None:
        self._producer = producer
        self._topic = topic
        self._group = group
        self._sent: dict[int, SentLetter] = {}
        self._numbers = count()

    def send(self, job: Job, error: Exception) -> None:
        """Send one record, without waiting for its outcome. A refusal of the producer is one, too."""
        record = job.record
        try:
            sent: Delivery | Exception = self._producer.send(
                self._topic, record.value, record.key, headers=headers_of(job, error, self._group)
            )
        except Exception as refusal:
            sent = refusal
        self._sent[next(self._numbers)] = (job, error, sent)

    def settled(self) -> Iterator[tuple[Job, Exception, BaseException | None]]:
        """Each job whose record is settled, the handler's error, and the error of the record or None."""
        for number, (job, error, sent) in tuple(self._sent.items()):
            if isinstance(sent, Exception) or sent.done():
                yield job, error, _failure(sent)
                del self._sent[number]  # the caller has handled it

    def given_up(self) -> list[Job]:
        """The jobs whose records have no outcome, or one that was not handled. They are forgotten."""
        sent, self._sent = self._sent, {}
        return [job for job, _error, _sent in sent.values()]

    @property
    def waiting(self) -> int:
        """The number of records without an outcome."""
        return len(self._sent)
