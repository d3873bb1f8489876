"""docs/spark.md: what moving from Spark's own connector changes, made from the table of cases and from a run of them.

make test-spark-jvm && python -m tests.spark_jvm.page
"""

import json
import re
from collections.abc import Iterator, Mapping

from tests.spark_jvm.cases import CASES, Case
from tests.spark_jvm.outcome import Outcome
from tests.spark_jvm.venvs import ROOT

KEPT = ROOT / "out" / "spark-jvm"
PAGE = ROOT / "docs" / "spark.md"
LONGEST = 260
THEIRS, OURS = "kafka-4.0.0", "kohort-4.3.0"
Outcomes = Mapping[str, Outcome]

HEAD = """# Moving from Spark's Kafka connector

Made by `python -m tests.spark_jvm.page` from a run of `make test-spark-jvm`. [Another page](spark-cluster.md) describes
the deployment to a cluster.

Start a broker at `localhost:9092` and install `kohort[spark]`. Only the name of the format is another one, and no
`--packages` is needed:

```python
from pyspark.sql import SparkSession

from kohort import Admin, Producer
from kohort.spark import register

with Admin("localhost:9092") as admin, Producer("localhost:9092") as producer:
    admin.create_topic("moved-to-kohort", partitions=2)
    producer.send("moved-to-kohort", b"value", key=b"key")

spark = SparkSession.builder.master("local[1]").getOrCreate()
register(spark)
options = {{"kafka.bootstrap.servers": "localhost:9092", "subscribe": "moved-to-kohort"}}
spark.read.format("kohort").options(**options).load().select("topic", "offset").show()
spark.stop()
```

```text
+---------------+------+
|          topic|offset|
+---------------+------+
|moved-to-kohort|     0|
+---------------+------+
```

Options, defaults, columns and rows are those of Spark's own connector. {reads} reads go through that connector
(`spark-sql-kafka-0-10` {connector}) and through `kohort` on PySpark 4.0.0 and 4.3.0, on one broker. They are batches
and streams with offsets, times, patterns, headers, nulls, every codec, transactions, compaction, retention, filters
and mistakes. {alike} give the same rows, {refused} are refused by both, {differ} differ as below.

## Differences
"""

BEYOND = """## Beyond these reads

Other uses of `format("kafka")` differ as follows. PySpark's interface for sources in Python sets the limits in the
first rows. kohort refuses the rest, because a mistake would be silent.

| with Spark's connector | with kohort | reason |
| --- | --- | --- |
| `df.write...save()` without a mode, and `mode("error")` | Spark refuses it. Set `mode("append")` | \
no such mode in Python |
| `outputMode("update")` to a sink | Spark refuses it. Use `foreachBatch` with a batch write | no such mode in Python |
| `trigger(continuous=...)`, `trigger(realTime=...)` | Spark refuses it | sources in Python run in micro-batches only |
| `avgOffsetsBehindLatest` and others in a progress's `metrics` | `kohort.spark.lag_of(progress)` | \
no metrics in Python |
| `spark.newSession()` knows the source | call `register` for each session | sources in Python belong to a session |
| any thread writes | a thread without an active session calls `register` first | \
Spark finds sinks in Python by the active session of the thread |
| each query of a frame or view plans again | the first query plans. `load()` it again for later records | \
PySpark 4.1 and newer keep the plan of a `load()` |
| `subscribePattern` is a pattern of Java | a pattern of Python's `re` | \
syntax that only Java has is refused, as is syntax that \
both read in different ways: `[a&&[b]]`, nested classes, `\\101`, the flag `x` |
| `CREATE TABLE ... USING kafka` | refused. Use `CREATE TEMPORARY VIEW ... USING kohort OPTIONS (...)` | \
Spark gives the options of \
a table to no source in Python |
| `load("x")` ignores the path | refused | a log has no path |
| an option that does not apply is ignored: `maxOffsetsPerTrigger` in a batch, `subscribe` in a sink | refused | \
it has no effect |
| a topic that was created again is read on at the old offset, if it is long enough | `DataLossError`, \
or with `failOnDataLoss=false` it is read from its beginning, and records that the batch under way has read come \
twice. \
After a restart as with Spark's connector | \
topics have ids (brokers from 2.8), and checkpoints do not have them |
| `kafka.enable.idempotence=false` with `acks=all` | refused | acks=all is always idempotent |
| `kafka.partitioner.class` | refused | it names a class of Java. Use the column `partition` |

Filters do not limit what is fetched. On PySpark 4.1 and newer, `register(spark, push_filters=True)` applies filters on
topic, partition, offset and timestamp to the plan. It has these limits:

- Use each `load()` in one place of one query. PySpark keeps one plan for it, that of the last planned scan. Other
  queries of the frame have the filters of that scan, too. So have both sides of a union or join of the frame with
  itself. Their results are wrong, without an error.
- `spark.sql.python.filterPushdown.enabled` must stay `true`. Otherwise Spark refuses every read.
- A filter on a time after the year 9999 fails in PySpark.
"""

