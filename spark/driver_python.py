"""The Python that Spark starts on the driver to plan a scan or sink of a data source.

Spark uses the executors' interpreter, `PYSPARK_PYTHON`. With `spark.archives` its path is within the unpacked archive.
In client mode Spark unpacks archives for executors only.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.spark.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_driver_python(spark: "SparkSession") -> None:
    """Raise PlanError if the driver cannot start the session's Python. The hint has a command that cures it.

    Otherwise Spark would raise at `load()` or `save()`, before any code of a data source runs. A session of Spark
    Connect has its driver on another machine and is not checked.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return
    from py4j.protocol import Py4JError  # a client of Spark Connect lacks it

    python = str(context.pythonExec)
    try:
        system = context._jvm.java.lang.System
        folder, search = str(system.getProperty("user.dir")), str(system.getenv("PATH"))
    except Py4JError:  # a platform may forbid these calls; then Spark raises its own error
        return
    is_path = os.path.dirname(python) != ""
    found = shutil.which(os.path.join(folder, python) if is_path else python, path=search)
    if found is None:
        raise PlanError(
            "Spark plans a data source on the driver with the executors' Python, which the driver does not have",
            hint=_hint(python, folder),
            python=python,
            folder=folder,
        )


def _hint(python: str, folder: str) -> str:
    """A link to the driver's own environment, if it has an interpreter at the same path."""
    path = Path(python)
    if path.is_absolute() or len(path.parts) < 3 or not Path(sys.prefix, *path.parts[-2:]).exists():
        return "install it there, or set PYSPARK_PYTHON to a Python that the driver and all executors have"
    link = Path(folder, *path.parts[:-2])
    return f"for spark.archives in client mode, run: ln -s {shlex.quote(sys.prefix)} {shlex.quote(str(link))}"
