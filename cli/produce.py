"""`kohort produce`: send records of lines, JSON lines, Parquet or Arrow, and count their deliveries."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from kohort.cli.connection_options import AsJson, ConnectionOptions, connected
from kohort.cli.numbers_given import finite
from kohort.cli.record_input import (
    STANDARD_INPUT,
    InputFormat,
    InputRecord,
    TextInput,
    arrow_tables,
    format_of,
    json_records,
    opened,
    parquet_tables,
    text_records,
)
from kohort.cli.record_progress import Limit, Quiet, RecordProgress
from kohort.cli.terminal import say
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.network.process_exit import exit_on_sigterm
from kohort.producer import Producer, ProducerConfig

if TYPE_CHECKING:
    from kohort.producer import Delivery

app = typer.Typer(add_completion=False)

POLL_S: Final = 0.1
ROWS_AT_ONCE: Final = 1 << 16
STEPS_PER_S: Final = 10  # at a rate, rows of a file are sent in so many steps a second
LATE_S: Final = 1.0  # a delay of at most this is made up for


class RequiredAcks(StrEnum):
    """The replicas that acknowledge a record."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


@app.command()
@connected
def produce(
    cluster: ConnectionOptions,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    file: Annotated[Path, typer.Argument(help="The input; - is standard input.")] = STANDARD_INPUT,
    form: Annotated[
        InputFormat | None, typer.Option("--format", "-f", help="The input format; by default that of the suffix.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="The end of the key in each line of text.")
    ] = None,
    key: Annotated[TextInput, typer.Option(help="The representation of keys in JSON lines.")] = TextInput.UTF8,
    value: Annotated[TextInput, typer.Option(help="The representation of values in JSON lines.")] = TextInput.UTF8,
    header: Annotated[TextInput, typer.Option(help="The representation of headers in JSON lines.")] = TextInput.UTF8,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition of all records.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, callback=finite, help="The maximum number of records a second.")
    ] = None,
    limit: Limit = None,
    acks: Annotated[RequiredAcks | None, typer.Option(help="The replicas that acknowledge a record.")] = None,
    transactional_id: Annotated[
        str | None, typer.Option(help="Send all records in one transaction of this id.")
    ] = None,
    commit_every: Annotated[
        int | None, typer.Option(min=1, help="The number of records after which another transaction begins.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Send records to a topic, and print the number of deliveries. Exits with 1 if a record was not delivered.

    The input is lines of text, JSON lines, Parquet or Arrow. JSON lines and columns are those that `kohort consume`
    writes. Only the value is required.

    Example: kohort produce payments records.jsonl --rate 1000 -b localhost:9092
    """
    shipment = _Shipment(topic, partition)
    settings: dict[str, Any] = cluster.properties_of(ProducerConfig) | {"kohort.on.delivery": shipment.note}
    settings |= {} if acks is None else {"acks": acks.value}
    settings |= {} if transactional_id is None else {"transactional.id": transactional_id}
    transactional = "transactional.id" in settings  # also by a file, or by -X
    if commit_every is not None and not transactional:
        raise KohortError("--commit-every needs --transactional-id")
    with ExitStack() as stack:
        stack.enter_context(exit_on_sigterm())
        source = stack.enter_context(opened(file))
        items, count = _input(source, form or format_of(file), key_separator, key, value, rate, header)
        producer = Producer.from_config(settings)
        stack.callback(shipment.report, as_json)
        stack.enter_context(producer)
        total = min((one for one in (count, limit) if one is not None), default=None)
        typed = file == STANDARD_INPUT and sys.stdin.isatty()
        tick = stack.enter_context(RecordProgress(total, shown=not (quiet or typed)))
        items = items if limit is None else _taken(_split(items, limit), limit)
        items = items if rate is None else _paced(items, rate)
        if transactional:
            shipment.send_in_transactions(producer, items, tick, commit_every)
        else:
            shipment.send(producer, items, tick)
    shipment.check()


class _Shipment:
    """Sends records, and counts those that are delivered, or committed where there are transactions."""

    def __init__(self, topic: str, partition: int | None) -> None:
        self._topic, self._partition = topic, partition
        self._begun = time.monotonic()
        self._delivered: Counter[int] = Counter()
        self._committed: Counter[int] | None = None
        self._failed = 0
        self._error: KohortError | None = None

    def note(self, delivery: "Delivery") -> None:
        """Count a delivery; the producer's callback."""
        error = delivery.exception()
        if error is None:
            self._delivered[delivery.batch.partition.partition] += 1
        else:
            self._failed += 1
            self._error = self._error or error

    def send(self, producer: Producer, items: Iterator[Any], tick: Callable[[int], None]) -> None:
        """Send records, and have the callbacks called meanwhile."""
        poll_at = 0.0
        for item in items:
            if isinstance(item, InputRecord):
                value, key, headers, timestamp_ms, partition, line = item
                partition = partition if self._partition is None else self._partition
                try:
                    producer.send(
                        self._topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                    )
                except ValueError as error:
                    raise KohortError(str(error), line=line) from None
                except KohortError as error:
                    error.place = {**error.place, "line": line}
                    raise
            else:
                producer.send_arrow(self._topic, item, partition=self._partition)
            tick(_size(item))
            if time.monotonic() >= poll_at:
                producer.poll()
                poll_at = time.monotonic() + POLL_S

    def send_in_transactions(
        self, producer: Producer, items: Iterator[Any], tick: Callable[[int], None], every: int | None
    ) -> None:
        """Send records in transactions of `every` records, or in one."""
        self._committed = Counter()
        for part in _parts(items, every):
            with producer.transaction():
                self.send(producer, part, tick)
                producer.flush()  # has the callbacks called
            self._committed = self._delivered.copy()

    def report(self, as_json: bool) -> None:
        """Print the counts."""
        word, counts = "delivered", self._delivered
        if self._committed is not None:
            word, counts = "committed", self._committed
        if as_json:
            by_partition = {str(number): counts[number] for number in sorted(counts)}
            found = {"topic": self._topic, word: counts.total(), "failed": self._failed, "partitions": by_partition}
            print(json.dumps(found | {"seconds": round(time.monotonic() - self._begun, 3)}))
            return
        failed = f", {self._failed:,} failed" if self._failed else ""
        say(f"{counted(counts.total(), 'record')} {word} to {self._topic}{failed}")

    def check(self) -> None:
        """Raises KohortError if a record has failed."""
        if self._error is not None:
            raise KohortError(f"{counted(self._failed, 'record')} not delivered; the first error: {self._error}")


# ------------------------------------------------------------------------------------------------------------- input


def _input(
    file: BinaryIO,
    form: InputFormat,
    separator: str | None,
    key: TextInput,
    value: TextInput,
    rate: float | None,
    header: TextInput,
) -> tuple[Iterator[Any], int | None]:
    """The records or tables to send, and the number of records if it is known."""
    if separator is not None and form is not InputFormat.TEXT:
        raise KohortError(f"--key-separator is for lines of text, not for {form.value}")
    if separator == "":
        raise KohortError("--key-separator is empty", hint="use the text that ends the key of each line, such as :")
    rows = ROWS_AT_ONCE if rate is None else max(1, min(ROWS_AT_ONCE, int(rate / STEPS_PER_S)))
    match form:
        case InputFormat.TEXT:
            return text_records(file, separator), None
        case InputFormat.JSON:
            return json_records(file, key, value, header), None
        case InputFormat.PARQUET:
            return parquet_tables(file, rows)
        case InputFormat.ARROW:
            return arrow_tables(file, rows), None


def _size(item: Any) -> int:
    return 1 if isinstance(item, InputRecord) else int(item.num_rows)


def _taken(items: Iterator[Any], most: int) -> Iterator[Any]:
    """The next `most` records."""
    while most and (item := next(items, None)) is not None:
        most -= _size(item)
        yield item


def _split(items: Iterator[Any], every: int) -> Iterator[Any]:
    """The same records, in tables that end at each multiple of `every`."""
    at = 0
    for item in items:
        size, start = _size(item), 0
        while start < size:
            count = min(size - start, every - at % every)
            yield item if count == size else item.slice(start, count)
            at, start = at + count, start + count


def _parts(items: Iterator[Any], every: int | None) -> Iterator[Iterator[Any]]:
    """Parts of `every` records, each to be read before the next."""
    if every is None:
        yield items
        return
    items = _split(items, every)
    for first in items:
        yield chain([first], _taken(items, every - _size(first)))


def _paced(items: Iterator[Any], rate: float) -> Iterator[Any]:
    """The same records, at most `rate` a second."""
    due = time.monotonic()
    for item in items:
        due = max(due, time.monotonic() - LATE_S)
        time.sleep(max(0.0, due - time.monotonic()))
        yield item
        due += _size(item) / rate
