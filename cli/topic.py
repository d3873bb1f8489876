"""`kohort topic`: administration of topics."""

import json
from typing import Annotated, Any

import typer

from kohort.admin import TopicDescription
from kohort.cli.connection_options import AsJson, ConnectionOptions, Yes, connected, console
from kohort.cli.deletion import delete_each
from kohort.cli.terminal import cell, folding_table, say
from kohort.common import TopicPartition
from kohort.common.errors import KohortError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Show, create and delete topics.")

Topic = Annotated[str, typer.Argument(help="The topic.")]


@app.command("list")
@connected
def list_(
    cluster: ConnectionOptions,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List every topic of the cluster. Example: kohort topic list -b localhost:9092"""
    with cluster.admin() as admin:
        found = admin.list_topics(internal=internal)
    if as_json:
        print(json.dumps([_plain(one) for one in found]))
        return
    table = folding_table("topic", "partitions", "replicas", "id")
    for one in found:
        copies = len(one.partitions[0].replicas) if one.partitions else 0
        table.add_row(cell(one.topic), str(len(one.partitions)), str(copies), str(one.topic_id))
    console().print(table)


@app.command()
@connected
def describe(cluster: ConnectionOptions, topic: Topic, as_json: AsJson = False) -> None:
    """Show partitions, leaders, log ends and settings. Example: kohort topic describe payments -b localhost:9092"""
    with cluster.admin() as admin:
        found = admin.describe_topic(topic)
        places = [TopicPartition(topic, one.partition) for one in found.partitions]
        first, last = admin.first_offsets(places), admin.end_offsets(places)
    if as_json:
        reported = _plain(found)
        for row in reported["partitions"]:
            place = TopicPartition(topic, row["partition"])
            row |= {"first_offset": first.get(place), "end_offset": last.get(place)}
        print(json.dumps(reported))
        return
    settings = ", ".join(f"{name}={value}" for name, value in found.configs.items()) or "none of its own"
    say(f"{found.topic} ({found.topic_id}), settings: {settings}")
    table = folding_table("partition", "leader", "replicas", "in sync", "first", "end")
    for one, place in zip(found.partitions, places, strict=True):
        row = (one.partition, one.leader, one.replicas, one.in_sync, first.get(place, "-"), last.get(place, "-"))
        table.add_row(*(",".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in row))
    console().print(table)


@app.command()
@connected
def create(
    cluster: ConnectionOptions,
    topic: Topic,
    partitions: Annotated[int, typer.Option(help="The number of partitions.", show_default="the broker's")] = -1,
    replication_factor: Annotated[int, typer.Option(help="The number of replicas.", show_default="the broker's")] = -1,
    setting: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of the topic; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic. Example: kohort topic create payments --partitions 6 --setting retention.ms=3600000"""
    configs = {}
    for text in setting or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise KohortError(f"not a setting: {text!r}", hint="use --setting NAME=VALUE")
        configs[name] = value
    with cluster.admin() as admin:
        admin.create_topic(topic, partitions=partitions, replication_factor=replication_factor, configs=configs)
    print(json.dumps({"created": topic}) if as_json else f"created {topic}")


@app.command()
@connected
def delete(
    cluster: ConnectionOptions,
    topics: Annotated[list[str], typer.Argument(help="The topics.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics and all their records. Example: kohort topic delete old -b localhost:9092"""
    if not yes and not as_json:
        typer.confirm(f"delete {', '.join(topics)} with all records?", abort=True)
    with cluster.admin() as admin:
        delete_each(admin.delete_topics, topics, as_json=as_json)


def _plain(one: TopicDescription) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "topic_id": str(one.topic_id),
        "internal": one.internal,
        "configs": dict(one.configs),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "in_sync": list(each.in_sync),
            }
            for each in one.partitions
        ],
    }
