"""The group's part: three members of a region read, one is killed in the middle, a fourth joins, the killed one comes
back under its name, and all is in a checkpoint and committed."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kohort.cli.demo.ledger import Ledger, check_tiling, now_ms
from kohort.cli.demo.outcome import DemoSample, SparkReading
from kohort.cli.demo.region_view import DemoRegionView
from kohort.cli.demo.screen import Screen
from kohort.cli.demo.watch import MemberWatch, View
from kohort.common import KohortError

FIRST, VICTIM, FOURTH = ("ada", "ben", "cleo"), "ben", "dora"
LOOK_EVERY_S = 0.1
FOURTH_AFTER_S = 0.5
BACK_AFTER_S = 2.0
STALL_TIMEOUT_S = 60.0


class GroupStalled(KohortError):
    """The group made no progress for STALL_TIMEOUT_S although it is not done: `lag` records, `unowned` partitions."""


class Members(Protocol):
    """The part of a Crew that the act needs."""

    def start(self, name: str) -> None: ...
    def kill(self, name: str) -> int: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...


def play(
    crew: Members,
    ledger: Ledger,
    ends: Mapping[int, int],
    committed: Callable[[], Mapping[int, int]],
    saved: Callable[[], Mapping[int, int]],
    *,
    kill_at: float,
    screen: Screen,
) -> Sequence[DemoSample]:
    """Play it to the end; returns what was seen on the way.

    The end is when the region's newest checkpoint (`saved` says where it is) and the group's committed offsets are
    `ends`, and living members own every partition: only then has all that was undone been counted again.
    Raises MemberFailed or GroupStalled.
    """
    watch = MemberWatch(ledger, ends, saved)
    for name in FIRST:
        crew.start(name)
    screen.say(f"{', '.join(FIRST)} form a group")
    killed_at = None
    fourth = back = False
    patience = _Patience()
    while True:
        crew.check()
        view = watch.look(now_ms())
        screen.group(view)
        now = time.monotonic()
        if killed_at is None:
            if _is_time_to_kill(view, kill_at):
                pid = crew.kill(VICTIM)
                killed_at = now
                screen.say(f"{VICTIM} (process {pid}) was killed with SIGKILL at {view.read:,} records")
        elif not fourth and now - killed_at >= FOURTH_AFTER_S:
            crew.start(FOURTH)
            fourth = True
            screen.say(f"{FOURTH} joins")
        elif not back and now - killed_at >= BACK_AFTER_S:
            crew.start(VICTIM)
            back = True
            screen.say(f"{VICTIM} is started again: what it had counted is in the region's checkpoints under its name")
        elif back and view.unsaved == 0 and _settled(view) and dict(committed()) == dict(ends):
            break
        patience.hold(view, now)
        time.sleep(LOOK_EVERY_S)
    crew.stop()
    screen.group(watch.look(now_ms()))
    return watch.samples


def _is_time_to_kill(view: View, kill_at: float) -> bool:
    victim = next((member for member in view.members if member.name == VICTIM), None)
    if victim is None or not victim.partitions or view.read < kill_at * view.total:
        return False
    # Better once it has read something; of few records the first member may have read all before it came.
    return victim.records > 0 or view.behind == 0


def _settled(view: View) -> bool:
    came = {member.name for member in view.members if member.state == "reading" or member.generation >= 0}
    return not view.unowned and {FOURTH, VICTIM} <= came


class _Patience:
    """Ends when nothing has changed for too long."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = time.monotonic()

    def hold(self, view: View, now: float) -> None:
        seen = (view.read, view.reread, view.unsaved, [(member.state, member.generation) for member in view.members])
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since > STALL_TIMEOUT_S:
            raise GroupStalled(
                f"nothing has moved for {STALL_TIMEOUT_S:g} s",
                lag=view.behind,
                unsaved=view.unsaved,
                unowned=sorted(view.unowned),
                members=[f"{m.name} {m.state}" for m in view.members],
            )


def group_reading(ledger: Ledger, region: DemoRegionView) -> tuple[SparkReading, int]:
    """Return the group's totals, from the newest checkpoint, and the number of records that its ledger has twice.

    Raises LedgerBroken if that does not tile.
    """
    slices, happenings = ledger.slices(), ledger.happenings()
    check_tiling(slices)
    _, reread = ledger.records()
    totals = region.totals()
    started = min((one.at_ms for one in happenings if one.kind == "started"), default=0)
    assigned = min((one.at_ms for one in happenings if one.kind == "assigned"), default=started)
    last = max((one.at_ms for one in slices), default=assigned)
    counted = sum(one.events for one in totals.values())
    return SparkReading("group", counted, (last - assigned) / 1000, (assigned - started) / 1000, totals), reread
