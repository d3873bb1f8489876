"""`kohort region`: shows and changes the state that a region's coordinator stores."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.terminal import say
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import NotRegisteredError
from kohort.consistent_region.manifest import Manifest
from kohort.consistent_region.open_store import open_store
from kohort.consistent_region.region_record import decode_record
from kohort.consistent_region.store import Key, Store

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Show and change consistent regions and their checkpoints."
)

Url = Annotated[str, typer.Argument(help='The coordinator of the members: "sqlite:///PATH" or "postgresql://...".')]
Group = Annotated[str | None, typer.Option(help="The group, if the coordinator has several regions.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
SQLITE = "sqlite:///"
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not prompt.")]


@app.command()
def status(coordinator: Url, group: Group = None, as_json: AsJson = False) -> None:
    """Show the epoch, the members, the tasks, the newest checkpoint, and the one in progress.

    Example: kohort region status sqlite:////var/lib/billing/region.db --group billing
    """
    with _opened(coordinator, group) as region:
        record, view = region.watch()
        now = region.store.clock()
        manifest = None if record.newest is None else region.manifest(record.newest)
    members = {
        name: {
            "incarnation": one.incarnation,
            "present": one.here(now, region.lease_s),
            "in_epoch": one.epoch == record.epoch,
            "generation": one.generation,
            "partitions": one.owned,
            "state_version": one.version,
        }
        for name, one in sorted(record.members.items())
    }
    cuts = {one.task: one for one in manifest.tasks} if manifest else {}
    tasks = {
        str(task): {
            "owner": record.held.get(task),
            "handed_over_by": record.handed[task].member if task in record.handed else None,
            "leaving": task in record.leaving,
            "state_bytes": cuts[task].size_bytes if task in cuts else 0,
            "state_version": cuts[task].version if task in cuts else None,
        }
        for task in sorted(record.held.keys() | record.handed.keys() | cuts.keys())
    }
    found: dict[str, Any] = {
        "region": record.region,
        "group": record.group,
        "epoch": record.epoch,
        "newest_checkpoint": record.newest,
        "checkpoint_under_way": record.barrier.sequence if record.barrier else None,
        "contributed": sorted(record.contributed),
        "last_checkpoint_age_s": round(view.age_s, 1),
        "partitions": len(record.initial),
        "stopped": record.stopped,
        "lineage": record.past.lineage,
        "members": members,
        "tasks": tasks,
    }
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name not in ("members", "tasks"):
            say(f"{name.replace('_', ' '):30}{'-' if value in (None, []) else value}")
    for name, one in members.items():
        where = "in this epoch" if one["in_epoch"] and one["present"] else "not present"
        say(f"  {name:30}{where:15}generation {one['generation']:<6}{counted(one['partitions'], 'partition')}")
    for name, held in tasks.items():
        owner = held["owner"] or "no owner"
        say(f"  task {name:25}{owner:30}{held['state_bytes']:>13} bytes at the newest checkpoint")


@app.command()
def checkpoints(coordinator: Url, group: Group = None, as_json: AsJson = False) -> None:
    """List the checkpoints, oldest first.

    Example: kohort region checkpoints sqlite:////var/lib/billing/region.db
    """
    with _opened(coordinator, group) as region:
        rows = [_summary(manifest) for manifest in region.manifests()]
    if as_json:
        print(json.dumps({"checkpoints": rows}))
        return
    say(f"{'sequence':>10}{'epoch':>8}{'generation':>12}{'tasks':>9}{'partitions':>12}{'state bytes':>13}")
    for row in rows:
        say(
            f"{row['sequence']:>10}{row['epoch']:>8}{row['generation']:>12}{row['tasks']:>9}"
            f"{row['partitions']:>12}{row['state_bytes']:>13}"
        )


@app.command()
def inspect(
    coordinator: Url,
    sequence: Annotated[int, typer.Argument(min=1, help="The checkpoint's number.")],
    group: Group = None,
    as_json: AsJson = False,
) -> None:
    """Show the tasks of a checkpoint, and verify their states.

    Example: kohort region inspect sqlite:////var/lib/billing/region.db 17
    """
    with _opened(coordinator, group) as region:
        manifest = region.whole(sequence)
    tasks: list[dict[str, Any]] = [
        {
            "task": str(cut.task),
            "by": cut.member,
            "offsets": {f"{one.topic}-{one.partition}": to.offset for one, to in sorted(cut.offsets.items())},
            "state_sha256": cut.state.digest,
            "state_bytes": cut.state.length_bytes,
            "state_version": cut.version,
        }
        for cut in manifest.tasks
    ]
    if as_json:
        print(json.dumps(_summary(manifest) | {"tasks": tasks}))
        return
    say(f"checkpoint {manifest.sequence} of region {manifest.region}, group {manifest.group}")
    say(f"epoch {manifest.epoch}, group generation {manifest.generation}; all states are unchanged")
    for one in tasks:
        say(f"  task {one['task']}, by {one['by']}: {one['state_bytes']} bytes, sha256 {one['state_sha256']}")
        for partition, offset in one["offsets"].items():
            say(f"    {partition:40}{offset:>16}")


@app.command()
def reset(
    coordinator: Url,
    to: Annotated[int, typer.Option(min=0, help="The checkpoint's number; 0 is the initial state.")],
    group: Group = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Reset all members to a checkpoint, and delete the later ones. A stopped region runs again.

    Running members follow at once. Later commits of sinks stay, and their effects come again.

    Example: kohort region reset sqlite:////var/lib/billing/region.db --to 17
    """
    with _opened(coordinator, group) as region:
        where = f"checkpoint {to}" if to else "the initial state"
        later = [one for one in region.checkpoints() if one > to]
        _confirm(yes or as_json, f"Reset region {region.region} to {where} ({_named(later)} deleted)?")
        forgotten = region.rewind(to)
        epoch = region.look().epoch
    if as_json:
        print(json.dumps({"region": region.region, "to": to, "epoch": epoch, "forgotten": list(forgotten)}))
    else:
        say(f"region {region.region} is reset to {where}: epoch {epoch}, {_named(forgotten)} deleted")


