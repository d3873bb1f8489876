"""A TCP proxy between a client and one broker that injects faults on demand.

    with FaultProxy("127.0.0.1:9092") as proxy:
        consumer = Consumer(proxy.address, ...)
        proxy.add(Latency(50, jitter_ms=20))
        proxy.add(Reset(), direction=TO_CLIENT, api="OffsetCommit", times=1)    # done, and its response lost

A broker sends its own address to clients in Metadata and FindCoordinator, and they would bypass the proxy. So use it
with a broker that advertises the proxy: `ProxiedCluster` does both ends.

Not possible: withholding TCP's own acknowledgements (a black hole here still takes bytes), and distinguishing APIs
on a TLS connection.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from kohort.common.named_tuple import NamedTuple
from kohort.network.errors import ConfigError
from kohort.network.settings_table import split_address
from kohort.protocol.catalogue import API
from kohort.testing.faults import (
    BOTH,
    Bandwidth,
    BlackHole,
    Direction,
    Fault,
    HalfClose,
    Latency,
    Limit,
    Reset,
    Slice,
)
from kohort.testing.frame_tracker import FrameTracker, Piece
from kohort.testing.real_broker import RealCluster

_READ_BYTES = 64 << 10
_QUEUE_PIECES = 256
_FRAMES_KEPT = 50_000


class SeenFrame(NamedTuple):
    """A frame that came to the proxy, whether or not it got further; `size` is of its first bytes only when cut."""

    connection: int
    direction: Direction
    api_key: int | None


@dataclass(eq=False, slots=True)
class Laid:
    """A fault in force. `remove()` ends it. `hits` counts the frames that it affected."""

    fault: Fault
    direction: frozenset[Direction]
    api_key: int | None
    times: int | None
    hits: int = 0
    _list: list["Laid"] = field(default_factory=list, repr=False)

    def remove(self) -> None:
        """No frame that begins from now on suffers it."""
        with contextlib.suppress(ValueError):
            self._list.remove(self)

    def takes(self, direction: Direction, api_key: int | None) -> bool:
        """True if a frame that begins now is hit; counts it if so."""
        if direction not in self.direction or (self.api_key is not None and self.api_key != api_key):
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


class FaultProxy:
    """A TCP proxy on 127.0.0.1 that forwards to `upstream` ("host:port", may be set later), with faults on demand.

    All randomness comes from `seed`. One thread of its own; every method may be called from any thread.
    """

    def __init__(self, upstream: str | None = None, *, port: int = 0, seed: int = 0) -> None:
        self.upstream = upstream
        self.frames: deque[SeenFrame] = deque(maxlen=_FRAMES_KEPT)
        self._random = random.Random(seed)
        self._laid: list[Laid] = []
        self._numbers = count()
        self._connections: dict[int, _Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self.port = port
        try:
            self.accept()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The address to which clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """The number of connections of clients."""
        return len(self._connections)

    def add(
        self,
        fault: Fault,
        *,
        direction: frozenset[Direction] = BOTH,
        api: int | str | None = None,
        times: int | None = None,
    ) -> Laid:
        """Apply `fault` to every frame that begins from now on (or the next `times`), of `api` (key or name) or all.
        Raises KeyError for an unknown API."""
        laid = Laid(fault, direction, None if api is None else API[api].key, times, _list=self._laid)
        self._laid.append(laid)
        return laid

    def clear(self) -> None:
        """Remove every fault; frames already under one finish under it."""
        self._laid.clear()

    def refuse(self) -> None:
        """Stop listening: new connections are refused; open ones go on."""
        self._call(self._close_server())

    def accept(self) -> None:
        """Listen (again), on the same port."""
        self._call(self._open_server())

    def reset_connections(self) -> None:
        """End every open connection with a TCP reset, both ends."""

        async def reset() -> None:
            for connection in list(self._connections.values()):
                connection.end(reset=True)

        self._call(reset())

    def close(self) -> None:
        """End everything; safe to call again."""
        if self._loop.is_closed():
            return
        self.refuse()
        self.reset_connections()

        async def finish() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._call(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open_server(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(*split_address(self.upstream or ""))
        except (OSError, ConfigError):
            _reset(to_client)
            return
        number = next(self._numbers)
        connection = _Connection(number, to_client, to_broker)
        self._connections[number] = connection
        pending: dict[int, int] = {}
        there = self._carry(connection, Direction.TO_BROKER, pending, from_client, to_broker)
        back = self._carry(connection, Direction.TO_CLIENT, pending, from_broker, to_client)
        try:
            await asyncio.gather(there, back)
        except asyncio.CancelledError:
            pass  # a task that ends as cancelled would be logged by asyncio's streams as an error
        finally:
            connection.end(reset=False)
            del self._connections[number]

    async def _carry(
        self,
        connection: "_Connection",
        direction: Direction,
        pending: dict[int, int],
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
    ) -> None:
        """One direction until its end: a reader stamps pieces with when they are due, a writer delivers them then."""
        queue: asyncio.Queue[tuple[float, Piece, tuple[Fault, ...]] | None] = asyncio.Queue(_QUEUE_PIECES)
        writing = asyncio.create_task(self._deliver(queue, _Delivery(connection, target)))
        tracker = FrameTracker(direction, pending)
        faults: tuple[Fault, ...] = ()
        due = 0.0
        try:
            while data := await source.read(_READ_BYTES):
                for piece in tracker.feed(data):
                    if piece.first:
                        faults = self._faults(connection, direction, piece)
                        delay = sum(self._delay_s(fault) for fault in faults if isinstance(fault, Latency))
                        due = max(due, self._loop.time() + delay)
                    await queue.put((due, piece, faults))
            if rest := tracker.rest():
                await queue.put((due, Piece(None, False, rest), faults))
        except OSError:
            connection.end(reset=True)
        await queue.put(None)
        await writing

    def _faults(self, connection: "_Connection", direction: Direction, piece: Piece) -> tuple[Fault, ...]:
        self.frames.append(SeenFrame(connection.number, direction, piece.api_key))
        return tuple(laid.fault for laid in list(self._laid) if laid.takes(direction, piece.api_key))

    def _delay_s(self, latency: Latency) -> float:
        return (latency.delay_ms + self._random.random() * latency.jitter_ms) / 1000

    async def _deliver(
        self, queue: "asyncio.Queue[tuple[float, Piece, tuple[Fault, ...]] | None]", delivery: "_Delivery"
    ) -> None:
        broken = False
        while (item := await queue.get()) is not None:
            due, piece, faults = item
            if broken:
                continue  # keep taking, or the reader would wait for room for ever
            if (wait := due - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            try:
                broken = not await delivery.write(piece, faults)
            except OSError:
                broken = True
                delivery.connection.end(reset=True)
        delivery.finish()


class _Connection:
    """The two writers of one proxied connection."""

    def __init__(self, number: int, to_client: asyncio.StreamWriter, to_broker: asyncio.StreamWriter) -> None:
        self.number = number
        self._writers = (to_client, to_broker)
        for writer in self._writers:
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self, *, reset: bool) -> None:
        for writer in self._writers:
            if writer.transport.is_closing():
                continue
            if reset:
                _reset(writer)
            else:
                writer.close()


class _Delivery:
    """Writes pieces of one direction under their faults."""

    def __init__(self, connection: _Connection, target: asyncio.StreamWriter) -> None:
        self.connection = connection
        self._target = target
        self._sent_of_frame = 0
        self._closed = False

    async def write(self, piece: Piece, faults: tuple[Fault, ...]) -> bool:
        """Return True if the stream stays open after this piece."""
        if piece.first:
            self._sent_of_frame = 0
        data = piece.data
        cut: Fault | None = None
        for fault in faults:
            match fault:
                case BlackHole():
                    return True
                case Reset(after_bytes) | Limit(after_bytes) | HalfClose(after_bytes):
                    room = max(after_bytes - self._sent_of_frame, 0)
                    # A frame may end exactly at the cut, which then falls with its last byte.
                    if len(data) >= room and (cut is None or room < len(data)):
                        cut, data = fault, data[:room]
        await self._send(data, faults)
        if cut is None:
            return True
        if isinstance(cut, HalfClose):
            self.finish()
        else:
            await self._flush()
            self.connection.end(reset=isinstance(cut, Reset))
        return False

    def finish(self) -> None:
        """Close this direction once."""
        if not self._closed and not self._target.transport.is_closing():
            self._closed = True
            with contextlib.suppress(OSError):
                self._target.write_eof()

    async def _send(self, data: bytes, faults: tuple[Fault, ...]) -> None:
        self._sent_of_frame += len(data)
        for size, pause_s in _pieces(len(data), faults):
            self._target.write(data[:size])
            data = data[size:]
            await self._target.drain()
            if pause_s is not None:
                await self._flush()
                await asyncio.sleep(pause_s)

    async def _flush(self) -> None:
        """Until the kernel has what was written, so that what follows does not overtake or drop it."""
        while self._target.transport.get_write_buffer_size() and not self._target.transport.is_closing():
            await asyncio.sleep(0.001)


def _pieces(size: int, faults: tuple[Fault, ...]) -> list[tuple[int, float | None]]:
    """The sizes of the pieces of `size` bytes, and the pause after each; None for no pause."""
    largest, pause_s, rate = size, 0.0, 0.0
    for fault in faults:
        match fault:
            case Slice(max_bytes, pause_ms):
                largest, pause_s = min(largest, max_bytes), max(pause_s, pause_ms / 1000)
            case Bandwidth(bytes_per_s):
                rate = min(rate or bytes_per_s, bytes_per_s)
                largest = min(largest, max(int(bytes_per_s / 50), 1))  # 20 ms at a time
    if not size:
        return []
    if largest >= size and not pause_s and not rate:
        return [(size, None)]
    cuts = [min(largest, size - at) for at in range(0, size, largest)]
    return [(cut, max(pause_s, cut / rate if rate else 0.0)) for cut in cuts]


def _reset(writer: asyncio.StreamWriter) -> None:
    # Lingering for no time turns close into a reset.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class ProxiedCluster:
    """A RealCluster of `count` brokers, each behind a FaultProxy. Close it, or use it in a `with`.

    `bootstrap`: the addresses of the proxies. `proxies[i]`: that of `cluster.nodes[i]`. `cluster.bootstrap`:
    those of the brokers. `seed`: of the first proxy. `options`: those of RealCluster, whose errors it raises.
    """

    def __init__(self, count: int = 1, *, seed: int = 0, **options: Any) -> None:
        self.proxies = tuple(FaultProxy(seed=seed + index) for index in range(count))
        try:
            self.cluster = RealCluster(count, proxy_ports=[proxy.port for proxy in self.proxies], **options)
        except BaseException:
            self._close_proxies()
            raise
        for index, proxy in enumerate(self.proxies):
            proxy.upstream = self.cluster.behind_proxy(index)

    @property
    def bootstrap(self) -> str:
        """The addresses of all proxies, comma-separated."""
        return ",".join(proxy.address for proxy in self.proxies)

    @property
    def version(self) -> str:
        """The version of Apache Kafka behind the proxies."""
        return self.cluster.version

    def close(self) -> None:
        """Close all proxies, then the brokers."""
        self._close_proxies()
        self.cluster.close()

    def _close_proxies(self) -> None:
        for proxy in self.proxies:
            proxy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
