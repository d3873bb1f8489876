"""A session in its steady state: each request follows from the response, as a full turn would have built it."""

import random
import uuid
from types import MappingProxyType

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.fetch._steady_fetch import SteadySession
from kohort.coordinator_client.fetch.fetcher import Fetcher
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.coordinator_client.offsets.positions import Positions
from kohort.fastpath import encode
from kohort.network.metadata import BrokerNode, ClusterView, PartitionView, TopicView
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.protocol.catalogue import API

VERSIONS, SESSION = range(13, 19), 7
HEAD = bytes(9)
IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2)}
NAMES = {topic_id: name for name, topic_id in IDS.items()}
PARTITIONS = [TopicPartition(topic, number) for topic in IDS for number in range(3)]
NOT_LEADER, OFFSET_NOT_AVAILABLE, INVALID_EPOCH = 6, 78, 71


def cluster(epoch: int, moved: int) -> ClusterView:
    """Two brokers; `moved` partitions of each topic are on the second."""
    partitions = {number: PartitionView(2 if number < moved else 1, epoch, (1, 2), ()) for number in range(3)}
    return ClusterView(
        brokers={node: BrokerNode(node, f"b{node}", 9092, None) for node in (1, 2)},
        topics=MappingProxyType({name: TopicView(name, one, False, partitions) for name, one in IDS.items()}),
    )


class Reader:
    """A fetcher of six partitions, with its requests to each broker."""

    def __init__(
        self, *, follows: bool, max_buffered_bytes: int, version: int = 18, fetcher: type[Fetcher] = Fetcher
    ) -> None:
        self.follows = follows
        self.version = version
        self.positions = Positions(ResetPolicy.of("earliest"))
        self.fetcher = fetcher(
            ConsumerConfig.of(
                bootstrap="b:1",
                max_buffered_bytes=max_buffered_bytes,
                fetch_max_bytes=300,
                max_partition_fetch_bytes=400,
                retry_backoff_ms=1_000,
            ),
            self.positions,
        )
        self.view = cluster(1, 1)
        self.paused: set[TopicPartition] = set()
        self.now = 0.0
        self.steady: dict[int, SteadySession] = {}
        self.sent: dict[int, bytes] = {}
        self.sent_beside: dict[int, dict[TopicPartition, int]] = {}
        self.followed = 0
        for partition in PARTITIONS:
            self.positions.assign(partition, start=0, has_group=False, wall_ms=0)

    def turn(self) -> None:
        """A full turn."""
        for order in self.fetcher.ready_requests(self.view, lambda partition: partition not in self.paused, self.now):
            if order.is_sessionless:
                assert order.node in self.sent
                assert order.node not in self.sent_beside
                self.sent_beside[order.node] = {
                    TopicPartition(NAMES[topic.topic_id], one.partition): one.fetch_offset
                    for topic in order.request.topics
                    for one in topic.partitions
                }
                continue
            assert order.node not in self.sent
            self.steady[order.node] = SteadySession(self.fetcher, order)
            self.sent[order.node] = API["Fetch"].request.build(order.request, self.version)

    def respond(self, node: int, response: FetchResponse) -> None:
        del self.sent[node]
        frame = memoryview(HEAD + API["Fetch"].response.build(response, self.version))
        if self.follows:
            found = self.steady[node].follow_up(frame, self.version, self.view)
            if found is not None:
                self.sent[node], _parked_bytes = found
                self.followed += 1
                return
        value, _end = API["Fetch"].response.parse_from(frame, len(HEAD), self.version)
        self._on_response(node, value)

    def respond_beside(self, node: int, response: FetchResponse) -> None:
        del self.sent_beside[node]
        self._on_response(node, response, is_sessionless=True)

    def lose(self, node: int) -> None:
        """The session's request of a broker has no response."""
        self.sent.pop(node, None)
        self.fetcher.failed(node, now=self.now, chance=0.5)

    def lose_beside(self) -> None:
        for node in self.sent_beside:
            self.fetcher.sessionless_ended(node)
        self.sent_beside.clear()

    def assign(self, gone: set[TopicPartition]) -> None:
        """All partitions but these are read on."""
        for partition in PARTITIONS:
            if partition in gone:
                self.positions.drop(partition)
                self.fetcher.forget(partition)
            elif partition not in self.positions:
                self.positions.assign(partition, start=0, has_group=False, wall_ms=0)

    def _on_response(self, node: int, response: FetchResponse, *, is_sessionless: bool = False) -> None:
        self.fetcher.on_response(
            node,
            response,
            self.view,
            now=self.now,
            wall_ms=0,
            chance=0.5,
            is_sessionless=is_sessionless,
        )

    def set_paused(self, paused: set[TopicPartition]) -> None:
        began = self.paused - paused
        self.paused = paused
        self.fetcher.change_allowed(began)
        self.fetcher.parked.readmitted(frozenset(PARTITIONS) - paused)

    def take(self) -> None:
        for partition in self.fetcher.parked.line():
            taken = self.fetcher.next_slice(partition, frozenset(PARTITIONS) - self.paused)
            if taken is not None:
                self.fetcher.parked.remove(taken, None)
                self.positions.consumed(partition, taken.serial, taken.end, 1, taken.leader_epoch_at_fetch)

    def requested(self, node: int) -> dict[TopicPartition, int]:
        """The offsets that the session of a broker has."""
        session = self.fetcher.sessions[node]
        return {partition: want.offset for partition, want in session.session_partitions.items()}

    @property
    def state(self) -> object:
        fetcher = self.fetcher
        sessions = {node: (one.session_id, one.epoch, one.session_partitions) for node, one in fetcher.sessions.items()}
        slices = {partition: fetcher.parked.first(partition) for partition in PARTITIONS}
        return (
            self.sent,
            self.sent_beside,
            sessions,
            fetcher.in_flight,
            fetcher.ahead,
            fetcher.ends,
            fetcher.held_back,
            fetcher.parked.total_bytes,
            fetcher.parked.line(),
            slices,
            [self.positions.get(one) for one in PARTITIONS],
        )


