"""`kohort wire` as its users call it: text, files, captures and tapes; what it prints and how it exits."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dpkt
import pytest

from kohort.cli.main import main
from kohort.protocol import tape
from kohort.protocol.tape import Taped
from kohort.protocol.wire import WireConnection
from kohort.testing.fake_broker import FakeBroker
from tests.support.broker_selection import SelectedBroker

HEARTBEAT = {"group_id": "billing", "generation_id": 3, "member_id": "m-1"}
RESPONSE = b"\0\0\0\x0a" + b"\0\0\0\0" + b"\0\0\0\0" + b"\0\x1b"


def heartbeat() -> bytes:
    return WireConnection("me").send("Heartbeat", 3, HEARTBEAT)[1]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["wire", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("written", [lambda b: b.hex(), lambda b: b.hex(" "), lambda b: base64.b64encode(b).decode()])
def test_a_frame_as_text(capsys: pytest.CaptureFixture[str], written: object) -> None:
    code, out, _ = run(capsys, "explain", written(heartbeat()))  # type: ignore[operator]
    assert code == 0
    assert "Heartbeat request v3" in out
    assert "generation_id: int32 = 3" in out


def test_a_file_of_frames_raw_or_as_hex(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(heartbeat() * 2)
    (tmp_path / "hex").write_text((heartbeat() * 2).hex() + "\n")
    raw = run(capsys, "explain", str(tmp_path / "raw"), "--summary")
    assert raw == run(capsys, "explain", str(tmp_path / "hex"), "--summary")
    assert raw[1].count("Heartbeat request v3") == 2


def test_a_malformed_frame_exits_with_1_and_points_at_the_field(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explain", heartbeat()[:-2].hex())
    assert code == 1
    assert "<-- MALFORMED" in out
    broken = next(line for line in out.splitlines() if "MALFORMED" in line and "size" not in line)
    assert "group_instance_id" in broken or "member_id" in broken


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explain", heartbeat().hex(), "--json")
    tree = json.loads(out)
    assert code == 0
    assert tree["name"] == "Heartbeat request v3"
    body = next(part for part in tree["parts"] if part["name"] == "body")
    assert {part["name"]: part.get("value") for part in body["parts"]}["member_id"] == "m-1"


def test_a_response_needs_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "explain", RESPONSE.hex(), "--response", "Heartbeat", "--version", "3")[0] == 0
    code, _, err = run(capsys, "explain", RESPONSE.hex(), "--response", "Heartbeat")
    assert code == 1
    assert "--version" in err


def test_a_response_has_no_version_below_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", RESPONSE.hex(), "--response", "ApiVersions", "--version", "-7")
    assert (code, out) == (2, "")
    assert "--version" in err


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("no-such-file", "neither a frame in hex"), ("zzzz", "neither a frame in hex"), ("00ff", "")],
    ids=["no file", "no file, and base64", "two bytes"],
)
def test_what_is_no_frame(capsys: pytest.CaptureFixture[str], wrong: str, says: str) -> None:
    code, out, err = run(capsys, "explain", wrong)
    assert code == 1
    assert says in err
    assert "Traceback" not in out + err


def test_a_capture_of_both_directions_out_of_order_and_sent_twice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request = heartbeat()
    client, broker = 40_000, 9092
    segments = [
        (client, 100, b"", dpkt.tcp.TH_SYN),
        (broker, 500, b"", dpkt.tcp.TH_SYN | dpkt.tcp.TH_ACK),
        (client, 101 + 20, request[20:], dpkt.tcp.TH_ACK),
        (client, 101, request[:20], dpkt.tcp.TH_ACK),
        (client, 101, request[:20], dpkt.tcp.TH_ACK),
        (broker, 501, RESPONSE, dpkt.tcp.TH_ACK),
    ]
    buffer = io.BytesIO()
    writer = dpkt.pcap.Writer(buffer)
    for number, (port, sequence, data, flags) in enumerate(segments):
        other = broker if port == client else client
        segment = dpkt.tcp.TCP(sport=port, dport=other, seq=sequence, flags=flags, data=data)
        packet = dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\1", p=dpkt.ip.IP_PROTO_TCP, data=segment)
        packet.len = len(packet)
        frame = dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP, data=packet)
        writer.writepkt(bytes(frame), ts=1_000_000 + number)
    path = tmp_path / "heartbeat.pcap"
    path.write_bytes(buffer.getvalue())
    whole = buffer.getvalue()
    code, out, _ = run(capsys, "explain", str(path), "--summary")
    assert code == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(whole)))
    assert run(capsys, "explain", "-", "--summary") == (0, out, "")
    os.mkfifo(tmp_path / "pipe")
    writer_of_pipe = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(whole,))
    writer_of_pipe.start()
    assert run(capsys, "explain", str(tmp_path / "pipe"), "--summary") == (0, out, "")
    writer_of_pipe.join()
    assert [line.split("  ")[1:3] for line in out.splitlines()] == [
        ["127.0.0.1:40000 -> 127.0.0.1:9092", f"Heartbeat request v3, {len(request)} bytes"],
        ["127.0.0.1:9092 -> 127.0.0.1:40000", f"Heartbeat response v3, {len(RESPONSE)} bytes"],
    ]
    path.write_bytes(whole[: whole.rindex(RESPONSE) - 60])  # within the header of the last packet
    code, out, error = run(capsys, "explain", str(path), "--summary")
    assert (code, len(out.splitlines())) == (1, 1)
    assert error.count("\n") == 1
    assert "the capture is cut short" in error
    path.write_bytes(whole[:20])
    code, out, error = run(capsys, "explain", str(path), "--summary")
    assert (code, out, error.count("\n")) == (1, "", 1)


def test_a_capture_with_a_block_shorter_than_its_head_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buffer = io.BytesIO()
    dpkt.pcapng.Writer(buffer)
    path = tmp_path / "damaged.pcapng"
    path.write_bytes(buffer.getvalue() + (6).to_bytes(4, sys.byteorder) + (4).to_bytes(4, sys.byteorder))
    code, out, error = run(capsys, "explain", str(path), "--summary")
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert "the capture is damaged" in error


def test_a_tape_is_read_replayed_and_free_of_secrets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret = b"\0user\0canary-password"
    login = WireConnection("me").send("SaslAuthenticate", 2, {"auth_bytes": secret})[1]
    lines = [
        tape.line(Taped(0.5, "broker:9092", 1, "request", "SaslAuthenticate", 2, 0, login)),
        tape.line(Taped(0.6, "broker:9092", 1, "request", "Heartbeat", 3, 1, heartbeat())),
        tape.line(Taped(0.7, "broker:9092", 1, "response", "Heartbeat", 3, 1, RESPONSE)),
    ]
    path = tmp_path / "a.tape"
    path.write_text("".join(lines))
    assert all(base64.b64encode(secret).decode()[:-4] not in line and "canary" not in line for line in lines)
    scrubbed, kept, _ = tape.read(lines)
    assert scrubbed.scrubbed
    assert b"canary" not in scrubbed.frame
    assert kept.frame == heartbeat()
    code, out, _ = run(capsys, "replay", str(path), "--json")
    assert code == 0
    assert json.loads(out)["differences"] == []
    assert run(capsys, "explain", str(path), "--only", "heartbeat".title())[1].count("Heartbeat re") == 2


@pytest.mark.parametrize("command", [("wire", "replay"), ("group", "timeline")])
def test_a_file_of_bytes_is_no_tape(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, str]
) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(b"\xd4\xc3\xb2\xa1\n")
    assert main([*command, str(path)]) == 1
    assert "invalid line of a wire tape" in capsys.readouterr().err


@pytest.mark.parametrize("nested", ["[" * 200_000, '{"a":' * 100_000])
@pytest.mark.parametrize("command", [("wire", "replay"), ("group", "timeline"), ("assign", "simulate")])
def test_a_file_that_is_nested_deeply_ends_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, str], nested: str
) -> None:
    path = tmp_path / "deep.json"
    path.write_text(nested + "\n")
    assert main([*command, str(path)]) == 1
    said = capsys.readouterr().err.strip()
    assert "nested too deeply" in said
    assert len(said.splitlines()) == 1


def test_a_torn_tape_names_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "torn.tape"
    path.write_text(tape.line(Taped(0, "b:1", 1, "request", "Heartbeat", 3, 1, heartbeat())) + '{"time_s": 1, "no')
    code, _, err = run(capsys, "replay", str(path))
    assert code == 1
    assert "line=2" in err


@pytest.mark.parametrize(
    "change",
    [
        {"api": "OfTomorrow"},
        {"connection": "first"},
        {"correlation_id": [1]},
        {"api": 12},
        {"version": "3"},
        {"direction": "up"},
        {"time_s": "0"},
        {"frame": "AAAA"},
        {"node": "\udcff"},
    ],
)
@pytest.mark.parametrize("command", [("explain",), ("replay",), ("replay", "--member")])
def test_a_line_that_is_no_frame_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...], change: dict[str, object]
) -> None:
    whole = {
        "time_s": 0.0,
        "node": "h:1",
        "connection": 0,
        "direction": "request",
        "api": "Heartbeat",
        "version": 3,
        "correlation_id": 1,
        "frame": "AAAADAAMAAMAAAABAAAAAA==",
    }
    file = tmp_path / "life.tape"
    line = json.dumps(whole | change, ensure_ascii=False).encode(errors="surrogateescape")
    file.write_bytes(line.replace(b'"node": "\xff"', b'"\xff": 1') + b"\n")
    assert main(["wire", command[0], str(file), *command[1:]]) == 1
    assert capsys.readouterr().err.strip().endswith("(line=1)")


def test_the_table_of_apis(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    rows = json.loads(run(capsys, "apis", "--json")[1])
    assert {"key": 11, "name": "JoinGroup", "versions": [0, 9], "flexible_since": 6, "broker": None} in rows


@pytest.mark.broker
def test_apis_beside_a_brokers(broker: SelectedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "apis", "--bootstrap", broker.bootstrap, "--json")
    rows = {row["key"]: row for row in json.loads(out)}
    assert code == 0
    low, high = rows[11]["broker"]
    assert 0 <= low < high <= 9
    assert any(row["name"] is None for row in rows.values()), "a broker speaks APIs that are none of a consumer's"


def test_a_file_that_is_not_there_is_no_base64(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "explain", "/nowhere/frames")
    assert code == 1
    assert "there is no such file" in err


@pytest.mark.parametrize("length", [300, 5_000])
def test_a_frame_may_be_longer_than_a_file_name(capsys: pytest.CaptureFixture[str], length: int) -> None:
    frame = WireConnection("me").send("Heartbeat", 3, HEARTBEAT | {"member_id": "m" * length})[1]
    code, out, err = run(capsys, "explain", frame.hex(), "--summary")
    assert (code, err) == (0, "")
    assert "Heartbeat request v3" in out


def test_a_folder_is_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "explain", str(tmp_path))
    assert code == 1
    assert "there is no such file" in err


def test_apis_that_no_broker_has(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "apis", "--bootstrap", "127.0.0.1:1")
    assert code == 1
    assert "cannot reach the broker" in err


@pytest.mark.broker
@pytest.mark.parametrize(
    ("typed", "names"), [((), ["roundrobin"]), (("--assignor", "sticky"), ["sticky"])], ids=["file", "typed"]
)
def test_a_properties_file_says_what_a_recorded_member_offers_and_keeps_its_own_tape(
    typed: tuple[str, ...], names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tape in the file is a running consumer's; frames of another client would spoil it."""
    own, file = tmp_path / "own.tape", tmp_path / "client.properties"
    with FakeBroker(topics={"t": 1}) as fake:
        file.write_text(
            f"bootstrap.servers={fake.bootstrap}\npartition.assignment.strategy=roundrobin\nkohort.tape={own}\n"
        )
        path = str(tmp_path / "life.tape")
        where = ("--config", str(file), "--group", "g", "--topic", "t", "--seconds", "0.5", "--json", *typed)
        assert run(capsys, "record", path, *where)[0] == 0
        assert main(["consume", "t", "--config", str(file)]) == 0
        joined: Any = fake.calls_of("JoinGroup")[0].request
    assert [one.name for one in joined.protocols] == names
    assert not own.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without a signal")
