"""Other people's producers: Kafka's own Java one, and librdkafka where it is installed.

Neither knows kohort, so what the demo reads is what the world writes. Both partition by murmur2 of the key, so that an
aircraft stays on its partition whichever producer wrote the record.
"""

import importlib.util
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from kohort.cli.demo.dataset import FlightEvent
from kohort.common.errors import KohortError
from kohort.testing import jars
from kohort.testing.jdk import java

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SOURCE = Path(__file__).with_name("FlightProducer.java")
_NULL = "\\N"


class ProducerFailed(KohortError):
    """A foreign producer could not write. `producer` names it, the message has its error."""


class FlightWriter(AbstractContextManager["FlightWriter"], ABC):
    """One kind of producer with one open topic; leaving the `with` block gives up what was not closed."""

    @abstractmethod
    def __init__(self, bootstrap: str, topic: str) -> None: ...

    @abstractmethod
    def use(self, codec: str) -> None:
        """Compress the following records with this codec, one of CODECS."""

    @abstractmethod
    def write(self, event: FlightEvent) -> None:
        """Hand over one record. Raises ProducerFailed."""

    @abstractmethod
    def close(self) -> Mapping[str, int]:
        """Wait for every acknowledgement; returns their number by codec. Raises ProducerFailed if one is missing."""


def installed() -> tuple[str, ...]:
    """Names of the producers at hand; Java's is always there, as the broker needs a JDK too."""
    return ("java", "librdkafka") if importlib.util.find_spec("confluent_kafka") else ("java",)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Raises ProducerFailed with the broker's words."""
    _run_java("create", bootstrap, topic, str(partitions))


def delete_topic(bootstrap: str, topic: str) -> None:
    """Raises ProducerFailed with the broker's words."""
    _run_java("delete", bootstrap, topic)


def _java_command(*arguments: str) -> list[str]:
    classpath = os.pathsep.join(str(jar) for jar in jars.clients())
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    # One source file needs no build: java compiles it in memory. C1 only: these programs live for seconds.
    return [str(java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", quiet, "-cp", classpath, str(_SOURCE), *arguments]


def _run_java(*arguments: str) -> None:
    done = subprocess.run(_java_command(*arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise _java_failed(done.stderr, f"{arguments[0]} the topic", arguments[1])


def _java_failed(said: str, doing: str, bootstrap: str) -> ProducerFailed:
    lines = [line for line in said.splitlines() if line.strip()]
    cause = [line for line in lines if line.startswith("Caused by:")] or lines[:1] or ["it said nothing"]
    missing_compiler = "jdk.compiler" in said
    return ProducerFailed(
        f"the Java program could not {doing}: {cause[-1].removeprefix('Caused by: ')}",
        hint="this is a JRE; install a JDK (`apt-get install openjdk-17-jdk-headless`)" if missing_compiler else None,
        producer="java",
        bootstrap=bootstrap,
    )


class JavaWriter(FlightWriter):
    """Kafka's own producer, in a JVM that is fed through a pipe."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._process = subprocess.Popen(
            _java_command("produce", bootstrap, topic),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._bootstrap = bootstrap
        assert self._process.stdin is not None
        self._pipe = self._process.stdin

    def use(self, codec: str) -> None:
        self._say(f"@{codec}\n")

    def write(self, event: FlightEvent) -> None:
        key = _NULL if event.key is None else event.key
        value = _NULL if event.value is None else event.value
        (_, carrier), (_, origin) = event.headers
        self._say(f"{event.timestamp_ms}\t{key}\t{value}\t{carrier}\t{origin}\n")

    def _say(self, line: str) -> None:
        try:
            self._pipe.write(line)
        except BrokenPipeError:
            _, said = self._process.communicate()
            raise _java_failed(said, "produce", self._bootstrap) from None

    def close(self) -> Mapping[str, int]:
        out, said = self._process.communicate()
        if self._process.returncode != 0:
            raise _java_failed(said, "produce", self._bootstrap)
        return {codec: int(count) for codec, count in (line.split() for line in out.splitlines())}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                # The pipe may hold lines for a process that is gone.
                with suppress(BrokenPipeError):
                    stream.close()


class LibrdkafkaWriter(FlightWriter):
    """librdkafka, through confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._producers: dict[str, Any] = {}
        self._acknowledged: dict[str, int] = {}
        self._refused: list[str] = []

    def use(self, codec: str) -> None:
        from confluent_kafka import Producer

        if codec not in self._producers:
            self._acknowledged[codec] = 0
            self._producers[codec] = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "compression.type": codec,
                    "partitioner": "murmur2_random",
                    "enable.idempotence": True,
                    "linger.ms": 20,
                    "queue.buffering.max.messages": 1_000_000,
                    "message.timeout.ms": 60_000,
                }
            )
        self._codec = codec
        self._producer = self._producers[codec]

    def write(self, event: FlightEvent) -> None:
        codec = self._codec

        def delivered(error: object, _message: object) -> None:
            if error is None:
                self._acknowledged[codec] += 1
            else:
                self._refused.append(str(error))

        for patience in (None, 10.0):
            try:
                self._producer.produce(
                    self._topic,
                    key=event.key,
                    value=event.value,
                    timestamp=event.timestamp_ms,
                    headers=list(event.headers),
                    on_delivery=delivered,
                )
                break
            except BufferError:
                if patience is not None:
                    raise ProducerFailed("its buffer stayed full", producer="librdkafka") from None
                self._producer.poll(10.0)
        self._producer.poll(0)

    def close(self) -> Mapping[str, int]:
        for producer in self._producers.values():
            if left := producer.flush(60.0):
                raise ProducerFailed(f"{left} records were not acknowledged within 60 s", producer="librdkafka")
        if self._refused:
            raise ProducerFailed(self._refused[0], producer="librdkafka", records=len(self._refused))
        return dict(self._acknowledged)

    def __exit__(self, *_: object) -> None:
        self._producers.clear()


WRITERS: Mapping[str, type[FlightWriter]] = {"java": JavaWriter, "librdkafka": LibrdkafkaWriter}
