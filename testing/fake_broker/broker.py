"""A broker that uses real bytes and that tests control.

    with FakeBroker(topics={"payments": 2}) as broker:
        broker.produce("payments", 0, [(b"key", b"value")])
        broker.control("Heartbeat", lambda call: Answer(HeartbeatResponse(error_code=27)), times=1)
        consumer = Consumer(broker.bootstrap, group="billing")

It implements the classic group protocol in full, that of KIP-848, share groups (KIP-932), streams groups (KIP-1071).
It keeps logs in memory, and has the given number of nodes, each with its own port. Every request is kept in `calls`.
The head of each handler's file (`handlers/`) lists the omissions of its API. There is no authentication, TLS, disk or
replication.

It runs one thread of its own. Every method may be called from any thread. A control may call all of them except
`start_node` and `close`, which wait. Requests of one connection are handled in order, as in a real broker: while a
JoinGroup is parked, its connection gets no responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, zip_longest
from math import inf
from typing import Any, Self, TypeVar

from kohort.common.errors import WireError
from kohort.common.topic_partition import TopicPartition
from kohort.fastpath import RecordColumns, encode
from kohort.protocol.apis.api_versions import ApiVersionsResponse
from kohort.protocol.catalogue import API
from kohort.protocol.codec import Message
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.framing import (
    RequestHeader,
    ResponseHeader,
    Unframer,
    frame,
    request_header_version,
    response_header_version,
)
from kohort.protocol.schema import Response
from kohort.testing.fake_broker import interventions as actions
from kohort.testing.fake_broker.classic_group import Committed, FakeGroup, GroupSnapshot, snapshot
from kohort.testing.fake_broker.cluster import Address, FakeCluster
from kohort.testing.fake_broker.consumer_group import ConsumerGroup, ConsumerGroupSnapshot, Place, consumer_snapshot
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers import HANDLERS, UNASKED, Handler, api_versions
from kohort.testing.fake_broker.interventions import Call, Control, ControlFunction
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_group import ShareGroup, ShareGroupSnapshot, share_snapshot
from kohort.testing.fake_broker.share_partition import OffsetState

T = TypeVar("T")
_REQUEST_HEADER = Message.of(RequestHeader)
_RESPONSE_HEADER = Message.of(ResponseHeader)
_READ_BYTES = 64 << 10


class FakeBroker:
    """A broker in memory with Kafka's wire protocol, for tests. Close it, or use it in a `with`.

    `topics`: name to number of partitions. `nodes`: the number of brokers in the cluster. `versions`: API key or name
    to the supported (lowest, highest) version, or None to hide the API. It narrows the versions of the handlers.
    `settings`: the coordinator's. `features`: the finalized levels by name, such as {"transaction.version": 1}; by
    default those of a new cluster with these versions. `max_frame_bytes`: a longer request closes its connection.
    `ports`: those of the nodes, in their order; without it the system selects free ones. `keep_calls=False` leaves
    `calls` empty, in a broker that serves for a long time; the number of each call is then 0. `cluster_id`: for a test
    with two clusters. Raises OSError if a port is in use.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 1,
        versions: Mapping[int | str, tuple[int, int] | None] | None = None,
        settings: CoordinatorSettings | None = None,
        features: Mapping[str, int] | None = None,
        max_frame_bytes: int = 64 << 20,
        ports: Sequence[int] = (),
        keep_calls: bool = True,
        cluster_id: str = "fake-cluster",
    ) -> None:
        self.calls: list[Call] = []
        self.faults: list[str] = []
        self._versions = _narrowed(HANDLERS, versions or {})
        levels = api_versions.finalized(self._versions) if features is None else features
        self._cluster = FakeCluster(settings, levels, cluster_id)
        self._controls: list[Control] = []
        self._max_frame_bytes = max_frame_bytes
        self._keep_calls = keep_calls
        self._numbers = count()
        self._writers: dict[int, tuple[int, asyncio.StreamWriter]] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._loop = asyncio.new_event_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._arrived = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-broker", daemon=True)
        self._thread.start()
        try:
            self._await(self._open_nodes(dict(zip_longest(range(1, nodes + 1), ports[:nodes], fillvalue=0))))
            for name, partitions in (topics or {}).items():
                self.create_topic(name, partitions)
        except BaseException:
            self.close()
            raise

    # What tests look at

    @property
    def bootstrap(self) -> str:
        """Addresses of all nodes, comma-separated."""
        return ",".join(f"{address.host}:{address.port}" for address in self._cluster.addresses.values())

    @property
    def version(self) -> str:
        """The word "fake", in the place of a version of Apache Kafka."""
        return "fake"

    @property
    def open_connections(self) -> int:
        """The number of connections of clients, to all nodes."""
        return len(self._writers)

    def calls_of(self, api: int | str) -> list[Call]:
        """The calls of one API so far, oldest first."""
        key = API[api].key
        return [call for call in list(self.calls) if call.api_key == key]

    def group(self, group_id: str) -> GroupSnapshot:
        """The classic group as its coordinator sees it now; an empty one if there is none."""
        return self._do(lambda: snapshot(self._cluster.groups.classic.groups.get(group_id, FakeGroup(group_id))))

    def consumer_group(self, group_id: str) -> ConsumerGroupSnapshot:
        """The KIP-848 group as its coordinator sees it now; an empty one if there is none."""
        groups = self._cluster.groups.consumer.groups
        return self._do(lambda: consumer_snapshot(groups.get(group_id, ConsumerGroup(group_id))))

    def share_group(self, group_id: str) -> ShareGroupSnapshot:
        """The share group as its coordinator sees it now; an empty one if there is none."""
        groups = self._cluster.groups.share.groups
        return self._do(lambda: share_snapshot(groups.get(group_id, ShareGroup(group_id))))

    def share_states(self, group_id: str, topic: str, partition: int) -> tuple[int, dict[int, tuple[OffsetState, int]]]:
        """The start offset of a share partition, and the state and delivery count of each offset from there on.

        (-1, {}) if no member has fetched from it.
        """

        def look() -> tuple[int, dict[int, tuple[OffsetState, int]]]:
            place = Place(self._cluster.topics[topic].topic_id, partition)
            found = self._cluster.shares.partitions.get((group_id, place))
            if found is None:
                return -1, {}
            return found.start, {at: (one.state, one.count) for at, one in sorted(found.offsets.items())}

        return self._do(look)

    # What tests do

    def control(self, api: int | str, function: ControlFunction, *, times: int | None = None) -> Control:
        """Call `function` for every call of `api` from now on, until it acted `times` times or is removed.

        It gets a `Call`, and returns an action of `kohort.testing.fake_broker` or None. The first control that returns
        an action decides. Raises KeyError for an unknown API.
        """
        added = Control(API[api].key, function, times, _list=self._controls)
        self._controls.append(added)
        return added

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic, or create it again under a new id and with empty logs."""
        self._do(lambda: self._cluster.create_topic(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its logs and committed offsets. Raises KeyError if it does not exist."""
        self._do(lambda: self._cluster.delete_topic(name))

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self._do(lambda: self._cluster.grow_topic(name, total))

    def produce(
        self, topic: str, partition: int, records: Iterable[tuple[Any, ...]] | RecordColumns, *, codec: str = "none"
    ) -> int:
        """Append records as `kohort.fastpath.encode` takes them, in one batch; returns the batch's base offset."""
        return self.append(topic, partition, encode(records, codec=codec))

    def append(self, topic: str, partition: int, batches: bytes) -> int:
        """Append whole batches; returns the first one's base offset."""
        return self._do(lambda: self._grow(topic, partition, batches))

    def append_raw(self, topic: str, partition: int, data: bytes, *, records: int = 1) -> None:
        """Append bytes that need not be batches, standing for so many offsets."""

        def append() -> None:
            self._cluster.topics[topic].partitions[partition].log.append_raw(data, records=records)
            self._wake_fetches()

        self._do(append)

    def skip(self, topic: str, partition: int, end: int) -> None:
        """Move the log's end up to `end`, over offsets without records, as in a compacted log."""
        self._do(lambda: self._cluster.topics[topic].partitions[partition].log.skip(end))

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Move the log's start up to `start`, as retention does."""
        self._do(lambda: self._cluster.topics[topic].partitions[partition].log.trim(start))

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Lose the log from `end` on, as when an election has to take a leader that has less; the epoch grows."""

        def lose() -> None:
            cut = self._cluster.topics[topic].partitions[partition]
            cut.truncate(end)
            cut.epoch += 1

        self._do(lose)

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset behind the last record of a partition. Raises KeyError if the topic does not exist."""
        return self._do(lambda: self._cluster.topics[topic].partitions[partition].log.end)

    def set_leader(self, topic: str, partition: int, node: int) -> None:
        """Give a partition to another node (-1: to none); its leader epoch grows. Raises ValueError for an unknown
        node."""

        def move() -> None:
            if node != -1:
                self._cluster.check_node(node)
            moved = self._cluster.topics[topic].partitions[partition]
            moved.leader, moved.epoch = node, moved.epoch + 1
            self._cluster.shares.leader_changed(Place(self._cluster.topics[topic].topic_id, partition))

        self._do(move)

    def move_coordinator(self, group_id: str, node: int) -> None:
        """Make `node` the coordinator of the group, with all its state; others respond with NOT_COORDINATOR. Raises
        ValueError for an unknown node."""
        self._do(lambda: self._cluster.move_coordinator(group_id, node))

    def advertise(self, node: int, host: str, port: int) -> None:
        """Have Metadata and FindCoordinator return this address for `node`, such as a proxy's or a wrong one."""
        self._do(lambda: self._cluster.advertised.__setitem__(node, Address(host, port)))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Put committed offsets in place before a test begins."""

        def put() -> None:
            groups = self._cluster.groups
            group = groups.of(group_id) or groups.classic.groups.setdefault(group_id, FakeGroup(group_id))
            group.offsets.update({partition: Committed(offset, "", -1) for partition, offset in offsets.items()})

        self._do(put)

    def configure_group(self, group_id: str, settings: Mapping[str, str]) -> None:
        """Set settings of a share group, by Kafka's names."""
        self._do(lambda: self._cluster.shares.configs.setdefault(group_id, {}).update(settings))

    def fail_share_write(self, group_id: str, topic: str, partition: int, code: int) -> None:
        """Roll back the next acknowledgement of a share partition, with this error code."""

        def fail() -> None:
            place = Place(self._cluster.topics[topic].topic_id, partition)
            self._cluster.shares.partitions[group_id, place].write_error = code

        self._do(fail)

    def expire_share_locks(self, group_id: str) -> None:
        """Let every lock of the group expire now."""

        def expire() -> None:
            shares = self._cluster.shares
            for one in shares.of_group(group_id).values():
                one.expire(inf, shares.limits(group_id))
            self._wake_fetches()

        self._do(expire)

    def disconnect(self, node: int | None = None, *, reset: bool = False) -> None:
        """Close every connection of `node`, or of all."""

        def end() -> None:
            for owner, writer in list(self._writers.values()):
                if node in (None, owner):
                    _end(writer, reset)

        self._do(end)

    def stop_node(self, node: int) -> None:
        """Close its port and its connections; its partitions and groups stay where they are until moved."""
        self._do(lambda: self._servers.pop(node).close())
        self.disconnect(node, reset=True)

    def start_node(self, node: int) -> None:
        """Open the port again after `stop_node`."""
        self._await(self._open_nodes({node: self._cluster.addresses[node].port}))

    def close(self) -> None:
        """End everything; safe to call again."""
        if self._loop.is_closed():
            return

        async def finish() -> None:
            for server in self._servers.values():
                server.close()
            for _, writer in list(self._writers.values()):
                _end(writer, reset=True)
            if self._timer is not None:
                self._timer.cancel()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._await(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # Inside

    def _do(self, work: Callable[[], T]) -> T:
        """Run `work` on the fake's thread and wait for it."""
        if threading.current_thread() is self._thread:
            return work()  # called by a control: it would wait for itself for ever

        async def run() -> T:
            return work()

        return self._await(run())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a control runs on the fake's own thread, which cannot wait for this")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open_nodes(self, ports: Mapping[int, int]) -> None:
        """Listen for each node at its port; 0 is a free one."""
        for node, port in ports.items():
            server = await asyncio.start_server(self._connected(node), "127.0.0.1", port)
            self._servers[node] = server
            self._cluster.addresses[node] = Address("127.0.0.1", server.sockets[0].getsockname()[1])

    def _connected(self, node: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = next(self._numbers)
            self._writers[number] = node, writer
            try:
                await self._serve(node, number, reader, writer)
            except (WireError, UnsupportedVersion) as error:
                self.faults.append(f"connection {number}: {error}")
            except (OSError, asyncio.CancelledError):
                pass  # a task that ends as cancelled would be logged by asyncio's streams as an error
            except Exception as error:  # most likely of a control, for example a test's own assertion; asyncio logs it
                self.faults.append(f"connection {number}: {error!r}")
                raise
            finally:
                del self._writers[number]
                if self._cluster.shares.disconnected(number):
                    self._wake_fetches()
                _end(writer, reset=False)

        return serve

    async def _serve(self, node: int, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Unframer(self._max_frame_bytes)
        while data := await reader.read(_READ_BYTES):
            for body in frames.push(data):
                working = asyncio.ensure_future(self._respond(node, number, body, writer))
                # A client that disconnects while its response is parked must not leave a task behind.
                gone = asyncio.ensure_future(_closed(reader))
                await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not working.done():
                    working.cancel()
                    await asyncio.gather(working, return_exceptions=True)  # it may have met the loss itself, just now
                    return
                if not working.result():
                    return

    async def _respond(self, node: int, connection: int, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Return True if the connection stays open."""
        api_key, version = struct.unpack_from(">hh", body)
        if api_key not in API or api_key not in self._versions:
            raise WireError(f"a request with API key {api_key}, which is not offered")
        api = API[api_key]
        low, high = self._versions[api_key]
        if not low <= version <= high:
            if api_key != api_versions.KEY:
                raise WireError(f"{api.name} in version {version}; offered are {low} to {high}")
            correlation_id = int.from_bytes(body[4:8], "big", signed=True)
            refusal: ApiVersionsResponse = api_versions.refusal(self._versions)
            return await self._write(writer, api_key, 0, correlation_id, refusal)
        header, at = _REQUEST_HEADER.parse_from(body, 0, request_header_version(api.request, version))
        request, _ = api.request.parse_from(body, at, version)  # what follows is left unread, as brokers leave it
        call = Call(
            api_key,
            api.name,
            version,
            header.correlation_id,
            header.client_id,
            request,
            node,
            connection,
            sum(1 for earlier in self.calls if earlier.api_key == api_key),
        )
        if self._keep_calls:
            self.calls.append(call)
        action = next((action for each in list(self._controls) if (action := each.send(call)) is not None), None)
        return await self._act(call, action, writer)

    async def _act(self, call: Call, action: actions.Action, writer: asyncio.StreamWriter) -> bool:
        correlation_id = call.correlation_id
        match action:
            case actions.Answer(response, lie):
                return await self._write(
                    writer, call.api_key, call.version, correlation_id if lie is None else lie, response
                )
            case actions.Raw(data):
                writer.write(data)
                await writer.drain()
                return True
            case actions.Delay(seconds):
                await asyncio.sleep(seconds)
            case actions.Hold(after_work=False):
                await _held(action)
            case actions.Drop(after_work=False):
                return True
            case actions.Close(after_work=False):
                _end(writer, action.reset)
                return False
        if isinstance(action, actions.Instead):
            call = replace(call, request=action.request)
        worked = await HANDLERS[call.api_key].handle(self._work(call), call.request)
        match action:
            case actions.Hold(after_work=True):
                await _held(action)
            case actions.Drop():
                return True
            case actions.Close():
                _end(writer, action.reset)
                return False
        if worked is None:
            return True
        response = action.change(worked) if isinstance(action, actions.Alter) else worked
        return await self._write(writer, call.api_key, call.version, correlation_id, response)

    async def _write(
        self, writer: asyncio.StreamWriter, api_key: int, version: int, correlation_id: int, response: Response
    ) -> bool:
        codec = API[api_key].response
        header = _RESPONSE_HEADER.build(
            ResponseHeader(correlation_id=correlation_id), response_header_version(codec, version)
        )
        writer.write(frame(header, codec.build(response, version)))
        await writer.drain()
        return True

    def _work(self, call: Call) -> Work:
        return Work(
            call, self._cluster, self._versions, self._loop, lambda: self._arrived, self._wake_fetches, self._tick
        )

    def _grow(self, topic: str, partition: int, batches: bytes) -> int:
        grown = self._cluster.topics[topic].partitions[partition]
        base = grown.log.append(batches, grown.epoch)
        self._wake_fetches()
        return base

    def _wake_fetches(self) -> None:
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    def _tick(self) -> None:
        """Let time do its part for the groups, now and when it is next due."""
        if self._cluster.expire(self._loop.time()):
            self._wake_fetches()
        if self._timer is not None:
            self._timer.cancel()
        due = self._cluster.next_deadline()
        self._timer = None if due is None else self._loop.call_at(due, self._tick)


async def _held(hold: actions.Hold) -> None:
    hold.reached.set()
    while not hold.released.is_set():
        await asyncio.sleep(0.002)


async def _closed(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.02)


def _end(writer: asyncio.StreamWriter, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


def _narrowed(
    handlers: Mapping[int, Handler], wanted: Mapping[int | str, tuple[int, int] | None]
) -> dict[int, tuple[int, int]]:
    """The supported versions: those of each handler, limited by the test's `versions`."""
    able = {key: handler.VERSIONS for key, handler in handlers.items()}
    offered = {key: versions for key, versions in able.items() if key not in UNASKED}
    for api, versions in wanted.items():
        key = API[api].key
        if versions is None:
            offered.pop(key, None)
            continue
        low, high = able[key]
        if not low <= versions[0] <= versions[1] <= high:
            raise ValueError(f"{API[api].name}: versions {versions} are not within {low} to {high}")
        offered[key] = versions
    return offered
