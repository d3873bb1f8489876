"""The facts that rules use. Each fact, or its error, is determined once, on first use."""

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from kohort.admin import (
    Admin,
    BrokerDescription,
    GroupDescription,
    GroupMissing,
    SharePartitionOffset,
    TopicDescription,
)
from kohort.admin.admin_config import AdminConfig
from kohort.admin.cluster import Configs
from kohort.admin.streams_groups import STREAMS
from kohort.cli.connection_options import FIRST_BROKER
from kohort.cli.doctor.group_rules import TimedSnapshot
from kohort.cli.doctor.offset_rules import CommittedOffsets, Inactivity
from kohort.cli.doctor.share_rules import ShareTape
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.consumer_config import SETTINGS, ConsumerConfig
from kohort.network.errors import AuthorizationFailed
from kohort.network.find_coordinator import coordinator_partition
from kohort.network.requests import VersionRanges
from kohort.network.settings_table import by_our_names, checked
from kohort.protocol import tape
from kohort.protocol.apis.leave_group import LeaveGroupRequest
from kohort.protocol.errors import ErrorCode

T = TypeVar("T")
# Settings that rules check, and the tape of the member. The doctor's own client does not use them.
JUDGED: Final = frozenset(
    SETTINGS[name].kafka
    for name in (
        "tape",
        "group",
        "group_instance_id",
        "assignors",
        "protocol",
        "remote_assignor",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "max_poll_records",
        "auto_offset_reset",
        "enable_auto_commit",
        "allow_auto_create_topics",
        "fetch_max_bytes",
        "max_partition_fetch_bytes",
    )
)
BROKER_CONFIGS: Final = (
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "auto.create.topics.enable",
    "offsets.retention.minutes",
)
PATIENCE: Final = FIRST_BROKER | {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}
OFFSETS_TOPIC: Final = "__consumer_offsets"
TOO_SLOW: Final = "no poll for more than"
"""In the leave reason of a member whose handler was too slow (KIP-800)."""

LOOKS: Final = 6
SILENT_PART: Final = 0.75
"""The fraction of the retention after which a group without commits is reported."""
LISTENING_S: Final = 20.0


class NotRequested(KohortError):
    """A fact that this call has no reason to determine. The message names the missing option."""


