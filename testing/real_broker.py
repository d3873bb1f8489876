"""Real Apache Kafka for tests and demos, without Docker: a broker or a cluster of any version.

    with RealBroker(version="3.9.1") as broker:
        broker.bootstrap            # "127.0.0.1:21734"
        broker.kill(); broker.start()

Brokers run in KRaft mode with a small heap, on free ports of the loopback interface. Their scratch folder is removed at
the end. The JVM compiles quickly and optimizes little (`-XX:TieredStopAtLevel=1`), which halves the
processor time of a start. If the broker's own speed matters, pass `jvm_options=OPTIMIZING`. A broker ends with the
`with` block, and with this process, however that ends.
"""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from kohort.testing import jars
from kohort.testing.blank_storage import new_id
from kohort.testing.broker_settings import (
    CONTROLLER,
    PLAINTEXT,
    PROXIED,
    SASL,
    SASL_TLS,
    TLS,
    NodeLayout,
    Security,
    node_properties,
)
from kohort.testing.class_archive import archive_options
from kohort.testing.errors import BrokerStartError
from kohort.testing.kafka_node import KafkaNode
from kohort.testing.ports import check_free, free_ports
from kohort.testing.scratch import make_scratch, remove_scratch
from kohort.testing.tls import make_tls_files

OPTIMIZING = ("-XX:TieredStopAtLevel=4",)
START_TIMEOUT_S = 150.0  # brokers that start beside other work are slow; the end of one is reported at once
_START_TRIES = 3
_PRIME_TIMEOUT_S = 60.0
_ARCHIVING = "ArchiveClassesAtExit"


