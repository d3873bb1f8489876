"""Rules about committed offsets: their position in the log, and their retention."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kohort.admin.cluster import Configs
from kohort.cli.doctor.finding import Finding, error, note, warning
from kohort.cli.partitions import short
from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig

TOLERATED_MS = 60_000
"""Clocks with NTP differ by far less."""


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """A committed offset, and the log's first offset and end."""

    partition: TopicPartition
    offset: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Inactivity:
    """A group without members whose offsets have not been renewed for `at_least_s`.

    `at_least_s` is None if the group has written within that time. Offsets are kept for `kept_s`.
    """

    group: str
    at_least_s: float | None
    kept_s: float


def below_log(settings: ConsumerConfig, committed: Sequence[CommittedOffsets]) -> Iterator[Finding]:
    lost = [one for one in committed if one.offset < one.first]
    if lost:
        records = sum(one.first - one.offset for one in lost)
        yield error(
            f"committed below the log start: {records} unread offsets were deleted ({_at(lost)}); the next "
            f"member goes on by auto.offset.reset={settings.auto_offset_reset}",
            short(one.partition for one in lost),
            "move the group into the log (kohort group offsets reset), and keep records longer than the lag",
        )


def beyond_log(settings: ConsumerConfig, committed: Sequence[CommittedOffsets]) -> Iterator[Finding]:
    ahead = [one for one in committed if one.offset > one.end]
    if ahead:
        yield error(
            f"committed beyond the log's end ({_at(ahead)}): the topic was created again, or its leader lost records; "
            f"the next member goes on by auto.offset.reset={settings.auto_offset_reset}",
            short(one.partition for one in ahead),
            "kohort group offsets reset GROUP --to earliest (or --to latest) --topic TOPIC",
        )


def uncommitted(
    committed: Sequence[CommittedOffsets], unread: Sequence[TopicPartition], settings: ConsumerConfig
) -> Iterator[Finding]:
    if committed and unread and settings.auto_offset_reset == "latest":
        yield note(
            "nothing is committed here while other partitions are, and auto.offset.reset=latest: what is written "
            "before the first commit is skipped if a member fails",
            short(unread),
            "set auto.offset.reset=earliest, or commit positions once (kohort group offsets reset)",
        )


def expiry(inactivity: Inactivity | None) -> Iterator[Finding]:
    if inactivity is None or inactivity.at_least_s is None:
        return
    yield warning(
        f"no members, and no commit for {_hours(inactivity.at_least_s)} or more: offsets are deleted after "
        f"{_hours(inactivity.kept_s)} (offsets.retention.minutes)",
        f"group {inactivity.group}",
        "start a member, keep them (kohort group offsets export, or reset to what they are), or raise the retention",
    )


def clock(
    newest_ms: Mapping[TopicPartition, int], now_ms: int, topic_configs: Mapping[str, Configs]
) -> Iterator[Finding]:
    ahead = {one: at - now_ms for one, at in newest_ms.items() if at - now_ms > TOLERATED_MS}
    by_broker = {
        topic for topic, found in topic_configs.items() if found.get("message.timestamp.type") == "LogAppendTime"
    }
    for whose, chosen in (
        ("a broker's clock", [one for one in ahead if one.topic in by_broker]),
        ("a producer's clock", [one for one in ahead if one.topic not in by_broker]),
    ):
        if chosen:
            most = max(ahead[one] for one in chosen)
            yield warning(
                f"records from the future, by up to {most / 1000:.0f} s: {whose} is ahead of ours, or ours is behind; "
                "retention keeps them for as much longer, and offsets by time mislead",
                short(chosen),
                "compare the clocks (NTP); message.timestamp.after.max.ms refuses such records",
            )


def _at(found: Sequence[CommittedOffsets]) -> str:
    one = found[0]
    return f"{one.partition} at {one.offset}, log {one.first} to {one.end}" + (" and others" if len(found) > 1 else "")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
