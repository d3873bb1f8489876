"""Members of a share group among brokers that lose responses, break connections, restart and move leaders: one seed.

The members are `ShareConsumerCore`s without sockets. The brokers are the fake broker's own handlers, without a socket
or a loop. Everything, including time, follows from the seed. `run` lets things happen. `calm` lets everything settle.

Invariants, checked at every step; a violation raises AssertionError:

W1  A record whose acceptance or rejection succeeded, as the client saw it, is not delivered again.
W2  The delivery count of a returned record never exceeds the limit, and grows with each delivery of it.
W3  No record is returned after the end of its lock at the broker.
W4  One ShareFetch or ShareAcknowledge of a member is in flight to a broker.
W5  No request is invalid, and acknowledgements that a session accepts name only records acquired in that session.
W6  Only records that a poll has returned are accepted.
W7  Every acknowledgement that a caller noted has one outcome, or its member has died.
W8  At the end every record is accepted or archived, and no record is archived without a cause.
W9  While a member believes that it holds a record, in a session that goes on, no other delivery of it happens.
"""

import random
from collections import defaultdict, deque
from typing import Any, NamedTuple

from kohort.fastpath import Record, encode
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import ConnectionPurpose, NoResponse, PendingRequest, ResponseReceived, UnsentRequest
from kohort.protocol.catalogue import API
from kohort.protocol.errors import ErrorCode
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_core import Handed, ShareConsumerCore
from kohort.share_consumer.share_fetcher import decode_parked
from kohort.share_consumer.share_records import AcknowledgeType, ShareRecords
from kohort.testing.fake_broker.cluster import Address, FakeCluster
from kohort.testing.fake_broker.consumer_group import Place
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers import HANDLERS
from kohort.testing.fake_broker.interventions import Call
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.share_partition import ACCEPT, REJECT, OffsetState
from kohort.testing.fake_broker.shares import SessionKey
from tests.support.sent_requests import sent

GROUP, TOPIC = "jobs", "work"
LOCK_MS, LIMIT = 2_000, 4
SHARE_APIS = ("ShareFetch", "ShareAcknowledge")
Offset = tuple[int, int]  # partition, offset


class InFlight(NamedTuple):
    """A request in a connection's pipe."""

    request: PendingRequest
    node: int
    purpose: str


