"""Runs an assignor and checks its plan; an error names the assignor and can be replayed.

An invalid plan would fail later and elsewhere: two members write the same rows, or a partition is never read. So every
plan is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.assignors.base import Assignor, Rebalance
from kohort.assignors.errors import AssignorError, PlanError
from kohort.assignors.group import GroupView
from kohort.assignors.plan import NO_MEMBER, Plan
from kohort.assignors.registry import get
from kohort.common.foreign_text import exception_text, parsed_json

if TYPE_CHECKING:
    from pathlib import Path


def make_plan(assignor: Assignor, group: GroupView, *, replay_dir: Path | None = None) -> Plan:
    """The assignor's plan for the group, checked.

    Raises `PlanError` in these cases: the assignor raised (then it is the cause), or it returned an object that is not
    a plan. A partition is assigned twice, or to no member, or to a member that does not subscribe to its topic. A
    COOPERATIVE assignor assigns a partition that another member still owns.

    `replay` in the error's place is a file with the group in `replay_dir` (default: the system's temporary folder).
    `replay(path)` runs the assignor on it again.
    """
    try:
        made = assignor.assign(group)
        plan = made if isinstance(made, Plan) and made.group is group else Plan.of(group, made)
        check(plan, assignor.rebalance)
    except Exception as error:  # a user's code may raise anything
        message = error.message if isinstance(error, PlanError) else f"it raised {exception_text(error)}"
        place = dict(error.place) if isinstance(error, PlanError) else {}
        saved = _save(assignor.name, group, message, replay_dir)
        raise PlanError(
            f"the plan of assignor {assignor.name!r} is refused: {message}",
            hint=f"kohort.assignors.replay({str(saved)!r}) runs it on the same group again" if saved else None,
            assignor=assignor.name,
            **place,
            replay=saved,
        ) from error
    return plan


def check(plan: Plan, rebalance: Rebalance) -> None:
    """Check a plan.

    Raises `PlanError` for the first partition that is missing, assigned to a member not subscribed to it, or assigned
    while another member still owns it.
    """
    group = plan.group
    held = _FrozenView(group) if rebalance is Rebalance.COOPERATIVE else None
    for topic, takers in enumerate(group.subscribers):
        start, stop = group.topic_offsets[topic], group.topic_offsets[topic + 1]
        allowed = set(takers)
        strangers = set(plan.owners[start:stop]) - allowed
        if strangers - {NO_MEMBER}:
            index = next(i for i in range(start, stop) if plan.owners[i] in strangers - {NO_MEMBER})
            member = group.members[plan.owners[index]].id
            raise _refused("a partition for a member that does not subscribe to it", group, index, member)
        if strangers:
            index = next(
                (i for i in range(start, stop) if plan.owners[i] == NO_MEMBER and not (held and i in held.claimed)), -1
            )
            if index >= 0:
                raise _refused("a partition without an owner", group, index)
    if held is not None:
        allowed_now = held.claims.withhold(plan.owners, held.previous)
        if allowed_now != plan.owners:
            index = next(i for i in range(group.size) if allowed_now[i] != plan.owners[i])
            member = group.members[plan.owners[index]].id
            raise _refused("a partition given away while another member holds it", group, index, member)


def replay(path: str | Path, assignor: Assignor | None = None) -> Plan:
    """Run an assignor on the group in a replay file.

    Without `assignor`, the one named in the file runs. Raises as `make_plan`.
    """
    from pathlib import Path

    from kohort.assignors.group_file import from_json

    document = parsed_json(Path(path).read_bytes())
    if assignor is None:
        name = document.get("assignor") if isinstance(document, dict) else None
        if not isinstance(name, str):
            raise AssignorError("the file names no assignor", file=path, hint="pass one")
        assignor = get(name)
    return make_plan(assignor, from_json(document), replay_dir=Path(path).parent)


MOST_REPLAYS = 8
"""Number of files kept in the temporary folder; their size depends on the members of the group."""


class _FrozenView:
    """The partitions that members own while they join."""

    def __init__(self, group: GroupView) -> None:
        from kohort.assignors.integer_group import claims_of  # not needed for eager assignors

        self.claims = claims_of(group)
        self.previous = self.claims.settle(group)
        self.claimed = set(self.claims.indexes)


def _refused(message: str, group: GroupView, index: int, member: str | None = None) -> PlanError:
    topic, partition = group.partition(index)
    return PlanError(message, topic=topic, partition=partition, member=member)


def _save(assignor: str, group: GroupView, error: str, folder: Path | None) -> Path | None:
    # Imported only for an invalid plan, because the imports take as long as half a group's join.
    import getpass
    import json
    import os
    import tempfile
    from contextlib import suppress
    from hashlib import sha256
    from pathlib import Path

    from kohort.assignors.group_file import to_json
    from kohort.common.private_files import UnsafeFolder, create, private_folder

    document = {**to_json(group), "assignor": assignor, "error": error}
    text = json.dumps(document, indent=1)
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in assignor)
    name = f"kohort-replay-{safe[:40]}-{sha256(text.encode()).hexdigest()[:12]}.json"
    try:
        if folder is None:
            user = os.geteuid() if hasattr(os, "geteuid") else getpass.getuser()
            where = private_folder(Path(tempfile.gettempdir()) / f"kohort-replays-{user}", hint="remove it")
            kept = sorted(where.glob("kohort-replay-*.json"), key=lambda path: path.stat().st_mtime_ns)
            for old in kept[: -MOST_REPLAYS + 1]:
                old.unlink(missing_ok=True)
        else:
            where = folder
            where.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # the name contains a hash of the content
            create(where / name, text.encode())
    except (OSError, UnsafeFolder):
        return None  # the PlanError is raised also without a replay file
    return where / name
