"""A region on a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kohort import ConsistentRegion


@contextmanager
def on_thread(region: ConsistentRegion, keep: Callable[[BaseException], object]) -> Iterator[threading.Thread]:
    """Run the region until the block ends. `keep` gets what it raises."""

    def run() -> None:
        try:
            region.run()
        except BaseException as error:
            keep(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        region.stop()
        thread.join(120)
        assert not thread.is_alive()


@contextmanager
def running(region: ConsistentRegion) -> Iterator[threading.Thread]:
    """Run the region until the block ends. It must not raise."""
    ended: list[BaseException] = []
    with on_thread(region, ended.append) as thread:
        yield thread
    assert ended == []