class Clock:
    """The part of an event loop that handlers use."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now


class Member:
    """A process: its core, its connections, and the records that its caller has."""

    def __init__(self, world: "ShareWorld", number: int, settings: dict[str, Any]) -> None:
        self.world = world
        self.number = number
        self.core = ShareConsumerCore(
            ShareConsumerConfig.of(
                bootstrap="n1:9092", group=GROUP, default_api_timeout_ms=5_000, fetch_max_wait_ms=0, **settings
            ),
            chance=world.chance.random,
            started=world.clock.now,
        )
        self.core.fetcher.reports = True
        self.core.endpoints.responded(self.core.endpoints.bootstrap[0])
        self.core.subscribe(frozenset({TOPIC}), world.clock.now)
        self.pipes: dict[tuple[str, int], deque[InFlight]] = defaultdict(deque)
        self.connections: dict[tuple[str, int], int] = {}
        self.handed: list[ShareRecords] = []
        self.have: list[ShareRecords] = []
        self.holding: list[ShareRecords] = []
        self.unnoted: set[Offset] = set()  # returned, and not acknowledged yet
        self.noted: set[Offset] = set()  # their caller expects an outcome
        self.committing: set[Offset] | None = None  # noted before a commit
        self.closes = False
        self.stopped_until = 0.0

    # --- the caller

    def step(self) -> None:
        """Poll, collect, acknowledge, hold or commit."""
        chance, now = self.world.chance, self.world.clock.now
        if self.closes:
            return
        match chance.randrange(6):
            case 0:
                self._poll(now)
            case 1:
                self._collect(now)
            case 2:
                self._acknowledge()
            case 3:
                self._commit(now)
            case 4:
                self._hold()
            case _:
                self._acknowledge_held()
        self._outcomes()

    def _given(self) -> Handed:
        handed, self.handed = self.handed, []
        return Handed(handed)

    def _poll(self, now: float) -> None:
        if self.core.config.acknowledgement_mode == "explicit":
            for batch in [*self.have, *self.handed]:
                for record in batch:
                    self._note(batch, record, self.world.chance.choice((1, 1, 2, 3)))
        self._expect_all()
        self.core.begin_poll(self._given(), now, now + 0.5)
        self.have = []

    def _commit(self, now: float) -> None:
        self._expect_all()
        self.core.begin_commit(self._given(), now)
        self.committing = set(self.noted)

    def _expect_all(self) -> None:
        """In implicit mode all returned records count as accepted."""
        if self.core.config.acknowledgement_mode == "implicit":
            self.noted |= self.unnoted
        self.unnoted.clear()

    def _collect(self, now: float) -> None:
        batches: list[ShareRecords] = []
        if self.handed:
            return  # the records of the last poll come first
        for one in self.core.ready(now):
            if one.batches is None:
                decode_parked(one, self.world.max_decompressed_bytes)
                assert one.error is None
            batches += [batch for batch in one.batches or () if not batch.returned]
        self.handed = batches
        self.have += [batch for batch in batches if len(batch)]
        for batch in batches:
            for record in batch:
                self.world.returned(self, (batch.partition, record.offset), batch)
                self.unnoted.add((batch.partition, record.offset))

    def _acknowledge(self) -> None:
        chance = self.world.chance
        self.core.take(self._given())
        for batch in self.have:
            for record in batch:
                if chance.random() < 0.5:
                    self._note(batch, record, chance.choice((1, 1, 1, 2, 3, 4)))

    def _hold(self) -> None:
        """Hold one batch over polls."""
        self.core.take(self._given())
        if self.have and not self.world.calms:
            batch = self.world.chance.choice(self.have)
            if self.core.fetcher.hold(batch):
                self.unnoted -= {(batch.partition, record.offset) for record in batch}
                self.have.remove(batch)
                self.holding.append(batch)

    def _acknowledge_held(self) -> None:
        chance = self.world.chance
        for batch in self.holding:
            for record in batch:
                if chance.random() < 0.2 or self.world.calms:
                    self._note(batch, record, chance.choice((1, 1, 2, 3)))
        self.holding = [one for one in self.holding if one.session.alive and one.held()]

    def _note(self, batch: ShareRecords, record: Record, how: int) -> None:
        self.core.take(self._given())
        place = batch.partition, record.offset
        self.unnoted.discard(place)
        if self.core.fetcher.acknowledge(TOPIC, *place, record.timestamp_ms, AcknowledgeType(how)):
            self.noted.add(place)

    def _outcomes(self) -> None:
        self.core.fetcher.failures.clear()
        outcomes = self.core.fetcher.outcomes
        while outcomes:
            outcome = outcomes.popleft()
            for offset in range(outcome.first_offset, outcome.last_offset + 1):
                self.noted.discard((outcome.partition.partition, offset))
                if self.committing is not None:
                    self.committing.discard((outcome.partition.partition, offset))
            for at, how in enumerate(outcome.types if outcome.error is None else b""):
                if how in (ACCEPT, REJECT):
                    self.world.done.add((outcome.partition.partition, outcome.first_offset + at))

        if self.committing is not None and not self.core.fetcher.unsettled:
            assert not self.committing, f"W7: a commit has no outcome of {sorted(self.committing)}"
            self.committing = None

    # --- the driver

    def turn(self) -> None:
        """One turn of the driver; its requests are in the pipes then."""
        now = self.world.clock.now
        if now < self.stopped_until:
            return
        for outgoing in sent(self.core.poll(now, 1)):
            self._send(outgoing)

    def _send(self, outgoing: UnsentRequest) -> None:
        endpoint = outgoing.endpoint or self.core.endpoints.bootstrap[0]
        node = int(endpoint.host.removeprefix("n"))
        key = outgoing.purpose.value, node
        if outgoing.request.api in SHARE_APIS:
            waiting = [one for one in self.pipes[key] if one.request.api in SHARE_APIS]
            assert not waiting, "W4: two requests in flight to one broker"
        if key not in self.connections:
            self.connections[key] = self.world.new_connection()
        self.pipes[key].append(InFlight(outgoing.request, node, outgoing.purpose.value))

    def busy(self) -> list[tuple[str, int]]:
        return [key for key, pipe in self.pipes.items() if pipe]

    def break_connection(self, key: tuple[str, int], *, late: bool = False) -> None:
        """The client notices at once, and the broker too, or `late`."""
        pipe, self.pipes[key] = self.pipes[key], deque()
        number = self.connections.pop(key, None)
        if key[0] == ConnectionPurpose.DATA.value and not pipe:
            broker = self.core.metadata.view.brokers.get(key[1])
            if broker is not None:
                self.core.fetcher.connection_lost(broker.endpoint, self.world.clock.now)
        for one in pipe:
            one.request.done(NoResponse(ConnectionFailed("broken")), self.world.clock.now)
        if number is not None and late:
            self.world.ghosts.append(number)
        elif number is not None:
            self.world.gone(number)


class ShareWorld:
    """Members, brokers and the invariants; see the module."""

    def __init__(self, seed: int, *, records: int = 24, partitions: int = 2, nodes: int = 2) -> None:
        self.chance = random.Random(seed)
        self.max_decompressed_bytes = (150, 1 << 20)[seed % 2]  # parts of one or two batches, or all at once
        self.clock = Clock()
        self.cluster = FakeCluster(
            CoordinatorSettings(
                group_share_record_lock_duration_ms=LOCK_MS,
                group_share_delivery_count_limit=LIMIT,
                group_share_heartbeat_interval_ms=200,
                group_share_session_timeout_ms=3_000,
            )
        )
        for node in range(1, nodes + 1):
            self.cluster.addresses[node] = Address(f"n{node}", 9092)
        self.cluster.create_topic(TOPIC, partitions)
        self.cluster.shares.configs[GROUP] = {"share.auto.offset.reset": "earliest"}
        self.nodes, self.partitions = nodes, partitions
        for partition in self.cluster.topics[TOPIC].partitions:
            while partition.log.end < records // partitions:
                partition.log.append(encode([(b"", b"v")] * self.chance.choice((1, 2, 3)), codec="snappy"))
        self.faults = 0.12
        self.members: list[Member] = []
        self.acquired: dict[Offset, tuple[str, float, int]] = {}  # member id, deadline, count: of the last acquisition
        self.in_session: dict[SessionKey, set[Offset]] = defaultdict(set)
        self.last_count: dict[Offset, int] = {}
        self.done: set[Offset] = set()  # a client saw the success of an acceptance or a rejection
        self.was_returned: set[tuple[int, Offset]] = set()
        self.causes: set[Offset] = set()  # offsets that may be settled: acknowledged, or delivered for the last time
        self.owner: dict[Offset, SessionKey] = {}  # of the last acquisition, while its session and leader stay
        self.ghosts: list[int] = []  # connections whose end the broker has not noticed
        self.calms = False
        self.deliveries = 0
        self._connection = 0
        self._numbers = 0
        for _ in range(self.chance.choice((1, 2, 3))):
            self.start_member()

    # --- processes

    def start_member(self) -> None:
        self._numbers += 1
        settings = {
            "acknowledgement_mode": self.chance.choice(("implicit", "explicit")),
            "acquire_mode": self.chance.choice(("batch_optimized", "record_limit")),
            "max_poll_records": self.chance.choice((1, 3, 10)),
        }
        self.members.append(Member(self, self._numbers, settings))

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        for number in member.connections.values():
            self.gone(number)

    def new_connection(self) -> int:
        self._connection += 1
        return self._connection

    def gone(self, connection: int) -> None:
        """The broker notices the end of a connection."""
        before = dict(self.cluster.shares.sessions)
        self.cluster.shares.disconnected(connection)
        self._sessions_ended(before)

    def _sessions_ended(self, before: dict[SessionKey, Any]) -> None:
        for key, session in before.items():
            if self.cluster.shares.sessions.get(key) is not session:
                self.in_session[key] = set()
                self.owner = {place: owner for place, owner in self.owner.items() if owner != key}

    # --- what happens

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.now += self.chance.choice((0.0, 0.001, 0.01, 0.05))
            self.cluster.expire(self.clock.now)
            if self.chance.random() < self.faults:
                self._fault()
            self._go_on()
        self._check_states()

    def calm(self, turns: int = 5_000) -> None:
        """No more faults: some member works until every record is settled."""
        self.faults = 0.0
        self.calms = True
        for number in self.ghosts:
            self.gone(number)
        for member in self.members:
            member.stopped_until = 0.0
        if not self.members:
            self.start_member()
        for _ in range(turns):
            self.clock.now += 0.02
            self.cluster.expire(self.clock.now)
            self._go_on()
            if self._settled():
                break
        else:
            raise AssertionError(f"W8: not settled: {self._states()}")
        self._check_states()
        for member in list(self.members):
            for _ in range(200):
                self.clock.now += 0.02
                if not member.closes:
                    member._commit(self.clock.now)
                self._go_on()
                member._outcomes()
                if not member.core.fetcher.unsettled:
                    break
            assert not member.core.fetcher.unsettled or member.closes, "W7: an acknowledgement without an outcome"

    def _go_on(self) -> None:
        member = self.chance.choice(self.members) if self.members else None
        if member is None:
            self.start_member()
            return
        if member.closes and member.core.left(self.clock.now):
            self.kill(member)
            return
        if self.clock.now >= member.stopped_until:
            member.step()
        member.turn()
        busy = member.busy()
        if busy:
            self._respond(member, self.chance.choice(busy))

    def _fault(self) -> None:
        chance = self.chance
        member = chance.choice(self.members) if self.members else None
        match chance.randrange(11):
            case 0 if member is not None and len(self.members) > 1:
                self.kill(member)
            case 1 if len(self.members) < 4:
                self.start_member()
            case 2 if member is not None:
                member.stopped_until = self.clock.now + chance.choice((0.5, 2.5, 4.0))
            case 3 if member is not None and member.connections:
                member.break_connection(chance.choice(sorted(member.connections)), late=chance.random() < 0.3)
            case 4:
                number = chance.randrange(self.partitions)
                moved = self.cluster.topics[TOPIC].partitions[number]
                moved.leader, moved.epoch = chance.randint(1, self.nodes), moved.epoch + 1
                self.cluster.shares.leader_changed(Place(self.cluster.topics[TOPIC].topic_id, number))
                self.owner = {place: key for place, key in self.owner.items() if place[0] != number}
            case 5:
                self.clock.now += chance.choice((0.3, 1.0, 2.1))
            case 6 if self.cluster.shares.sessions:
                before = dict(self.cluster.shares.sessions)
                self.cluster.shares.close(chance.choice(sorted(before)))
                self._sessions_ended(before)
            case 7 if self.cluster.shares.partitions:
                state = self.cluster.shares.partitions[chance.choice(sorted(self.cluster.shares.partitions))]
                state.write_error = chance.choice(
                    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                )
            case 8 if GROUP in self.cluster.groups.share.groups:
                group = self.cluster.groups.share.groups[GROUP]
                if group.members:
                    group.members[chance.choice(sorted(group.members))].deadline = 0.0  # its session ends
            case 9 if self.ghosts:
                self.gone(self.ghosts.pop(chance.randrange(len(self.ghosts))))
            case 10 if member is not None and len(self.members) > 1 and not member.closes:
                member.closes = True
                member.core.take(member._given())
                member.core.begin_close(None, self.clock.now, self.clock.now + 5.0)
            case _:
                pass

    def _respond(self, member: Member, key: tuple[str, int]) -> None:
        """A broker works off the oldest request of a connection; request or response may be lost."""
        one = member.pipes[key][0]
        lost = self.chance.random() < self.faults / 2
        if lost and self.chance.random() < 0.5:
            member.break_connection(key)
            return
        response = self._handle(member, one, member.connections[key])
        if lost:
            member.break_connection(key)
            return
        member.pipes[key].popleft()
        if self.clock.now < member.stopped_until:  # it reads the response when it goes on
            member.pipes[key].appendleft(one._replace(request=one.request._replace(request=response)))
            self._late(member, key, response)
            return
        one.request.done(ResponseReceived(response, 0), self.clock.now)

    def _late(self, member: Member, key: tuple[str, int], response: Any) -> None:
        one = member.pipes[key].popleft()
        until = member.stopped_until
        member.stopped_until = 0.0
        self.clock.now = max(self.clock.now, until)
        self.cluster.expire(self.clock.now)
        one.request.done(ResponseReceived(response, 0), self.clock.now)

    def _handle(self, member: Member, one: InFlight, connection: int) -> Any:
        api = API[one.request.api]
        handler = HANDLERS[api.key]
        version = handler.VERSIONS[1]
        request = one.request.request
        request = request(version) if callable(request) else request
        call = Call(api.key, api.name, version, 0, "", request, one.node, connection, 0)
        work = Work(call, self.cluster, {}, self.clock, _nothing, _nothing, _nothing)  # type: ignore[arg-type]
        if api.name not in SHARE_APIS:
            return _finished(handler.handle(work, request))
        key = SessionKey(one.node, GROUP, request.member_id)
        before = dict(self.cluster.shares.sessions)
        response = _finished(handler.handle(work, request))
        self._sessions_ended(before)
        assert response.error_code != ErrorCode.INVALID_REQUEST, "W5: the broker refuses the request as invalid"
        if response.error_code:
            return response
        self._check_acks(member, key, request)
        if api.name == "ShareFetch":
            self._acquisitions(key, request.member_id, response)
        return response

    # --- the invariants

    def _check_acks(self, member: Member, key: SessionKey, request: Any) -> None:
        for topic in request.topics:
            for one in topic.partitions:
                for batch in one.acknowledgement_batches:
                    for at, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                        types = batch.acknowledge_types
                        kind = types[0] if len(types) == 1 else types[at]
                        place = one.partition_index, offset
                        if request.share_session_epoch != -1:
                            assert place in self.in_session[key], f"W5: {place} was not acquired in this session"
                        if kind in (ACCEPT, REJECT):
                            assert (member.number, place) in self.was_returned, f"W6: {place} was not returned"
                        if kind in (ACCEPT, REJECT):  # no log here has gaps
                            self.causes.add(place)

    def _acquisitions(self, key: SessionKey, member_id: str, response: Any) -> None:
        for topic in response.responses:
            for one in topic.partitions:
                for acquired in one.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        place = one.partition_index, offset
                        count = acquired.delivery_count
                        assert count == self.last_count.get(place, 0) + 1, f"W2: count {count} of {place}"
                        assert count <= LIMIT, f"W2: {place} is beyond the limit"
                        assert place not in self.done, f"W1: {place} is settled, and delivered again"
                        self._check_held(place)
                        self.owner[place] = key
                        self.last_count[place] = count
                        self.acquired[place] = member_id, self.clock.now + LOCK_MS / 1000, count
                        self.in_session[key].add(place)
                        if count == LIMIT:
                            self.causes.add(place)

    def _check_held(self, place: Offset) -> None:
        """A record is acquired: the last owner does not believe that it holds it."""
        owner = self.owner.get(place)
        for member in self.members if owner is not None else ():
            if owner is not None and member.core.heartbeats.member.member_id == owner.member_id:
                for batch in member.holding:
                    if batch.partition == place[0] and batch.session.alive and batch.session.node == owner.node:
                        held = any(one.first_offset <= place[1] <= one.last_offset for one in batch.held())
                        assert not (held and self.clock.now < batch.held_until), f"W9: {place} is held"

    def returned(self, member: Member, place: Offset, batch: ShareRecords) -> None:
        """A poll returns a record."""
        self.deliveries += 1
        member_id, deadline, count = self.acquired[place]
        if member_id == member.core.heartbeats.member.member_id and count == batch.delivery_count:
            assert self.clock.now < deadline, f"W3: the lock of {place} has expired"
        else:
            assert batch.lock_until > self.clock.now, f"W3: the lock of {place} belongs to another member"
        assert batch.delivery_count <= LIMIT, "W2: beyond the limit"
        self.was_returned.add((member.number, place))

    def _states(self) -> dict[Offset, Any]:
        topic_id = self.cluster.topics[TOPIC].topic_id
        found: dict[Offset, Any] = {}
        for number in range(self.partitions):
            state = self.cluster.shares.partitions.get((GROUP, Place(topic_id, number)))
            for offset, one in state.offsets.items() if state is not None else ():
                found[number, offset] = one.state
        return found

    def _check_states(self) -> None:
        for place, state in self._states().items():
            if state is OffsetState.ARCHIVED:
                assert place in self.causes, f"W8: {place} is archived without a cause"

    def _settled(self) -> bool:
        topic = self.cluster.topics[TOPIC]
        states = [
            (self.cluster.shares.partitions.get((GROUP, Place(topic.topic_id, number))), partition)
            for number, partition in enumerate(topic.partitions)
        ]
        if any(state is None or state.start < partition.log.end for state, partition in states):
            return False
        for number, partition in enumerate(topic.partitions):
            for offset in range(partition.log.end):
                assert (number, offset) in self.causes, f"W8: {(number, offset)} is settled without a cause"
        return True


def _nothing() -> Any:
    """Stand for the fake broker's loop, in which no fetch waits."""


def _finished(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a handler waits")
