"""The context of one run of one check: fresh names, own connections, requests and comparisons."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from kohort.conformance.broker_client import Access, BrokerClient
from kohort.conformance.broker_under_test import RESPONSE_TIMEOUT_S, BrokerUnderTest, Topic
from kohort.conformance.errors import Blocked, Failed, NotApplicable
from kohort.conformance.frame_log import Frame
from kohort.conformance.member import CheckMember
from kohort.conformance.retry_timing import STEPS_S, Expected
from kohort.protocol.errors import ErrorCode, error_name

PARKED_FOR_S = 0.3  # a delayed response has not arrived after this time; another one takes a few ms
STATE_TIMEOUT_S = 6.0
# A set-up continues without REBALANCE_IN_PROGRESS after this time. The newcomer's JoinGroup is parked, and must
# not time out (`patience_s`) before the others have rejoined.
SET_UP_SIGNAL_S = 2.0
_ANYWHERE = frozenset({"ApiVersions", "FindCoordinator", "Metadata", "CreateTopics", "InitProducerId"})
T = TypeVar("T")


class CheckTraits(Protocol):
    """The parts of a `Check` that its runs use."""

    @property
    def id(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def is_timed(self) -> bool: ...


class CheckContext:
    """The context of one run of one check. `version` is the subject's, `group` is unique to it.

    `stretch`: multiplies the short time-outs of its members.
    """

    def __init__(
        self, target: BrokerUnderTest, check: CheckTraits, version: int, serial: int, stretch: int = 1
    ) -> None:
        self.target = target
        self.check = check
        self.version = version
        self.stretch = stretch
        self.has_short_timeouts = False
        self.frames: list[Frame] = []
        self._prefix = f"{target.prefix}-{check.id.lower()}-v{version}-{serial}"
        self._names = itertools.count(1)
        self._started = time.monotonic()
        self._connections = itertools.count(1)
        self._idle: dict[tuple[int | None, Access | None], list[BrokerClient]] = {}
        self._peers: list[BrokerClient] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._coordinators: dict[str, int | None] = {}
        self.group = self.new_group()

    # -- names ----------------------------------------------------------------------------------------------------

    def name(self) -> str:
        """Return a fresh name with this run's prefix."""
        return f"{self._prefix}-{next(self._names)}"

    def new_group(self) -> str:
        """Return a fresh group id. The group is deleted after the run if it exists."""
        group = self.name()
        self.target.made_groups[group] = None
        return group

    @property
    def patience_s(self) -> float:
        """The time-out (s) of a response that depends on other members. It covers the usual delay of a first join."""
        return 30.0 if self.check.is_timed else 8.0 + self.target.first_join_s

    def stretched(self, timeout_ms: int) -> int:
        """Return a short time-out (ms) of a member, longer if the check is repeated because requests took long."""
        self.has_short_timeouts = True
        return timeout_ms * self.stretch

    def session_within(self, session_ms: int) -> int:
        """Return the session timeout (ms) that the broker allows nearest to `stretched(session_ms)`."""
        return self.target.session_within(self.stretched(session_ms))

    @property
    def longest_silence_ms(self) -> int:
        """The longest time (ms) between two frames of this check."""
        return max((later.at_ms - frame.at_ms for frame, later in itertools.pairwise(self.frames)), default=0)

    @property
    def topic(self) -> Topic:
        """The run's topic of four partitions."""
        return self.target.topics[0]

    @property
    def other_topic(self) -> Topic:
        """The run's topic of two partitions."""
        return self.target.topics[1]

    # -- requests -------------------------------------------------------------------------------------------------

    def version_of(self, api: str) -> int:
        """Return the version used for `api`. Raises NotApplicable if there is none in common."""
        version = self.version if api == self.check.subject else self.target.version(api)
        if version < 0:
            raise NotApplicable(f"the broker does not support {api}")
        return version

    async def send(
        self,
        api: str,
        values: Mapping[str, object] | None = None,
        *,
        version: int | None = None,
        node: int | None = None,
        access: Access | None = None,
        timeout_s: float = RESPONSE_TIMEOUT_S,
        **fields: object,
    ) -> Any:
        """Send one request to the coordinator of the group that it names, and return the decoded response.

        Fields of later versions than the one sent must not be given. Raises PeerClosed, MissingResponse, WireError.
        """
        body = {**(values or {}), **fields}
        peer = await self.connection(node if node is not None else await self._home(api, body), access)
        try:
            return await peer.send(api, self.version_of(api) if version is None else version, body, timeout_s)
        finally:
            if peer.usable:
                self._idle.setdefault(peer.place, []).append(peer)

    async def connection(
        self, node: int | None = None, access: Access | None = None, fresh: bool = False
    ) -> BrokerClient:
        """Return a connection without a request in flight."""
        idle = self._idle.get((node, access), [])
        while idle and not fresh:
            peer = idle.pop()
            if peer.usable:
                return peer
        number = next(self._connections)

        def record(sent: bool, api: str, version: int, body: object) -> None:
            self.frames.append(Frame(int((time.monotonic() - self._started) * 1000), number, sent, api, version, body))

        peer = await self.target.connect(node, access, record)
        peer.place = (node, access)
        self._peers.append(peer)
        return peer

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task beside the check, usually a request whose response the broker delays."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def coordinator(self, group: str) -> int | None:
        if group not in self._coordinators:
            self._coordinators[group] = await self.target.coordinator(group)
        return self._coordinators[group]

    def moved(self, group: str, node: int | None) -> None:
        """Set the new coordinator of the group."""
        self._coordinators[group] = node

    async def _home(self, api: str, body: Mapping[str, object]) -> int | None:
        if api in _ANYWHERE:
            return None
        groups = body.get("groups") or body.get("groups_names") or body.get("group_ids")
        group = body.get("group_id") or (groups[0] if isinstance(groups, Sequence) and groups else self.group)
        if isinstance(group, Mapping):
            group = group["group_id"]
        return await self.coordinator(str(group))

    # -- set-up ---------------------------------------------------------------------------------------------------

    def member(self, **how: Any) -> CheckMember:
        """Return a member of this context's group that has not joined yet. Takes the fields of `CheckMember`."""
        return CheckMember(self, **({"group": self.group} | how))

    async def stable(self, count: int = 2, *, sync: bool = True, **how: Any) -> list[CheckMember]:
        """Return a group of `count` members in one generation, the leader first.

        It is Stable, or with `sync=False` waiting for the leader's assignment. Raises Blocked.
        """
        members = [self.member(**how)]
        await members[0].enter()
        for _ in range(count - 1):
            members.append(await self.add(members, **how))
        if sync:
            await self.sync(members)
        return members

    async def add(self, members: Sequence[CheckMember], **how: Any) -> CheckMember:
        """Add one member, and complete a new generation with all the others. Raises Blocked."""
        newcomer = self.member(**({"group": members[0].group} | how))
        entering = self.start(newcomer.enter())
        # The rebalance is under way in any case. Check D2a judges whether Heartbeat reports it.
        await self._sees(members[0], SET_UP_SIGNAL_S)
        await asyncio.gather(entering, *(member.enter() for member in members))
        return newcomer

    async def sync(self, members: Sequence[CheckMember]) -> None:
        """Assign each member `b"for "` and its index in the list. Raises Blocked."""
        shares = {member.id: f"for {index}".encode() for index, member in enumerate(members)}
        leader = next((member for member in members if member.id == member.leader), members[0])
        await asyncio.gather(*(member.settle(shares if member is leader else None) for member in members))

    async def rebalancing(self, member: CheckMember) -> None:
        """Wait until a member gets REBALANCE_IN_PROGRESS. Raises Blocked."""
        if not await self._sees(member):
            raise Blocked(f"no Heartbeat response to {member.id} has REBALANCE_IN_PROGRESS, which this check waits for")

    async def sees_rebalance(self, member: CheckMember, name: str) -> None:
        """Check that a member gets REBALANCE_IN_PROGRESS, possibly after a delay. Raises Failed."""
        expected = f"REBALANCE_IN_PROGRESS within {STATE_TIMEOUT_S:g} s"
        if not await self._sees(member):
            raise Failed(f"Heartbeat of {name}", expected, error_name((await member.heartbeat()).error_code))

    async def _sees(self, member: CheckMember, timeout_s: float = STATE_TIMEOUT_S) -> bool:
        async def reported() -> bool:
            return bool((await member.heartbeat()).error_code == ErrorCode.REBALANCE_IN_PROGRESS)

        return await self.until(reported, timeout_s, signal="Heartbeat")

    async def until(
        self, holds: Callable[[], Awaitable[bool]], timeout_s: float = STATE_TIMEOUT_S, *, signal: str = ""
    ) -> bool:
        """Poll until the condition holds. Returns False if it did not within `timeout_s`.

        `signal`: the API whose response shows it. After repeated time-outs for it the run waits only briefly.
        """
        expected = self.target.expected[signal, self.version_of(signal)] if signal else Expected()
        started = time.monotonic()
        steps = itertools.chain(STEPS_S, itertools.repeat(STEPS_S[-1]))
        while not await holds():
            if time.monotonic() - started > expected.patience_s(timeout_s):
                expected.missed += 1
                return False
            await asyncio.sleep(next(steps))
        expected.came += 1
        return True

    # -- verdicts -------------------------------------------------------------------------------------------------

    def error(self, code: int, expected: str, what: str) -> None:
        """Check that the code has this name. "A or B" accepts either."""
        if error_name(code) not in expected.split(" or "):
            raise Failed(what, expected, error_name(code))

    async def expect(self, request: Awaitable[Any], expected: str, what: str) -> Any:
        """Return the response to a request, whose error code must have the expected name, as in `error`."""
        response = await request
        self.error(response.error_code, expected, what)
        return response

    def equal(self, what: str, observed: object, expected: object) -> None:
        if observed != expected:
            raise Failed(what, repr(expected), repr(observed))

    def true(self, what: str, holds: bool, expected: object, observed: object) -> None:
        if not holds:
            raise Failed(what, expected, observed)

    async def parked(self, task: asyncio.Task[Any], what: str) -> None:
        """Check that the response has not arrived yet."""
        done, _ = await asyncio.wait({task}, timeout=PARKED_FOR_S)
        if done:
            raise Failed(what, f"no response within {PARKED_FOR_S:g} s", task.exception() or task.result())

    def not_applicable(self, reason: str) -> NoReturn:
        """End the check: it does not apply to this broker."""
        raise NotApplicable(reason)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(peer.close() for peer in self._peers), return_exceptions=True)
