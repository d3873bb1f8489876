"""`kohort group configs`: the settings of a group, which the coordinator applies to all its members."""

import json
from typing import Annotated

import typer

from kohort.cli.connection_options import AsJson, ConnectionOptions, connected, console
from kohort.cli.terminal import cell, folding_table, say
from kohort.common.errors import KohortError


@connected
def configs(
    cluster: ConnectionOptions,
    group: Annotated[str, typer.Argument(help="The group, which need not exist.")],
    change: Annotated[list[str] | None, typer.Option("--set", help="name=value; repeatable.")] = None,
    unset: Annotated[list[str] | None, typer.Option(help="Return a setting to its default; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """List and change the settings of a group.

    Example: kohort group configs jobs --set share.auto.offset.reset=earliest -b localhost:9092
    """
    changes: dict[str, str | None] = dict(map(_pair, change or ()))
    changes |= dict.fromkeys(unset or ())
    with cluster.admin() as admin:
        if changes:
            admin.set_group_configs(group, changes)
        found = admin.group_configs([group])[group]
    if as_json:
        print(json.dumps({"group": group, "changed": sorted(changes), "configs": dict(found)}))
        return
    if changes:
        say(f"changed {', '.join(sorted(changes))} of {group}")
        return
    table = folding_table("setting", "value")
    for name, value in sorted(found.items()):
        table.add_row(cell(name), cell(value or "-"))
    console().print(table)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise KohortError("a change is name=value", hint="use --set share.auto.offset.reset=earliest", given=text)
    return name, value
