"""All cases through one connector in one Spark session; run in the venv whose PySpark is meant.

    python -m tests.spark_jvm.session FORMAT NAMES.json OUTCOMES.json [JAR,JAR]

It uses nothing but PySpark and, for FORMAT "kohort", kohort. KOHORT_SPARK_CASES="a name;another" takes only those.
"""

import datetime
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

from pyspark.sql import SparkSession

from tests.spark_jvm.cases import ABSENT, CASES, Case
from tests.spark_jvm.outcome import Outcome

EPOCH = datetime.datetime(1970, 1, 1)
_OURS = re.compile(r"^[ \t]*(?:kohort\.[\w.]+: .*)$", re.MULTILINE)


def main(source: str, names: str, out: str, jars: str = "") -> None:
    spark = session(source, jars)
    known = json.loads(Path(names).read_text())
    chosen = set(filter(None, os.environ.get("KOHORT_SPARK_CASES", "").split(";")))
    outcomes = {}
    for case in CASES:
        if not chosen or case.name in chosen:
            outcome = outcome_of(spark, source, case, known)
            print(f"{outcome.seconds:6.1f} s  {case.name}", file=sys.stderr, flush=True)
            outcomes[case.name] = asdict(outcome)
    Path(out).write_text(json.dumps(outcomes))
    spark.stop()


def session(source: str, jars: str) -> Any:
    """A session with the connector's jars, or with kohort."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    time.tzset()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if source == "kohort":
        import kohort.spark

        kohort.spark.register(spark)
    return spark


def outcome_of(spark: Any, source: str, case: Case, names: Mapping[str, str]) -> Outcome:
    started = time.monotonic()
    try:
        frame = streamed(spark, source, case, names) if case.stream else loaded(spark, source, case, names)
        columns = [list(pair) for pair in frame.dtypes]
        pieces = frame.rdd.getNumPartitions() if case.pieces is not None else 0
        rows = sorted((plain(row) for row in frame.collect()), key=repr)
        return Outcome(rows, columns, pieces, "", time.monotonic() - started)
    except Exception as error:  # any outcome is that of the connector
        return Outcome(None, [], 0, said(error), time.monotonic() - started)


def loaded(spark: Any, source: str, case: Case, names: Mapping[str, str]) -> Any:
    reader = spark.read.format(source).options(**options_of(case, names))
    return queried((reader.schema(case.schema) if case.schema else reader).load(), case)


def streamed(spark: Any, source: str, case: Case, names: Mapping[str, str]) -> Any:
    """The rows of a stream that takes all there is and stops, from Parquet."""
    folder = tempfile.mkdtemp()
    frame = queried(spark.readStream.format(source).options(**options_of(case, names)).load(), case)
    query = (
        frame.writeStream.format("parquet")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start(f"{folder}/rows")
    )
    query.awaitTermination()
    return spark.read.schema(frame.schema).parquet(f"{folder}/rows")


def queried(frame: Any, case: Case) -> Any:
    if case.where:
        frame = frame.where(case.where)
    return frame.selectExpr(*case.select) if case.select else frame


def options_of(case: Case, names: Mapping[str, str]) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": names["bootstrap"], **case.options}
    return {name: Template(value).substitute(names) for name, value in given.items() if value != ABSENT}


def plain(value: Any) -> Any:
    """A row as JSON has it: bytes in hexadecimal, times in microseconds."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def said(error: BaseException) -> str:
    """Ours: the line that names kohort's error. Theirs: what the exception says, and what caused it."""
    text = str(error)
    if found := _OURS.findall(text):
        return str(found[-1]).strip()
    chain = [f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"]
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while origin is not None and len(chain) < 8:
        chain.append(" ".join(str(origin.toString()).split())[:1200])
        origin = origin.getCause()
    return " <- ".join(dict.fromkeys(chain))


if __name__ == "__main__":
    main(*sys.argv[1:])