CHECKPOINTS = """## Checkpoints

A stream can change its connector and keep its checkpoint, from Spark's own to kohort and back. Both log the same
offsets. Stop the query, change its format, and start it with the same `checkpointLocation`. A batch that one connector
has begun is repeated by the other, with the same records, unless it is the query's first. `kohort` on PySpark 4.3.0
reads on from a checkpoint of 4.0.0, and Spark's connector 4.0.0 from that one. `make test-spark-jvm` runs these moves.

- The position in a checkpoint comes before `startingOffsets`.
- Finish the first batch of a query before the change, because Spark logs no start for it. Spark's connector stores the
  start in a file of its own. `kohort` finds the start again by the options, and `latest` is then the end of the batch.
- After a restart, kohort repeats an unfinished first batch in the same way. Records that were deleted meanwhile are
  then skipped without an error, also with `failOnDataLoss=true`. With numbers in `startingOffsets` the batch fails.
- A stream with `group=` logs other offsets. A stream without it refuses them, as Spark's connector does.
"""

MISTAKES = """## Errors

Both refuse these reads. Spark's connector raises some errors on the driver, and some in a failed task. `kohort` raises
all errors on the driver, except data loss while a task runs. They name option, topic, partition and offset. Long
messages are cut.
"""


def differences() -> list[Case]:
    """The cases that are not alike and not refused by both."""
    return [case for case in CASES if case.why]


def page(theirs: Outcomes, ours: Outcomes) -> str:
    """The page's Markdown."""
    refused = [case for case in CASES if case.count is None]
    differ = differences()
    head = HEAD.format(
        reads=len(CASES),
        connector="4.0.0",
        alike=len(CASES) - len(refused) - len(differ),
        refused=len(refused),
        differ=len(differ),
    )
    table = _differences(differ, theirs, ours)
    return "\n".join([head, *table, "", BEYOND, CHECKPOINTS, MISTAKES, *_mistakes(refused, theirs, ours), ""])


def _differences(cases: list[Case], theirs: Outcomes, ours: Outcomes) -> Iterator[str]:
    yield "| read | Spark's connector | kohort | |"
    yield "| --- | --- | --- | --- |"
    for case in cases:
        yield f"| {case.name} | {_result(theirs[case.name])} | {_result(ours[case.name])} | {case.why} |"


def _mistakes(cases: list[Case], theirs: Outcomes, ours: Outcomes) -> Iterator[str]:
    yield "| read | Spark's connector | kohort |"
    yield "| --- | --- | --- |"
    for case in cases:
        yield f"| {case.name} | {_message(theirs[case.name].error)} | {_message(ours[case.name].error)} |"


def _result(outcome: Outcome) -> str:
    if outcome.rows is None:
        return _message(outcome.error)
    return f"{len(outcome.rows):,} rows" + (f", {outcome.pieces} partitions" if outcome.pieces else "")


def _message(error: str) -> str:
    """The last and innermost of a chain; names that the run made up without what made them unique."""
    links = [link for link in error.split(" <- ") if "An error occurred while calling" not in link]
    text = re.sub(r"w[0-9a-f]{6}\.(\w+)(?:-t)?\b", r"\1", links[-1] if links else error)
    text = re.sub(r"\(TID \d+\) \(.*?\): |kohort\.[\w.]+\.(?=[A-Z])|(?:org|java)\.[\w.]+\.(?=[A-Z])", "", text)
    text = re.sub(r"127\.0\.0\.1:\d{4,}", "127.0.0.1:9092", text).replace("|", "\\|").replace("\n", " ")
    return f"`{text[:LONGEST]}{'…' if len(text) > LONGEST else ''}`" if text else ""


def kept(name: str) -> Outcomes:
    """The results of the last run of one session."""
    return {case: Outcome(**found) for case, found in json.loads((KEPT / f"{name}.json").read_text()).items()}


if __name__ == "__main__":
    PAGE.write_text(page(kept(THEIRS), kept(OURS)))
    print(f"{PAGE.relative_to(ROOT)}, from {len(CASES)} reads")
