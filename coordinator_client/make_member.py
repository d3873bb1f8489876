"""Which of the two machines a consumer is a member with."""

from collections.abc import Callable

from kohort.assignors import Assignor
from kohort.coordinator_client.consumer_config import Config
from kohort.coordinator_client.group.classic_member import GroupMember
from kohort.coordinator_client.group.member_base import Machine


def make_member(config: Config, assignors: tuple[Assignor, ...], chance: Callable[[], float]) -> Machine:
    """The member for `config.protocol`. `chance` gives numbers in [0, 1): for a jitter, and for the id that a member of
    a KIP-848 group makes up itself (KIP-1082)."""
    if config.protocol == "classic":
        return GroupMember(config.for_member(chance()), assignors)
    # Imported when it is wanted: most consumers are members of classic groups, and start sooner without it.
    from kohort.coordinator_client.group.consumer_member import ConsumerGroupMember

    unique = "".join(f"{int(chance() * 2**32):08x}" for _ in range(4))
    return ConsumerGroupMember(config.for_member(chance(), f"{config.client_id}-{unique}"))
