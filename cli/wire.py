"""`kohort wire explain|apis|record|replay`: inspects Kafka's protocol byte by byte."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.connection_options import ConnectionOptions, connected
from kohort.cli.frame_input import Captured, frames_of_pcap, is_pcap, literal
from kohort.cli.numbers_given import finite
from kohort.cli.terminal import say
from kohort.common.counted import counted
from kohort.common.errors import KohortError, WireError
from kohort.common.named_tuple import NamedTuple
from kohort.common.whole_number import whole
from kohort.coordinator_client.replay import Replayed
from kohort.coordinator_client.replay import replay as replay_member
from kohort.network.process_exit import exit_on_sigterm
from kohort.protocol import tape
from kohort.protocol.catalogue import API, APIS, Api
from kohort.protocol.explain import ExplainedPart, explain_request, explain_response
from kohort.protocol.framing import Unframer
from kohort.protocol.tape import Taped

MAX_VALUE_CHARACTERS = 96
FRAMES = "give frames, each behind its length of four bytes, a packet capture or a tape"
ASSIGNORS = "partition.assignment.strategy"

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Kafka's protocol, byte by byte.")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a frame.")]


class Shown(NamedTuple):
    """A frame to print: its origin and its content."""

    seen: dict[str, Any]
    part: ExplainedPart


@app.command()
def explain(
    source: Annotated[str, typer.Argument(help="Hex, base64, a file (frames, pcap, wire tape), or - for stdin.")],
    response: Annotated[
        str | None, typer.Option(help="The frames are responses of this API (name or key); needs --version.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=0, help="The version of the responses' request.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only frames of this API; may be repeated.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print one line a frame.")] = False,
    as_json: AsJson = False,
) -> None:
    """Decode frames field by field: offsets, headers, tagged fields, embedded protocols, record batches.

    Example: kohort wire explain 0000001b00120003000000070006636c69656e740007636c69656e74023000
    Example: tcpdump -i any -w rebalance.pcap port 9092, then: kohort wire explain rebalance.pcap --only JoinGroup

    The exit code is 1 if a frame is malformed. The tree shows where and why.
    """
    responses = _api(response) if response else None
    if responses is not None and version is None:
        raise KohortError("a response does not contain its version", hint="add --version")
    wanted = {_api(name).name for name in only or ()}
    faults = 0
    for shown in _frames(source, responses, version):
        if wanted and shown.part.name.split(" ")[0] not in wanted:
            continue
        faults += bool(shown.part.faults())
        if as_json:
            print(json.dumps(shown.seen | shown.part.as_dict()))
        else:
            for line in _text(shown, summary):
                say(line)
    if faults:
        raise typer.Exit(1)


@app.command()
@connected
def apis(cluster: ConnectionOptions, as_json: AsJson = False) -> None:
    """List the APIs of kohort with their versions, and those of a broker if one is named.

    Example: kohort wire apis --bootstrap localhost:9092
    """
    theirs = _broker_versions(cluster) if cluster.named else {}
    beside = bool(theirs)
    rows = [_row(api, theirs.pop(api.key, None)) for api in APIS]
    rows += [{"key": key, "name": None, "versions": None, "broker": list(theirs[key])} for key in sorted(theirs)]
    if as_json:
        print(json.dumps(rows))
        return
    say(f"{'key':>4}  {'API':<26} {'kohort':<8} {'flexible':<9}" + ("broker" if beside else ""))
    for row in rows:
        ours, since, broker = (_shown_range(row.get(column)) for column in ("versions", "flexible_since", "broker"))
        say(f"{row['key']:>4}  {row['name'] or '(not declared)':<26} {ours:<8} {since:<9}{broker if beside else ''}")


@app.command()
@connected
def record(
    cluster: ConnectionOptions,
    path: Annotated[Path, typer.Argument(help="The tape file; frames are appended.")],
    group: Annotated[str, typer.Option(help="The group to join for the duration.")],
    topic: Annotated[list[str], typer.Option(help="A topic to subscribe to; may be repeated.")],
    assignor: Annotated[
        str | None,
        typer.Option(help="Name of an assignor of the group; default: that of the properties file, or range."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, callback=finite, help="The duration.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Join a group for a while, and write every frame to a tape. Nothing is committed.

    The join and the leave cause a rebalance each, which moves partitions of other members.

    Example: kohort wire record life.tape --bootstrap localhost:9092 --group billing --topic payments --seconds 10
    """
    from kohort import Consumer

    settings = {ASSIGNORS: "range", **cluster.outside(), "group.id": group, "kohort.tape": str(path)}
    if assignor is not None:
        settings[ASSIGNORS] = assignor
    with exit_on_sigterm(), Consumer.from_config(settings) as consumer:  # a member that only ends delays its group
        consumer.subscribe(topic)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            consumer.poll(min(left, 1.0))
    with path.open() as lines:
        count = sum(1 for _ in tape.read(lines))
    reported = f"{counted(count, 'frame')} on {path}; see them with: kohort wire explain {path} --summary"
    print(json.dumps({"tape": str(path), "frames": count}) if as_json else reported)


