"""Rules about brokers and topics: reachability, replication, API versions and permissions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kohort.admin import BrokerDescription, TopicDescription
from kohort.admin.cluster import Configs
from kohort.cli.doctor.finding import Finding, Severity, error, note, warning
from kohort.cli.partitions import short
from kohort.common import KohortError, TopicPartition
from kohort.common.topic_partition import grouped
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.errors import AuthorizationFailed
from kohort.network.requests import VersionRanges
from kohort.network.settings_table import split_address
from kohort.protocol.catalogue import API

LOOPBACK: Final = ("localhost", "::1", "127.")
NEEDED_BY_BOTH: Final = (
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "ApiVersions",
)
NEEDED: Final = {
    "classic": (*NEEDED_BY_BOTH, "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup"),
    "consumer": (*NEEDED_BY_BOTH, "ConsumerGroupHeartbeat"),
}
OFFSETS_COPIES: Final = 3


def unreachable(brokers: Sequence[BrokerDescription], reached: Mapping[str, str | None]) -> Iterator[Finding]:
    for one in brokers:
        if (why := reached.get(one.address)) is not None:
            yield error(
                f"the cluster advertises {one.address}, which cannot be reached from here: {why}",
                f"broker {one.node}",
                "set advertised.listeners of this broker to what its clients can resolve and reach, or open the way",
            )


def loopback(settings: ConsumerConfig, brokers: Sequence[BrokerDescription]) -> Iterator[Finding]:
    if any(_is_loopback(split_address(address)[0]) for address in settings.bootstrap):
        return
    for one in brokers:
        if _is_loopback(one.host):
            yield error(
                f"the cluster advertises {one.address}, which is this machine and not the broker's",
                f"broker {one.node}",
                "set advertised.listeners of this broker to its name in the network",
            )


def missing_topic(topics: Mapping[str, TopicDescription | KohortError]) -> Iterator[Finding]:
    for name, found in topics.items():
        if isinstance(found, KohortError) and not isinstance(found, AuthorizationFailed):
            yield error(
                f"the topic cannot be read: {found.message}",
                f"topic {name}",
                "check its name (kohort topic list), or create it (kohort topic create)",
            )


def leaderless(topics: Mapping[str, TopicDescription | KohortError]) -> Iterator[Finding]:
    gone = [
        TopicPartition(found.topic, one.partition)
        for found in _there(topics)
        for one in found.partitions
        if one.leader < 0
    ]
    if gone:
        yield error(
            "no leader: nothing can be read or written",
            short(gone),
            "start the brokers that hold its replicas (kohort topic describe)",
        )


def under_replicated(
    topics: Mapping[str, TopicDescription | KohortError], topic_configs: Mapping[str, Configs]
) -> Iterator[Finding]:
    below, thin = [], []
    for found in _there(topics):
        least = int(topic_configs.get(found.topic, {}).get("min.insync.replicas") or 1)
        for one in found.partitions:
            place = TopicPartition(found.topic, one.partition)
            if one.leader >= 0 and len(one.in_sync) < least:
                below.append(place)
            elif one.leader >= 0 and len(one.in_sync) < len(one.replicas):
                thin.append(place)
    if below:
        yield error(
            "fewer replicas in sync than min.insync.replicas: writes with acks=all are refused",
            short(below),
            "start the brokers that are away, or see why they lag",
        )
    if thin:
        yield warning(
            "fewer replicas in sync than there are: one more failure costs more than it should",
            short(thin),
            "start the brokers that are away, or see why they lag",
        )


def offsets_topic(
    offsets_topic: TopicDescription, offsets_configs: Configs, brokers: Sequence[BrokerDescription]
) -> Iterator[Finding]:
    copies = min(OFFSETS_COPIES, len(brokers))
    least = int(offsets_configs.get("min.insync.replicas") or 1)
    bad = [one for one in offsets_topic.partitions if one.leader < 0 or len(one.in_sync) < least]
    thin = [one for one in offsets_topic.partitions if one not in bad and len(one.in_sync) < len(one.replicas)]
    single = [one for one in offsets_topic.partitions if len(one.replicas) < copies]
    verdicts = (
        (
            Severity.ERROR,
            bad,
            "no leader, or too few replicas in sync: groups there can neither join nor commit",
            "start the brokers that hold its replicas",
        ),
        (
            Severity.WARNING,
            thin,
            "fewer replicas in sync than there are: groups depend on what is left",
            "start the brokers that are away, or see why they lag",
        ),
        (
            Severity.WARNING,
            single,
            f"fewer than {copies} copies: a broker that goes takes its groups with it",
            "add replicas (kafka-reassign-partitions); offsets.topic.replication.factor is for a new cluster",
        ),
    )
    for severity, chosen, what, do in verdicts:
        if chosen:
            places = short(TopicPartition(offsets_topic.topic, one.partition) for one in chosen)
            yield Finding(severity, what, places, do)


def common_versions(settings: ConsumerConfig, versions: Mapping[int, VersionRanges]) -> Iterator[Finding]:
    for node, ranges in versions.items():
        strange = [name for name in NEEDED[settings.protocol] if not _common(name, ranges)]
        if strange:
            yield error(
                f"no common version of {', '.join(strange)}: a consumer with group.protocol={settings.protocol} cannot "
                "work with this broker",
                f"broker {node}",
                "bring broker and library nearer to each other; group.protocol=consumer needs Kafka 4.0",
            )


def brokers_differ(versions: Mapping[int, VersionRanges]) -> Iterator[Finding]:
    alike = grouped((tuple(sorted(ranges.items())), node) for node, ranges in versions.items())
    if len(alike) > 1:
        reported = "; ".join(", ".join(map(str, nodes)) for nodes in alike.values())
        yield note(
            f"brokers of different versions: {reported}",
            "cluster",
            "finish the upgrade; what a member can do depends on where its coordinator is meanwhile",
        )


def topic_rights(topics: Mapping[str, TopicDescription | KohortError]) -> Iterator[Finding]:
    for name, found in topics.items():
        if isinstance(found, AuthorizationFailed):
            missing = "READ and DESCRIBE it"
        elif isinstance(found, KohortError) or found.allowed is None or "READ" in found.allowed:
            continue
        else:
            missing = "READ it"
        yield error(
            f"no right to {missing}: Fetch is refused with TOPIC_AUTHORIZATION_FAILED",
            f"topic {name}",
            f"kafka-acls --add --allow-principal User:NAME --operation Read --topic {name}",
        )


def group_rights(settings: ConsumerConfig, group_allowed: frozenset[str] | None) -> Iterator[Finding]:
    if group_allowed is not None and "READ" not in group_allowed:
        yield error(
            "no right to READ the group: joining and committing are refused with GROUP_AUTHORIZATION_FAILED",
            f"group {settings.group}",
            f"kafka-acls --add --allow-principal User:NAME --operation Read --group {settings.group}",
        )


def _there(topics: Mapping[str, TopicDescription | KohortError]) -> Iterator[TopicDescription]:
    for found in topics.values():
        if isinstance(found, TopicDescription):
            yield found


def _is_loopback(host: str) -> bool:
    return host.startswith(LOOPBACK)


def _common(name: str, ranges: VersionRanges) -> bool:
    api = API[name]
    low, high = ranges.get(api.key, (1, 0))
    return max(low, api.versions[0]) <= min(high, api.versions[1])
