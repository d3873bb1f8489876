"""Checks the offsets that a hook returned, before anything is done with them."""

from collections.abc import Mapping

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.hooks import Assigned, HookCall, Revoked
from kohort.coordinator_client.subscription_state import Start
from kohort.network.errors import IllegalState
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import plain


class Meaning(NamedTuple):
    """The offsets to commit for revoked partitions, the starts of assigned ones, and the value's error."""

    commit: dict[TopicPartition, OffsetAndMetadata]
    start: dict[TopicPartition, Start]
    wrong: BaseException | None = None


def meaning(call: HookCall, result: object, unsaved: Mapping[TopicPartition, OffsetAndMetadata]) -> Meaning:
    """The meaning of a returned value.

    None: the offsets of revoked partitions that auto-commit has not saved, and nothing besides.
    """
    event = call.event
    commit = {one: to for one, to in unsaved.items() if isinstance(event, Revoked) and one in event.partitions}
    if result is None:
        return Meaning(commit, {})
    try:
        given = _checked(call, result)
    except (TypeError, ValueError, KohortError) as problem:
        return Meaning(commit, {}, problem)
    if isinstance(event, Revoked):
        return Meaning(commit | given, {})
    if not isinstance(event, Assigned):
        return Meaning(commit, {})
    return Meaning(commit, {one: Start(to.offset, to.leader_epoch) for one, to in given.items()})


def _checked(call: HookCall, result: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition. Raises TypeError and ValueError for invalid ones, IllegalState for a foreign
    partition."""
    if hasattr(result, "__await__"):
        raise TypeError(f"only AsyncConsumer awaits the result of a hook, which is {result!r}")
    if not isinstance(result, Mapping):
        raise TypeError(f"a hook must return None or offsets by partition, not {result!r}")
    given = plain(result)
    allowed = call.before if isinstance(call.event, Revoked) else call.after
    for partition in given:
        if partition not in allowed:
            raise IllegalState(
                "the hook returned an offset of a partition that is not owned",
                topic=partition.topic,
                partition=partition.partition,
            )
    return given
