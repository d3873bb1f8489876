"""What a hook answered, as offsets: checked before anything is done with it."""

from collections.abc import Mapping

from kohort.coordinator_client.commits import plain
from kohort.coordinator_client.errors import IllegalState
from kohort.coordinator_client.events import OffsetToCommit
from kohort.coordinator_client.hooks import HookCall, Revoked
from kohort.fastpath import TopicPartition


def answered(call: HookCall, answer: object) -> dict[TopicPartition, OffsetToCommit]:
    """Offsets by partition. Raises TypeError and ValueError for what is none, IllegalState for a foreign partition."""
    if not isinstance(answer, Mapping):
        raise TypeError(f"a hook answers None or offsets by partition, not {answer!r}")
    given = plain(answer.items())
    allowed = call.before if isinstance(call.event, Revoked) else call.after
    for partition in given:
        if partition not in allowed:
            raise IllegalState(
                "the hook answered for a partition that is not owned",
                topic=partition.topic,
                partition=partition.partition,
            )
    return given
