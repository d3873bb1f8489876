"""Lists, describes and deletes groups, and removes members."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from kohort.admin.acl_operations import operations
from kohort.admin.request_driver import RequestDriver, first_of
from kohort.common import KohortError, TopicPartition, WireError
from kohort.network.error_mapping import group_error
from kohort.network.errors import AuthorizationFailed
from kohort.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.protocol.apis.delete_groups import DeleteGroupsRequest
from kohort.protocol.apis.describe_groups import DescribeGroupsRequest
from kohort.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.protocol.apis.list_groups import ListGroupsRequest
from kohort.protocol.errors import BrokerError, ErrorCode, UnsupportedVersion
from kohort.protocol.membership import Subscription, parse_subscription, read_assignment
from kohort.protocol.schema import first_version

T = TypeVar("T")
CONSUMER: Final = "consumer"
CLASSIC_MEMBER: Final = 0
ANOTHER_KIND: Final = frozenset(
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.UNSUPPORTED_VERSION}
)
"""The codes of a group that is not of the described kind. A group without a name is INVALID_GROUP_ID: it is classic."""
NEEDING_DELETE: Final = frozenset({"DeleteGroups", "DeleteShareGroupOffsets"})
"""The APIs that need the permission DELETE, which READ does not include."""
FIRST_WITH_RIGHTS: Final = first_version(DescribeGroupsRequest, "include_authorized_operations")
FIRST_WITH_MEMBERS: Final = first_version(LeaveGroupRequest, "members")


class GroupMissing(KohortError):
    """The group does not exist, or not with this protocol.

    The error's place has `group`, and `error_message` with the broker's message, if any.

    Cure:
        List the groups: `kohort group list`.
    """

    def __init__(self, group: str, said: str | None = None) -> None:
        place = {"group": group} | ({"error_message": said} if said else {})
        super().__init__("no such group", hint="list the groups with `kohort group list`", **place)


class GroupNotEmpty(KohortError):
    """The group has members, and the call requires an empty group.

    The error's place has `group`.

    Cure:
        Stop the members, or call `remove_members`, then call again.
    """


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it.

    `type`: "classic", "consumer", ... ("" from brokers before 3.8).
    """

    group: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    `owned` is the assignment known to the coordinator, `target` its target assignment (KIP-848). `topics` is its
    subscription. `kept` and `generation` are of a classic member: the partitions it owned when it last joined, and
    their generation (-1 if it owned none). `classic` is true if it uses the classic protocol, None if that is unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    owned: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None = None
    epoch: int | None = None
    topics: tuple[str, ...] = ()
    rack: str | None = None
    kept: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    classic: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    `assignor`: chosen by the members or the coordinator. `epoch`: of a KIP-848 group. `protocol_type`: "consumer" for
    consumers, "" for an empty classic group. `allowed`: authorized operations (KIP-430), if the coordinator sends them.
    """

    group: str
    type: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    protocol_type: str = CONSUMER
    allowed: frozenset[str] | None = None


def list_groups(driver: RequestDriver) -> list[GroupListing]:
    """Every group of the cluster, by name; each broker lists those that it coordinates."""
    request = ListGroupsRequest(states_filter=(), types_filter=())
    responses = driver.of_brokers("ListGroups", request, code=lambda response: response.error_code)
    for response in responses:
        if response.error_code:
            raise BrokerError(response.error_code, api="ListGroups")
    found = {
        one.group_id: GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
        for response in responses
        for one in response.groups
    }
    return [found[name] for name in sorted(found)]


def describe_group(driver: RequestDriver, group: str) -> GroupDescription:
    """A group of either kind. Raises GroupMissing, AuthorizationFailed."""
    found = _describe_consumer_group(driver, group)
    return found if found is not None else _describe_classic_group(driver, group)


def _describe_consumer_group(driver: RequestDriver, group: str) -> GroupDescription | None:
    request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=True)
    one = described(driver, group, "ConsumerGroupDescribe", request)
    if one is None:
        return None
    members = (
        replace(
            epoch_member(member),
            instance_id=member.instance_id,
            target=_named_partitions(member.target_assignment),
            classic=None if member.member_type < 0 else member.member_type == CLASSIC_MEMBER,
        )
        for member in one.members
    )
    return epoch_group(group, CONSUMER, one, members)


def epoch_member(member: Any) -> MemberDescription:
    """A member of a KIP-848 group or a share group, without the fields that members of share groups do not have."""
    return MemberDescription(
        member_id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        owned=_named_partitions(member.assignment),
        epoch=member.member_epoch,
        topics=member.subscribed_topic_names,
        rack=member.rack_id,
    )


def epoch_group(group: str, kind: str, one: Any, members: Iterable[MemberDescription]) -> GroupDescription:
    """A KIP-848 group or a share group in a response."""
    return GroupDescription(
        group,
        kind,
        one.group_state,
        one.assignor_name,
        _members_by_client(members),
        one.group_epoch,
        protocol_type=kind,
        allowed=operations(one.authorized_operations),
    )


def described(driver: RequestDriver, group: str, api: str, request: Any) -> Any:
    """The group in the response to a Describe request of one kind; None if it is not of that kind."""
    try:
        response = driver.of_coordinator(group, api, request, codes=codes_of_groups)
    except UnsupportedVersion:
        return None
    one = first_of(response.groups, api, group=group)
    if one.error_code in ANOTHER_KIND:
        return None
    if one.error_code:
        raise group_failure(one.error_code, group, api)
    return one


def _describe_classic_group(driver: RequestDriver, group: str) -> GroupDescription:
    def request(version: int) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=(group,), include_authorized_operations=version >= FIRST_WITH_RIGHTS)

    response = driver.of_coordinator(group, "DescribeGroups", request, codes=codes_of_groups)
    one = first_of(response.groups, "DescribeGroups", group=group)
    if one.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not one.error_code and one.group_state == "Dead"):
        raise GroupMissing(group, one.error_message)
    if one.error_code:
        raise group_failure(one.error_code, group, "DescribeGroups")
    return GroupDescription(
        group,
        "classic",
        one.group_state,
        one.protocol_data,
        _members_by_client(_classic_member(member, one.protocol_type) for member in one.members),
        protocol_type=one.protocol_type,
        allowed=operations(one.authorized_operations),
    )


def _classic_member(member: Any, protocol_type: str) -> MemberDescription:
    reported = _parsed(bytes(member.member_metadata), protocol_type, parse_subscription, Subscription(topics=()))
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        owned=_parsed(bytes(member.member_assignment), protocol_type, read_assignment, frozenset()),
        topics=reported.topics,
        rack=reported.rack_id,
        kept=frozenset(TopicPartition(one.topic, n) for one in reported.owned_partitions for n in one.partitions),
        generation=reported.generation_id,
        classic=True,
    )


def delete_groups(driver: RequestDriver, groups: Iterable[str]) -> None:
    """Delete groups without members, and their offsets. Raises the first error after all were requested."""
    first: KohortError | None = None
    for group in groups:
        try:
            _delete_group(driver, group)
        except KohortError as error:
            first = first or error
    if first is not None:
        raise first


def _delete_group(driver: RequestDriver, group: str) -> None:
    request = DeleteGroupsRequest(groups_names=(group,))
    response = driver.of_coordinator(
        group, "DeleteGroups", request, codes=lambda found: [one.error_code for one in found.results]
    )
    result = first_of(response.results, "DeleteGroups", group=group)
    if result.error_code:
        raise group_failure(result.error_code, group, "DeleteGroups", result.error_message)


def remove_members(driver: RequestDriver, group: str, members: Sequence[MemberDescription], reason: str) -> None:
    """Remove members. Static ones are removed by their instance id, which fences the process (KIP-345)."""
    identities = tuple(
        MemberIdentity(
            member_id="" if one.instance_id is not None else one.member_id,
            group_instance_id=one.instance_id,
            reason=reason,
        )
        for one in members
    )

    def request(version: int) -> LeaveGroupRequest:
        if version >= FIRST_WITH_MEMBERS:
            return LeaveGroupRequest(group_id=group, member_id="", members=identities)
        (one, *others) = members
        if others or one.instance_id is not None:
            raise UnsupportedVersion(
                "the broker has one member leave at a time, and no static one",
                hint="name one member",
                api="LeaveGroup",
                version=version,
                least=FIRST_WITH_MEMBERS,
            )
        return LeaveGroupRequest(group_id=group, member_id=one.member_id, members=())

    response = driver.of_coordinator(group, "LeaveGroup", request, codes=lambda found: [found.error_code])
    if response.error_code:
        raise group_failure(response.error_code, group, "LeaveGroup")
    for one in response.members:
        if one.error_code:
            raise BrokerError(one.error_code, api="LeaveGroup", group=group, member=one.member_id)


def codes_of_groups(response: Any) -> list[int]:
    """The error codes of the groups in a response."""
    return [one.error_code for one in response.groups]


def group_failure(code: int, group: str, api: str, message: str | None = None) -> KohortError:
    """The error of a group in a response. `message`: the broker's."""
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupMissing(group)
    if code == ErrorCode.NON_EMPTY_GROUP:
        return GroupNotEmpty("the group has members", hint="stop them first", group=group)
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED and api in NEEDING_DELETE:
        return AuthorizationFailed("not allowed to delete the group", hint="grant DELETE on the group", group=group)
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return group_error(code, group)
    return BrokerError(code, message, api=api, group=group)


def _named_partitions(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(one.topic_name, number) for one in assignment.topic_partitions for number in one.partitions
    )


def _parsed(data: bytes, protocol_type: str, parse: Callable[[bytes], T], otherwise: T) -> T:
    """The data of a classic member; `otherwise` for other kinds of groups, and for none or invalid data."""
    if protocol_type == CONSUMER and data:
        with suppress(WireError):
            return parse(data)
    return otherwise


def _members_by_client(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda one: (one.client_id, one.member_id)))
