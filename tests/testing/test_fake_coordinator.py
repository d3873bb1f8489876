"""The fake's coordinator under random schedules of members: it keeps its promises to each of them."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.protocol.apis.heartbeat import HeartbeatRequest
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kohort.testing.fake_broker import GroupCoordinator, GroupState

SESSION_MS, REBALANCE_MS = 10_000, 20_000
CLIENTS = 4


class Client:
    """One member as it sees itself; responses land in its lists, each request's exactly once."""

    def __init__(self, instance_id: str | None, former_ids: tuple[str, ...] = ()) -> None:
        self.instance_id = instance_id
        self.former_ids = former_ids
        self.member_id = ""
        self.generation = -1
        self.leads: tuple[str, ...] = ()
        self.assigned: bytes | None = None
        self.waiting = False
        self.fenced = False

    def taking(self, take: Callable[..., None]) -> Callable[..., None]:
        """A reply that may be called once only."""
        self.waiting = True
        responded = False

        def reply(value: object) -> None:
            nonlocal responded
            assert not responded, "answered twice"
            responded = True
            self.waiting = False
            take(value)

        return reply

    def on_join(self, response: JoinGroupResponse) -> None:
        if response.error_code == 79:
            self.member_id = response.member_id
        elif response.error_code:
            self.lost(response.error_code)
        else:
            assert response.generation_id >= self.generation
            if response.generation_id > self.generation:
                self.assigned = None
            self.member_id, self.generation = response.member_id, response.generation_id
            self.leads = tuple(member.member_id for member in response.members)
            assert bool(self.leads) == (response.leader == response.member_id)

    def on_sync(self, response: SyncGroupResponse) -> None:
        if response.error_code in (22, 25, 82):
            self.lost(response.error_code)
        elif not response.error_code:
            # What a member is given in a generation is what that generation's leader meant for it, or for the id that
            # the same static member had before.
            meant = {f"{self.generation}/{each}".encode() for each in (self.member_id, *self.former_ids)}
            assert bytes(response.assignment) in meant
            self.assigned = bytes(response.assignment)

    def lost(self, error: int) -> None:
        assert error in (22, 25, 82), error
        self.fenced = error == 82
        self.member_id, self.generation, self.leads, self.assigned = "", -1, (), None


class CoordinatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = GroupCoordinator()
        self.now = 0.0
        self.clients = [Client(f"static-{n}" if n == 0 else None) for n in range(CLIENTS)]
        self.highest = 0

    @rule(which=st.integers(0, CLIENTS - 1), note=st.sampled_from([b"", b"x"]))
    def join(self, which: int, note: bytes) -> None:
        client = self.clients[which]
        if client.waiting:
            return
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=note),),
        )
        self.coordinator.join(request, version=9, client_id="c", now=self.now, reply=client.taking(client.on_join))

    @rule(which=st.integers(0, CLIENTS - 1))
    def sync(self, which: int) -> None:
        client = self.clients[which]
        if client.waiting or client.generation < 0:
            return
        request = SyncGroupRequest(
            group_id="g",
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each, assignment=f"{client.generation}/{each}".encode())
                for each in client.leads
            ),
        )
        self.coordinator.sync(request, now=self.now, reply=client.taking(client.on_sync))

    @rule(which=st.integers(0, CLIENTS - 1))
    def heartbeat(self, which: int) -> None:
        client = self.clients[which]
        if client.waiting or client.generation < 0:
            return
        error = self.coordinator.heartbeat(
            HeartbeatRequest(
                group_id="g",
                generation_id=client.generation,
                member_id=client.member_id,
                group_instance_id=client.instance_id,
            ),
            now=self.now,
        )
        if error not in (0, 27):
            client.lost(error)

    @rule(which=st.integers(0, CLIENTS - 1))
    def leave(self, which: int) -> None:
        client = self.clients[which]
        if client.waiting or not client.member_id:
            return
        self.coordinator.leave("g", [(client.member_id, client.instance_id)], now=self.now)
        client.lost(25)

    @precondition(lambda self: self.clients[0].generation >= 0 and not self.clients[0].waiting)
    @rule()
    def restart_the_static_one(self) -> None:
        """Its process is gone; a new one with the same name knows nothing."""
        gone = self.clients[0]
        self.clients[0] = Client(gone.instance_id, (*gone.former_ids, gone.member_id))

    @rule(seconds=st.sampled_from([0.1, 4.0, 12.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.expire(self.now)

    @invariant()
    def group_is_whole(self) -> None:
        group = self.coordinator.groups.get("g")
        if group is None:
            return
        assert group.generation >= self.highest
        self.highest = group.generation
        if not group.members:  # ids that were given out hold a rebalance open even after the last member left
            assert group.state is GroupState.EMPTY or (group.state is GroupState.PREPARING and group.pending)
        else:
            assert group.state is not GroupState.EMPTY
        assert group.leader is None if not group.members else group.leader in group.members
        assert set(group.static.values()) == {
            member.member_id for member in group.members.values() if member.instance_id is not None
        }
        assert all(member_id == member.member_id for member_id, member in group.members.items())
        if group.state is GroupState.STABLE:
            assert not any(member.waits for member in group.members.values())
        if group.state is GroupState.PREPARING:
            assert not any(member.syncing for member in group.members.values())
        if group.state is GroupState.COMPLETING:
            assert not any(member.joining for member in group.members.values())

    @invariant()
    def no_request_waits_for_ever(self) -> None:
        if any(client.waiting for client in self.clients):
            assert self.coordinator.next_deadline() is not None

    def teardown(self) -> None:
        """Left alone for long enough, the coordinator has no pending response."""
        for _ in range(20):
            self.now += REBALANCE_MS / 1000 + 1
            self.coordinator.expire(self.now)
        assert not any(client.waiting for client in self.clients)


TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = settings(max_examples=150, stateful_step_count=40)
