"""Pure functions from a layout to Kafka's broker properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.testing.tls import TlsFiles

PLAINTEXT: Final = "PLAINTEXT"
TLS: Final = "TLS"
SASL: Final = "SASL"
SASL_TLS: Final = "SASL_TLS"
PROXIED: Final = "PROXIED"
CONTROLLER: Final = "CONTROLLER"

_SECURITY = {
    PLAINTEXT: "PLAINTEXT",
    TLS: "SSL",
    SASL: "SASL_PLAINTEXT",
    SASL_TLS: "SASL_SSL",
    PROXIED: "PLAINTEXT",
    CONTROLLER: "PLAINTEXT",
}
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """One node: its id, its folder, its ports by listener, and the advertised port of the PROXIED listener."""

    node_id: int
    folder: Path
    ports: Mapping[str, int]
    advertised_ports: Mapping[str, int] = field(default_factory=dict)

    def address(self, listener: str) -> str:
        """The address `127.0.0.1:port` that clients receive."""
        return f"127.0.0.1:{self.advertised_ports.get(listener, self.ports[listener])}"


@dataclass(frozen=True, slots=True)
class Security:
    """`tls`: files for the TLS listeners. `users`: name to password for SASL. `acls`: deny what no ACL allows."""

    tls: TlsFiles | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    acls: bool = False

    @property
    def listeners(self) -> tuple[str, ...]:
        wanted = [PLAINTEXT]
        if self.tls:
            wanted.append(TLS)
        if self.users:
            wanted.append(SASL)
        if self.tls and self.users:
            wanted.append(SASL_TLS)
        return tuple(wanted)


def node_properties(
    node: NodeLayout, nodes: Sequence[NodeLayout], security: Security, extra: Mapping[str, str]
) -> dict[str, str]:
    """server.properties of `node`; `extra` wins over everything."""
    copies = str(min(3, len(nodes)))
    needed = "1"  # tests kill brokers, so what the group APIs lean on must stay writable with one copy left
    client_listeners = [name for name in node.ports if name != CONTROLLER]
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "log.dirs": str(node.folder / "data"),
        "controller.quorum.voters": ",".join(f"{n.node_id}@127.0.0.1:{n.ports[CONTROLLER]}" for n in nodes),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PLAINTEXT,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in node.ports.items()),
        "advertised.listeners": ",".join(f"{name}://{node.address(name)}" for name in client_listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{_SECURITY[name]}" for name in node.ports),
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": needed,
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": needed,
        "share.coordinator.state.topic.num.partitions": "2",
        # Groups of tests are born and die in a second.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        # Members of KIP-848 groups get a change at their next heartbeat, by default after up to 5 s.
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.session.timeout.ms": "1000",
        # A killed broker is noticed in 3 s, and may come back after the same time.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Records with old timestamps stay: retention by age deletes them 30 s after the start, then every 5 minutes.
        "log.retention.ms": "-1",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "num.io.threads": "4",
        "num.network.threads": "2",
    }
    if security.tls:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(security.tls.keystore),
            "ssl.client.auth": "none",
        }
    if security.users:
        properties["sasl.enabled.mechanisms"] = ",".join(SASL_MECHANISMS)
        for listener in (name for name in (SASL, SASL_TLS) if name in node.ports):
            properties |= _sasl_properties(listener, security.users)
    if security.acls:
        properties |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The plaintext listener does not authenticate. Brokers and the test's own set-up use it.
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }
    return properties | dict(extra)


def _sasl_properties(listener: str, users: Mapping[str, str]) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}"
    quoted = {name: password.replace("\\", "\\\\").replace('"', '\\"') for name, password in users.items()}
    known = " ".join(f'user_{name}="{password}"' for name, password in quoted.items())
    plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        f"{prefix}.plain.sasl.jaas.config": plain,
        f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
        f"{prefix}.scram-sha-512.sasl.jaas.config": scram,
    }


def format_arguments(users: Mapping[str, str]) -> list[str]:
    """The arguments of StorageTool that create the SCRAM `users` before the first start."""
    arguments = []
    for name, password in users.items():
        for mechanism in SASL_MECHANISMS[1:]:
            arguments += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
    return arguments


def render(properties: Mapping[str, str]) -> str:
    """The text of a properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    """Java reads the file as Latin-1, where other letters are \\uXXXX, two of them beyond the first plane."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(number) if 0x20 <= number < 0x7F else f"\\u{number:04x}" for number in numbers)
