"""Who is in the group besides the region's members (CR-87): a stranger reads partitions whose records the region lacks.

A member of a region tells the broker who it is by its client id; whoever has another, or the id of a name that never
registered, is a stranger. No checkpoint completes while one has partitions; so that nobody waits for that in vain, each
member looks after every assignment, and ends with an error that names the stranger.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from kohort.consistent_region.errors import StrangerError
from kohort.fastpath.errors import KohortError

LOOK_AFTER_S = 1.0
LOOK_AGAIN_S = 5.0
LOOK_TIMEOUT_S = 2.0


class Mate(Protocol):
    """What `kohort.Consumer.group_members` tells of one."""

    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def host(self) -> str: ...


def client_id(given: str, region: str, member: str) -> str:
    """What a region's member calls itself to brokers; `given` is what the user would."""
    return f"{given}/{region}/{member}"


def strangers(mates: Iterable[Mate], region: str, members: Collection[str]) -> list[Mate]:
    """Those of the group who are no members of the region."""
    known = tuple(client_id("", region, name) for name in members)
    return [one for one in mates if not one.client_id.endswith(known)]


class Company:
    """Looks who is there, a little after each assignment; raises StrangerError.

    `mates`: `Consumer.group_members`. `members`: of the coordinator; asked second, since nobody joins the group before
    it has registered.
    """

    def __init__(
        self, region: str, group: str, mates: Callable[[float], Iterable[Mate]], members: Callable[[], Collection[str]]
    ) -> None:
        self._region = region
        self._group = group
        self._mates = mates
        self._members = members
        self._due_at: float | None = None

    def assigned(self, now: float) -> None:
        """Partitions came: somebody may have come too."""
        self._due_at = now + LOOK_AFTER_S

    def look(self, now: float) -> str | None:
        """Look if it is due. Returns why it could not, None if it could or was not due."""
        if self._due_at is None or now < self._due_at:
            return None
        self._due_at = None
        try:
            found = strangers(tuple(self._mates(LOOK_TIMEOUT_S)), self._region, self._members())
        except KohortError as error:
            self._due_at = now + LOOK_AGAIN_S
            return str(error)
        if found:
            raise StrangerError(
                "a consumer that is no member of the region is in its group",
                hint="stop it, or give it a group of its own",
                group=self._group,
                region=self._region,
                strangers=", ".join(f"{one.client_id} at {one.host} ({one.member_id})" for one in found),
            )
        return None
