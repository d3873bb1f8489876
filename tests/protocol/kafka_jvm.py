"""One long-lived JVM a release, holding Apache Kafka's own message classes; `KafkaOracle.java` is its other end."""

from __future__ import annotations

import atexit
import functools
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from kohort.testing import jars
from kohort.testing.jdk import java


class Reply(NamedTuple):
    """The result of Kafka's classes for one item: bytes and JSON, or the reason for the refusal."""

    refused: str | None
    data: bytes
    json: bytes


class KafkaJvm:
    """Close it after use; the process also ends on its own when the pipe does."""

    def __init__(self, kafka: str) -> None:
        # One slf4j binding is enough, and this one would want log4j beside it.
        wanted = [jar for jar in jars.clients(kafka) if not jar.name.startswith("slf4j-reload4j")]
        classpath = os.pathsep.join(map(str, wanted))
        self._process = subprocess.Popen(
            [
                str(java()),
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dfile.encoding=UTF-8",
                "-cp",
                classpath,
                str(Path(__file__).with_name("KafkaOracle.java")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def rewrite(self, name: str, version: int, messages: Sequence[bytes]) -> list[Reply]:
        """Each message as Kafka's class reads it and writes it again."""
        return self._send(b"R", name, version, messages)

    def read(self, name: str, version: int, messages: Sequence[bytes]) -> list[Reply]:
        """True if Kafka's class reads each message, and nothing is left over."""
        return self._send(b"P", name, version, messages)

    def make(self, name: str, version: int, blobs: Sequence[bytes]) -> list[Reply]:
        """Messages that Kafka's class writes, one for each blob of choices."""
        return self._send(b"M", name, version, blobs)

    def errors(self) -> dict[int, tuple[str, bool]]:
        """Kafka's error codes: name, and whether the exception is a retriable one."""
        lines = (reply.data.decode().split() for reply in self._send(b"E", "", 0, ()))
        return {int(code): (name, retriable == "true") for code, name, retriable in lines}

    def _send(self, work: bytes, name: str, version: int, items: Sequence[bytes]) -> list[Reply]:
        question = b"".join(
            (
                work,
                _sized(name.encode()),
                version.to_bytes(2, "big"),
                *map(_sized, items),
            )
        )
        request, response = self._process.stdin, self._process.stdout
        assert request is not None
        assert response is not None
        try:
            request.write(_sized(question))
            request.flush()
        except BrokenPipeError:
            self._died()
        replies: list[Reply] = []
        data = self._exactly(response, int.from_bytes(self._exactly(response, 4), "big"))
        at = 0
        while at < len(data):
            refused, size = struct.unpack_from(">bI", data, at)
            first = data[at + 5 : at + 5 + size]
            at += 5 + size
            (size,) = struct.unpack_from(">I", data, at)
            second = data[at + 4 : at + 4 + size]
            at += 4 + size
            replies.append(Reply(first.decode() if refused else None, first, second))
        assert len(replies) == len(items) or not items
        return replies

    def _exactly(self, stream: IO[bytes], size: int) -> bytes:
        data = stream.read(size)
        if len(data) < size:
            self._died()
        return data

    def _died(self) -> None:
        self._process.kill()
        _, said = self._process.communicate()
        raise RuntimeError(f"Kafka's JVM is gone: {said.decode(errors='replace')}")


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@functools.cache
def jvm(kafka: str) -> KafkaJvm:
    """The release's JVM, shared by every test of the run."""
    started = KafkaJvm(kafka)
    atexit.register(started.close)
    return started
