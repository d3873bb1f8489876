"""Every test of decoding and encoding runs on both: the Cython that users run and its readable twin on construct."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from kohort import fastpath
from kohort.protocol import record_batch as twin

FIELDS = twin.PlainRecord._fields


class Read(NamedTuple):
    """The result of either implementation, in one shape."""

    records: tuple[twin.PlainRecord, ...]
    next_offset: int
    corrupt: Sequence[fastpath.CorruptRecord]


def _plain(decoded: Any) -> Read:
    records = tuple(twin.PlainRecord(*(getattr(record, name) for name in FIELDS)) for record in decoded)
    return Read(records, decoded.next_offset, decoded.corrupt)


def _cython(buffer: Any, **options: Any) -> Read:
    return _plain(fastpath.decode(buffer, **options))


def _construct(buffer: Any, **options: Any) -> Read:
    return _plain(twin.decode(buffer, **options))


DECODERS = {"cython": _cython, "construct": _construct}
ENCODERS: dict[str, Callable[..., bytes]] = {"cython": fastpath.encode, "construct": twin.encode}


@pytest.fixture(params=DECODERS)
def decode(request: pytest.FixtureRequest) -> Callable[..., Read]:
    """decode(buffer, **options) -> Read, by each implementation in turn."""
    return DECODERS[request.param]


@pytest.fixture(scope="session")
def both() -> Callable[..., Any]:
    """both(buffer, **options) -> what the implementations agree on: a Read, or the kind of error and its place."""

    def run(buffer: Any, **options: Any) -> Any:
        outcomes = [_outcome(decoder, buffer, options) for decoder in DECODERS.values()]
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    return run


@pytest.fixture(params=ENCODERS)
def encode(request: pytest.FixtureRequest) -> Callable[..., bytes]:
    """encode(records, **fields) -> bytes, by each implementation in turn."""
    return ENCODERS[request.param]


def _outcome(decoder: Callable[..., Read], buffer: Any, options: dict[str, Any]) -> Any:
    try:
        records, next_offset, corrupt = decoder(buffer, **options)
    except fastpath.CorruptRecord as error:
        return type(error), dict(error.place)
    return records, next_offset, [(type(error), dict(error.place)) for error in corrupt]
