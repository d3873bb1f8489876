"""`Admin`: the blocking client for administration of groups, offsets and topics."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from kohort.admin import alter_configs, cluster, groups, offsets, share_groups, streams_groups, topics
from kohort.admin.admin_config import AdminConfig
from kohort.admin.admin_core import AdminCore
from kohort.admin.describe_configs import GROUP, TOPIC
from kohort.admin.request_driver import AdminClosed, RequestDriver
from kohort.common import KohortError, TopicPartition
from kohort.network.arguments import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    each_partition,
    mapping_given,
    name_given,
    names_given,
    partition_given,
    topic_given,
    unsendable,
)
from kohort.network.group_types import REASON_CHARACTERS_MAX, OffsetAndMetadata
from kohort.network.network_client import Driver
from kohort.network.offset_requests import EARLIEST, LATEST
from kohort.network.process_exit import warn_unclosed
from kohort.network.requests import VersionRanges

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.admin.admin_settings import AdminSettings

T = TypeVar("T")
LEAST_TIME = -6  # the lowest special timestamp of ListOffsets: EARLIEST, LATEST, ...


class Admin:
    """Describes and changes groups, offsets and topics of a cluster.

        with Admin("localhost:9092") as admin:
            for one in admin.lag("billing"):
                print(one.partition, one.lag)

    `settings`: by kohort's names, see `kohort.admin.SETTINGS`. Every error derives from KohortError, except TypeError
    and ValueError for a wrong argument. Every call ends within `default_api_timeout_ms`.

    A signal handler may raise anywhere in a call. Brokers may process the requests that were sent until then. Each call
    can be repeated. The handler itself must not make calls. They raise ConcurrentUseError if it has interrupted one
    that holds the admin's lock.
    """

    def __init__(self, bootstrap: str | Sequence[str] = (), **settings: "Unpack[AdminSettings]") -> None:
        self._begin(AdminConfig.of(bootstrap=bootstrap, **settings))

    @classmethod
    def from_config(cls, properties: Mapping[str, Any]) -> Self:
        """Create an admin from Kafka's dotted names; values may be strings."""
        admin = cls.__new__(cls)
        admin._begin(AdminConfig.from_kafka(properties))
        return admin

    def _begin(self, config: AdminConfig) -> None:
        self._driver = Driver(config, partial(AdminCore, config))
        self._driver.start()

    def close(self) -> None:
        """Close every connection; calls in progress on other threads raise AdminClosed.

        Safe to call again.
        """
        self._driver.check_same_process()
        self._driver.enqueue(lambda core: core.fail(AdminClosed("the admin was closed")))
        self._driver.stop(5.0)

    def __del__(self) -> None:
        driver: Driver[AdminCore] | None = self.__dict__.get("_driver")
        if driver is not None and not driver.stopping:
            warn_unclosed("admin", driver.config.client_id, None, driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _request_driver(self) -> RequestDriver:
        """The `RequestDriver` of one call. The call's time starts now."""
        return RequestDriver(self._driver)

    # --- groups

    def list_groups(self) -> list[groups.GroupListing]:
        """Every group of the cluster, by name."""
        return groups.list_groups(self._request_driver())

    def describe_group(self, group: str) -> groups.GroupDescription:
        """State, assignor and members of a group: classic, KIP-848, or a share group. Raises GroupMissing.

        A streams group has more to describe: see `describe_streams_group`.
        """
        return _described(self._request_driver(), group)

    def describe_streams_group(self, group: str) -> streams_groups.StreamsGroupDescription:
        """State, topology, members and tasks of a group of Kafka Streams (KIP-1071). Raises GroupMissing."""
        found = streams_groups.describe_streams_group(self._request_driver(), _group(group))
        if found is None:
            raise groups.GroupMissing(group)
        return found

    def group_configs(self, names: Iterable[str]) -> dict[str, cluster.Configs]:
        """All current settings, by group. A group need not exist. Raises AuthorizationFailed."""
        return cluster.configs(self._request_driver(), GROUP, names_given(names, "names"))

    def set_group_configs(self, group: str, configs: Mapping[str, str | None]) -> None:
        """Set settings of a group, such as `share.auto.offset.reset`; None returns one to its default.

        A group need not exist. Raises ConfigError for an unknown name or a value outside of the broker's bounds.
        """
        changes = _configs(configs, unset=True)
        alter_configs.alter_group_configs(self._request_driver(), name_given(group, "group"), changes)

    def delete_groups(self, *names: str) -> None:
        """Delete groups without members, and their offsets. Raises GroupNotEmpty, GroupMissing.

        The other groups are deleted all the same. The error is that of the first group that has one.
        """
        groups.delete_groups(self._request_driver(), _apart(names, "groups", empty=True))

    def remove_members(
        self, group: str, members: Iterable[str] | None = None, *, reason: str = "removed by an operator"
    ) -> list[groups.MemberDescription]:
        """Remove members from a group, by member id or instance id; all members by default.

        Returns the removed members. A running dynamic member joins again; a static one is fenced permanently (KIP-345).
        A coordinator may refuse to remove dynamic members of a KIP-848 group. Share groups keep their members.
        """
        wanted = None if members is None else frozenset(names_given(members, "members"))
        reason = name_given(reason[:REASON_CHARACTERS_MAX] if isinstance(reason, str) else reason, "reason", empty=True)
        driver = self._request_driver()
        described = _described(driver, group)
        chosen = [one for one in described.members if wanted is None or {one.member_id, one.instance_id} & wanted]
        known = {name for one in chosen for name in (one.member_id, one.instance_id)}
        if wanted is not None and (strange := wanted - known):
            raise KohortError("the group has no such member", group=group, member=", ".join(sorted(strange)))
        if chosen and described.type == share_groups.SHARE:
            raise KohortError("members of a share group cannot be removed", hint="stop them", group=group)
        if chosen:
            groups.remove_members(driver, group, chosen, reason)
        return chosen

    # --- offsets

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of the group by partition, also if it does not exist: then there are none.

        Each has the offset of the next record, the leader epoch (-1 if unknown) and the metadata. Raises
        AuthorizationFailed.
        """
        return offsets.committed(self._request_driver(), _group(group))

    def lag(self, group: str) -> list[offsets.PartitionLag]:
        """The lag in records of each partition with a committed offset, by partition. Raises AuthorizationFailed.

        The end is the high watermark. A group that does not exist has no lag.
        """
        return offsets.lag(self._request_driver(), _group(group))

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each log; see `offsets_at` for missing partitions."""
        return self.offsets_at(dict.fromkeys(each_partition(partitions), EARLIEST))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each log; see `offsets_at` for missing partitions."""
        return self.offsets_at(dict.fromkeys(each_partition(partitions), LATEST))

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset with a timestamp of at least the given time, by partition; -1 if there is none.

        Partitions are missing if they do not exist, have no in-sync replica to lead them, or have a permanent error.
        Brokers learn of a new topic at different times, so its partitions may be missing for a moment.
        Leaders that are being elected are awaited within `default_api_timeout_ms`. After that their partitions are
        missing too. A leader that cannot be reached raises ConnectionFailed then.
        """
        times = mapping_given(times_ms, "times (ms since 1970)")
        wanted = {partition_given(one): _bounded(time, "a time (ms)", LEAST_TIME) for one, time in times.items()}
        return {one: found.offset for one, found in offsets.listed(self._request_driver(), wanted).items()}

    def newest_ms(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The latest timestamp in each log (ms).

        Partitions without records are missing. So are those whose newest record is not on all replicas in sync yet, as
        is often so while records are written.
        """
        found = offsets.listed(self._request_driver(), dict.fromkeys(each_partition(partitions), offsets.NEWEST))
        return {one: newest.timestamp_ms for one, newest in found.items() if newest.offset >= 0}

    def reset_offsets(
        self, group: str, to: Mapping[TopicPartition, int], *, dry_run: bool = False
    ) -> list[offsets.OffsetChange]:
        """Commit offsets, limited to the range of the log, for a group without members.

        Returns the changes, also with `dry_run`, which commits nothing. Raises GroupNotEmpty, and KohortError for a
        partition that does not exist. That takes 5 s, since brokers learn of a new topic at different times. More
        offsets than a broker stores at once are committed in parts. If a part fails, earlier parts stay committed.
        """
        given = mapping_given(to, "offsets")
        wanted = {partition_given(one): _bounded(offset, "an offset", -INT64_MAX) for one, offset in given.items()}
        return offsets.reset(self._request_driver(), _group(group), wanted, dry_run=dry_run)

    # --- offsets of share groups

    def share_offsets(self, group: str) -> list[share_groups.SharePartitionOffset]:
        """Start offset and lag of each share partition of a share group (KIP-932), by partition.

        A group that does not exist has none. Raises AuthorizationFailed, and UnsupportedVersion of brokers without it.
        """
        return share_groups.share_offsets(self._request_driver(), name_given(group, "group"))

    def alter_share_offsets(self, group: str, to: Mapping[TopicPartition, int]) -> None:
        """Set start offsets of a share group without members, which is created if it does not exist.

        Delivery counts start again. Raises GroupNotEmpty, and GroupMissing for a group of another type. Raises
        UnknownTopic after 5 s.
        """
        given = mapping_given(to, "offsets")
        wanted = {partition_given(one): _bounded(offset, "an offset", 0) for one, offset in given.items()}
        share_groups.alter_share_offsets(self._request_driver(), name_given(group, "group"), wanted)

    def delete_share_offsets(self, group: str, *names: str) -> None:
        """Delete the state of topics from a share group without members. Raises GroupNotEmpty, GroupMissing."""
        share_groups.delete_share_offsets(self._request_driver(), name_given(group, "group"), _apart(names, "topics"))

    # --- topics

    def list_topics(self, *, internal: bool = False) -> list[topics.TopicDescription]:
        """Every topic, by name; with Kafka's internal ones if `internal`."""
        return topics.list_topics(self._request_driver(), internal=internal)

    def describe_topic(self, topic: str) -> topics.TopicDescription:
        """Partitions, leaders, replicas and the topic's own settings.

        Raises UnknownTopic after 5 s, since brokers learn of a new topic at different times. Leaders that are being
        elected are awaited within `default_api_timeout_ms`. Raises AuthorizationFailed without the right to see
        settings; `describe_topics` needs only DESCRIBE.
        """
        return topics.describe_topic(self._request_driver(), topic_given(topic))

    def describe_topics(self, names: Iterable[str]) -> dict[str, topics.TopicDescription | KohortError]:
        """Many topics, as they are now, without their settings.

        The value is UnknownTopic or AuthorizationFailed for a topic with an error.
        """
        return topics.describe_topics(self._request_driver(), names_given(names, "names"))

    def topic_configs(self, names: Iterable[str]) -> dict[str, cluster.Configs]:
        """All current settings, by topic. Raises AuthorizationFailed. An unknown topic is a BrokerError, after 5 s."""
        return cluster.configs(self._request_driver(), TOPIC, names_given(names, "names"))

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; -1 leaves a number to the broker. Raises TopicExists.

        A controller that responds too late may create the topic after ConnectionFailed or REQUEST_TIMED_OUT. A second
        call raises TopicExists then.
        """
        topics.create_topic(
            self._request_driver(),
            topic_given(topic),
            partitions=_count(partitions, "partitions", INT32_MAX),
            replication_factor=_count(replication_factor, "replication_factor", INT16_MAX),
            configs=_configs(configs or {}),
        )

    def delete_topics(self, *names: str) -> None:
        """Delete topics and their records. Raises UnknownTopic.

        The other topics are deleted all the same. The error is that of one topic.
        """
        topics.delete_topics(self._request_driver(), _apart(names, "topics"))

    # --- the cluster

    def brokers(self) -> tuple[cluster.BrokerDescription, ...]:
        """Every running broker, by id, with its advertised address."""
        return cluster.brokers(self._request_driver())

    def versions(self, nodes: Iterable[cluster.BrokerDescription]) -> dict[int, VersionRanges]:
        """The API versions that each broker supports: {node: {API key: (lowest, highest)}}."""
        return cluster.versions(self._request_driver(), _nodes(nodes))

    def broker_configs(
        self, nodes: Iterable[cluster.BrokerDescription], names: Iterable[str]
    ) -> dict[int, cluster.Configs]:
        """These settings of each broker, without those unknown to it. Raises AuthorizationFailed."""
        return cluster.broker_configs(self._request_driver(), _nodes(nodes), names_given(names, "names"))


def _described(driver: RequestDriver, group: str) -> groups.GroupDescription:
    try:
        return groups.describe_group(driver, _group(group))
    except groups.GroupMissing:
        found = share_groups.describe_share_group(driver, group)
        if found is None:
            raise
        return found


def _group(group: str) -> str:
    return name_given(group, "group", empty=True)  # empty was valid for simple consumers, and is still listed


def _apart(names: tuple[object, ...], field: str, *, empty: bool = False) -> tuple[str, ...]:
    """Names that were given as separate arguments, each once."""
    if len(names) == 1 and not isinstance(names[0], str) and isinstance(names[0], Iterable):
        raise TypeError(f"{field} must be separate arguments, not {names[0]!r}: write *names")
    # A broker refuses a topic that it is to delete twice, and finds no group that it has just deleted.
    return tuple(dict.fromkeys(names_given(cast("tuple[str, ...]", names), field, empty=empty)))


def _nodes(nodes: Iterable[cluster.BrokerDescription]) -> tuple[cluster.BrokerDescription, ...]:
    if not isinstance(nodes, Iterable):
        raise TypeError(f"nodes are of Admin.brokers(), not {nodes!r}")
    given = tuple(nodes)
    for one in given:
        if not isinstance(one, cluster.BrokerDescription):
            raise TypeError(f"nodes are of Admin.brokers(), not {one!r}")
    return given


def _count(count: int, field: str, most: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{field} is an int, not {count!r}")
    if not -1 <= count <= most:
        raise ValueError(f"{field} must be from 1 to {most}, or -1 for the broker's default, not {count}")
    return count


def _configs(configs: Mapping[str, T], *, unset: bool = False) -> Mapping[str, T]:
    """`unset`: a value may be None."""
    if not isinstance(configs, Mapping):
        raise TypeError(f"configs are values by name, as in {{'retention.ms': '3600000'}}, not {configs!r}")
    for name, value in configs.items():
        name_given(name, "the name of a setting")
        if value is None and unset:
            continue
        if not isinstance(value, str):
            raise TypeError(f"the setting {name} is a str, not {value!r}")
        if reason := unsendable(value):
            raise ValueError(f"the setting {name} cannot be sent: {reason}")
    return configs


def _bounded(number: int, what: str, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what} is an int, not {number!r}")
    if not least <= number <= INT64_MAX:
        raise ValueError(f"{what} is from {least} to {INT64_MAX}, not {number}")
    return number