def test_sigterm_ends_a_recording_and_its_membership(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kohort.cli.main", "wire", "record", str(tmp_path / "life.tape"), "--group", "g"]
    with (
        FakeBroker(topics={"t": 1}) as fake,
        subprocess.Popen([*command, "--topic", "t", "-b", fake.bootstrap]) as process,
    ):
        while not fake.calls_of("Heartbeat"):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
        assert len(fake.calls_of("LeaveGroup")) == 1


def test_record_then_replay_through_the_member(
    broker: SelectedBroker, topic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "a.tape")
    where = ("--bootstrap", broker.bootstrap, "--group", topic, "--topic", topic)
    code, out, _ = run(capsys, "record", path, *where, "--seconds", "2", "--json")
    assert code == 0, out
    reported = json.loads(out)
    assert (reported["tape"], reported["frames"]) == (path, len(Path(path).read_text().splitlines()))
    code, out, _ = run(capsys, "replay", path, "--member")
    assert code == 0, out
    assert "JoinGroup" in out
    assert "same request" in out


@pytest.mark.parametrize(
    ("data", "reported"), [(b"", "is empty"), (b"\n", "is empty"), (b"not frames", "not a sequence")]
)
def test_bytes_that_are_no_frames_are_one_error_about_the_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, reported: str
) -> None:
    file = tmp_path / "frames"
    file.write_bytes(data)
    code, out, err = run(capsys, "explain", str(file))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert reported in err
    assert "give frames" in err
    assert "security_protocol" not in err