@app.command()
def replay(
    path: Annotated[Path, typer.Argument(help="Tape file written by Consumer(tape=...).", exists=True, dir_okay=False)],
    member: Annotated[bool, typer.Option("--member", help="Also replay to the current group member.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay a tape. Every frame must be decoded, and encoded again byte for byte.

    With --member, a group member that gets the same responses must send the same requests.

    Example: kohort wire replay life.tape --member
    """
    with path.open(errors="replace") as lines:  # a file that is not text is reported as an invalid tape
        frames = list(tape.read(lines))
    counts = Counter(f"{each.api} {each.direction} v{each.version}" for each in frames)
    differences = [
        {"frame": number, "api": each.api, "version": each.version, "reason": reason}
        for number, each in enumerate(frames, start=1)
        if (reason := tape.difference(each))
    ]
    walk = list(replay_member(frames)) if member else []
    if as_json:
        print(json.dumps({"frames": counts, "differences": differences, "member": [_step(each) for each in walk]}))
    else:
        for name, count in sorted(counts.items()):
            say(f"{count:>7}  {name}")
        say(f"{len(frames):>7}  frames, {len(differences)} of them differ after decoding and encoding")
        for row in differences:
            say(f"frame {row['frame']}: {row['api']} v{row['version']}: {row['reason']}")
        for each in walk:
            say(f"+{each.time_s:.3f} s  {each.api:<16} {each.state.name:<12} {each.difference or 'same request'}")
    if differences or any(each.difference for each in walk):
        raise typer.Exit(1)


def _step(each: Replayed) -> dict[str, object]:
    return each._asdict() | {"state": each.state.name}


def _row(api: Api, broker: tuple[int, int] | None) -> dict[str, Any]:
    return {
        "key": api.key,
        "name": api.name,
        "versions": list(api.versions),
        "flexible_since": api.request.flexible_since,
        "broker": list(broker) if broker else None,
    }


def _shown_range(versions: list[int] | int | None) -> str:
    if versions is None:
        return "-"
    return f"v{versions}+" if isinstance(versions, int) else f"{versions[0]}-{versions[1]}"


def _broker_versions(cluster: ConnectionOptions) -> dict[int, tuple[int, int]]:
    with cluster.admin() as admin:
        first = admin.brokers()[:1]
        return dict(admin.versions(first)[first[0].node])


# ---- input of frames -----------------------------------------------------------------------------------------------


def _frames(source: str, responses: Api | None, version: int | None) -> Iterator[Shown]:
    if source == "-":
        data = sys.stdin.buffer.read()
    elif os.path.exists(source) and not os.path.isdir(source):  # `Path.exists` raises for a long frame in hex
        with open(source, "rb") as file:
            if file.seekable():  # not a pipe, such as <(ssh host tcpdump ...)
                if is_pcap(file.read(4)):
                    file.seek(0)
                    yield from map(_captured, frames_of_pcap(file))
                    return
                file.seek(0)
            data = file.read()
    elif source.startswith(("/", "./", "../", "~")):  # frames begin with a smaller length
        raise KohortError("there is no such file", path=source)
    else:
        data = literal(source)
    if is_pcap(data):
        yield from map(_captured, frames_of_pcap(BytesIO(data)))
        return
    if data.lstrip()[:1] == b"{":
        yield from (_taped(each) for each in tape.read(data.decode(errors="replace").splitlines()))
        return
    if not data.strip():
        raise KohortError("the input is empty", path=source, hint=FRAMES)
    yield from _plain(_bytes_of(data), responses, version)


def _bytes_of(data: bytes) -> bytes:
    """Return the bytes of a file, which may also be hex or base64."""
    try:
        return literal(data.decode("ascii"))
    except (UnicodeDecodeError, KohortError):
        return data


def _plain(data: bytes, responses: Api | None, version: int | None) -> Iterator[Shown]:
    cutter = Unframer()
    try:
        bodies = cutter.push(data)
    except WireError as error:
        raise KohortError(f"not a sequence of frames: {error.message}", hint=FRAMES, **error.place) from None
    frames = [len(body).to_bytes(4, "big") + body for body in bodies]
    rest = data[sum(map(len, frames)) :]
    for frame in [*frames, *([rest] if rest else [])]:  # a cut frame is explained up to its end
        part = explain_request(frame) if responses is None else explain_response(frame, responses.key, version or 0)
        yield Shown({}, part)


def _captured(each: Captured) -> Shown:
    ends = (each.client, each.broker) if each.said.direction == "request" else (each.broker, each.client)
    return Shown({"time_s": round(each.time_s, 6), "from": ends[0], "to": ends[1]}, each.said.part)


def _taped(each: Taped) -> Shown:
    sent = each.direction == "request"
    part = explain_request(each.frame) if sent else explain_response(each.frame, each.api, each.version)
    ends = ("client", each.node) if sent else (each.node, "client")
    return Shown({"time_s": each.time_s, "from": ends[0], "to": ends[1]}, part)


def _api(name: str) -> Api:
    number = whole(name)
    key = name if number is None else number
    if key not in API:
        raise KohortError(f"no API {name!r}", hint="run `kohort wire apis` for a list")
    return API[key]


# ---- output --------------------------------------------------------------------------------------------------------


def _text(shown: Shown, summary: bool) -> Iterable[str]:
    seen, part = shown
    where = f"+{seen['time_s']:.3f} s  {seen['from']} -> {seen['to']}  " if seen else ""
    fault = "".join(f"  MALFORMED: {each.fault}" for each in part.faults()[:1])
    yield f"{where}{part.name}, {part.end} bytes{fault if summary else ''}"
    if summary:
        return
    for depth, each in part.walk():
        if depth:
            yield f"{each.start:>6}  {'  ' * (depth - 1)}{_line(each)}"
    yield ""


def _line(part: ExplainedPart) -> str:
    text = part.name
    if part.kind not in ("frame", "fault", "tags", "array"):
        text += f": {part.kind}"
    if not part.parts and part.fault is None and part.kind not in ("tags", "array"):
        text += f" = {_value(part.value)}"
    if part.note:
        text += f"  ({part.note})"
    return text if part.fault is None else f"{text}  <-- MALFORMED: {part.fault}"


def _value(value: Any) -> str:
    text = repr(value)
    if isinstance(value, bytes | memoryview):
        raw = bytes(value)
        text = repr(raw) if raw.isascii() and raw.decode().isprintable() else raw.hex()
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}... ({len(text)} characters)"
