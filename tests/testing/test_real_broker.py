"""Real brokers: they serve, obey signals, keep their data, and never outlive the process that started them."""

import os
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort import Admin
from kohort.testing import BrokerStartError, BrokerStateError, RealBroker, RealCluster
from kohort.testing.readiness import brokers_seen
from kohort.testing.topics import create_topic, kafka_tool, leaders
from tests.support.broker_selection import SelectedBroker, wanted_version

pytestmark = pytest.mark.broker


def wait_until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_shared_broker_serves_and_topics_get_leaders(broker: SelectedBroker, topic: str) -> None:
    assert brokers_seen(broker.bootstrap.split(",")[0]) >= 1
    assert len(leaders(broker.bootstrap.split(",")[0], topic)) == 3
    with pytest.raises(BrokerStateError, match="already exists"):
        create_topic(broker.bootstrap, topic)


def test_killed_paused_and_restarted_broker_keeps_its_topics() -> None:
    with RealBroker(version=wanted_version()) as broker:
        create_topic(broker.bootstrap, "kept", partitions=2)
        first_pid = broker.node.pid
        broker.kill()
        assert not alive(first_pid)
        assert brokers_seen(broker.bootstrap, timeout_s=0.5) == 0
        broker.start()
        assert broker.node.pid != first_pid
        wait_until(lambda: leaders(broker.bootstrap, "kept") == [0, 0])
        broker.pause()
        assert brokers_seen(broker.bootstrap, timeout_s=0.3) == 0
        broker.resume()
        wait_until(lambda: brokers_seen(broker.bootstrap) == 1)
        with pytest.raises(BrokerStateError, match="runs already"):
            broker.node.launch(remove_if_orphaned=None)
        folder, pid = broker.log.parent, broker.node.pid
        assert "Kafka Server started" in broker.log.read_text()
    assert not folder.exists()
    assert not alive(pid)


def test_cluster_elects_new_leaders_when_one_node_dies(cluster3: RealCluster, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    create_topic(cluster3.bootstrap, topic, partitions=6, replicas=3)
    witness = cluster3.nodes[0].bootstrap
    assert sorted(leaders(witness, topic)) == [0, 0, 1, 1, 2, 2]
    cluster3.nodes[2].kill()
    try:
        wait_until(lambda: set(leaders(witness, topic)) == {0, 1})
    finally:
        cluster3.start()
    assert brokers_seen(witness) == 3


def test_listeners_for_tls_and_sasl_take_kafkas_own_client(tmp_path: Path) -> None:
    with RealBroker(version=wanted_version(), tls=True, users={"alice": "s3cret"}) as broker:
        tls = "ssl.truststore.type=PEM\nssl.truststore.location={}\nssl.endpoint.identification.algorithm=https\n"
        login = 'org.apache.kafka.common.security.{} required username="alice" password="{}";'
        plain, scram, good = "plain.PlainLoginModule", "scram.ScramLoginModule", "s3cret"

        def listed(bootstrap: str, protocol: str, mechanism: str = "", module: str = "", password: str = good) -> str:
            config = tmp_path / "client.properties"
            text = f"security.protocol={protocol}\ndefault.api.timeout.ms=8000\nrequest.timeout.ms=4000\n"
            text += tls.format(broker.ca_file) if "SSL" in protocol else ""
            text += f"sasl.mechanism={mechanism}\nsasl.jaas.config={login.format(module, password)}\n" if module else ""
            config.write_text(text)
            arguments = ("--bootstrap-server", bootstrap, "--list", "--command-config", str(config))
            return kafka_tool("org.apache.kafka.tools.TopicCommand", *arguments, version=broker.version)

        create_topic(broker.bootstrap, "seen")
        host, _, port = broker.bootstrap_tls.rpartition(":")
        trusting = ssl.create_default_context(cafile=str(broker.ca_file))
        with (
            socket.create_connection((host, int(port)), 10) as plain_socket,
            trusting.wrap_socket(plain_socket, server_hostname=host) as tls_socket,
        ):
            assert tls_socket.getpeercert()
        assert listed(broker.bootstrap_sasl, "SASL_PLAINTEXT", "PLAIN", plain).split() == ["seen"]
        assert listed(broker.bootstrap_sasl_tls, "SASL_SSL", "SCRAM-SHA-512", scram).split() == ["seen"]
        with pytest.raises(BrokerStateError, match="invalid credentials"):
            listed(broker.bootstrap_sasl, "SASL_PLAINTEXT", "SCRAM-SHA-256", scram, password="wrong")


def test_broker_and_its_folder_are_gone_after_the_asker_was_killed() -> None:
    script = f"""
        import time
        from kohort.testing import RealBroker
        broker = RealBroker(version={wanted_version()!r})
        print(broker.node.pid, broker.log.parent.parent, flush=True)
        time.sleep(600)
    """
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pid, folder = driver.stdout.readline().split()
    assert alive(int(pid))
    driver.kill()
    driver.wait()
    driver.stdout.close()
    wait_until(lambda: not alive(int(pid)))
    wait_until(lambda: not os.path.exists(folder))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_that_leaves_the_block_does_no_harm() -> None:
    with RealBroker(version=wanted_version()) as broker:
        child = os.fork()
        if not child:
            broker.close()
            os._exit(0)
        os.waitpid(child, 0)
        broker.kill()
        broker.start()  # in the folder
        create_topic(broker.bootstrap, "there")


def test_settings_of_any_text_start_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java reads the file as Latin-1, and the login module's options have quotes. The broker has its own directory."""
    (tmp_path / "földer").mkdir()
    monkeypatch.chdir(tmp_path / "földer")
    logs = tmp_path / "lögs"
    passwords = {"alice": 'pä"ss', "bob": "a\\b;c d", "carl": "\N{KEY}"}
    version = wanted_version()
    with RealBroker(version=version, folder=Path("kept"), users=passwords, properties={"log.dirs": logs}) as broker:
        for name, password in passwords.items():
            with Admin(
                broker.bootstrap_sasl,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username=name,
                sasl_password=password,
            ) as admin:
                admin.brokers()
    assert (logs / "meta.properties").exists()


def test_broker_with_nonsense_settings_says_why_it_did_not_start() -> None:
    with pytest.raises(BrokerStartError, match=r"num\.io\.threads"):
        RealBroker(version=wanted_version(), properties={"num.io.threads": "many"})


def test_unasked_listener_is_named_in_the_error() -> None:
    with RealBroker(version=wanted_version()) as broker, pytest.raises(BrokerStartError, match="no TLS listener"):
        _ = broker.bootstrap_tls


@pytest.mark.broker
def test_a_used_port_is_refused_before_a_process_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerStartError, match=f"address already in use .*port={port}"):
            RealCluster(1, ports=(port,))
