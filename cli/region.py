"""`kohort region status|checkpoints|inspect`: what a region's coordinator has, without disturbing anybody."""

import json
from typing import Annotated, Any

import typer

from kohort.consistent_region.coordinator import Coordinator
from kohort.consistent_region.errors import NotRegisteredError
from kohort.consistent_region.manifest import Manifest
from kohort.consistent_region.record import decode_record
from kohort.consistent_region.store import Key, Store, open_store

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look at consistent regions and their checkpoints.")

Url = Annotated[str, typer.Argument(help='The coordinator, as members name it: "sqlite:///PATH".')]
Group = Annotated[str | None, typer.Option(help="The group, where the coordinator has several regions.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def status(coordinator: Url, group: Group = None, as_json: AsJson = False) -> None:
    """Epoch, members, the newest checkpoint, and what is under way."""
    store = open_store(coordinator)
    record = _region(store, group).record()
    members = {
        name: {
            "incarnation": one.incarnation,
            "in_epoch": one.epoch == record.epoch,
            "generation": one.generation,
            "partitions": one.owned,
        }
        for name, one in sorted(record.members.items())
    }
    found: dict[str, Any] = {
        "region": record.region,
        "group": record.group,
        "epoch": record.epoch,
        "newest_checkpoint": record.newest,
        "checkpoint_under_way": record.barrier.sequence if record.barrier else None,
        "contributed": sorted(one.member for one in record.contributions),
        "partitions": len(record.initial),
        "stopped": record.stopped,
        "members": members,
    }
    store.close()
    if as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name != "members":
            print(f"{name.replace('_', ' '):22}{'-' if value in (None, []) else value}")
    for name, one in members.items():
        where = "in this epoch" if one["in_epoch"] else "not here yet"
        print(f"  {name:20}{where:15}generation {one['generation']:<6}{one['partitions']} partitions")


@app.command()
def checkpoints(coordinator: Url, group: Group = None, as_json: AsJson = False) -> None:
    """The checkpoints that can be gone back to, oldest first."""
    store = open_store(coordinator)
    region = _region(store, group)
    rows = [_summary(region.manifest(sequence)) for sequence in region.checkpoints()]
    store.close()
    if as_json:
        print(json.dumps({"checkpoints": rows}))
        return
    print(f"{'sequence':>10}{'epoch':>8}{'generation':>12}{'members':>9}{'partitions':>12}{'state bytes':>13}")
    for row in rows:
        print(
            f"{row['sequence']:>10}{row['epoch']:>8}{row['generation']:>12}{len(row['members']):>9}"
            f"{row['partitions']:>12}{row['state_bytes']:>13}"
        )


@app.command()
def inspect(
    coordinator: Url,
    sequence: Annotated[int, typer.Argument(min=1, help="Which checkpoint.")],
    group: Group = None,
    as_json: AsJson = False,
) -> None:
    """One checkpoint: what each member contributed, and whether its states are what they were."""
    store = open_store(coordinator)
    region = _region(store, group)
    manifest = region.manifest(sequence)
    for part in manifest.contributions:
        region.state(part.state)  # raises if it is gone or damaged
    store.close()
    parts: list[dict[str, Any]] = [
        {
            "member": part.member,
            "offsets": {f"{one.topic}-{one.partition}": to.offset for one, to in sorted(part.offsets.items())},
            "state_sha256": part.state.digest,
            "state_bytes": part.state.length_bytes,
        }
        for part in manifest.contributions
    ]
    if as_json:
        print(json.dumps(_summary(manifest) | {"contributions": parts}))
        return
    print(f"checkpoint {manifest.sequence} of region {manifest.region}, group {manifest.group}")
    print(f"epoch {manifest.epoch}, group generation {manifest.generation}; every state is what it was")
    for one in parts:
        print(f"  {one['member']}: {one['state_bytes']} bytes, sha256 {one['state_sha256']}")
        for partition, offset in one["offsets"].items():
            print(f"    {partition:40}{offset:>16}")


def _region(store: Store, group: str | None) -> Coordinator:
    with store.read() as books:
        groups = books.groups()
        wanted = group or (groups[0] if len(groups) == 1 else None)
        data = books.get(Key("region", wanted)) if wanted else None
    if wanted is None or data is None:
        raise NotRegisteredError(
            "no such region" if group else "say which group",
            hint=f"--group with one of: {', '.join(groups)}" if groups else "the coordinator has none",
        )
    return Coordinator(store, decode_record(data).region, wanted)


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "sequence": manifest.sequence,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "members": list(manifest.members),
        "partitions": len(manifest.offsets),
        "state_bytes": sum(part.state.length_bytes for part in manifest.contributions),
    }
