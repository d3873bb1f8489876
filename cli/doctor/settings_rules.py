"""Rules about a consumer's settings, by themselves and against the brokers' bounds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kohort.admin.cluster import Configs
from kohort.cli.doctor.finding import Finding, error, note, warning
from kohort.coordinator_client.consumer_config import ConsumerConfig

BYTES_A_RECORD: Final = 100
"""The size of a small record, to estimate the records of a fetch."""


def session_timeout(settings: ConsumerConfig, broker_configs: Mapping[int, Configs]) -> Iterator[Finding]:
    if settings.protocol != "classic":
        return
    requested = settings.session_timeout_ms
    for low, high, nodes in _bounds(broker_configs):
        if not low <= requested <= high:
            yield error(
                f"session.timeout.ms={requested} is outside the broker's bounds, {low} to {high}: every JoinGroup is "
                "refused with INVALID_SESSION_TIMEOUT",
                _brokers(nodes),
                f"set it between {low} and {high}, or change group.min.session.timeout.ms and "
                "group.max.session.timeout.ms of the brokers",
            )


def heartbeat_interval(settings: ConsumerConfig) -> Iterator[Finding]:
    if settings.protocol != "classic":
        return
    beat, session = settings.heartbeat_interval_ms, settings.session_timeout_ms
    if beat >= session:
        yield error(
            f"heartbeat.interval.ms={beat} is not below session.timeout.ms={session}: members expire",
            "settings",
            f"set heartbeat.interval.ms to {max(1, session // 3)} at most",
        )
    elif beat * 3 > session:
        yield warning(
            f"heartbeat.interval.ms={beat} is more than a third of session.timeout.ms={session}: two lost heartbeats "
            "end a member",
            "settings",
            f"set heartbeat.interval.ms to {session // 3} at most",
        )


def poll_below_session(settings: ConsumerConfig) -> Iterator[Finding]:
    poll, session = settings.max_poll_interval_ms, settings.session_timeout_ms
    if settings.protocol == "classic" and poll < session:
        yield warning(
            f"max.poll.interval.ms={poll} is below session.timeout.ms={session}: a rebalance waits {poll} ms for "
            "members, less than a broker waits for a heartbeat, and removes slow members",
            "settings",
            "set max.poll.interval.ms to at least the session timeout",
        )


def poll_budget(settings: ConsumerConfig, ms_per_record: float) -> Iterator[Finding]:
    limit, most = settings.max_poll_interval_ms, settings.max_poll_records
    fits = int(limit / ms_per_record)
    if most == 0:
        fetched = settings.max_partition_fetch_bytes // BYTES_A_RECORD
        if fits < fetched:
            yield warning(
                f"max.poll.records is not limited, and at {ms_per_record:g} ms a record only {fits} fit into "
                f"max.poll.interval.ms={limit}; one fetch of small records has some {fetched}",
                "settings",
                f"set max.poll.records to {max(1, fits // 2)} or less, or max.poll.interval.ms higher",
            )
        return
    need = most * ms_per_record
    if need >= limit:
        yield error(
            f"{most} records of {ms_per_record:g} ms need {need:.0f} ms, and max.poll.interval.ms is {limit}: a member "
            "with a full poll leaves the group, and other members repeat its work",
            "settings",
            f"set max.poll.records to {max(1, fits // 2)} or less, or max.poll.interval.ms to {int(need * 2)}",
        )
    elif need * 2 > limit:
        yield warning(
            f"{most} records of {ms_per_record:g} ms need {need:.0f} ms, over half of max.poll.interval.ms={limit}",
            "settings",
            f"set max.poll.records to {max(1, fits // 2)} or less, or max.poll.interval.ms to {int(need * 2)}",
        )


def poll_interval_seen(settings: ConsumerConfig, stalls: Sequence[float]) -> Iterator[Finding]:
    if stalls:
        yield error(
            f"the member on the tape has left its group {len(stalls)} times because its handler took longer than "
            f"max.poll.interval.ms, first at {stalls[0]:.1f} s; the setting now is {settings.max_poll_interval_ms}",
            "tape",
            "poll fewer records at a time, hand work to threads and pause, or set max.poll.interval.ms higher",
        )


def own_assignors(settings: ConsumerConfig) -> Iterator[Finding]:
    names = [one if isinstance(one, str) else one.name for one in settings.assignors]
    if settings.protocol == "classic" and "cooperative-sticky" in names and len(names) > 1:
        others = ", ".join(name for name in names if name != "cooperative-sticky")
        yield note(
            f"cooperative-sticky together with {others}: every rebalance stops all members, as in a migration",
            "settings",
            "remove the others when every member lists cooperative-sticky (kohort assign plan-migration)",
        )


def auto_create(settings: ConsumerConfig, broker_configs: Mapping[int, Configs]) -> Iterator[Finding]:
    nodes = [node for node, found in broker_configs.items() if found.get("auto.create.topics.enable") == "true"]
    if nodes:
        ours = "and this consumer requests it" if settings.allow_auto_create_topics else "at a producer's first request"
        yield warning(
            f"brokers create missing topics, {ours}: a mistyped name becomes a topic, with default partitions",
            _brokers(nodes),
            "set auto.create.topics.enable=false on the brokers, and allow.auto.create.topics=false on consumers",
        )


def _bounds(broker_configs: Mapping[int, Configs]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (lowest, highest, the brokers with these bounds)."""
    found: dict[tuple[int, int], list[int]] = {}
    for node, configs in broker_configs.items():
        low, high = configs.get("group.min.session.timeout.ms"), configs.get("group.max.session.timeout.ms")
        if low is not None and high is not None:
            found.setdefault((int(low), int(high)), []).append(node)
    for (low_ms, high_ms), nodes in sorted(found.items()):
        yield low_ms, high_ms, nodes


def _brokers(nodes: Sequence[int]) -> str:
    return f"broker{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
