"""Mutated frames through every parser: no crash, no hang, no read past the end, memory bounded.

    python -m tests.sanitized tests.protocol.fuzz_codec --inputs 1000000 --seed 1

The corpus is made from the declarations: for every API, direction and version its zero value and a few full ones, all
from the seed. Each input is one of them with a few bytes set, cut, doubled or spliced. A parse must end in a value or
a WireError; a value must be written again without complaint. Every text in it must come out of an error message in one
line, without control characters, and without the secret that it may carry. Subscriptions of foreign members are parsed
as the leader of a group does it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any
from unicodedata import category

import kohort
from kohort.common.errors import WireError
from kohort.common.foreign_text import scrubbed
from kohort.protocol.catalogue import APIS
from kohort.protocol.codec import Message
from kohort.protocol.errors import BrokerError
from kohort.protocol.membership import parse_subscription
from kohort.protocol.schema import Struct
from tests.protocol import hostile_responses
from tests.protocol.sampling import Choices, sample

NASTY = (0x00, 0x01, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
UNSHOWN = frozenset({"Cc", "Cs", "Zl", "Zp"})
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
MOST_SHOWN = 6_000  # the cut text, each character of it escaped, and the rest of the message
SUBSCRIPTION_EVERY = 10
MAX_GROWTH_KB = 64 * 1024  # of the process while it parses inputs of a few kilobytes each


def drawn(kind: type[Struct], version: int, dice: random.Random) -> Any:
    """A struct with something in most of its fields."""
    return sample(kind, version, Choices(dice.randbytes(600)))


def corpus(dice: random.Random) -> list[tuple[Message[Any], int, bytes]]:
    """(message, version, bytes) for everything declared."""
    made = hostile_responses.corpus(400)
    for api in APIS:
        for message in (api.request, api.response):
            for version in range(message.versions[0], message.versions[1] + 1):
                for value in (message.struct._zero(), *(drawn(message.struct, version, dice) for _ in range(3))):
                    made.append((message, version, message.build(value, version)))
    return made


def strings(value: Any) -> Iterator[str]:
    """Every text in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from strings(part)


def check_texts(value: Any) -> None:
    """Raises AssertionError for a text that an error message shows unescaped, uncut, or with its secret."""
    for text in strings(value):
        shown = str(BrokerError(29, scrubbed(text, [hostile_responses.SECRET])))
        if bad := {character for character in shown if category(character) in UNSHOWN or character in BIDI}:
            raise AssertionError(f"{bad!r} in an error message")
        if hostile_responses.SECRET in shown or len(shown) > MOST_SHOWN:
            raise AssertionError(f"a secret, or {len(shown)} characters, in an error message")


def parse_foreign_subscription(dice: random.Random) -> None:
    """A leader's parse of a member's subscription ends in a value or a WireError."""
    seeds = hostile_responses.subscriptions()
    with contextlib.suppress(WireError):
        parse_subscription(mutate(dice.choice(seeds), dice.choice(seeds), dice))


def mutate(data: bytes, other: bytes, dice: random.Random) -> bytes:
    """A few faults of the kinds that a broken or hostile peer makes."""
    mutated = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(mutated) + 1)
        match dice.randrange(5):
            case 0 | 1 if at < len(mutated):
                mutated[at] = dice.choice(NASTY) if dice.random() < 0.7 else dice.randrange(256)
            case 2:
                del mutated[at:]
            case 3:
                mutated[at:at] = mutated[at : at + dice.randint(1, 8)]
            case _:
                mutated[at:] = other[dice.randrange(len(other) + 1) :]
    return bytes(mutated)


def fuzz(inputs: int, seed: int) -> int:
    """0 when every input ended in a value or a WireError and memory stayed where it was."""
    dice = random.Random(seed)
    seeds = corpus(dice)
    print(f"{len(seeds)} frames of {len(APIS)} APIs; extension of {kohort.__file__}; seed {seed}", flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accepted, start = 0, time.monotonic()
    for number in range(1, inputs + 1):
        message, version, data = dice.choice(seeds)
        hostile = mutate(data, dice.choice(seeds)[2], dice)
        with contextlib.suppress(WireError):
            message.parse_from(hostile, 0, version, dice.randrange(1 << 16))
        try:
            value = message.parse(hostile, version)
        except WireError:
            pass
        else:
            accepted += 1
            message.build(value, version)
            check_texts(value)
        if number % SUBSCRIPTION_EVERY == 0:
            parse_foreign_subscription(dice)
        if number % 100_000 == 0:
            print(f"{number:,} inputs, {accepted:,} accepted, {time.monotonic() - start:.0f} s", flush=True)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{inputs:,} inputs, {accepted:,} accepted, 0 crashes, memory grew by {growth / 1024:.1f} MiB")
    return 0 if growth < MAX_GROWTH_KB else 1


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--inputs", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    return fuzz(chosen.inputs, chosen.seed)


if __name__ == "__main__":
    sys.exit(main())
