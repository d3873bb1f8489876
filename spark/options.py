"""The options of `format("kohort")`: those of Spark's built-in Kafka source, checked at once.

Option names are case-insensitive, as in Spark. `kafka.` before a Kafka property passes it to the client. An unknown
name or value raises OptionError with the most similar valid one.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from kohort.common import KohortError, TopicPartition
from kohort.common.foreign_text import parsed_json
from kohort.coordinator_client import SETTINGS, ConsumerConfig
from kohort.spark.errors import OptionError
from kohort.spark.java_patterns import read_differently
from kohort.spark.java_settings import by_lower_name, kafka_settings
from kohort.spark.plan import EPOCH, PATTERN_ERRORS, Bound, Late, Loss, Point

# Options of batches and streams, of batches only, and of streams only.
_BOTH = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
)
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "maxBytesPerPartition")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "group")
# Options without effect here. Executors join no group and need no retries. CREATE TABLE adds `provider`.
_NEEDLESS = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "provider",
)
_KNOWN: Mapping[str, str] = MappingProxyType(
    {name.lower(): name for name in (*_BOTH, *_BATCH_ONLY, *_STREAM_ONLY, *_NEEDLESS)}
)
# Kafka's own settings that the plan decides.
_PLANNED = frozenset(
    {
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.auto.commit.interval.ms",
        "kafka.interceptor.classes",
    }
)
# Settings of a group member, which need `group`.
_OF_MEMBERS = frozenset({"kafka.partition.assignment.strategy", "kafka.group.instance.id"})
_LATEST, _EARLIEST = -1, -2
_PATTERNS_ARE_PYTHONS = "patterns are those of Python's re, not of Java; write it with what both have"
_WHOLE = "[0-9]{1,19}"  # as many digits as Java's long has
_FLAGS = re.compile(r"(?:\(\?([imsx]+)\))?(.*)", re.DOTALL)
FIFTEEN_MINUTES_MS = 15 * 60 * 1000
_UNITS_US: Mapping[str, int] = MappingProxyType(
    {
        "": 1000,
        "us": 1,
        "ms": 1000,
        "s": 10**6,
        "m": 60 * 10**6,
        "min": 60 * 10**6,
        "h": 3600 * 10**6,
        "d": 86400 * 10**6,
    }
)
_STRATEGIES = {"error": "fail", "latest": "latest"}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options. `settings` are those of `Consumer`, without bootstrap and group."""

    bootstrap: str
    group: str | None
    member_of: str | None
    topics: tuple[str, ...]
    pattern: str | None
    partitions: tuple[TopicPartition, ...]
    start: Bound
    stop: Bound
    on_late_time: Late
    on_data_loss: Loss
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    settings: Mapping[str, Any] = field(repr=False)  # passwords may be among them

    @property
    def connect(self) -> dict[str, Any]:
        """The settings of a Consumer without a group."""
        of_members = ("assignors", "group_instance_id")
        return {"bootstrap": self.bootstrap} | {k: v for k, v in self.settings.items() if k not in of_members}

    @property
    def skip_lost(self) -> bool:
        return self.on_data_loss == "skip"

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> "SourceOptions":
        """Check options. Raises OptionError, or ConfigError for Kafka's own settings."""
        given = by_lower_name(options)
        first: Point = "latest" if streaming else "earliest"
        _refuse_unknown(given, streaming)
        _as_member(given)
        _refuse_pace(given)
        group = {"group.id": given["group"]} if "group" in given else {}
        config = ConsumerConfig.from_kafka(kafka_settings(given) | group)
        topics, partitions, pattern = _what(given)
        return cls(
            bootstrap=",".join(config.bootstrap),
            group=None if "group" in given else config.group,
            member_of=given.get("group"),
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            start=_bound(given, "starting", first, forbidden=None if streaming else _LATEST),
            stop=_bound(given, "ending", "latest", forbidden=_EARLIEST),
            on_late_time=_word(given, "startingOffsetsByTimestampStrategy", _STRATEGIES, "fail"),
            on_data_loss=_word(given, "failOnDataLoss", {"true": "fail", "false": "skip"}, "fail"),
            min_partitions=_number(given, "minPartitions"),
            max_records_per_partition=_number(given, "maxRecordsPerPartition"),
            max_bytes_per_partition=_number(given, "maxBytesPerPartition"),
            max_offsets_per_trigger=_number(given, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_number(given, "minOffsetsPerTrigger"),
            max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", FIFTEEN_MINUTES_MS),
            include_headers=_word(given, "includeHeaders", {"true": True, "false": False}, False),
            settings=_settings(config),
        )

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Check options that may be of a batch or of a stream. Raises the error of `of` if they fit neither."""
        try:
            cls.of(options, streaming=False)
        except KohortError as of_batch:
            try:
                cls.of(options, streaming=True)
            except KohortError as of_stream:
                of_streams = {name.lower() for name in _STREAM_ONLY} & {name.lower() for name in options}
                raise (of_stream if of_streams else of_batch) from None


def _refuse_unknown(given: Mapping[str, str], streaming: bool) -> None:
    wrong_kind = _BATCH_ONLY if streaming else _STREAM_ONLY
    for name in given:
        _refuse_name(name)
        if _KNOWN.get(name) in wrong_kind:
            kind = "a stream" if streaming else "a batch"
            hint = "kafka_rdd(...).commit(group) commits after a batch" if name == "group" else None
            raise OptionError(f"{_KNOWN[name]} has no meaning for {kind}", hint=hint, option=_KNOWN[name])


def _refuse_name(name: str) -> None:
    if name in _PLANNED:
        raise OptionError(
            f"{name} cannot be set: the plan decides it", hint="use startingOffsets and failOnDataLoss", option=name
        )
    if name in _KNOWN or name.startswith("kafka."):
        return
    if name.startswith("option."):  # CREATE TABLE repeats each option under such a name
        raise OptionError(
            "a table of a catalog cannot be read, because Spark gives its options to no Python source",
            hint="use CREATE TEMPORARY VIEW ... USING kohort OPTIONS (...), with the same options",
            option=name.removeprefix("option."),
        )
    near = get_close_matches(name, _KNOWN, n=1, cutoff=0.5)
    hint = f"did you mean {_KNOWN[near[0]]!r}?" if near else f"the options are {', '.join(sorted(_KNOWN.values()))}"
    raise OptionError(f"unknown option {name!r}", hint=hint, option=name)


def _refuse_pace(given: Mapping[str, str]) -> None:
    least, most = _number(given, "minOffsetsPerTrigger"), _number(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})",
            hint="set minOffsetsPerTrigger to at most maxOffsetsPerTrigger",
            option="minOffsetsPerTrigger and maxOffsetsPerTrigger",
        )


def _as_member(given: Mapping[str, str]) -> None:
    """Check the options of a group member, which need `group`, and those that exclude it."""
    if "group" not in given:
        if strange := sorted(_OF_MEMBERS & given.keys()):
            raise OptionError(
                f"{strange[0]} is a setting of group members", hint='set option("group", ...)', option=strange[0]
            )
        return
    if not given["group"]:
        raise OptionError("group is empty", option="group")
    if "kafka.group.id" in given:
        raise OptionError(
            "group and kafka.group.id exclude each other",
            hint="use group to join the group, or kafka.group.id to commit the stream's offsets for it",
            option="group and kafka.group.id",
        )
    if "assign" in given:
        raise OptionError("a group assigns partitions itself", hint="use subscribe", option="group and assign")
    if "startingoffsets" in given and given["startingoffsets"].strip().lower() not in ("earliest", "latest"):
        raise OptionError(
            "a group starts at its committed offsets",
            hint="use earliest or latest, or startingTimestamp, for partitions without a commit",
            option="startingOffsets",
        )
    if "startingoffsetsbytimestamp" in given:
        raise OptionError(
            "a group starts at its committed offsets",
            hint="use startingTimestamp for partitions without a commit",
            option="startingOffsetsByTimestamp",
        )


def _settings(config: ConsumerConfig) -> dict[str, Any]:
    apart = ("bootstrap", "group")
    changed = {s.name: getattr(config, s.name) for s in SETTINGS.values() if s.name not in apart}
    return {name: value for name, value in changed.items() if value != SETTINGS[name].default}


def _what(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[TopicPartition, ...], str | None]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(ways) != 1:
        raise OptionError(
            "exactly one of subscribe, subscribePattern and assign is needed",
            hint='set subscribe="topic1,topic2", subscribePattern="topic.*" or assign=\'{"topic1":[0,1]}\'',
            option=" and ".join(ways) or "subscribe",
        )
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(name.strip() for name in given["subscribe"].split(",") if name.strip()))
        if not topics:
            raise OptionError("no topic is named", option="subscribe")
        return topics, (), None
    if "subscribepattern" in given:
        return (), (), _pattern(given["subscribepattern"].strip())
    named = _json(given, "assign")
    if not all(isinstance(numbers, list) and all(type(one) is int for one in numbers) for numbers in named.values()):
        raise OptionError("partitions must be numbers in lists", hint='for example {"topic":[0,1]}', option="assign")
    places = tuple(TopicPartition(topic, number) for topic, numbers in named.items() for number in numbers)
    if not places:
        raise OptionError("no partition is named", option="assign")
    return (), places, None


def _pattern(text: str) -> str:
    if not text:
        raise OptionError("no topic is named", option="subscribePattern")
    if (syntax := read_differently(text)) is not None:
        raise OptionError(f"Java reads {syntax} in another way", hint=_PATTERNS_ARE_PYTHONS, option="subscribePattern")
    # As in Spark's own source it may match anywhere in a name; the rest of the package matches whole names.
    flags, rest = _FLAGS.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches any text
    anywhere = f".*(?{flags or ''}:{rest}).*"
    try:
        re.compile(text)
        re.compile(anywhere)
    except PATTERN_ERRORS as error:
        raise OptionError(
            f"not a regular expression: {error}", hint=_PATTERNS_ARE_PYTHONS, option="subscribePattern"
        ) from None
    return anywhere


def _bound(given: Mapping[str, str], which: str, default: Point, *, forbidden: int | None) -> Bound:
    """Precedence: `startingTimestamp`, `startingOffsetsByTimestamp`, `startingOffsets`. The same for `ending`."""
    if f"{which}timestamp" in given:
        return _time(given[f"{which}timestamp"], f"{which}Timestamp")
    if f"{which}offsetsbytimestamp" in given:
        option = f"{which}OffsetsByTimestamp"
        return {place: _time(value, option) for place, value in _by_place(given, option)}
    option = f"{which}Offsets"
    if option.lower() not in given:
        return default  # type: ignore[return-value]  # a default is a word
    text = given[option.lower()].strip()
    words = [word for word, number in (("earliest", _EARLIEST), ("latest", _LATEST)) if number != forbidden]
    if text.lower() in words:
        return "earliest" if text.lower() == "earliest" else "latest"
    if not text.lstrip().startswith("{"):
        near = get_close_matches(text.lower(), words, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f'{" or ".join(words)}, or JSON: {{"topic":{{"0":23}}}}'
        raise OptionError(f"{option} cannot be {text!r}", hint=hint, option=option)
    return {place: _offset(value, option, forbidden) for place, value in _by_place(given, option)}


def _by_place(given: Mapping[str, str], option: str) -> list[tuple[TopicPartition, Any]]:
    try:
        return [
            (TopicPartition(str(topic), _partition(number)), value)
            for topic, numbers in _json(given, option).items()
            for number, value in numbers.items()
        ]
    except (AttributeError, ValueError):
        raise OptionError(
            "offsets must be given by topic and partition", hint='for example {"topic":{"0":23}}', option=option
        ) from None


def _partition(text: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,9}", text):  # int() would take underscores, too
        raise ValueError(text)
    return int(text)


def _offset(value: Any, option: str, forbidden: int | None) -> Point:
    if isinstance(value, bool) or not isinstance(value, int) or value == forbidden or not _EARLIEST <= value < 2**63:
        raise OptionError(f"{value!r} is not a valid offset here", option=option)
    words: Mapping[int, Point] = {_LATEST: "latest", _EARLIEST: "earliest"}
    return words.get(value, value)


def _time(value: Any, option: str) -> datetime:
    if re.fullmatch(rf"\s*{_WHOLE}\s*", str(value)):
        with suppress(OverflowError):  # after the year 9999, as microseconds are
            return EPOCH + timedelta(milliseconds=int(value))
    raise OptionError(f"{value!r} is not a time in milliseconds since 1970", option=option)


def _json(given: Mapping[str, str], option: str) -> dict[str, Any]:
    try:
        found = parsed_json(given[option.lower()])
    except ValueError as error:
        raise OptionError(f"not JSON: {error}", option=option) from None
    if not isinstance(found, dict):
        raise OptionError("not a JSON object", option=option)
    return found


def _word(given: Mapping[str, str], option: str, words: Mapping[str, Any], default: Any) -> Any:
    text = given.get(option.lower())
    if text is None:
        return default
    if text.lower() not in words:
        raise OptionError(f"{option} must be {' or '.join(words)}, not {text!r}", option=option)
    return words[text.lower()]


def _duration_ms(given: Mapping[str, str], option: str, default: int) -> int:
    """Parse a time as Spark does: a number and a unit, milliseconds without one."""
    text = given.get(option.lower())
    if text is None:
        return default
    parsed = re.fullmatch(rf"\s*({_WHOLE})\s*([a-z]*)\s*", text.lower())
    if parsed is None or parsed[2] not in _UNITS_US:
        raise OptionError(
            f"{option} must be a time such as 15m, 30s or 500ms, not {text!r}",
            hint=f"the units are {', '.join(unit for unit in _UNITS_US if unit)}",
            option=option,
        )
    return int(parsed[1]) * _UNITS_US[parsed[2]] // 1000


def _number(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    if not re.fullmatch(_WHOLE, text) or int(text) < 1:
        raise OptionError(f"{option} must be a whole number above 0, not {text!r}", option=option)
    return int(text)
