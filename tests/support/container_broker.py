"""Apache Kafka in a container, if a Docker engine responds and testcontainers is installed."""

import time
from types import TracebackType
from typing import Any, Self

from kohort.testing.errors import BrokerStartError
from kohort.testing.ports import free_ports
from kohort.testing.readiness import brokers_seen

IMAGE = "apache/kafka"
START_TIMEOUT_S = 120.0


def container_environment(port: int) -> dict[str, str]:
    """The environment of the image that makes the broker reachable from this machine at 127.0.0.1:`port`."""
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "5",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    }


class ContainerBroker:
    """One broker of the official image, reached at a port of this machine that is chosen before its start."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._port = free_ports(1)[0]
        self._container: Any = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(f"{IMAGE}:{self.version}").with_bind_ports(self._port, self._port)
        for name, value in container_environment(self._port).items():
            container = container.with_env(name, value)
        self._container = container
        container.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not brokers_seen(self.bootstrap):
            if time.monotonic() > deadline:
                out, err = container.get_logs()
                container.stop()
                raise BrokerStartError(
                    f"the container did not serve within {START_TIMEOUT_S:g} s:\n{(out + err).decode()[-2000:]}\n",
                    image=f"{IMAGE}:{self.version}",
                )
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.stop()
