"""`kohort demo`: the main job, on a broker of its own or on yours."""

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.demo.screen import screen
from kohort.cli.demo.story import Options, tell

app = typer.Typer(add_completion=False, help="The main job on a real broker.")


@app.command()
def demo(
    bootstrap: Annotated[
        str | None, typer.Option(envvar="KOHORT_BOOTSTRAP", help="HOST:PORT of your own broker; else one is started.")
    ] = None,
    version: Annotated[str, typer.Option(help="Apache Kafka's version, when one is started.")] = "",
    records: Annotated[int | None, typer.Option(min=1, help="About so many records; all of them otherwise.")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic.")] = 6,
    assignor: Annotated[str, typer.Option(help="How the group shares partitions out.")] = "range",
    kill_at: Annotated[
        float, typer.Option(min=0.0, max=0.95, help="Kill a member at this share of the records.")
    ] = 0.3,
    pace: Annotated[float, typer.Option(min=0.0, help="Records/s of each member, to watch; 0 is full speed.")] = 0.0,
    keep_topic: Annotated[bool, typer.Option("--keep-topic", help="Leave the topic on your broker.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where the ledger and the report go.")] = None,
    spark_master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[2]",
) -> None:
    """A topic of flights, a region of three, a kill, a fourth, Spark: and the totals are equal.

    Ends with code 0 if all totals are equal, else 1.

    Example: kohort demo --records 200000 --assignor sticky
    """
    options = Options(
        bootstrap=bootstrap,
        version=version,
        records=records,
        partitions=partitions,
        assignor=assignor,
        kill_at=kill_at,
        records_per_second=pace,
        keep_topic=keep_topic,
        folder=folder,
        spark_master=spark_master,
    )
    with screen() as here:
        outcome = tell(options, here)
    raise typer.Exit(0 if outcome.equal else 1)
