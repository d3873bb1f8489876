"""A Python worker of Spark, which runs one task after another."""

import gc
import re
import sys
from functools import cache
from pathlib import Path

# What Spark puts on every worker's path; none of it changes under a running worker, as what a user adds may.
_SPARKS_OWN = re.compile(r"pyspark\.zip|py4j-.*\.zip|spark-core_.*\.jar")


def settle() -> None:
    """To be called when a task begins, with what it needs imported."""
    _forget_archives()
    _freeze()


@cache
def _freeze() -> None:
    """PySpark collects garbage after each task: what is imported need not be looked through each time, for 20 ms."""
    gc.freeze()


def _forget_archives() -> None:
    """Drop Python's finders for Spark's own archives; whatever looks there makes one again.

    PySpark 4.0 and 4.1 call importlib.invalidate_caches() before each task, and until Python 3.12 each finder of an
    archive then reads the archive's whole directory anew: one for each of PySpark's folders that something was
    imported from, and one for a jar of thousands of classes. That is some 100 ms of CPU a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if _SPARKS_OWN.fullmatch(Path(getattr(finder, "archive", "")).name):
            sys.path_importer_cache.pop(path, None)
