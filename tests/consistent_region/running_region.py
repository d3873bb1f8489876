"""A region on a thread of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kohort import ConsistentRegion


@contextmanager
def running(region: ConsistentRegion) -> Iterator[threading.Thread]:
    """Run the region until the block ends. It must not raise."""
    ended: list[BaseException] = []

    def run() -> None:
        try:
            region.run()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        region.stop()
        thread.join(120)
    assert not thread.is_alive()
    assert ended == []
