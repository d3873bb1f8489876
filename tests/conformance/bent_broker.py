"""A real broker whose messages are bent on their way: a proxy that reads every frame, for rules no script knows.

It takes the same faults as the scripted broker does (`control` with actions that alter), and changes of requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kohort.protocol.catalogue import API
from kohort.protocol.framing import (
    RequestHeader,
    ResponseHeader,
    Unframer,
    frame,
    request_header_version,
    response_header_version,
)
from kohort.protocol.message import Message
from kohort.testing.fake_broker.control import Alter, Call, ControlFunction

_REQUEST_HEADER = Message.of(RequestHeader)
_RESPONSE_HEADER = Message.of(ResponseHeader)
_MAX_FRAME_BYTES = 16 << 20
_READ_BYTES = 64 << 10


class BentBroker:
    """In front of one broker at `address`; `control` and `rewrite` before the first connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(",")[0].rpartition(":")
        self._upstream = host, int(port)
        self._controls: list[tuple[int, ControlFunction]] = []
        self._rewrites: dict[int, Callable[[Any], Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bent-broker", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        self.bootstrap = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def control(self, api: str, function: ControlFunction) -> None:
        """Ask `function` about every answer of `api`; only Alter and None make sense here."""
        self._controls.append((API[api].key, function))

    def rewrite(self, api: str, change: Callable[[Any], Any]) -> None:
        """The broker gets what `change` makes of every request of `api`."""
        self._rewrites[API[api].key] = change

    def close(self) -> None:
        async def finish() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(finish(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.close()
            return
        calls: deque[Call | None] = deque()  # a broker answers a connection's requests in their order
        ways = (
            asyncio.ensure_future(self._pass(reader, upstream_writer, lambda body: self._request(body, calls))),
            asyncio.ensure_future(self._pass(upstream_reader, writer, lambda body: self._response(body, calls))),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # asyncio's streams would report it as a fault of theirs
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            upstream_writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bend: Callable[[bytes], bytes]
    ) -> None:
        frames = Unframer(_MAX_FRAME_BYTES)
        try:
            while data := await reader.read(_READ_BYTES):
                for body in frames.push(data):
                    writer.write(frame(bend(bytes(body))))
                await writer.drain()
        except OSError:
            return

    def _request(self, body: bytes, calls: deque[Call | None]) -> bytes:
        api_key, version = int.from_bytes(body[:2], "big", signed=True), int.from_bytes(body[2:4], "big", signed=True)
        api = API.get(api_key)
        if api is None or not api.versions[0] <= version <= api.versions[1]:
            calls.append(None)
            return body
        try:
            header, at = _REQUEST_HEADER.parse_from(body, 0, request_header_version(api.request, version))
            request, _ = api.request.parse_from(body, at, version)
        except Exception:  # checks also send what nobody can read; the broker shall judge it
            calls.append(None)
            return body
        calls.append(
            Call(api_key, api.name, version, header.correlation_id, header.client_id, request, 0, 0, len(calls))
        )
        if api_key in self._rewrites:
            return body[:at] + api.request.build(self._rewrites[api_key](request), version)
        return body

    def _response(self, body: bytes, calls: deque[Call | None]) -> bytes:
        call = calls.popleft()
        if call is None:
            return body
        actions = [action for key, function in self._controls if key == call.api_key and (action := function(call))]
        if not actions:
            return body
        codec = API[call.api_key].response
        _, at = _RESPONSE_HEADER.parse_from(body, 0, response_header_version(codec, call.version))
        response, _ = codec.parse_from(body, at, call.version)
        for action in actions:
            assert isinstance(action, Alter)
            response = action.change(response)
        return body[:at] + codec.build(response, call.version)
