"""Input of frames: hex, base64, a file, a packet capture, a wire tape."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import dpkt

from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.protocol.stream_decoder import Conversation, DecodedMessage

PCAP_MAGICS = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x0a\x0d\x0d\x0a")
MAX_GAP_BYTES = 64 << 20  # buffered bytes behind missing segments
_LINKS = {
    dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
    dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
    dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    dpkt.pcap.DLT_NULL: dpkt.loopback.Loopback,
}
_RAW_IP = (12, 14, 101)


class Captured(NamedTuple):
    """An explained frame of a capture. `time_s` counts from the capture's first packet."""

    time_s: float
    client: str
    broker: str
    said: DecodedMessage


class NotBytes(KohortError):
    """Text that is neither hex, base64 nor the name of a file."""


SHORTEST_FRAME = 8  # a length, and the correlation id of a response


def literal(text: str) -> bytes:
    """Decode hex (spaces, colons, 0x and line breaks allowed) or base64."""
    squeezed = re.sub(r"0x|[\s:,]", "", text)
    if re.fullmatch(r"(?:[0-9a-fA-F]{2})+", squeezed):
        return bytes.fromhex(squeezed)
    try:
        decoded = base64.b64decode(squeezed, validate=True)
    except binascii.Error:
        decoded = b""
    # A mistyped file name may be valid base64, but a frame has a length and a header.
    if len(decoded) < SHORTEST_FRAME or decoded[0]:
        raise NotBytes(
            f"{text[:40]!r} is neither a frame in hex or base64 nor a file",
            hint="use hex, base64, a file, a pcap, or - for standard input",
        )
    return decoded


def is_pcap(data: bytes) -> bool:
    return data[:4] in PCAP_MAGICS


@dataclass(slots=True)
class _Stream:
    """One direction of a TCP connection, put in order."""

    next_sequence: int | None = None
    early: dict[int, bytes] = field(default_factory=dict)

    def push(self, sequence: int, data: bytes) -> bytes:
        """Return the bytes that are in order with this segment, without those returned before."""
        if self.next_sequence is None:
            self.next_sequence = sequence
        behind = (self.next_sequence - sequence) & 0xFFFFFFFF
        if behind < 0x80000000:
            data = data[behind:]
            sequence = self.next_sequence
        if sequence != self.next_sequence:
            if sum(map(len, self.early.values())) < MAX_GAP_BYTES:
                self.early[sequence] = data
            return b""
        ready = bytearray(data)
        self.next_sequence = (sequence + len(data)) & 0xFFFFFFFF
        while (more := self.early.pop(self.next_sequence, None)) is not None:
            ready += more
            self.next_sequence = (self.next_sequence + len(more)) & 0xFFFFFFFF
        return bytes(ready)


@dataclass(slots=True)
class _Flow:
    client: str
    broker: str
    conversation: Conversation = field(default_factory=Conversation)
    streams: dict[str, _Stream] = field(default_factory=dict)  # by sender


def frames_of_pcap(file: BinaryIO) -> Iterator[Captured]:
    """Yield the Kafka frames of a pcap or pcapng file, in the order in which their last bytes were captured.

    The side that opened a connection is the client. If the opening was not captured, the higher port is.
    """
    try:
        reader = dpkt.pcap.UniversalReader(file)
    except (dpkt.UnpackError, ValueError) as error:
        raise KohortError(f"not a packet capture: {error}", path=getattr(file, "name", None)) from None
    link = reader.datalink()
    flows: dict[frozenset[str], _Flow] = {}
    began: float | None = None
    for when, packet in _packets(reader):
        began = when if began is None else began
        segment = _tcp(link, packet)
        if segment is None:
            continue
        sender, receiver, tcp = segment
        key = frozenset((sender, receiver))
        opening = bool(tcp.flags & dpkt.tcp.TH_SYN)
        if opening and not tcp.flags & dpkt.tcp.TH_ACK:
            flows[key] = _Flow(sender, receiver)
        flow = flows.get(key)
        if flow is None:
            client, broker = sorted((sender, receiver), key=_port, reverse=True)
            flow = flows[key] = _Flow(client, broker)
        stream = flow.streams.setdefault(sender, _Stream())
        if opening:
            stream.next_sequence = (tcp.seq + 1) & 0xFFFFFFFF
        if not tcp.data:
            continue
        data = stream.push(tcp.seq, bytes(tcp.data))
        feed = flow.conversation.request_bytes if sender == flow.client else flow.conversation.response_bytes
        for said in feed(data):
            yield Captured(when - began, flow.client, flow.broker, said)


def _packets(reader: Any) -> Iterator[tuple[float, bytes]]:
    """Yield the packets. A capture that is cut short, as while tcpdump writes it, raises KohortError at its end.

    So does one that is damaged, at the damage.
    """
    try:
        yield from reader
    except dpkt.UnpackError as error:
        raise KohortError(f"the capture is cut short: {error}", hint="the frames before its end are shown") from None
    except ValueError as error:  # a block of a length that no block has
        hint = "the frames before the damage are shown"
        raise KohortError(f"the capture is damaged: {error}", hint=hint) from None


def _tcp(link: int, packet: bytes) -> tuple[str, str, Any] | None:
    """Return (sender, receiver, segment), or None if the packet is not TCP over IP."""
    try:
        if link in _RAW_IP:
            network = dpkt.ip6.IP6(packet) if packet[0] >> 4 == 6 else dpkt.ip.IP(packet)
        else:
            network = _LINKS[link](packet).data
        tcp = network.data
        if not isinstance(tcp, dpkt.tcp.TCP):
            return None
        hosts = [dpkt.utils.inet_to_str(address) for address in (network.src, network.dst)]
    except (dpkt.UnpackError, AttributeError, ValueError, IndexError):
        return None
    except KeyError:
        raise KohortError(
            f"captures of link type {link} are not read", hint="capture with -i any or on Ethernet"
        ) from None
    return f"{hosts[0]}:{tcp.sport}", f"{hosts[1]}:{tcp.dport}", tcp


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
