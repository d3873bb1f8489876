"""A Python worker of Spark, which runs one task after another."""

import gc
import os
import re
import socket
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any

# What Spark puts on every worker's path; none of it changes under a running worker, as what a user adds may.
_SPARKS_OWN = re.compile(r"pyspark\.zip|py4j-.*\.zip|spark-core_.*\.jar")
_OWN_DESCRIPTORS = Path("/proc/self/fd")
_NON_BLOCKING = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)  # Linux has both


class Shipped:
    """Something that the driver pickles for tasks: that it is unpickled is the first a worker hears of a task."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        _acknowledge()
        self.__dict__.update(state)


def _acknowledge() -> None:
    """Tell the JVM that what it sent has arrived.

    It sends a task in two pieces: the function, then what that is applied to. Neither end turns off what TCP does by
    default, so the second piece waits until the first is acknowledged (Nagle), and a worker that has nothing to say
    does so after 40 ms. Linux acknowledges what is owed when a socket is switched to do so at once, and forgets that
    switch with the next answer, so it is set again in each task. Which of its sockets is the JVM's, a worker is not
    told.
    """
    if not hasattr(socket, "TCP_QUICKACK") or not _OWN_DESCRIPTORS.exists():
        return
    for number in map(int, os.listdir(_OWN_DESCRIPTORS)):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                # Said to be non-blocking already, it is left as it is: else a default timeout that a user's code has
                # set would make it so for the worker too, which then takes a pause for the end of its input.
                with socket.socket(type=_NON_BLOCKING, fileno=os.dup(number)) as one:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:  # closed meanwhile, or no TCP
            continue


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
