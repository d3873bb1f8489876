"""Measures against overhead in a Python worker of Spark, which runs one task after another."""

import gc
import os
import re
import socket
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any

# Spark's own archives on a worker's path. Unlike a user's archives, they do not change under a running worker.
_SPARKS_OWN = re.compile(r"pyspark\.zip|py4j-.*\.zip|spark-core_.*\.jar")
_OWN_DESCRIPTORS = Path("/proc/self/fd")
_NON_BLOCKING = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)  # Linux has both


class Shipped:
    """A base of objects that the driver pickles for tasks. Unpickling is the first step of a task in a worker."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        _acknowledge()
        self.__dict__.update(state)


def _acknowledge() -> None:
    """Make TCP acknowledge the JVM's data at once.

    The JVM sends a task in two pieces, the function and its argument. Nagle's algorithm holds the second piece until
    the first is acknowledged. A worker sends nothing at that time, so its TCP stack acknowledges after 40 ms. On Linux
    TCP_QUICKACK acknowledges at once. The kernel resets it with later traffic, so it is set in each task. A worker
    does not know the JVM's socket, so it is set on all of its sockets.
    """
    if not hasattr(socket, "TCP_QUICKACK") or not _OWN_DESCRIPTORS.exists():
        return
    for number in map(int, os.listdir(_OWN_DESCRIPTORS)):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                # SOCK_NONBLOCK keeps Python from applying a user's default timeout to the descriptor. The worker shares
                # it, and would take a pause for the end of its input.
                with socket.socket(type=_NON_BLOCKING, fileno=os.dup(number)) as one:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:  # closed meanwhile, or no TCP
            continue


def settle() -> None:
    """Prepare the worker. Call it at the start of a task, after its imports."""
    _forget_archives()
    _freeze(len(sys.modules))


@cache
def _freeze(_modules: int) -> None:
    """Exclude imported objects from PySpark's garbage collection after each task, which takes 20 ms.

    `_modules`: the number of modules now. The first task imports a client while it runs, so the next one freezes again.
    """
    gc.freeze()


def _forget_archives() -> None:
    """Drop Python's finders for Spark's own archives. An import makes them again.

    PySpark 4.0 and 4.1 call importlib.invalidate_caches() before each task. Until Python 3.12 each finder of an
    archive then reads the archive's whole directory again. There is a finder for each imported folder of PySpark, and
    one for a jar of thousands of classes. That is some 100 ms of CPU a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if _SPARKS_OWN.fullmatch(Path(getattr(finder, "archive", "")).name):
            sys.path_importer_cache.pop(path, None)
