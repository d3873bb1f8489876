"""The broker under test: its API versions, nodes and limits.

All of it is read with plain requests before the first check. A value that cannot be read is None, and checks that
depend on it report that.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import defaultdict
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from kohort.common.errors import WireError
from kohort.conformance.broker_client import ANYONE, CLIENT_ID, Access, BrokerClient
from kohort.conformance.broker_control import Operator
from kohort.conformance.errors import Blocked, CheckEnd, MissingResponse, PeerClosed, TargetUnreachable
from kohort.conformance.retry_timing import Expected
from kohort.network.errors import ConfigError
from kohort.network.settings_table import split_address
from kohort.protocol.catalogue import API
from kohort.protocol.errors import ErrorCode, error_name

RESPONSE_TIMEOUT_S = 10.0
COORDINATOR_TIMEOUT_S = 40.0
TOPIC_TIMEOUT_S = 15.0
GROUPS_GO_S = 15.0
MOST_LISTED = 10
AWAY = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")
_BROKER_RESOURCE = 4
_FIELDS: dict[str, dict[str, object]] = {"StreamsGroupHeartbeat": {"endpoint_information_epoch": 0}}
_NOT_YET = frozenset(
    ErrorCode[name] for name in ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
)
WARM_GROUPS = 64  # enough to touch every partition of a usual __consumer_offsets


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that the run created."""

    name: str
    id: UUID
    partitions: int


