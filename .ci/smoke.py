"""Try an installed kohort: import every extension, then produce and consume.

    python .ci/smoke.py [--broker]

Needs kohort's own dependencies only. With `--broker` the records also pass through a real broker, which needs a JDK.
A free-threaded Python must keep its GIL off. The exit code is 1 after any difference.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
import sysconfig
from glob import glob

import kohort
from kohort import Consumer, Producer
from kohort.testing import FakeBroker, RealBroker
from kohort.testing.topics import create_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 1000
TIMEOUT_S = 60.0


def extensions() -> list[str]:
    """The names of the package's compiled modules."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    files = glob(f"**/*{suffix}", root_dir=kohort.__path__[0], recursive=True)
    return sorted(f"kohort.{file.removesuffix(suffix).replace(os.sep, '.')}" for file in files)


def pass_through(bootstrap: str, codec: str) -> None:
    """Write RECORDS and read them back. Raises AssertionError for any difference."""
    written = [(b"%d" % number, b"value %d" % number) for number in range(RECORDS)]
    read: list[tuple[bytes | None, bytes | None]] = []
    with (
        Producer(bootstrap, compression=codec) as producer,
        Consumer(bootstrap, group=f"smoke-{codec}", auto_offset_reset="earliest") as consumer,
    ):
        deliveries = [producer.send(f"smoke-{codec}", value, key=key) for key, value in written]
        for delivery in deliveries:
            delivery.result(TIMEOUT_S)
        consumer.subscribe([f"smoke-{codec}"])
        while len(read) < RECORDS and (slices := consumer.poll(TIMEOUT_S)):
            read += [(record.key, record.value) for columns in slices for record in columns]
            consumer.commit()
    assert sorted(read) == sorted(written), f"{codec}: {len(read)} of {RECORDS} records"


def main() -> None:
    names = extensions()
    assert names, f"no extensions in {kohort.__path__[0]}"
    for name in names:
        importlib.import_module(name)
    gil_can_be_off = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    gil = not gil_can_be_off or sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]
    assert not (gil_can_be_off and gil), "an import has turned the GIL on"
    with FakeBroker(topics={f"smoke-{codec}": 2 for codec in CODECS}) as fake:
        for codec in CODECS:
            pass_through(fake.bootstrap, codec)
    brokers = "a fake broker"
    if "--broker" in sys.argv[1:]:
        with RealBroker() as broker:
            for codec in CODECS:
                create_topic(broker.bootstrap, f"smoke-{codec}", partitions=2)
                pass_through(broker.bootstrap, codec)
        brokers = "a fake and a real broker"
    print(
        f"kohort {kohort.__version__}, Python {sys.version.split()[0]}, GIL {'on' if gil else 'off'}: {len(names)} "
        f"extensions, {len(CODECS)} x {RECORDS} records through {brokers}"
    )


if __name__ == "__main__":
    main()
