"""The table of commands."""

from importlib.util import find_spec

from kohort.common.named_tuple import NamedTuple


class CommandEntry(NamedTuple):
    """A subcommand.

    `module` has a typer app named `app`. `about` is its line in `kohort --help`. `extra` installs its requirements.
    """

    module: str
    about: str
    extra: str = "cli"


COMMANDS = {
    "broker": CommandEntry("kohort.cli.broker", "Start, stop and show Apache Kafka, or a fake broker, here."),
    "completion": CommandEntry("kohort.cli.completion", "Completion script for bash, zsh, fish or PowerShell."),
    "consume": CommandEntry("kohort.cli.consume", "Print records of a topic, or write them to a Parquet file."),
    "demo": CommandEntry(
        "kohort.cli.demo.command",
        "The main job: a group of three, a kill, Spark, equal totals.",
        "demo",
    ),
    "doctor": CommandEntry("kohort.cli.doctor.command", "Find problems of a consumer, its group and brokers."),
    "assign": CommandEntry("kohort.cli.assign", "Simulate a rebalance, and plan a change of the assignor."),
    "conformance": CommandEntry("kohort.cli.conformance", "Check a broker's group APIs, with the frames."),
    "group": CommandEntry("kohort.cli.group", "Consumer groups: list, describe, lag, reset offsets, delete."),
    "plan": CommandEntry("kohort.cli.plan", "Show the offsets that Spark would read, and missing records."),
    "produce": CommandEntry("kohort.cli.produce", "Send records to a topic: lines, JSON lines, Parquet, Arrow."),
    "region": CommandEntry("kohort.cli.region", "Show and change a consistent region and its checkpoints."),
    "segment": CommandEntry("kohort.cli.segment", "Read a broker's log segments from disk: dump, stats, Parquet."),
    "topic": CommandEntry("kohort.cli.topic", "Topics: list, describe, create, delete."),
    "wire": CommandEntry("kohort.cli.wire", "Explain Kafka's frames; record and replay a membership."),
}


def available() -> dict[str, CommandEntry]:
    """Return the commands whose module exists."""
    return {name: entry for name, entry in COMMANDS.items() if find_spec(entry.module) is not None}
