"""Histories of a producer among failing brokers, each out of one seed: splits, callbacks, transactions.

    python -m tests.producer.histories --seeds 50000 --resume out/producer-histories.jsonl

Transactions are of both versions. Every finished chunk of seeds is a line of the file. A run with the same file
continues from there, if the code is unchanged. Exits with 1 if a history violates a rule.
"""

import argparse
import hashlib
import json
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kohort import producer
from kohort.common import TopicPartition
from kohort.network.errors import AuthorizationFailed
from kohort.producer import Delivery, DeliveryTimeout
from kohort.producer.callback_queue import CallbackQueue
from kohort.protocol.errors import BrokerError
from tests.producer.producer_world import TOO_LARGE, World
from tests.producer.transaction_world import TransactionWorld

STEPS, TRANSACTION_STEPS = 400, 900
MOST_BYTES = 260
EXPIRES_MS = (2_500, 20_000, 120_000)  # with the first most records expire, with the last none
NOT_ALLOWED = 29  # TOPIC_AUTHORIZATION_FAILED: an ACL may be removed between two attempts
CHUNK_SEEDS = 100


class History:
    """A world whose records have callbacks, and whose broker takes small batches only."""

    def __init__(self, seed: int, *, alone: bool = False) -> None:
        expires_ms = EXPIRES_MS[seed % len(EXPIRES_MS)]
        linger_ms = 0 if alone else 5
        self.world = World(
            seed, linger_ms=linger_ms, batch_bytes=600, request_timeout_ms=200, delivery_timeout_ms=expires_ms
        )
        if alone:
            self.world.sends, self.world.faults = 0.15, 0.1
        self.world.most_bytes, self.world.jumps, self.world.refusals = MOST_BYTES, 0.05, (NOT_ALLOWED,)
        self.called: dict[TopicPartition, list[int]] = defaultdict(list)
        self.calls: dict[int, Delivery] = {}
        self._queue = CallbackQueue(self.world.core.accumulator.callbacks, lambda: None)

    def send(self) -> None:
        world, number = self.world, len(self.world.sent)

        def note(delivery: Delivery) -> None:
            assert delivery.done()
            assert number not in self.calls, "called twice"
            self.calls[number] = delivery
            self.called[delivery.batch.partition].append(number)

        value = b"%d:" % number + b"x" * world.chance.choice((1, 20, 60, 120, 200))
        world.send(value, world.chance.choice((None, 0, 1, 2)), note)

    def run(self) -> None:
        for _ in range(STEPS):
            happening = self.world.chance.random()
            if happening < self.world.sends:
                self.send()
            elif happening < 0.65:
                self.world.turn()
            elif happening < 0.95:
                self.world.respond_to_one()
            else:
                self._queue.call()
        self.world.calm()
        self._queue.call()

    def check(self) -> None:
        world = self.world
        number_of = {value: number for number, (_, value) in enumerate(world.sent)}
        for log in world.logs.values():
            numbers = [number_of[value] for value in log.values]
            assert numbers == sorted(set(numbers)), "doubled, or out of order"
        assert self.calls.keys() == set(range(len(world.sent))), "no callback"
        assert all(numbers == sorted(numbers) for numbers in self.called.values()), "callbacks out of order"
        for delivery, value in world.sent:
            sent, index = delivery.batch.place(delivery.index)
            if sent.error is None:
                assert world.logs[sent.partition].values[sent.base_offset + index] == value, "lost"
            elif isinstance(sent.error, DeliveryTimeout):
                assert sent.error.place["sent"] or value not in world.logs[sent.partition].values, "sent after all"
            elif isinstance(sent.error, AuthorizationFailed):
                assert sent.unsure or value not in world.logs[sent.partition].values, "written after all"
            else:
                assert isinstance(sent.error, BrokerError)
                assert (sent.error.code, len(value) > MOST_BYTES - 100) == (TOO_LARGE, True)
        assert world.core.accumulator.buffered == 0

    def events(self) -> Counter[str]:
        """The numbers of records and of what happened to them."""
        sent = self.world.sent
        return Counter(
            {
                "records": len(sent),
                "splits": self.world.core.sensors.splits,
                "alone": self.world.sent_alone,
                "acknowledged": sum(one.exception(0) is None for one, _ in sent),
                "expired": sum(isinstance(one.exception(0), DeliveryTimeout) for one, _ in sent),
            }
        )


