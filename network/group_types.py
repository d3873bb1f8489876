"""Values of a group that other clients need too: a producer (KIP-447) and an admin."""

from typing import Final

from kohort.common.named_tuple import NamedTuple

REASON_CHARACTERS_MAX: Final = 255  # KIP-800: clients cut longer ones


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and what Kafka stores beside it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ConsumerGroupMetadata(NamedTuple):
    """The member's identity in a request, by which commits are fenced. Transactions call it group metadata.

    `generation` is -1 and `member_id` "" while there is no membership.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
