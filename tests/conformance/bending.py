"""One deliberate fault in the scripted broker, and the ways in which its responses are bent on their way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Alter, Answer, Call, FakeBroker, GroupState, Instead

Change = Callable[[Call, Any], Any]
When = Callable[[Call, FakeBroker], bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """`install` bends the broker; `caught_by`: the check whose rule is broken first, then those that lean on the same
    rule and may say so too."""

    name: str
    install: Callable[[FakeBroker], None]
    caught_by: tuple[str, ...]


def altered(api: str, change: Change, when: When = lambda call, broker: True) -> Callable[[FakeBroker], None]:
    """The broker does its work, and returns something else; `change` returns the response as it is if it is not
    affected."""

    def install(broker: FakeBroker) -> None:
        def control(call: Call) -> Alter | None:
            return Alter(lambda response: change(call, response)) if when(call, broker) else None

        broker.control(api, control)

    return install


def responded(api: str, response: Callable[[Call], Any], when: When) -> Callable[[FakeBroker], None]:
    """The broker does nothing, and responds at once."""

    def install(broker: FakeBroker) -> None:
        broker.control(api, lambda call: Answer(response(call)) if when(call, broker) else None)

    return install


def bent(api: str, change: Callable[[Any], Any]) -> Callable[[FakeBroker], None]:
    """The broker does what `change` makes of the request."""

    def install(broker: FakeBroker) -> None:
        broker.control(api, lambda call: Instead(change(call.request)))

    return install


def requested(call: Call) -> Any:
    """The request, whose type depends on the API."""
    return call.request


def code(found: str, replacement: str, where: Callable[[Any], bool] = lambda request: True) -> Change:
    """One error code for another, where the request is of the kind."""

    def change(call: Call, response: Any) -> Any:
        wrong = response.error_code == ErrorCode[found] and where(call.request)
        return response._replace(error_code=ErrorCode[replacement]) if wrong else response

    return change


def in_partitions(found: str, wrong: str, where: Callable[[Any], bool] = lambda request: True) -> Change:
    """A code of a partition in a response by topics: to a commit, or to OffsetDelete."""

    def change(call: Any, response: Any) -> Any:
        if not where(call.request):
            return response
        return response._replace(
            topics=tuple(
                topic._replace(
                    partitions=tuple(
                        entry._replace(error_code=ErrorCode[wrong]) if entry.error_code == ErrorCode[found] else entry
                        for entry in topic.partitions
                    )
                )
                for topic in response.topics
            )
        )

    return change


def reported(where: Callable[[Any, Any], bool] = lambda request, response: True, **values: object) -> Change:
    """Other values in the response."""

    def change(call: Call, response: Any) -> Any:
        return response._replace(**values) if where(call.request, response) else response

    return change


def state_of(broker: FakeBroker, group: str) -> GroupState | None:
    """Read on the fake's own thread, where controls run."""
    found = broker._cluster.groups.classic.groups.get(group)
    return None if found is None else found.state


def in_state(*states: GroupState | None) -> When:
    return lambda call, broker: state_of(broker, requested(call).group_id) in states


def names(request: Any) -> list[str]:
    return [protocol.name for protocol in request.protocols]


def parts(change: Callable[[Any, Any, Any], Any]) -> Change:
    """`change(request, topic, partition)` over every partition of an OffsetCommit response."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(
            topics=tuple(
                topic._replace(partitions=tuple(change(call.request, topic, entry) for entry in topic.partitions))
                for topic in response.topics
            )
        )

    return over


def part_code(found: str, wrong: str, where: Callable[[Any], bool] = lambda request: True) -> Change:
    return parts(
        lambda request, topic, entry: (
            entry._replace(error_code=ErrorCode[wrong])
            if entry.error_code == ErrorCode[found] and where(request)
            else entry
        )
    )


def positions(change: Callable[[Any, Any], Any]) -> Change:
    """`change(request, partition)` over every partition of an OffsetFetch response of version 8 or later."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(
            groups=tuple(
                group._replace(
                    topics=tuple(
                        topic._replace(partitions=tuple(change(call.request, entry) for entry in topic.partitions))
                        for topic in group.topics
                    )
                )
                for group in response.groups
            )
        )

    return over


def members(change: Callable[[Any, Any], Any]) -> Change:
    """`change(request, member)` over every member of a LeaveGroup response."""

    def over(call: Call, response: Any) -> Any:
        return response._replace(members=tuple(change(call.request, entry) for entry in response.members))

    return over


def left(found: str, wrong: str, where: Callable[[Any], bool] = lambda entry: True) -> Change:
    return members(
        lambda request, entry: (
            entry._replace(error_code=ErrorCode[wrong])
            if entry.error_code == ErrorCode[found] and where(entry)
            else entry
        )
    )


def offset_of(request: Any) -> int:
    return int(request.topics[0].partitions[0].committed_offset) if request.topics else -1


def is_leader(call: Call, broker: FakeBroker) -> bool:
    group = broker._cluster.groups.classic.groups.get(requested(call).group_id)
    return group is not None and group.leader == requested(call).member_id


def is_follower(call: Call, broker: FakeBroker) -> bool:
    group = broker._cluster.groups.classic.groups.get(requested(call).group_id)
    return group is not None and requested(call).member_id in group.members and not is_leader(call, broker)


def alone(call: Call, broker: FakeBroker) -> bool:
    group = broker._cluster.groups.classic.groups.get(requested(call).group_id)
    return group is not None and len(group.members) == 1 and not group.pending


def commit_response(where: Callable[[Any], bool]) -> Callable[[FakeBroker], None]:
    """NONE for every partition, and nothing stored."""

    def respond(call: Call) -> OffsetCommitResponse:
        request: Any = call.request
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        OffsetCommitResponsePartition(partition_index=entry.partition_index)
                        for entry in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    return responded("OffsetCommit", respond, lambda call, broker: where(call.request))


JOINED = lambda request, response: response.error_code == 0  # noqa: E731