class fact(Generic[T]):
    """A property that is computed once. Its value or its error is kept."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, case: Any, _kind: type[Any]) -> T:
        kept = case.kept
        name = self._compute.__name__
        if name not in kept:
            try:
                kept[name] = (self._compute(case), None)
            except KohortError as error:
                kept[name] = (None, error)
        value, refusal = kept[name]
        if refusal is not None:
            raise refusal
        return value  # type: ignore[no-any-return]


class Case:
    """One call of the doctor: its arguments, and the facts, by the names of rules' parameters.

    Raises ConfigError for an unknown property or an invalid value.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        topics: Sequence[str] = (),
        ms_per_record: float | None = None,
        tape: Path | None = None,
        seconds: float = 0.0,
        reach_s: float = 5.0,
    ) -> None:
        self.kept: dict[str, tuple[Any, KohortError | None]] = {}
        self.properties = PATIENCE | {name: value for name, value in properties.items() if name not in JUDGED}
        config = ConsumerConfig.from_kafka(self.properties)
        judged = by_our_names(
            {name: properties[name] for name in properties if name in JUDGED}, ConsumerConfig.by_kafka_name
        )
        self.settings = config.but(**{name: checked(SETTINGS[name], value) for name, value in judged.items()})
        self._topics = tuple(topics)
        self._ms_per_record = ms_per_record
        self._tape = tape
        self._seconds = seconds
        self._reach_s = reach_s
        self.admin = Admin.from_config(AdminConfig.part_of(self.properties))

    def __enter__(self) -> "Case":
        return self

    def __exit__(self, *_error: object) -> None:
        self.admin.close()

    # --- given

    @fact
    def ms_per_record(self) -> float:
        if self._ms_per_record is None:
            raise NotRequested("needs --ms-per-record")
        return self._ms_per_record

    @fact
    def _taped(self) -> list[tape.Taped]:
        if self._tape is None:
            raise NotRequested("needs --tape")
        try:
            text = self._tape.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise KohortError(f"cannot read the tape: {why}", path=self._tape) from None
        return list(tape.read(text.rpartition("\n")[0].splitlines()))

    @fact
    def stalls(self) -> list[float]:
        """The times at which the member on the tape left because its handler was too slow (s of the tape)."""
        leaves = (one for one in self._taped if one.api == "LeaveGroup")
        return [one.time_s for one in leaves if one.direction == "request" and _too_slow(tape.value(one))]

    @fact
    def shared(self) -> ShareTape:
        """The deliveries and acknowledgements of a share consumer on the tape."""
        delivered = repeated = highest = refused = 0
        for one in self._taped:
            if one.direction != "response" or one.api not in ("ShareFetch", "ShareAcknowledge"):
                continue
            for topic in tape.value(one).responses:
                for place in topic.partitions:
                    code = place.acknowledge_error_code if one.api == "ShareFetch" else place.error_code
                    refused += code == ErrorCode.INVALID_RECORD_STATE
                    for each in place.acquired_records if one.api == "ShareFetch" else ():
                        size = each.last_offset - each.first_offset + 1
                        delivered += size
                        repeated += size if each.delivery_count > 1 else 0
                        highest = max(highest, each.delivery_count)
        if not delivered and not refused:
            raise NotRequested("needs --tape of a share consumer")
        return ShareTape(delivered, repeated, highest, refused)

    # --- the cluster

    @fact
    def brokers(self) -> tuple[BrokerDescription, ...]:
        return self.admin.brokers()

    @fact
    def reached(self) -> dict[str, str | None]:
        """The reason why an address could not be connected to, by address. None if it could."""
        addresses = [(one.address, (one.host, one.port)) for one in self.brokers]
        with ThreadPoolExecutor(min(32, len(addresses))) as pool:
            found = pool.map(lambda one: _unreached(one[1], self._reach_s), addresses)
            return dict(zip((name for name, _ in addresses), found, strict=True))

    @fact
    def near(self) -> tuple[BrokerDescription, ...]:
        """The brokers that can be connected to."""
        found = tuple(one for one in self.brokers if self.reached[one.address] is None)
        if not found:
            raise KohortError("no broker can be reached at its advertised address")
        return found

    @fact
    def versions(self) -> dict[int, VersionRanges]:
        return self.admin.versions(self.near)

    @fact
    def broker_configs(self) -> dict[int, Configs]:
        return self.admin.broker_configs(self.near, BROKER_CONFIGS)

    # --- topics

    @fact
    def topics(self) -> dict[str, TopicDescription | KohortError]:
        wanted = {*self._topics}
        if self.settings.group is not None:
            try:
                members = () if self.group is None else self.group.members
                wanted.update(topic for one in members for topic in one.topics)
                wanted.update(one.topic for member in members for one in member.owned)
                wanted.update(one.topic for one in self._at)
            except AuthorizationFailed:
                pass  # another rule reports it
        if not wanted:
            raise NotRequested("needs --topic, or a --group that reads some")
        return self.admin.describe_topics(wanted)

    @fact
    def topic_configs(self) -> dict[str, Configs]:
        return self.admin.topic_configs(name for name, one in self.topics.items() if isinstance(one, TopicDescription))

    @fact
    def offsets_topic(self) -> TopicDescription:
        found = self.admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC]
        if isinstance(found, AuthorizationFailed):
            raise found
        if isinstance(found, KohortError):
            raise NotRequested("no group has committed on this cluster yet")
        return found

    @fact
    def offsets_configs(self) -> Configs:
        return self.admin.topic_configs([self.offsets_topic.topic])[OFFSETS_TOPIC]

    @fact
    def newest_ms(self) -> dict[TopicPartition, int]:
        return self.admin.newest_ms(self._partitions)

    @fact
    def now_ms(self) -> int:
        _ = self.newest_ms  # read after the response, so that a slow response does not look like a fast clock
        return time.time_ns() // 1_000_000

    # --- the group

    @fact
    def group(self) -> GroupDescription | None:
        """The group, None if it does not exist."""
        try:
            return self._described()
        except GroupMissing:
            return None

    @fact
    def group_allowed(self) -> frozenset[str] | None:
        try:
            return None if self.group is None else self.group.allowed
        except AuthorizationFailed:
            return frozenset()

    @fact
    def looks(self) -> list[TimedSnapshot]:
        """Snapshots of the group at equal intervals, over the given seconds."""
        if self.group is None:
            raise NotRequested("the group does not exist yet")
        if self._seconds <= 0:
            raise NotRequested("needs --seconds above 0")
        found: list[TimedSnapshot] = []
        began = time.monotonic()
        for number in range(LOOKS):
            time.sleep(max(0.0, began + number * self._seconds / (LOOKS - 1) - time.monotonic()))
            described = self._described()
            waiting = sum(one.lag or 0 for one in self.admin.lag(self._group))
            found.append(TimedSnapshot(time.monotonic() - began, described, waiting))
        return found

    @fact
    def committed(self) -> list[CommittedOffsets]:
        at = self._at
        first, end = self.admin.first_offsets(at), self.admin.end_offsets(at)
        return [CommittedOffsets(one, at[one], first[one], end[one]) for one in at if one in first and one in end]

    @fact
    def unread(self) -> list[TopicPartition]:
        """The partitions without a committed offset, of the topics that the group reads."""
        read = {one.topic for one in self._at}
        return [one for one in self._partitions if one.topic in read and one not in self._at]

    @fact
    def inactivity(self) -> Inactivity | None:
        group = self.group
        if group is None or group.state != "Empty" or not self._at:
            return None
        minutes = [int(found.get("offsets.retention.minutes") or 0) for found in self.broker_configs.values()]
        kept_s = min(minutes) * 60.0
        since_ms = time.time_ns() // 1_000_000 - int(kept_s * SILENT_PART * 1000)
        partition = TopicPartition(
            OFFSETS_TOPIC, coordinator_partition(group.group, len(self.offsets_topic.partitions))
        )
        found = committed_since(self.admin, self.properties, group.group, partition, since_ms)
        return Inactivity(group.group, None if found else kept_s * SILENT_PART, kept_s)

    # --- a share group

    @fact
    def share_configs(self) -> Mapping[str, str | None]:
        """The settings of a share group."""
        self._require_share_group()
        return self.admin.group_configs([self._group])[self._group]

    @fact
    def share_offsets(self) -> list[SharePartitionOffset]:
        self._require_share_group()
        return self.admin.share_offsets(self._group)

    @fact
    def share_ends(self) -> dict[TopicPartition, int]:
        """The end offsets of the topics that the members read."""
        return self.admin.end_offsets(self._partitions)

    def _require_share_group(self) -> None:
        if self.group is None or self.group.type != "share":
            raise NotRequested("needs the --group of a share group")

    def _described(self) -> GroupDescription:
        """The group. One of streams has no members here, because tasks are no partitions. Raises GroupMissing."""
        try:
            return self.admin.describe_group(self._group)
        except GroupMissing:
            found = self.admin.describe_streams_group(self._group)
            return GroupDescription(
                found.group, STREAMS, found.state, "", (), found.epoch, protocol_type=STREAMS, allowed=found.allowed
            )

    @property
    def _group(self) -> str:
        if self.settings.group is None:
            raise NotRequested("needs --group")
        return self.settings.group

    @fact
    def _at(self) -> dict[TopicPartition, int]:
        return {one: to.offset for one, to in self.admin.committed(self._group).items()}

    @property
    def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(name, each.partition)
            for name, found in self.topics.items()
            if isinstance(found, TopicDescription)
            for each in found.partitions
        ]