class TransactionHistory:
    """A world of transactions. What is committed is seen once and in order, by whole transactions."""

    def __init__(self, seed: int, version: int, *, late: bool = False) -> None:
        self.world = TransactionWorld(seed, version, late=late, most_bytes=MOST_BYTES, batch_bytes=600)

    def run(self) -> None:
        self.world.run(TRANSACTION_STEPS)
        self.world.calm()

    def check(self) -> None:
        world = self.world
        assert world.seen() == world.expected(), "lost, doubled, out of order, or seen in part"
        assert world.offset() == world.expected_offset(), "another offset"
        assert sorted(number for numbers in world.called.values() for number in numbers) == list(
            range(len(world.sent))
        ), "no callback, or called twice"
        assert all(numbers == sorted(numbers) for numbers in world.called.values()), "callbacks out of order"
        assert world.core.accumulator.buffered == 0
        added = {"AddPartitionsToTxn", "AddOffsetsToTxn"} & set(world.requested)
        assert world.version == 1 or not added, added

    def events(self) -> Counter[str]:
        """The numbers of records, of transactions, and of what happened to them."""
        begun = self.world.begun
        return Counter(
            {
                "records": len(self.world.sent),
                "splits": self.world.core.sensors.splits,
                "committed": sum(one.committed is True for one in begun),
                "aborted": sum(not one.commits for one in begun),
                "failed": sum(one.commits and one.committed is False for one in begun),
            }
        )


KINDS: Mapping[str, Callable[[int], History | TransactionHistory]] = {
    "splits": History,
    "alone": lambda seed: History(seed, alone=True),
    "version-1": lambda seed: TransactionHistory(seed, 1),
    "version-2": lambda seed: TransactionHistory(seed, 2),
    "version-2-late": lambda seed: TransactionHistory(seed, 2, late=True),
}


def lived(kind: str, seed: int) -> Counter[str]:
    """The events of one history. Raises an error with a note if a rule is violated."""
    try:
        history = KINDS[kind](seed)
        history.run()
        history.check()
    except Exception as error:
        error.add_note(f"{kind}, seed {seed}")
        raise
    return history.events()


class Chunk(NamedTuple):
    """The results of the seeds `first` to `first + seeds - 1` of a kind."""

    kind: str
    first: int
    seeds: int
    events: dict[str, int]
    violations: list[str]
    code: str


def chunk(kind: str, first: int, seeds: int, code: str) -> Chunk:
    """Run them; a violation ends its history, not the chunk."""
    events: Counter[str] = Counter()
    violations = []
    for seed in range(first, first + seeds):
        try:
            events += lived(kind, seed)
        except Exception as error:
            violations.append(f"{kind}, seed {seed}: {type(error).__name__}: {error}")
    return Chunk(kind, first, seeds, dict(events), violations, code)


def code_digest() -> str:
    """A digest of the producer and of its worlds."""
    ours = Path(__file__).parent
    paths = [*Path(str(producer.__file__)).parent.glob("*.py*"), *ours.glob("*_world.py"), Path(__file__)]
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.suffix in (".py", ".pyx")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def done_before(path: Path, code: str) -> list[Chunk]:
    """The file's chunks that were run with this code."""
    if not path.exists():
        return []
    chunks = (Chunk(**json.loads(line)) for line in path.read_text().splitlines() if line.endswith("}"))
    return [one for one in chunks if one.code == code]


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.producer.histories", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="of each kind")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    code = code_digest()
    known = {one[:3]: one for one in (done_before(given.resume, code) if given.resume else [])}
    requested = [
        (kind, first, min(CHUNK_SEEDS, given.first + given.seeds - first))
        for first in range(given.first, given.first + given.seeds, CHUNK_SEEDS)
        for kind in given.kinds
    ]
    found = [known[one] for one in requested if one in known]
    ran, began_at = 0, time.monotonic()
    print(f"code {code}: {sum(one.seeds for one in found)} histories known", flush=True)
    for number, one in enumerate((one for one in requested if one not in known), start=1):
        found.append(chunk(*one, code))
        ran += one[2]
        if given.resume:
            given.resume.parent.mkdir(parents=True, exist_ok=True)
            with given.resume.open("a") as file:
                file.write(json.dumps(found[-1]._asdict()) + "\n")
        for violation in found[-1].violations:
            print(violation, flush=True)
        if number % 20 == 0:
            print(f"{ran} histories, {ran / (time.monotonic() - began_at):.0f} a second", flush=True)
    violated = sum(len(one.violations) for one in found)
    print(f"{sum(one.seeds for one in found)} histories, {violated} violated")
    for event, times in sorted(sum((Counter(one.events) for one in found), Counter()).items()):
        print(f"{event:12}{times:>12}")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
