"""One long-lived JVM holding Apache Kafka's own record classes; `RecordsOracle.java` is its other end."""

import atexit
import functools
import os
import struct
import subprocess
from pathlib import Path
from typing import IO, cast

from kohort.testing import jars
from kohort.testing.jdk import java


class RecordsJvm:
    """Close it after use; the process also ends on its own when the pipe does."""

    def __init__(self, kafka: str) -> None:
        classpath = os.pathsep.join(map(str, jars.clients(kafka)))
        self._process = subprocess.Popen(
            [
                str(java()),
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                classpath,
                str(Path(__file__).with_name("RecordsOracle.java")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def write(self, magic: int, codec: int, append: bool, base_offset: int, seed: int) -> bytes:
        """A batch by Kafka's builder, of records that the seed chose."""
        self._send(struct.pack(">cbbbqq", b"W", magic, codec, append, base_offset, seed))
        return self._respond()

    def read(self, data: bytes) -> bytes:
        """Everything in `data` as MemoryRecords reads it, in the oracle's own form: 0 and records, or 1 and why not."""
        self._send(b"R" + struct.pack(">i", len(data)) + data)
        return self._respond()

    def close(self) -> None:
        cast(IO[bytes], self._process.stdin).close()
        cast(IO[bytes], self._process.stdout).close()
        self._process.wait(120)

    def _send(self, data: bytes) -> None:
        pipe = cast(IO[bytes], self._process.stdin)
        pipe.write(data)
        pipe.flush()

    def _respond(self) -> bytes:
        pipe = cast(IO[bytes], self._process.stdout)
        (size,) = struct.unpack(">i", pipe.read(4))
        return pipe.read(size)


@functools.cache
def records_jvm(kafka: str = jars.DEFAULT_VERSION) -> RecordsJvm:
    """The one of this process."""
    jvm = RecordsJvm(kafka)
    atexit.register(jvm.close)
    return jvm