def response(
    requested: dict[TopicPartition, int], chance: random.Random, code: int, session_id: int = SESSION
) -> FetchResponse:
    """Records of some of the partitions; with `code`, the first of them has an error."""
    chosen = [partition for partition in requested if chance.random() < 0.5]
    topics: dict[str, list[PartitionData]] = {}
    for place, partition in enumerate(chosen):
        offset, count = requested[partition], chance.randrange(4)
        records = encode([(None, b"v" * 40)] * count, base_offset=offset, partition_leader_epoch=1) if count else b""
        error = code if place == 0 else 0
        data = PartitionData(
            partition_index=partition.partition,
            error_code=error,
            high_watermark=offset + 9,
            last_stable_offset=offset + 8,
            log_start_offset=0,
            aborted_transactions=None,
            records=b"" if error else records,
        )
        topics.setdefault(partition.topic, []).append(data)
    return FetchResponse(
        session_id=session_id,
        responses=tuple(
            FetchableTopicResponse(topic_id=IDS[topic], partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


@pytest.mark.parametrize("opens", [1.0, 0.05, 0.0], ids=["at once", "later", "never"])
@pytest.mark.parametrize("max_buffered_bytes", [700, 2_000, 1_000_000])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_follows_up_is_where_full_turns_would_bring_it(
    version: int, max_buffered_bytes: int, opens: float
) -> None:
    """`opens`: the probability that a broker opens a session for a request that has none."""
    chance = random.Random(version)
    readers = [
        Reader(follows=follows, max_buffered_bytes=max_buffered_bytes, version=version) for follows in (True, False)
    ]
    follower, plain = readers
    for reader in readers:
        reader.fetcher.until = {PARTITIONS[0]: 20, PARTITIONS[5]: 50}
    responded_beside = 0
    for _step in range(600):
        for reader in readers:
            reader.now += 0.1
        kind = chance.randrange(40)
        partition, other = chance.choice(PARTITIONS), chance.choice(PARTITIONS)
        if kind == 0:
            for reader in readers:
                reader.set_paused({partition, other})
        elif kind == 1:
            for reader in readers:
                reader.set_paused(set())
        elif kind == 2:
            for reader in readers:
                reader.positions.seek(partition, 3)
                reader.fetcher.drop(partition)
        elif kind == 3:
            view = cluster(1, chance.randrange(3))
            for reader in readers:
                reader.view = view
        elif kind < 20:
            for reader in readers:
                reader.take()
        elif kind < 24 and plain.sent_beside:
            node = chance.choice(sorted(plain.sent_beside))
            reply = response(plain.sent_beside[node], chance, 0, 0)
            responded_beside += 1
            for reader in readers:
                reader.respond_beside(node, reply)
        elif plain.sent:
            node = chance.choice(sorted(plain.sent))
            code = chance.choice([NOT_LEADER, OFFSET_NOT_AVAILABLE]) if kind == 39 else 0
            is_open = plain.fetcher.sessions[node].epoch > 0 or chance.random() < opens
            reply = response(plain.requested(node), chance, code, SESSION if is_open else 0)
            for reader in readers:
                reader.respond(node, reply)
        for reader in readers:
            reader.turn()
        assert follower.state == plain.state
    assert plain.followed == 0
    assert responded_beside
    if max_buffered_bytes == 1_000_000:
        assert follower.followed > 10


class WalksAll(Fetcher):
    """A fetcher that walks all partitions."""

    def _only_candidates(self, view: ClusterView, now: float) -> None:
        return None


@pytest.mark.parametrize("max_buffered_bytes", [2_000, 5_000, 1_000_000])
@pytest.mark.parametrize("seed", range(10))
def test_a_walk_of_the_candidates_leads_to_the_requests_of_a_walk_of_all(seed: int, max_buffered_bytes: int) -> None:
    chance = random.Random(seed)
    readers = [
        Reader(follows=True, max_buffered_bytes=max_buffered_bytes, fetcher=fetcher) for fetcher in (Fetcher, WalksAll)
    ]
    usual, whole = readers
    narrow = 0
    for _step in range(600):
        kind = chance.randrange(20)
        partition, others = chance.choice(PARTITIONS), set(chance.sample(PARTITIONS, chance.randrange(4)))
        elapsed = chance.choice([0.0, 0.1, 2.0])
        view = cluster(1, chance.randrange(3))
        reply = None
        if kind < 3 and whole.sent_beside:
            node = chance.choice(sorted(whole.sent_beside))
            reply = response(whole.sent_beside[node], chance, chance.choice([0, 0, OFFSET_NOT_AVAILABLE]), 0)
        elif 3 <= kind < 5 and whole.sent:
            node = chance.choice(sorted(whole.sent))
            reply = response(whole.requested(node), chance, chance.choice([0, 0, 0, OFFSET_NOT_AVAILABLE]))
        for reader in readers:
            reader.now += elapsed
            if kind < 3 and reply is not None:
                reader.respond_beside(node, reply)
            elif kind < 5 and reply is not None:
                reader.respond(node, reply)
            elif kind == 5:
                reader.view = view
            elif kind == 6 and whole.sent:
                reader.lose(min(whole.sent))
            elif kind == 7:
                reader.lose_beside()
            elif kind < 11:
                reader.set_paused(others)
            elif kind < 16 and partition in reader.positions:
                reader.positions.seek(partition, 3)
                reader.fetcher.drop(partition)
            elif kind == 16:
                reader.assign(others)
            else:
                reader.take()
        narrow += usual.fetcher._only_candidates(usual.view, usual.now) is not None
        for reader in readers:
            reader.turn()
        assert usual.state == whole.state
    assert narrow > 50


def steady() -> Reader:
    """A reader whose sessions are open."""
    reader = Reader(follows=True, max_buffered_bytes=1_000_000)
    reader.turn()
    for node in (1, 2):
        reader.respond(node, FetchResponse(session_id=SESSION))
    reader.turn()
    assert reader.followed == 0
    reader.respond(1, FetchResponse(session_id=SESSION))
    assert reader.followed == 1
    return reader


def test_a_partition_that_waits_for_its_backoff_is_fetched_again() -> None:
    """Its broker has another request in flight when the time is over. No full turn may find it idle after that."""
    reader = steady()
    partition = next(iter(reader.requested(1)))
    refusal = PartitionData(partition_index=partition.partition, error_code=OFFSET_NOT_AVAILABLE, high_watermark=-1)
    topic = FetchableTopicResponse(topic_id=IDS[partition.topic], partitions=(refusal,))
    reader.respond(1, FetchResponse(session_id=SESSION, responses=(topic,)))
    reader.turn()
    assert partition not in reader.requested(1)
    reader.now += 5.0
    reader.turn()
    reader.respond(1, FetchResponse(session_id=SESSION))
    reader.turn()
    assert partition in reader.requested(1)


def test_a_broker_that_is_held_back_gets_its_turn() -> None:
    """Another broker's session does not go on by itself while the buffer has no room for all."""
    reader = Reader(follows=True, max_buffered_bytes=350)
    reader.turn()
    (node,) = reader.sent
    for _ in range(4):
        (node,) = reader.sent
        reader.respond(node, FetchResponse(session_id=SESSION))
        reader.turn()
        assert reader.sent.keys() == {3 - node}
    assert reader.followed == 0


def test_a_response_that_names_a_partition_twice_is_left_to_the_full_turn() -> None:
    reader = steady()
    partition = next(iter(reader.requested(1)))
    twice = PartitionData(
        partition_index=partition.partition,
        high_watermark=9,
        aborted_transactions=None,
        records=encode([(None, b"v")], base_offset=0),
    )
    topic = FetchableTopicResponse(topic_id=IDS[partition.topic], partitions=(twice, twice))
    followed = reader.followed
    reader.respond(1, FetchResponse(session_id=SESSION, responses=(topic,)))
    assert reader.followed == followed
    assert reader.fetcher.parked.total_bytes == len(twice.records or b"")


def test_the_records_of_a_followed_response_count_their_own_views() -> None:
    reader = steady()
    topics: dict[str, list[PartitionData]] = {}
    requested = [*reader.requested(1)][:2]
    for partition in requested:
        data = PartitionData(
            partition_index=partition.partition,
            high_watermark=9,
            aborted_transactions=None,
            records=encode([(None, b"v")], base_offset=0),
        )
        topics.setdefault(partition.topic, []).append(data)
    followed = reader.followed
    responses = tuple(
        FetchableTopicResponse(topic_id=IDS[topic], partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )
    reader.respond(1, FetchResponse(session_id=SESSION, responses=responses))
    assert reader.followed == followed + 1
    slices = [reader.fetcher.parked.first(partition) for partition in requested]
    first, second = (slice_.records for slice_ in slices if slice_ is not None)
    assert first.obj is not second.obj
    assert first == second == encode([(None, b"v")], base_offset=0)


def without_session() -> Reader:
    """A reader whose partitions are all read up to an end, so that it asks for no session."""
    reader = Reader(follows=True, max_buffered_bytes=1_000_000)
    reader.fetcher.until = dict.fromkeys(PARTITIONS, 100)
    reader.turn()
    return reader


def test_a_short_read_goes_on_without_a_session() -> None:
    reader = without_session()
    before = reader.sent[1]
    reader.respond(1, FetchResponse(session_id=0))
    assert reader.followed == 1
    assert reader.sent[1] == before
    follower, plain = without_session(), without_session()
    plain.follows = False
    for one in (follower, plain):
        one.respond(1, response(one.requested(1), random.Random(1), 0, 0))
        one.turn()
    assert (follower.followed, plain.followed) == (1, 0)
    assert follower.state == plain.state
    assert follower.sent[1] != before


def test_a_response_after_a_failure_ends_the_backoff_of_its_broker() -> None:
    reader = without_session()
    reader.fetcher.failed(1, now=reader.now, chance=0.5)
    del reader.sent[1]
    assert reader.fetcher.next_poll_at()
    reader.now += 5.0
    reader.turn()
    reader.respond(1, FetchResponse(session_id=0))
    assert (reader.followed, reader.fetcher.next_poll_at()) == (0, [])


@pytest.mark.parametrize("session_id", [0, SESSION], ids=["none", "the same"])
def test_a_broker_that_has_an_old_session_is_looked_at_in_a_full_turn(session_id: int) -> None:
    """The session's id is sent once more, so that the broker closes it."""
    reader = steady()
    reader.respond(1, FetchResponse(error_code=INVALID_EPOCH))
    reader.turn()
    reader.respond(1, FetchResponse(session_id=session_id))
    reader.turn()
    assert reader.followed == 1
    session = reader.fetcher.sessions[1]
    assert (session.session_id, session.epoch) == (session_id, int(session_id == SESSION))
    reader.respond(1, FetchResponse(session_id=session_id))
    assert reader.followed == 2
