"""Start positions of partitions that a region has never owned: decided once, for all members and all resets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import ConfigurationError, DataLossError, TruncationError
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.network.arguments import INT64_MAX

StartKind = Literal["default", "beginning", "end", "time"]
_KINDS: Final = ("default", "beginning", "end", "time")


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The start of partitions that the region reads for the first time.

    `default`: the group's committed offset, else by `otherwise`. `beginning`, `end`: of the log, when the region first
    sees the topic. `time`: the first record not older than `time_ms`, else by `otherwise`.

    `otherwise`: "earliest" or "latest". `discovered`: the start of partitions that appear later, and of topics that a
    pattern matches later. "earliest" loses no record from before the discovery. A topic that is added to a list of
    topics starts as the first ones did.
    """

    kind: StartKind = "default"
    time_ms: int | None = None
    otherwise: Literal["earliest", "latest"] = "earliest"
    discovered: Literal["earliest", "latest"] = "earliest"

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigurationError(
                f"a region cannot start at {self.kind!r}", hint=", ".join(_KINDS), setting="start_position"
            )
        if (self.kind == "time") != (self.time_ms is not None):
            raise ConfigurationError("start_position 'time' goes with time_ms, and only it", setting="start_position")
        # Here, and not when the first partition is assigned.
        if self.time_ms is not None and not (isinstance(self.time_ms, int) and 0 <= self.time_ms <= INT64_MAX):
            raise ConfigurationError(f"time_ms is in ms since 1970, not {self.time_ms!r}", setting="start_position")
        for name in ("otherwise", "discovered"):
            if getattr(self, name) not in ("earliest", "latest"):
                raise ConfigurationError(f"{name} is 'earliest' or 'latest', not {getattr(self, name)!r}", setting=name)


class Lookups(Protocol):
    """The lookups of a consumer about logs; see `kohort.Consumer`."""

    def committed(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, Any]:
        """The group's committed offset of each partition, or None. `stable`: without open transactions."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset of each partition's log."""

    def end_offsets(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition. `stable`: behind the last stable one."""

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        """The first offset at or after a time (ms since 1970) in each partition, or None."""

    def partitions_for(self, topic: str, *, fresh: bool = False) -> Sequence[TopicPartition]:
        """The partitions of a topic; with `fresh` from a new request."""


def beginnings(
    partitions: Iterable[TopicPartition],
    initial: Positions,
    start: StartPosition,
    request: Lookups,
    matched: Callable[[], Iterable[TopicPartition]] | None = None,
) -> dict[TopicPartition, RegionPosition]:
    """Return proposals for those of `partitions` that have no entry in `initial`. Store them before they are used.

    `matched`: all partitions of all topics that the region's pattern matches now, if it has a pattern. The first member
    that sees a topic, or the first topics of a pattern, proposes starts for *all* partitions. Partitions missing
    afterwards can therefore only have been added later (A10). A topic that the pattern matches later starts as they do.
    """
    missing = set(partitions) - initial.keys()
    seen = {one.topic for one in initial}
    new = {one for one in missing if one.topic not in seen}
    added = missing - new
    if matched and new and not initial:
        new.update(matched())
    else:
        new.update(*map(request.partitions_for, {one.topic for one in new}))
    if matched and initial:
        added, new = added | new, set()
    found = _by(start.discovered, sorted(added), request)
    found |= _resolved(sorted(new), start, request)
    return {partition: RegionPosition.of(offset) for partition, offset in found.items()}


def check_log(starts: Positions, request: Lookups, *, on_data_loss: str = "raise") -> dict[TopicPartition, int]:
    """Records between a start and the log's beginning, by partition, where retention has overtaken it.

    Raises DataLossError for those unless `on_data_loss` is "earliest", TruncationError where the log ends before.
    """
    if not starts:
        return {}
    # A position may be behind the last stable offset, if its commit did not wait for open transactions.
    first, end = request.beginning_offsets(starts), request.end_offsets(starts, stable=False)
    gaps = {}
    for partition, position in starts.items():
        place: dict[str, Any] = {**partition._asdict(), "offset": position.offset}
        if position.offset > end[partition]:
            raise TruncationError("the log ends before the checkpoint", log_end=end[partition], **place)
        if position.offset < first[partition]:
            if on_data_loss != "earliest":
                raise DataLossError(
                    "records that the checkpoint needs are gone from the log",
                    hint='set on_data_loss="earliest" to continue without them',
                    log_start=first[partition],
                    **place,
                )
            gaps[partition] = first[partition] - position.offset
    return gaps


def _resolved(partitions: list[TopicPartition], start: StartPosition, request: Lookups) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    match start.kind:
        case "beginning":
            return _by("earliest", partitions, request)
        case "end":
            return _by("latest", partitions, request)
        case "time":
            assert start.time_ms is not None
            listed = request.offsets_for_times(dict.fromkeys(partitions, start.time_ms))
        case _:
            listed = request.committed(partitions)
    found = {one: listed[one].offset for one in partitions if listed.get(one) is not None}
    return found | _by(start.otherwise, [one for one in partitions if one not in found], request)


def _by(which: str, partitions: list[TopicPartition], request: Lookups) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    return dict(request.beginning_offsets(partitions) if which == "earliest" else request.end_offsets(partitions))