@dataclass
class BrokerUnderTest:
    """The broker under test, made by `reach` and shared by every `CheckContext` of a run."""

    host: str
    port: int
    access: Access
    stranger: Access | None
    prefix: str
    ranges: dict[int, tuple[int, int]]
    features: dict[str, int]
    nodes: dict[int, tuple[str, int]]
    cluster_id: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    settings_error: str | None = None
    first_lookups: list[str] = field(default_factory=list)
    topics: tuple[Topic, ...] = ()
    topic_error: str | None = None
    min_session_ms: int = 6000
    leave_traces: bool = False
    operator: Operator | None = None
    session_ms: int = 30_000
    limits: dict[str, int] = field(default_factory=dict)
    consumer_protocol: bool = False
    share_groups: bool = False
    streams_groups: bool = False
    made_topics: list[str] = field(default_factory=list)
    made_groups: dict[str, None] = field(default_factory=dict)
    given_ids: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    members_with_epochs: set[tuple[str, str, str]] = field(default_factory=set)  # API of the heartbeats, group, id
    expected: defaultdict[tuple[str, int], Expected] = field(default_factory=lambda: defaultdict(Expected))
    _idle: list[BrokerClient] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    async def reach(cls, bootstrap: str, access: Access = ANYONE, stranger: Access | None = None) -> BrokerUnderTest:
        """Connect to the first address that responds. Raises TargetUnreachable with a probable reason."""
        failures = []
        for entry in bootstrap.split(","):
            host, port = _address(entry)
            try:
                return await cls._reach(host, port, access, stranger)
            except TargetUnreachable as error:
                failures.append(error)
        raise failures[0]

    @classmethod
    async def _reach(cls, host: str, port: int, access: Access, stranger: Access | None) -> BrokerUnderTest:
        unreachable = partial(TargetUnreachable, address=f"{host}:{port}")
        try:
            peer = await BrokerClient.open(host, port, access, _forget)
        except Blocked as error:
            raise unreachable(str(error), hint="check --user") from None
        except PeerClosed as error:
            raise unreachable(f"SASL: {error}", hint="check that the listener uses SASL") from None
        except ssl.SSLError as error:
            hint = "check that the listener uses TLS, and that --ca is its authority"
            raise unreachable(f"TLS failed: {error.reason or error}", hint=hint) from None
        except (MissingResponse, WireError) as error:
            raise unreachable(f"not a Kafka broker: {error}", hint="use --tls if the listener uses TLS") from None
        except (OSError, TimeoutError) as error:
            hint = "check the address, and that the broker runs"
            raise unreachable(f"cannot connect: {str(error) or 'timed out'}", hint=hint) from None
        try:
            try:
                versions = await peer.send("ApiVersions", 0, {}, RESPONSE_TIMEOUT_S)
            except PeerClosed as error:
                hint = "it must require no client certificate" if access.tls else "use --tls if the listener uses TLS"
                raise unreachable(f"ApiVersions: {error}", hint=hint) from None
            except (MissingResponse, WireError) as error:
                raise unreachable(f"not a Kafka broker: {error}", hint="use --tls if the listener uses TLS") from None
            ranges = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}
            target = cls(host, port, access, stranger, f"{CLIENT_ID}-{secrets.token_hex(4)}", ranges, {}, {})
            if target.version("Metadata", at_most=7) < 0:
                hint = "use the address of a broker, since a controller does not support it"
                raise unreachable("the broker does not support Metadata", hint=hint)
            try:
                if target.version("ApiVersions") >= 3:
                    named = {"client_software_name": "kohort", "client_software_version": "0"}
                    response = await peer.send("ApiVersions", target.version("ApiVersions"), named, RESPONSE_TIMEOUT_S)
                    target.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
                metadata = await peer.send(
                    "Metadata", target.version("Metadata", at_most=7), {"topics": ()}, RESPONSE_TIMEOUT_S
                )
            except PeerClosed:
                # Before SASL, a broker responds to one ApiVersions, and to nothing else.
                hint = "use --user NAME:PASSWORD, because the listener requires SASL"
                raise unreachable("the broker responds to the first ApiVersions only", hint=hint) from None
            target.nodes = {node.node_id: (node.host, node.port) for node in metadata.brokers}
            target.cluster_id = metadata.cluster_id
        except (WireError, MissingResponse) as error:
            raise unreachable(f"its response cannot be decoded: {error}") from None
        else:
            return target
        finally:
            await peer.close()

    def version(self, api: str, at_most: int | None = None) -> int:
        """Return the highest common version that set-ups may use, or -1. `limits` excludes broken versions."""
        low, high = self.common(api)
        high = min(high, self.limits.get(api, high))
        if at_most is not None:
            high = min(high, at_most)
        return high if low <= high else -1

    def common(self, api: str) -> tuple[int, int]:
        """Return (lowest, highest) in common, with lowest above highest if there is none."""
        ours_low, ours_high = API[api].versions
        low, high = self.ranges.get(API[api].key, (1, 0))
        return max(ours_low, low), min(ours_high, high)

    def setting(self, name: str) -> int | None:
        """Return a broker setting as a number, None if the broker returned none."""
        try:
            return int(self.settings[name])
        except (KeyError, ValueError):
            return None

    @property
    def first_join_s(self) -> float:
        """The delay of a group's first rebalance (KIP-134) in seconds, or the default if unknown."""
        response = self.setting("group.initial.rebalance.delay.ms")
        return (3000 if response is None else response) / 1000

    # -- before the first check -----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Wait for the coordinator, read limits, create topics."""
        await self.wake_coordinator()
        await self._read_settings()
        await self._find_shortest_session()
        self.consumer_protocol = await self._serves("ConsumerGroupHeartbeat")
        self.share_groups = await self._serves("ShareGroupHeartbeat", 1)
        self.streams_groups = await self._serves("StreamsGroupHeartbeat")
        try:
            self.topics = (await self.make_topic("t", 4), await self.make_topic("u", 2))
        except (CheckEnd, WireError) as error:
            self.topic_error = str(error)

    async def request(
        self, api: str, values: dict[str, object], *, node: int | None = None, at_most: int | None = None
    ) -> Any:
        """Send one request outside any check, in the highest common version."""
        version = self.version(api, at_most)
        if version < 0:
            raise Blocked(f"the broker does not support {api}")
        peer = self._idle.pop() if node is None and self._idle else await self.connect(node)
        try:
            response = await peer.send(api, version, values, RESPONSE_TIMEOUT_S)
        except BaseException:
            await peer.close()
            raise
        if node is None:
            self._idle.append(peer)
        else:
            await peer.close()
        return response

    async def connect(self, node: int | None = None, access: Access | None = None, record: Any = None) -> BrokerClient:
        """Connect to a node, or to the given address if there is only one node."""
        host, port = self.nodes[node] if node is not None and len(self.nodes) > 1 else (self.host, self.port)
        try:
            return await BrokerClient.open(host, port, access or self.access, record or _forget)
        except (OSError, TimeoutError) as error:
            raise PeerClosed(f"cannot connect to {host}:{port}: {str(error) or 'timed out'}") from None

    async def coordinator(self, group: str) -> int | None:
        """Return the node id of a group's coordinator, None (the given address) in a cluster of one."""
        if len(self.nodes) <= 1:
            return None
        code, node = await self._look_up(group)
        if code:
            raise Blocked(f"FindCoordinator failed: {error_name(code)}")
        return node

    def node_of(self, coordinator: int | None) -> int:
        """Return the node id for a result of `coordinator()`."""
        return next(iter(self.nodes)) if coordinator is None else coordinator

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _look_up(self, group: str) -> tuple[int, int]:
        if self.version("FindCoordinator", at_most=3) < 0:
            response = await self.request("FindCoordinator", {"key_type": 0, "coordinator_keys": (group,)})
            return response.coordinators[0].error_code, response.coordinators[0].node_id
        response = await self.request("FindCoordinator", {"key": group}, at_most=3)
        return response.error_code, response.node_id

    async def wake_coordinator(self) -> None:
        """Wait until the coordinator serves requests. Also used after a restart, which closes idle connections.

        The first look-up makes Kafka create __consumer_offsets. Loading its partitions takes a moment more.
        """
        await self.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + COORDINATOR_TIMEOUT_S
        while True:
            code, _ = await self._look_up(f"{self.prefix}-warm")
            self.first_lookups.append(error_name(code))
            if error_name(code).endswith("AUTHORIZATION_FAILED"):
                raise TargetUnreachable(
                    f"FindCoordinator failed: {error_name(code)}",
                    address=self.address,
                    hint=f"the user needs every right on groups and topics named {self.prefix.rpartition('-')[0]}-*",
                )
            if code not in _NOT_YET or loop.time() > deadline:
                break
            await asyncio.sleep(0.1)
        if self.version("OffsetFetch", at_most=7) < 0:
            return
        for index in range(WARM_GROUPS):
            group = f"{self.prefix}-warm-{index}"
            while loop.time() < deadline:
                code, node = await self._look_up(group) if len(self.nodes) > 1 else (0, -1)
                if code == 0:
                    response = await self.request(
                        "OffsetFetch", {"group_id": group, "topics": ()}, node=node if node >= 0 else None, at_most=7
                    )
                    code = response.error_code
                if code not in _NOT_YET:
                    break
                await asyncio.sleep(0.1)

    async def _read_settings(self) -> None:
        resource = {
            "resource_type": _BROKER_RESOURCE,
            "resource_name": str(min(self.nodes, default=0)),
            "configuration_keys": None,
        }
        try:
            response = await self.request(
                "DescribeConfigs", {"resources": (resource,)}, node=min(self.nodes, default=None)
            )
            (result,) = response.results
        except (CheckEnd, WireError, ValueError) as error:
            self.settings_error = f"DescribeConfigs: {error}"
            return
        if result.error_code:
            self.settings_error = f"DescribeConfigs: {error_name(result.error_code)}"
        self.settings = {entry.name: entry.value for entry in result.configs if entry.value is not None}

    async def _find_shortest_session(self) -> None:
        response = self.setting("group.min.session.timeout.ms")
        if response is not None:
            self.min_session_ms = response
        self.session_ms = self.session_within(self.session_ms)

    def session_within(self, session_ms: int) -> int:
        """Return the session timeout nearest to `session_ms` that the broker's settings allow, in milliseconds."""
        longest = self.setting("group.max.session.timeout.ms")
        return max(self.min_session_ms, session_ms if longest is None else min(session_ms, longest))

    async def _serves(self, api: str, lowest: int = 0) -> bool:
        """Send a heartbeat to find out if a kind of group is switched on, since ApiVersions may list it anyway."""
        if self.version(api) < lowest:
            return False
        group = f"{self.prefix}-{api.lower()}"
        values = {"group_id": group, "member_id": "unknown-member", "member_epoch": 7, **_FIELDS.get(api, {})}
        try:
            response = await self.request(api, values, node=await self.coordinator(group))
        except (CheckEnd, WireError):
            return False
        return error_name(response.error_code) in ("UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND")

    async def make_topic(self, label: str, partitions: int) -> Topic:
        """Create a topic and wait for its leaders. Raises Blocked."""
        name = f"{self.prefix}-{label}"
        self.made_topics.append(name)  # before the request, which a signal may interrupt
        if self.version("CreateTopics") >= 0:
            wanted = {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": (),
                "configs": (),
            }
            response = await self.request("CreateTopics", {"topics": (wanted,), "timeout_ms": 10_000})
            code = response.topics[0].error_code
            # The name is new. A broker that forwards a request to a slow controller may have sent it twice.
            if code and error_name(code) != "TOPIC_ALREADY_EXISTS":
                self.made_topics.remove(name)
                raise Blocked(f"CreateTopics failed: {error_name(code)}")
        deadline = asyncio.get_running_loop().time() + TOPIC_TIMEOUT_S
        while True:
            response = await self.describe_topic(name)
            (described,) = response.topics
            led = [entry for entry in described.partitions if entry.error_code == 0 and entry.leader_id >= 0]
            if (
                described.error_code == 0
                and led
                and len(led) >= (partitions if self.version("CreateTopics") >= 0 else 1)
            ):
                return Topic(name, described.topic_id, len(led))
            if asyncio.get_running_loop().time() > deadline:
                raise Blocked(f"the topic has no leaders: {error_name(described.error_code)}")
            await asyncio.sleep(0.05)

    async def describe_topic(self, topic: str) -> Any:
        """Return Metadata of one topic, in the highest version whose response can be decoded.

        Only version 10 and up have the topic id. If the broker has no CreateTopics, the request also creates the topic.
        """
        for at_most in (12, 9, 4, 1):
            version = self.version("Metadata", at_most)
            values = metadata_request(version, topic, create=self.version("CreateTopics") < 0)
            try:
                return await self.request("Metadata", values, at_most=at_most)
            except WireError as error:
                unreadable = error
        raise Blocked(f"Metadata cannot be read: {unreadable}")

    # -- after the last check -------------------------------------------------------------------------------------

    async def clean_up(self) -> list[str]:
        """Remove every group and topic of the run. Returns those that could not be removed, with the reason.

        A busy broker refuses some of these requests for a moment, so those for groups are repeated for `GROUPS_GO_S`.
        """
        deadline = asyncio.get_running_loop().time() + GROUPS_GO_S
        kept = await self._remove_all(set(self.made_groups))
        while (again := self._worth_another(kept)) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.5)
            kept = {group: why for group, why in kept.items() if group not in again} | await self._remove_all(again)
        left = self._listed(kept)
        if self.made_topics and self.version("DeleteTopics") >= 0:
            if self.version("DeleteTopics", at_most=5) >= 0:
                try:
                    left += await self._remove_topics()
                except (CheckEnd, WireError) as error:
                    left += [f"topic {name}: {error}" for name in self.made_topics]
        elif self.made_topics:
            left += [f"topic {name}: the broker does not support DeleteTopics" for name in self.made_topics]
        return left

    async def _remove_topics(self) -> list[str]:
        """Delete the topics of the run. A creation that a signal interrupted may take effect a moment later."""
        kept = dict.fromkeys(self.made_topics, "")
        for pause_s in (0.0, 0.5, 1.0):
            await asyncio.sleep(pause_s)
            values = {"topic_names": tuple(kept), "timeout_ms": 10_000}
            response = await self.request("DeleteTopics", values, at_most=5)
            kept = {entry.name: error_name(entry.error_code) for entry in response.responses if entry.error_code}
            if "UNKNOWN_TOPIC_OR_PARTITION" not in kept.values():
                break
        return [f"topic {name}: {why}" for name, why in kept.items() if why != "UNKNOWN_TOPIC_OR_PARTITION"]

    def _listed(self, kept: Mapping[str, str]) -> list[str]:
        """A line for each group; one for all groups of a reason that many share, as when the broker has ended."""
        groups: dict[str, list[str]] = {}
        for group, reason in kept.items():
            groups.setdefault(reason, []).append(group)
        left = []
        for reason, names in groups.items():
            if len(names) > MOST_LISTED:
                names = [f"{len(names)} groups {self.prefix}-*"]
            else:
                names = [f"group {name}" for name in names]
            left += [f"{name}: {reason}" for name in names]
        return left

    def _worth_another(self, kept: Mapping[str, str]) -> set[str]:
        """Groups whose coordinator was away for a moment, or whose members with an epoch could not leave then."""
        members = {group for _, group, _ in self.members_with_epochs}
        return {group for group, why in kept.items() if why in AWAY or (why == "NON_EMPTY_GROUP" and group in members)}

    async def _remove_all(self, groups: Set[str]) -> dict[str, str]:
        """Let all known members leave these groups, and delete them. Returns those that are still there, with why."""
        kept: dict[str, str] = {}
        by_node: dict[int | None, set[str]] = {}
        for group in groups:
            try:
                by_node.setdefault(await self.coordinator(group), set()).add(group)
            except (CheckEnd, WireError) as error:
                kept[group] = str(error)
        for node, of_node in by_node.items():
            try:
                await self._end_members(node, of_node)
                kept |= await self._remove_groups(node, of_node)
            except (CheckEnd, WireError) as error:
                kept |= dict.fromkeys(of_node, str(error))
        return kept

    async def _end_members(self, node: int | None, groups: Set[str]) -> None:
        """Let members with epochs leave. An interrupted run has not seen the responses to some first heartbeats."""
        values: dict[str, object] = {"group_ids": tuple(groups), "include_authorized_operations": False}
        for kind in ("Consumer", "Share", "Streams"):
            with suppress(CheckEnd, WireError):  # of these APIs the broker may have none
                described = await self.request(f"{kind}GroupDescribe", values, node=node)
                self.members_with_epochs |= {
                    (f"{kind}GroupHeartbeat", entry.group_id, member.member_id)
                    for entry in described.groups
                    if entry.group_id in groups
                    for member in entry.members
                }
        for api, group, member in self.members_with_epochs:
            if group in groups:
                values = {"group_id": group, "member_id": member, "member_epoch": -1, **_FIELDS.get(api, {})}
                with suppress(CheckEnd, WireError):  # DeleteGroups returns the error
                    await self.request(api, values, node=node)

    async def _remove_groups(self, node: int | None, groups: Set[str]) -> dict[str, str]:
        values = {"groups": tuple(groups), "include_authorized_operations": False}
        for entry in (await self.request("DescribeGroups", values, node=node)).groups:
            members = dict.fromkeys(member.member_id for member in entry.members)
            if entry.group_state not in ("Empty", "Dead"):  # an id that has not joined keeps the group, too (KIP-394)
                members |= dict.fromkeys(self.given_ids[entry.group_id])
            for leave in self._leaves(list(members)):
                await self.request("LeaveGroup", {"group_id": entry.group_id, **leave}, node=node)
        response = await self.request("DeleteGroups", {"groups_names": tuple(groups)}, node=node)
        gone = (0, ErrorCode.GROUP_ID_NOT_FOUND)
        return {
            entry.group_id: error_name(entry.error_code) for entry in response.results if entry.error_code not in gone
        }

    def _leaves(self, members: list[str]) -> list[dict[str, object]]:
        """Return the LeaveGroup fields that remove these members, one request per member before version 3."""
        if self.version("LeaveGroup") < 3:
            return [{"member_id": member} for member in members]
        return [{"members": tuple({"member_id": member} for member in members)}] if members else []


def metadata_request(version: int, topic: str, *, create: bool) -> dict[str, object]:
    """Build a Metadata request for one topic in the form of a version."""
    values: dict[str, object] = {"topics": ({"name": topic, "topic_id": UUID(int=0)},)}
    if version >= 4:
        values["allow_auto_topic_creation"] = create
    if version >= 8:
        values["include_topic_authorized_operations"] = False
        if version <= 10:
            values["include_cluster_authorized_operations"] = False
    return values


def _address(text: str) -> tuple[str, int]:
    """Parse host:port, with [..] around an IPv6 host. Raises TargetUnreachable."""
    try:
        return split_address(text)
    except ConfigError as error:
        raise TargetUnreachable(error.message, hint="use HOST:PORT, such as localhost:9092") from None


def _forget(sent: bool, api: str, version: int, body: object) -> None:
    pass
