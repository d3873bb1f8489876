"""External effects that happen exactly once: sinks that commit with the region's checkpoints.

A sink only collects effects while records are handled. The collected effects become part of the checkpoint with the
state (`pre_commit`), and take effect when the checkpoint is complete (`commit`). If the member dies in between, its
next process commits them when it goes back to that checkpoint. An effect thus happens if, and only if, its records are
in a complete checkpoint. It happens once, because the target stores the number of each commit.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from kohort.common.foreign_text import parsed_json
from kohort.common.log_context import logger
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError
from kohort.consistent_region.manifest import canonical
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.state import CheckpointListener, StateHandle
from kohort.network.group_types import ConsumerGroupMetadata

log = logger("kohort.region")

MAGIC: Final = b"KEFFECT\n"
_HEAD: Final = struct.Struct(">8sI")


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """The region, member and name of a sink, passed to `open`. `group_metadata` gives the member's current identity
    in its group."""

    region: str
    group: str
    member: str
    group_metadata: Callable[[], ConsumerGroupMetadata]
    sink: str = "out"

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The key of one sink's notes: region, group, member, sink."""
        return self.region, self.group, self.member, self.sink


@dataclass(frozen=True, slots=True)
class CommitId:
    """The identity of a commit. A `run` is one history of one member's sinks, in which each commit has a higher
    `number`, also when an operator went back between. `offsets`: behind the last records that the effects came from."""

    run: str
    number: int
    offsets: Positions = field(default_factory=dict)


class TransactionalSink(Protocol):
    """The interface of a sink. All calls come on the thread of `run`, never while the handler runs.

    The methods with which the handler collects effects are the sink's own.

    `open`, before all other calls: connect to the target, and fence older processes of the same member, so that they
    can commit nothing more. `close` comes at the end, also after errors.

    `pre_commit`: return the effects collected since the last `commit`, as bytes that another process can commit. It has
    no effect by itself, and may be called again without a commit in between.

    `commit`: commit the bytes of `pre_commit`, and forget the collected effects. Both are one transaction with a note
    of the commit's run and number. It is idempotent: if the note has this run with this number or a higher one, it does
    nothing. Returns the number in the note afterwards.

    `abort`: forget the collected effects.
    """

    def open(self, place: SinkPlace) -> None: ...
    def pre_commit(self) -> bytes: ...
    def commit(self, prepared: bytes, at: CommitId) -> int: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Effects:
    """A `StateHandle` with the prepared effects of sinks beside the user's state. It commits them after the checkpoint.

    A sink that is None is removed: effects pending from an earlier process are never committed.

    A snapshot is, in order: magic "KEFFECT\\n", head length (u32), head (JSON), state, and one part for each
    sink in the head's order. Without sinks it is the state alone.
    """

    def __init__(self, state: StateHandle, sinks: Mapping[str, TransactionalSink | None]) -> None:
        self.state = state
        self._sinks = {name: sink for name, sink in sinks.items() if sink is not None}
        self._given_up = sinks.keys() - self._sinks.keys()
        self._run = uuid.uuid4().hex
        self._number = 0
        self._prepared: tuple[dict[str, bytes], Positions] | None = None

    def open(self, place: SinkPlace) -> None:
        for name, sink in self._sinks.items():
            sink.open(replace(place, sink=name))

    def close(self) -> None:
        for name, sink in self._sinks.items():
            try:
                sink.close()
            except Exception as problem:
                log.warning("closing sink %s: %s", name, problem)

    def snapshot(self, offsets: Positions) -> bytes:
        state = self.state.snapshot(offsets)
        if not self._sinks:
            return state
        parts = {name: sink.pre_commit() for name, sink in self._sinks.items()}
        self._prepared = parts, offsets
        head = canonical(
            {
                "number": self._number + 1,
                "run": self._run,
                "sinks": [[name, len(part)] for name, part in parts.items()],
                "state": len(state),
            }
        )
        return b"".join((_HEAD.pack(MAGIC, len(head)), head, state, *parts.values()))

    def completed(self) -> None:
        """The checkpoint that holds the last snapshot is complete: what it prepared is carried out."""
        if self._prepared is not None:
            parts, offsets = self._prepared
            self._prepared = None
            self._number += 1
            self._commit(parts, CommitId(self._run, self._number, offsets))
        if isinstance(self.state, CheckpointListener):
            self.state.completed()

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        self._forget()
        if not snapshot.startswith(MAGIC):
            self.state.restore(snapshot, offsets)  # taken before the region had sinks
            return
        run, number, state, parts = unpacked(snapshot)
        for name, part in parts.items():
            if part and name not in self._sinks and name not in self._given_up:
                raise ConfigurationError(
                    f"the checkpoint holds effects of a sink {name!r}, and there is none of that name",
                    hint=f"use this name again, or drop its pending effects: sinks={{{name!r}: None, ...}}",
                    setting="sinks",
                )
        self.state.restore(state, offsets)
        self._run, self._number = run, number
        self._commit(parts, CommitId(run, number, offsets))

    def reset_initial(self) -> None:
        self._forget()
        self._run, self._number = uuid.uuid4().hex, 0
        self.state.reset_initial()

    def _forget(self) -> None:
        self._prepared = None
        for sink in self._sinks.values():
            sink.abort()

    def _commit(self, parts: Mapping[str, bytes], at: CommitId) -> None:
        for name, sink in self._sinks.items():
            noted = sink.commit(parts.get(name, b""), at)
            if noted > at.number:
                # Only an operator makes a region go back behind what was committed. What comes now are other commits,
                # and none of them is the next, which a process before this one may still be about.
                log.warning("sink %s has committed %d times, and goes back to commit %d", name, noted, at.number)
                self._number = max(self._number, noted + 1)


def unpacked(snapshot: bytes) -> tuple[str, int, bytes, dict[str, bytes]]:
    """Return a snapshot's run, commit number, state, and the part of each sink. Raises ResetFailedError if it is
    invalid."""
    try:
        magic, length = _HEAD.unpack_from(snapshot)
        at = _HEAD.size + length
        head: dict[str, Any] = parsed_json(snapshot[_HEAD.size : at])
        sizes = [("", head["state"]), *head["sinks"]]
        parts = {}
        for name, size in sizes:
            parts[name] = snapshot[at : at + size]
            at += size
        run, number = str(head["run"]), int(head["number"])
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise ResetFailedError(f"the snapshot holds no effects: {problem}") from problem
    if magic != MAGIC or at != len(snapshot):
        raise ResetFailedError("the snapshot's effects are torn", announced_bytes=at, found_bytes=len(snapshot))
    return run, number, parts.pop(""), parts
