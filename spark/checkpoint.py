"""The position of a stream by its checkpoint, in a local folder. Spark's own connector writes the same form."""

from pathlib import Path

from kohort.common import TopicPartition
from kohort.common.foreign_text import parsed_json
from kohort.spark.errors import PlanError
from kohort.spark.offset_json import reached


def finished_offsets(checkpoint: Path) -> dict[TopicPartition, int]:
    """The next offset of each partition, behind the last batch that the stream has finished.

    A stream with `group` has the partitions of that batch. If several sources read a partition,
    the lowest offset counts. Raises PlanError if the folder is no such checkpoint.
    """
    finished = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdecimal()]
    if not finished:
        raise PlanError("the stream has finished no batch", hint="name a checkpointLocation", folder=str(checkpoint))
    path = checkpoint / "offsets" / str(max(finished))
    found: dict[TopicPartition, int] = {}
    try:
        version, _settings, *lines = path.read_text().splitlines()
        for line in lines:
            text = line if version == "v1" else line.partition(":")[2]  # since version 2 behind the source's name
            for place, offset in ({} if text == "-" else reached(parsed_json(text))).items():
                found[place] = min(offset, found.get(place, offset))  # several sources may read it
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PlanError(f"not a log of offsets: {error}", file=str(path)) from error
    if not found:
        raise PlanError("the checkpoint has no offsets of topics", file=str(path))
    return found