def committed_since(
    admin: Admin, properties: Mapping[str, str], group: str, partition: TopicPartition, since_ms: int
) -> bool:
    """Return True if the group's partition of __consumer_offsets has a record of the group since `since_ms`.

    Its keys begin with a type and the group's name. Raises KohortError if reading takes too long, or if there are no
    offsets of the partition.
    """
    starts, ends = admin.offsets_at({partition: since_ms}), admin.end_offsets([partition])
    if not (partition in starts and partition in ends):
        raise KohortError(
            "no ListOffsets response from the partition's leader", hint="try again later", partition=partition
        )
    start, end = starts[partition], ends[partition]
    if start < 0 or start >= end:
        return False
    name = group.encode()
    begins = struct.pack(">h", len(name)) + name
    limit = time.monotonic() + LISTENING_S
    with Consumer.from_config({**properties, "kohort.on.corrupt": "skip_batch"}) as consumer:
        consumer.assign({partition: start})
        while (consumer.position(partition) or 0) < end:
            if time.monotonic() > limit:
                raise KohortError(f"{OFFSETS_TOPIC} is too long to read in {LISTENING_S:g} s", partition=partition)
            for columns in consumer.poll(0.2):
                if any((one.key or b"")[2:].startswith(begins) for one in columns):
                    return True
    return False


def _too_slow(leave: LeaveGroupRequest) -> bool:
    return any(TOO_SLOW in (one.reason or "") for one in leave.members)


def _unreached(address: tuple[str, int], limit_s: float) -> str | None:
    try:
        with socket.create_connection(address, timeout=limit_s):
            return None
    except TimeoutError:
        return f"no connection within {limit_s:g} s"
    except socket.gaierror as error:
        return f"the name cannot be resolved ({error.strerror})"
    except OSError as error:
        return error.strerror or str(error)