class RealCluster:
    """`count` brokers of Apache Kafka `version`, each also a controller, started at once or by `start()`.

    `tls=True` adds a TLS listener (`bootstrap_tls`, `ca_file`). `users` (name to password) adds a SASL listener for
    PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 (`bootstrap_sasl`). Both together add `bootstrap_sasl_tls`. `acls=True`
    denies named users all operations that no ACL allows. The plaintext listener has no ACLs. `properties` go into every
    server.properties and override the defaults. `plugins` are jars, or folders of classes, that they may name. `racks`
    has the rack of each node. `proxy_ports` (one for each node) adds a listener with the given advertised port, for a
    proxy that forwards to `behind_proxy(node)`. `ports` fixes the plaintext ports. `folder` keeps data and logs after
    the end. Without it a scratch folder is used and removed.

    Raises JdkMissing, JarsUnavailable or BrokerStartError. Several clusters can run at a time.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        version: str = jars.DEFAULT_VERSION,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        acls: bool = False,
        properties: Mapping[str, object] | None = None,
        plugins: Sequence[Path] = (),
        racks: Sequence[str] = (),
        proxy_ports: Sequence[int] = (),
        ports: Sequence[int] = (),
        folder: Path | None = None,
        heap_mb: int = 384,
        jvm_options: Sequence[str] = (),
        start_timeout_s: float = START_TIMEOUT_S,
        autostart: bool = True,
    ) -> None:
        self.version = version
        self._count = count
        self._want_tls = tls
        self._users = dict(users or {})
        self._acls = acls
        self._extra = {name: _text(value) for name, value in (properties or {}).items()}
        self._racks = tuple(racks)
        self._proxy_ports = tuple(proxy_ports)
        self._fixed_ports = tuple(ports)
        self._keep = None if folder is None else folder.absolute()  # brokers have a working folder of their own
        self._heap_mb = heap_mb
        self._jvm_options = tuple(jvm_options)
        self._start_timeout_s = start_timeout_s
        self._jars = jars.classpath(version)
        self._plugins = tuple(plugins)
        if _ARCHIVING not in "".join(jvm_options):
            self._jvm_options += tuple(archive_options(version, self._jars, self._prime))
        self._scratch: Path | None = None
        self.ca_file: Path | None = None
        self.nodes: tuple[KafkaNode, ...] = ()
        if autostart:
            self.start()

    @property
    def bootstrap(self) -> str:
        """Plaintext addresses of all nodes, comma-separated."""
        return self._addresses(PLAINTEXT)

    @property
    def bootstrap_tls(self) -> str:
        """TLS addresses of all nodes. Raises BrokerStartError without `tls=True`."""
        return self._addresses(TLS)

    @property
    def bootstrap_sasl(self) -> str:
        """SASL addresses of all nodes. Raises BrokerStartError without `users`."""
        return self._addresses(SASL)

    @property
    def bootstrap_sasl_tls(self) -> str:
        """Addresses of all nodes for SASL by TLS. Raises BrokerStartError without both."""
        return self._addresses(SASL_TLS)

    def behind_proxy(self, node: int = 0) -> str:
        """The address to which a proxy for `node` has to forward. Raises IndexError for an unknown node."""
        return f"127.0.0.1:{self.nodes[node].layout.ports[PROXIED]}"

    @property
    def logs(self) -> tuple[Path, ...]:
        """One log file a node, written as it goes."""
        return tuple(node.log for node in self.nodes)

    def start(self) -> None:
        """Start every node that is down and wait until each serves and sees all of them."""
        if self.nodes:
            self._start_nodes()
            return
        for last_try in (False,) * (_START_TRIES - 1) + (True,):
            try:
                self._build()
                self._start_nodes()
            except BrokerStartError as error:
                # Between finding a free port and the broker's own listening, another process may have taken it.
                taken = "already in use" in str(error) or "BindException" in str(error)
                self.close()
                if last_try or not taken or self._fixed_ports:
                    raise
            except BaseException:
                self.close()
                raise
            else:
                return

    def close(self) -> None:
        """Kill every node and remove the scratch folder; safe to call again. It has no effect in a forked child."""
        for node in self.nodes:
            node.kill()
        self.nodes = ()
        if self._scratch is not None:
            remove_scratch(self._scratch)
            self._scratch = None

    def __enter__(self) -> Self:
        if not self.nodes:
            self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _prime(self, options: list[str]) -> None:
        """Start and stop a broker of this version, so that its JVM can write down what it loaded."""
        print(f"Apache Kafka {self.version}: preparing faster starts, once", file=sys.stderr, flush=True)
        with RealCluster(1, version=self.version, jvm_options=options) as broker:
            broker.nodes[0].stop(timeout_s=_PRIME_TIMEOUT_S)

    def _addresses(self, listener: str) -> str:
        if not self.nodes or listener not in self.nodes[0].layout.ports:
            raise BrokerStartError(f"the cluster has no {listener} listener", hint="pass its option to the constructor")
        return ",".join(node.layout.address(listener) for node in self.nodes)

    def _build(self) -> None:
        """Folders, ports, certificates and properties of every node."""
        check_free(self._fixed_ports)
        if self._keep is None:
            self._scratch = make_scratch("kohort-kafka-")
        root = self._scratch or self._keep
        assert root is not None
        files = make_tls_files(root / "tls") if self._want_tls else None
        self.ca_file = files.ca_file if files else None
        security = Security(files, self._users, self._acls)
        layouts = self._layouts(root, security)
        cluster_id = new_id()
        self.nodes = tuple(
            KafkaNode(
                layout,
                jars=[*self._jars, *self._plugins],
                cluster_id=cluster_id,
                heap_mb=self._heap_mb,
                jvm_options=self._jvm_options,
            )
            for layout in layouts
        )
        for node in self.nodes:
            rack = {"broker.rack": self._racks[node.layout.node_id]} if self._racks else {}
            node.configure(node_properties(node.layout, layouts, security, rack | self._extra))
        fresh = [node for node in self.nodes if not (node.layout.folder / "data" / "meta.properties").exists()]
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.format(self._users), fresh))

    def _layouts(self, root: Path, security: Security) -> list[NodeLayout]:
        listeners = [*security.listeners, *([PROXIED] if self._proxy_ports else []), CONTROLLER]
        free = iter(free_ports(self._count * len(listeners)))
        layouts = []
        for index in range(self._count):
            ports = {name: next(free) for name in listeners}
            if self._fixed_ports:
                ports[PLAINTEXT] = self._fixed_ports[index]
            advertised = {PROXIED: self._proxy_ports[index]} if self._proxy_ports else {}
            layouts.append(NodeLayout(index, root / f"node-{index}", ports, advertised))
        return layouts

    def _start_nodes(self) -> None:
        for node in self.nodes:
            if not node.running:
                node.launch(remove_if_orphaned=self._scratch)
        for node in self.nodes:
            node.wait_ready(brokers=len(self.nodes), timeout_s=self._start_timeout_s)


class RealBroker(RealCluster):
    """A RealCluster of one broker, which can be killed, paused and started again. Options and errors are the same."""

    def __init__(
        self,
        *,
        version: str = jars.DEFAULT_VERSION,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        acls: bool = False,
        properties: Mapping[str, object] | None = None,
        plugins: Sequence[Path] = (),
        proxy_ports: Sequence[int] = (),
        ports: Sequence[int] = (),
        folder: Path | None = None,
        heap_mb: int = 384,
        jvm_options: Sequence[str] = (),
        start_timeout_s: float = START_TIMEOUT_S,
        autostart: bool = True,
    ) -> None:
        super().__init__(
            1,
            version=version,
            tls=tls,
            users=users,
            acls=acls,
            properties=properties,
            plugins=plugins,
            proxy_ports=proxy_ports,
            ports=ports,
            folder=folder,
            heap_mb=heap_mb,
            jvm_options=jvm_options,
            start_timeout_s=start_timeout_s,
            autostart=autostart,
        )

    @property
    def node(self) -> KafkaNode:
        """The one node."""
        if not self.nodes:
            raise BrokerStartError("this broker was not started")
        return self.nodes[0]

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self.node.log

    def stop(self) -> None:
        """SIGTERM, and wait; `start()` brings it back with its data."""
        self.node.stop()

    def kill(self) -> None:
        """SIGKILL; `start()` brings it back with its data."""
        self.node.kill()

    def restart(self) -> None:
        """`stop()` and `start()`."""
        self.node.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP until `resume()`."""
        self.node.pause()

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        self.node.resume()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
