"""Addresses that are no broker, brokers that die, brokers that want something first: said plainly, with exit codes."""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.main import main
from kohort.conformance import broker_client
from kohort.conformance.broker_client import ANYONE, Access
from kohort.conformance.broker_under_test import MOST_LISTED, BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Selection
from kohort.conformance.errors import Blocked, PeerClosed, TargetUnreachable
from kohort.conformance.report import Report
from kohort.conformance.runner import conduct
from kohort.conformance.verdict import CheckVerdict
from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.errors import ErrorCode
from kohort.protocol.schema import Response
from kohort.testing.fake_broker import Alter, Answer, Call, Close, FakeBroker
from kohort.testing.tls import make_tls_files


@contextmanager
def server(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """Something that listens, and treats every connection alike."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(120)


def reach(address: str, access: Access = ANYONE) -> None:
    asyncio.run(BrokerUnderTest.reach(address, access))


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TargetUnreachable, match="cannot connect"):
        reach(f"127.0.0.1:{port}")


@pytest.mark.parametrize("access", [ANYONE, Access(user="judge", password="")])
def test_a_web_server_is_no_broker(access: Access) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with server(serve) as address, pytest.raises(TargetUnreachable, match="not a Kafka broker"):
        reach(address, access)


def test_a_listener_that_never_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "CONNECT_TIMEOUT_S", 0.05)
    with (
        server(lambda connection: connection.recv(1024) and connection.recv(1024)) as address,
        pytest.raises(TargetUnreachable, match="cannot connect: timed out"),
    ):
        reach(address, Access(user="judge", password=""))


def test_a_listener_that_hangs_up_may_want_tls() -> None:
    with (
        server(lambda connection: connection.recv(1024)) as address,
        pytest.raises(TargetUnreachable, match="--tls"),
    ):
        reach(address)


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata"])
def test_a_broker_that_wants_sasl_first(api: str) -> None:
    """Apache Kafka hangs up on a second ApiVersions already."""
    with FakeBroker() as broker:
        broker.control(api, lambda call: Close() if call.version > 0 else None)
        with pytest.raises(TargetUnreachable, match="--user"):
            reach(broker.bootstrap)


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        "localhost:",
        ":9092",
        "localhost:port",
        "localhost:²",
        "localhost:0",
        "localhost:99999",
        pytest.param("localhost:" + "9" * 5_000, id="a long number"),
        "",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(TargetUnreachable, match="HOST:PORT"):
        reach(text)


def test_an_ipv6_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TargetUnreachable, match="cannot connect") as caught:
        reach(f"[::1]:{port}")
    assert caught.value.place["address"] == f"::1:{port}"


@pytest.mark.parametrize("address", ["a..b:9092", "a\0b:9092"])
def test_an_address_that_cannot_exist(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--bootstrap", address, "--only", "D3a"]) == 3
    assert "check the address" in capsys.readouterr().err


def test_an_advertised_port_that_cannot_exist_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(nodes=2) as broker:
        bootstrap = broker.bootstrap
        broker.advertise(1, "127.0.0.1", 70_000)
        assert main(["conformance", "--bootstrap", bootstrap, "--only", "D3a", "--json"]) == 3
    assert "cannot connect to 127.0.0.1:70000" in json.loads(capsys.readouterr().out)["ended_early"]


def test_a_listener_without_metadata_may_be_of_a_controller() -> None:
    with FakeBroker(versions={"Metadata": None}) as broker, pytest.raises(TargetUnreachable, match="controller"):
        reach(broker.bootstrap)


def test_a_listener_that_requires_a_client_certificate(tmp_path: Path) -> None:
    """In TLS 1.3 the alert arrives after the client's handshake."""
    files = make_tls_files(tmp_path)
    requiring = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    requiring.load_cert_chain(files.keystore)
    requiring.load_verify_locations(files.ca_file)
    requiring.verify_mode = ssl.CERT_REQUIRED

    def serve(connection: socket.socket) -> None:
        with requiring.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secured:
            with contextlib.suppress(ssl.SSLError):
                secured.do_handshake()
            secured.shutdown(socket.SHUT_WR)
            while secured.recv(1024):  # a reset would overtake the alert
                pass

    access = Access(ssl.create_default_context(cafile=files.ca_file))
    with server(serve) as address, pytest.raises(TargetUnreachable, match=r"(?i)certificate.required"):
        reach(address, access)


def test_the_second_address_will_do() -> None:
    with FakeBroker() as broker:
        reach(f"127.0.0.1:1,{broker.bootstrap}")


def test_no_rights_on_groups_is_said_before_anything_else() -> None:
    with FakeBroker() as broker:
        refused = Coordinator(node_id=-1, error_code=30)
        broker.control(
            "FindCoordinator",
            lambda call: Answer(
                FindCoordinatorResponse(error_code=30, node_id=-1)
                if call.version < 4
                else FindCoordinatorResponse(coordinators=(refused,))
            ),
        )

        async def run() -> None:
            target = await BrokerUnderTest.reach(broker.bootstrap)
            await conduct(target, CHECKS)

        with pytest.raises(TargetUnreachable, match="GROUP_AUTHORIZATION_FAILED"):
            asyncio.run(run())


def test_no_right_to_make_topics_rules_out_what_needs_them() -> None:
    with FakeBroker(versions={"CreateTopics": None, "Metadata": (0, 3)}) as broker:

        async def run() -> dict[str, tuple[CheckVerdict, str]]:
            target = await BrokerUnderTest.reach(broker.bootstrap)
            await target.prepare()
            target.topics, target.topic_error = (), "CreateTopics failed: TOPIC_AUTHORIZATION_FAILED"
            from kohort.conformance.runner import plan

            laid = plan(target, CHECKS, timing=False)
            await target.close()
            return {result.check: (result.verdict, result.reason) for result in laid.known}

        known = asyncio.run(run())
        assert known["F1"] == (
            CheckVerdict.NOT_APPLICABLE,
            "no topic could be created: CreateTopics failed: TOPIC_AUTHORIZATION_FAILED",
        )
        assert "B4" not in known


def test_a_broker_that_dies_ends_the_run_early() -> None:
    broker = FakeBroker()

    async def run() -> int:
        target = await BrokerUnderTest.reach(broker.bootstrap)
        seen = 0

        def count(result: object) -> None:
            nonlocal seen
            seen += 1
            if seen == 40:
                threading.Thread(target=broker.close).start()

        report = await conduct(target, CHECKS, selection=Selection.of("B*", CHECKS), timing=False, on_result=count)
        assert report.ended_early == "the broker stopped responding"
        assert 1 <= len(report.left_behind) <= MOST_LISTED, "one line for all groups"
        assert report.counts[CheckVerdict.PASS] >= 10
        return report.exit_code

    assert asyncio.run(run()) == 3
    broker.close()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are written, passwords are not, and the exit code is the verdict."""
    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)  # the tests may run on a broker that it names
    with FakeBroker() as broker:
        output = tmp_path / "deep" / "report"
        common = ["conformance", "--bootstrap", broker.bootstrap, "--output", str(output)]
        assert main([*common, "--only", "D3*", "--report", "json", "--report", "html", "--report", "junit"]) == 0
        data = json.loads(output.with_name("report.json").read_text())
        assert {entry["check"] for entry in data["results"]} == {"D3a", "D3b", "D3c", "D3d"}
        assert output.with_name("report.html").stat().st_size > 20_000
        assert output.with_name("report.xml").exists()
        broker.control("Heartbeat", lambda call: Close())
        assert main([*common, "--only", "D3a@4", "--report", "json"]) == 1
        failed = json.loads(output.with_name("report.json").read_text())
        assert failed["counts"]["fail"] + failed["counts"]["blocked"] == 1
        capsys.readouterr()
        assert main(["conformance", "compare", str(output) + ".json", str(output) + ".json"]) == 0
        assert "0 different cells" in capsys.readouterr().out
        assert main([*common, "--only", "D3a@4", "--json"]) == 1
        response = capsys.readouterr().out
        assert [entry["check"] for entry in json.loads(response)["results"]] == ["D3a"]
        assert main(["conformance", "compare", str(output) + ".json", str(output) + ".json", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["cells"] == []
    assert main([*common, "--only", "D3a"]) == 3
    assert "cannot connect" in capsys.readouterr().err
    assert main([*common, "--only", "Z9"]) == 2
    assert main(["conformance"]) == 2
    assert main(["conformance", "list"]) == 0
    assert "MEMBER_ID_REQUIRED" in capsys.readouterr().out
    assert main(["conformance", "list", "--json"]) == 0
    assert [one["check"] for one in json.loads(capsys.readouterr().out)] == [check.id for check in CHECKS]


def test_what_an_error_has_orders_the_terminal_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ("far/" * 30) / "\x1b[31mno.json"
    assert main(["conformance", "compare", str(path), str(tmp_path / "other.json")]) == 3
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert f"(report={str(path).replace(chr(0x1B), chr(0x5C) + 'x1b')})" in said, "in one line, however long"
    assert said.count("\n") == 1


@pytest.mark.parametrize("highest", [0, 2])
def test_nothing_is_left_on_a_broker_whose_members_leave_one_by_one(highest: int) -> None:
    with FakeBroker(versions={"LeaveGroup": (0, highest)}) as broker:

        async def run() -> tuple[str, ...]:
            target = await BrokerUnderTest.reach(broker.bootstrap)
            report = await conduct(target, CHECKS, selection=Selection.of("B13,B14", CHECKS), timing=False)
            assert report.results
            return report.left_behind

        assert asyncio.run(run()) == ()


def _no_deletion(request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = (
        DeletableGroupResult(group_id=name, error_code=ErrorCode.NOT_COORDINATOR) for name in request.groups_names
    )
    return DeleteGroupsResponse(results=tuple(results))


def _no_leave(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR) if request.member_epoch == -1 else None


@pytest.mark.parametrize(("api", "refuse"), [("DeleteGroups", _no_deletion), ("ConsumerGroupHeartbeat", _no_leave)])
def test_groups_of_a_broker_that_refuses_for_a_moment_are_removed(
    api: str, refuse: Callable[[Any], Response | None]
) -> None:
    """A starved broker is no coordinator for a moment. A leave or a deletion that it refuses then is sent again."""
    refused = 0

    def control(call: Call) -> Answer | None:
        nonlocal refused
        response = refuse(call.request)
        refused += response is not None
        return Answer(response) if response is not None and refused <= 2 else None

    with FakeBroker() as broker:

        async def run() -> tuple[str, ...]:
            target = await BrokerUnderTest.reach(broker.bootstrap)
            selection = Selection.of("M4a", CHECKS)

            def after(_result: object) -> None:
                broker.control(api, control)

            report = await conduct(target, CHECKS, selection=selection, timing=False, on_result=after)
            return report.left_behind

        assert asyncio.run(run()) == ()
    assert refused > 2


@pytest.mark.parametrize(
    ("api", "control", "reason"),
    [
        ("FindCoordinator", lambda call: Close(), "closed"),
        ("OffsetFetch", lambda call: Close(), "closed"),
        ("CreateTopics", lambda call: Alter(lambda response: response._replace(topics=())), "out of range"),
    ],
)
def test_a_broker_that_fails_before_the_checks_gets_a_report(
    api: str, control: Callable[[Call], Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeBroker() as broker:
        broker.control(api, control)
        assert main(["conformance", "--bootstrap", broker.bootstrap, "--only", "D3a", "--json"]) == 3
    response = json.loads(capsys.readouterr().out)
    assert response["ended_early"].startswith("the run could not be prepared: ")
    assert reason in response["ended_early"]


def test_results_are_reported_if_the_coordinator_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Operator:
        async def stop(self, node: int) -> None:
            raise Blocked("no such container")

        start = stop

    async def no_coordinator() -> None:
        raise PeerClosed("FindCoordinator")

    async def run() -> Report:
        target = await BrokerUnderTest.reach(broker.bootstrap.split(",")[0])
        target.operator = Operator()
        await target.prepare()
        monkeypatch.setattr(target, "prepare", lambda: asyncio.sleep(0))
        monkeypatch.setattr(target, "wake_coordinator", no_coordinator)
        return await conduct(target, CHECKS, selection=Selection.of("D3a,A10", CHECKS))

    with FakeBroker(nodes=3) as broker:
        report = asyncio.run(run())
    assert report.counts[CheckVerdict.PASS]
    assert report.counts[CheckVerdict.BLOCKED]
