"""The fake's coordinator of KIP-848 under random schedules: a partition has one owner at a time, and gets one."""

from collections.abc import Mapping
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.testing.fake_broker import ConsumerGroupState, CoordinatorSettings
from kohort.testing.fake_broker.consumer_coordinator import ConsumerCoordinator, by_topic
from kohort.testing.fake_broker.consumer_group import GroupTopic, Place

CLIENTS = 4
SESSION_S, REBALANCE_S = 10.0, 20.0
NEW_MEMBER = {110: "fenced", 25: "unknown", 69: "no group", 111: "unreleased"}


class Client:
    """One member as it sees itself; it owns its last assignment, less the partitions that it has let go of."""

    def __init__(self, number: int, instance_id: str | None) -> None:
        self.number = number
        self.instance_id = instance_id
        self.lives = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        self.lives += 1
        self.member_id = f"client-{self.number}-{self.lives}"
        self.epoch = 0
        self.reported: frozenset[Place] = frozenset()
        self.owned: frozenset[Place] = frozenset()


class EpochsMachine(RuleBasedStateMachine):
    """Rules are what members, topics and time may do in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = ConsumerCoordinator(
            CoordinatorSettings(group_consumer_session_timeout_ms=int(SESSION_S * 1000))
        )
        self.clients = [Client(number, "static" if number == 0 else None) for number in range(CLIENTS)]
        self.sizes = {"one": 2, "two": 3}
        self.now = 0.0

    @property
    def topics(self) -> Mapping[str, GroupTopic]:
        return {name: GroupTopic(UUID(int=len(name) + ord(name[0])), size) for name, size in self.sizes.items()}

    def request(self, client: Client, **said: object) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; afterwards the client has its new assignment, or knows that it is no member any more."""
        full = {
            "group_id": "g",
            "member_id": client.member_id,
            "member_epoch": client.epoch,
            "instance_id": client.instance_id,
        }
        response = self.coordinator.heartbeat(
            ConsumerGroupHeartbeatRequest(**(full | said)),  # type: ignore[arg-type]
            version=1,
            client_id="c",
            topics=self.topics,
            now=self.now,
        )
        if response.error_code:
            assert response.error_code in NEW_MEMBER, response
            client.begin_anew()
        elif response.member_epoch >= 0:
            client.epoch = response.member_epoch
            if response.assignment is not None:
                client.reported = frozenset(
                    Place(one.topic_id, number)
                    for one in response.assignment.topic_partitions
                    for number in one.partitions
                )
                client.owned |= client.reported
        return response

    def beat(self, client: Client, *, lets_go: bool) -> None:
        if not client.epoch:
            names = ("one",) if client.number == 1 else ("one", "two")
            self.request(
                client, rebalance_timeout_ms=REBALANCE_S * 1000, subscribed_topic_names=names, topic_partitions=()
            )
            return
        if lets_go:
            client.owned &= client.reported
        self.request(client, topic_partitions=by_topic(client.owned))

    @rule(number=st.integers(0, CLIENTS - 1), lets_go=st.booleans())
    def beats(self, number: int, lets_go: bool) -> None:
        self.beat(self.clients[number], lets_go=lets_go)

    @rule(number=st.integers(0, CLIENTS - 1))
    def says_nothing_new(self, number: int) -> None:
        if self.clients[number].epoch:
            self.request(self.clients[number])

    @rule(number=st.integers(0, CLIENTS - 1))
    def leaves(self, number: int) -> None:
        client = self.clients[number]
        if client.epoch:
            self.request(client, member_epoch=-1)
            client.begin_anew()

    @rule()
    def leaves_for_a_while(self) -> None:
        client = self.clients[0]
        if client.epoch:
            self.request(client, member_epoch=-2)
            client.begin_anew()

    @rule(number=st.integers(0, CLIENTS - 1))
    def dies(self, number: int) -> None:
        self.clients[number].begin_anew()

    @rule(name=st.sampled_from(["one", "two"]), more=st.integers(1, 2))
    def grows(self, name: str, more: int) -> None:
        self.sizes[name] = min(self.sizes[name] + more, 9)

    @rule(seconds=st.floats(0.1, 8.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.expire(self.now)

    @rule()
    def all_settle(self) -> None:
        """Once all members heartbeat and let go, every partition has one owner, which has it in its assignment."""
        for _ in range(60):
            self.now += 0.5
            self.coordinator.expire(self.now)
            for client in self.clients:
                self.beat(client, lets_go=True)
        group = self.coordinator.groups["g"]
        assert group.state is ConsumerGroupState.STABLE
        assert set(group.members) == {client.member_id for client in self.clients}
        reported = sorted(place for client in self.clients for place in client.reported)
        views = self.topics.values()
        assert reported == sorted(Place(one.topic_id, number) for one in views for number in range(one.partitions))
        assert {client.epoch for client in self.clients} == {group.epoch}

    @invariant()
    def each_partition_is_one_members(self) -> None:
        group = self.coordinator.groups.get("g")
        if group is None:
            return
        held = [place for member in group.members.values() for place in member.assigned | member.revoking]
        assert len(held) == len(set(held))
        assert all(member.epoch <= group.target_epoch <= group.epoch for member in group.members.values())

    @invariant()
    def what_is_owned_is_known(self) -> None:
        """A member that the group knows owns nothing but what the coordinator counts as its own."""
        group = self.coordinator.groups.get("g")
        for client in self.clients:
            if group is not None and client.member_id in group.members and client.epoch:
                member = group.members[client.member_id]
                assert client.owned <= member.assigned | member.revoking

    @invariant()
    def nothing_is_overdue(self) -> None:
        due = self.coordinator.next_deadline()
        assert due is None or due > self.now


TestEpochs = EpochsMachine.TestCase
TestEpochs.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