@app.command()
def begin(
    coordinator: Url,
    anew: Annotated[bool, typer.Option("--anew", help="Accept the store although it is not the one of before.")],
    group: Group = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept a store that was lost, or replaced by an older copy.

    Members then start from its newest checkpoint, or from `start_position` if it has none. Records since that
    checkpoint, or those before that position, are missing or count again. Effects of sinks up to that checkpoint do not
    come again, but those of later records do. All members must be stopped.

    Example: kohort region begin sqlite:////var/lib/billing/region.db --anew
    """
    if not anew:
        raise KohortError(
            "a region begins by itself", hint="accept another store with `kohort region begin URL --anew`"
        )
    with _opened(coordinator, group) as region:
        newest = next(reversed(region.checkpoints()), 0)
        where = f"checkpoint {newest}" if newest else "no checkpoint"
        _confirm(yes or as_json, f"Accept this store of region {region.region}, with {where}?")
        lineage = region.accept_store()
    if as_json:
        print(json.dumps({"region": region.region, "lineage": lineage, "newest": newest}))
    else:
        say(f"region {region.region} has this store accepted, with {where}: lineage {lineage}")


@app.command()
def forget(
    coordinator: Url,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to drop.")],
    group: Group = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop topics that were deleted, created again, or are no longer subscribed to.

    All members must be stopped. The effect of the topics' records on the state stays. A topic that is read again is
    new to the region, so its remaining records count once more. A task that is not read again is dropped with its state
    at the next checkpoint.

    Example: kohort region forget sqlite:////var/lib/billing/region.db old-bills
    """
    with _opened(coordinator, group) as region:
        named = ", ".join(topics)
        _confirm(yes or as_json, f"Drop the positions of region {region.region} in {named}?")
        gone = region.forget(topics)
        left = len(region.initial())
    if as_json:
        partitions = [f"{one.topic}-{one.partition}" for one in gone]
        print(json.dumps({"region": region.region, "forgotten": partitions, "left": left}))
    else:
        say(f"region {region.region}: dropped partitions: {len(gone)}, left: {left}")


@app.command()
def retire(
    coordinator: Url,
    up_to: Annotated[
        int | None, typer.Option(min=1, help="The last checkpoint to delete; by default all but the newest.")
    ] = None,
    group: Group = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old checkpoints and their states. The newest always stays. While members run, a later checkpoint deletes
    the states.

    Example: kohort region retire sqlite:////var/lib/billing/region.db --up-to 12
    """
    with _opened(coordinator, group) as region:
        there = region.checkpoints()
        last = up_to if up_to is not None else max(there, default=0)
        going = [one for one in there[:-1] if one <= last]
        _confirm(yes or as_json, f"Retire checkpoints of region {region.region} ({_named(going)} deleted)?")
        gone = region.retire(last)
        left = region.checkpoints()
    if as_json:
        print(json.dumps({"region": region.region, "retired": list(gone), "left": list(left)}))
    else:
        say(f"region {region.region}: {_named(gone)} deleted, {', '.join(map(str, left)) or 'none'} left")


def _named(sequences: Sequence[int]) -> str:
    if not sequences:
        return "no checkpoint is"
    plural, are = ("s", "are") if len(sequences) > 1 else ("", "is")
    return f"checkpoint{plural} {', '.join(map(str, sequences))} {are}"


def _confirm(confirmed: bool, prompt: str) -> None:
    if not confirmed:
        typer.confirm(prompt, abort=True)


@contextmanager
def _opened(coordinator: str, group: str | None) -> Iterator[RegionCoordinator]:
    path = coordinator.removeprefix(SQLITE)
    if path and path != coordinator and not Path(path).exists():
        raise KohortError("no such coordinator", hint="name the coordinator that the members use", path=path)
    store = open_store(coordinator, create=False)
    try:
        yield _region(store, group)
    finally:
        store.close()


def _region(store: Store, group: str | None) -> RegionCoordinator:
    with store.read() as books:
        groups = books.groups()
        wanted = group or (groups[0] if len(groups) == 1 else None)
        data = books.get(Key("region", wanted)) if wanted else None
    if wanted is None or data is None:
        raise NotRegisteredError(
            "no such region" if group else "no group is named",
            hint=f"--group with one of: {', '.join(groups)}" if groups else "the coordinator has no region",
        )
    return RegionCoordinator(store, decode_record(data).region, wanted)


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "sequence": manifest.sequence,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "members": list(manifest.members),
        "tasks": len(manifest.tasks),
        "partitions": len(manifest.offsets),
        "state_bytes": sum(cut.state.length_bytes for cut in manifest.tasks),
    }
