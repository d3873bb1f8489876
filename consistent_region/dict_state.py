"""A dict as the state of a task. A large one is written beside the handler, and only where it changed."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, Final

from kohort.common.foreign_text import parsed_json
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError
from kohort.consistent_region.manifest import Block, canonical
from kohort.consistent_region.offsets import Positions

INLINE_KEYS: Final = 10_000
INLINE_BYTES: Final = 1024 * 1024
BLOCK_BYTES: Final = 4 * 1024 * 1024
CHUNK_KEYS: Final = 200
MOST_DELTAS: Final = 16
SAMPLED: Final = 1_000
_ABSENT: Final = object()


class DictState(dict[str, Any]):
    """A dict with text keys and values that JSON can hold. A tuple comes back as a list.

    Replace values, and do not change them in place: `state[key] = [*state[key], 5]`, not `state[key].append(5)`. A dict
    of more than 10,000 keys, or with a last snapshot of more than 1 MiB, is written beside the handler. Its snapshot
    has only the keys whose values were replaced since the last checkpoint. A value that is changed in place would be
    missing. Each snapshot compares 1,000 values, and raises ConfigurationError for one that was changed in place. A
    smaller dict is written as a whole.

    `snapshot` raises ConfigurationError for keys and values that JSON cannot hold: a state that cannot be restored is
    found at once.
    """

    _chain: tuple[Block, ...] = ()
    _whole_blocks = 0
    _size_bytes = 0
    _last: Mapping[str, Any] = {}
    _sample: "_Sample | None" = None
    _initial: Mapping[str, Any] = {}

    def snapshot(self, offsets: Positions) -> bytes:
        """The dict as JSON. Raises ConfigurationError for a key that is no text, or a value that JSON cannot hold."""
        self._begin_chain((), 0, {})
        try:
            data = canonical(self)
            # JSON writes a number that is a key as text, so that 5 and "5" would be two keys after a restore.
            wrong = [] if parsed_json(data) == self else list(_no_text(self))
        except (TypeError, ValueError) as problem:
            raise ConfigurationError(f"a DictState holds what JSON can: {problem}") from problem
        _refuse_keys(wrong)
        self._size_bytes = len(data)
        return data

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        """Replace the contents by those of a snapshot. Raises ResetFailedError if it is no JSON object."""
        value = _parsed(snapshot)
        self._empty()
        self.update(value)
        self._size_bytes = len(snapshot)

    def keep_initial(self) -> None:
        """Make the present contents those of a task without records. Raises no error."""
        self._initial = deepcopy(dict(self))

    def reset_initial(self) -> None:
        """Go back to the contents that `state=` gave the dict, or to none."""
        self._empty()
        self.update(deepcopy(self._initial))

    def cut(self) -> "_DictCut | None":
        """Return the dict as it is now; None if it is small enough for `snapshot`."""
        if len(self) <= INLINE_KEYS and self._size_bytes <= INLINE_BYTES:
            return None
        if self._sample is not None:
            self._sample.check()
        return _DictCut(self)

    def restore_blocks(self, blocks: Iterable[Block]) -> Iterator[None]:
        """Restore the dict of a chain of blocks, in parts of some milliseconds.

        Raises ResetFailedError for blocks of another state.
        """
        self._empty()  # the next snapshot is whole: a migration may change values in place before it
        for block in blocks:
            self._size_bytes += block.reference.length_bytes
            for line in (block.data or b"").split(b"\n"):
                part = _parsed(line)
                if part.keys() != {"gone", "set"} or not isinstance(part["set"], dict):
                    raise ResetFailedError("the block is none of a DictState", digest=block.reference.digest)
                for key in part["gone"]:
                    self.pop(key, None)
                self.update(part["set"])
                yield

    def _empty(self) -> None:
        self._begin_chain((), 0, {})
        self._size_bytes = 0
        self.clear()

    def _begin_chain(self, chain: tuple[Block, ...], whole_blocks: int, last: Mapping[str, Any]) -> None:
        self._chain, self._whole_blocks, self._last, self._sample = chain, whole_blocks, last, None

    def _outgrown(self) -> bool:
        """True if a snapshot of all is smaller than the chain of changes, or the chain is long."""
        sizes = [one.reference.length_bytes for one in self._chain]
        whole, deltas = sizes[: self._whole_blocks], sizes[self._whole_blocks :]
        return not sizes or len(deltas) > MOST_DELTAS or sum(deltas) > sum(whole)


class _DictCut:
    """A copy of a dict, with the values themselves: they are replaced in the dict and stay as they are here."""

    def __init__(self, state: DictState) -> None:
        self._state = state
        self._now: dict[str, Any] = dict(state)
        self._is_whole = state._outgrown()
        self._before: Mapping[str, Any] = {} if self._is_whole else state._last
        self.blocks = [] if self._is_whole else list(state._chain)
        self._sample = _Sample(self._now)
        self._lines = self._written()
        self._open: list[bytes] = []
        self._open_bytes = 0

    def write(self, enough: Callable[[], bool]) -> bool:
        for line in self._lines:
            if line:
                self._open.append(line)
                self._open_bytes += len(line)
            if self._open_bytes >= BLOCK_BYTES:
                self._close_block()
                return False
            if enough():
                return False
        if self._open:
            self._close_block()
        self._sample.check()
        return True

    def completed(self) -> None:
        whole = len(self.blocks) if self._is_whole else self._state._whole_blocks
        self._state._begin_chain(tuple(one._replace(data=None) for one in self.blocks), whole, self._now)
        self._state._sample = self._sample
        self._state._size_bytes = sum(one.reference.length_bytes for one in self.blocks)

    def _written(self) -> Iterator[bytes]:
        """Lines of some keys each, with the values that were replaced and the keys that are gone."""
        before, now = self._before, self._now
        items = iter(now.items())
        while chunk := list(islice(items, CHUNK_KEYS)):
            yield _line([], {key: value for key, value in chunk if before.get(key, _ABSENT) is not value})
        keys = iter(before)
        while old := list(islice(keys, CHUNK_KEYS)):
            yield _line([key for key in old if key not in now], {})

    def _close_block(self) -> None:
        self.blocks.append(Block.of(b"\n".join(self._open)))
        self._open, self._open_bytes = [], 0


class _Sample:
    """Values of a dict that can be changed in place, with their texts at this moment."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        start = random.randrange(max(len(values) - SAMPLED, 0) + 1)
        some = islice(values.items(), start, start + SAMPLED)
        self._texts = [(key, value, _text(value)) for key, value in some if isinstance(value, list | dict)]

    def check(self) -> None:
        """Raise ConfigurationError if one was changed since."""
        for key, value, text in self._texts:
            if _text(value) != text:
                raise ConfigurationError(
                    "a value of a DictState was changed in place, so a snapshot would lack the change",
                    hint="replace it: state[key] = [*state[key], new]",
                    key=key,
                )


def _line(gone: list[str], changed: dict[str, Any]) -> bytes:
    if not gone and not changed:
        return b""
    _refuse_keys([key for key in changed if not isinstance(key, str)])
    for value in changed.values():
        if isinstance(value, list | dict | tuple):
            _refuse_keys(list(_no_text(value)))
    return _text({"gone": gone, "set": changed})


def _text(value: object) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as problem:
        raise ConfigurationError(f"a DictState holds what JSON can: {problem}") from problem


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = parsed_json(data)
    except ValueError as problem:
        raise ResetFailedError(f"the snapshot is none of a DictState: {problem}") from problem
    if not isinstance(value, dict):
        raise ResetFailedError("the snapshot is none of a DictState: it is no dict", found=type(value).__name__)
    return value


def _refuse_keys(wrong: Sequence[object]) -> None:
    if wrong:
        raise ConfigurationError("a DictState's keys are text, at every depth", key=repr(wrong[0]))


def _no_text(value: object) -> Iterator[object]:
    """Keys that are no text, at any depth."""
    if isinstance(value, dict):
        yield from (key for key in value if not isinstance(key, str))
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for one in within:
        yield from _no_text(one)
