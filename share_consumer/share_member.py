"""The member of a share group: heartbeats, epochs, assignment, fencing and leaving (KIP-932). No clock, no I/O.

`next_request` returns the heartbeat that is due, and `on_response` or `on_failure` takes its outcome. `ACTIONS` maps
error codes to actions. A heartbeat with the previous epoch gets no assignment. So after any failure the next heartbeat
carries the topics and the rack again, and the response to it carries the assignment (SH-06).
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final
from uuid import UUID

from kohort.common import KohortError
from kohort.network.backoff import FRESH, NEVER, Backoff
from kohort.network.error_mapping import group_error
from kohort.network.errors import AuthorizationFailed
from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.share_consumer.errors import ShareGroupsUnsupported
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.states import TRANSITIONS, ShareState, ShareTrigger

JOIN, LEAVE = 0, -1
FIRST_ASSIGNMENT_S: Final = 0.25
"""The first delay of a heartbeat while the assignment is empty. Share partitions are initialized after the join."""
LEAVE_PATIENCE_S: Final = 2.0
"""Maximum time (s) of a leave after one had no response, or without a coordinator. All brokers may be down."""

Assignment = Mapping[UUID, tuple[int, ...]]


class HeartbeatAction(Enum):
    """The effect of an error code on the member."""

    REJOIN = "the membership is lost: join again with epoch 0"
    REJOIN_OR_FAIL = "with an epoch above 0: join again. With epoch 0: the group is of another type, which is fatal"
    LOOK_UP = "find the coordinator, and send all fields again after a backoff"
    RETRY = "send all fields again after a backoff"
    REPORT = "raise the error from poll, and stay in the group"
    FAIL = "fatal"


ACTIONS: Final[Mapping[int, HeartbeatAction]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: HeartbeatAction.REJOIN,
    ErrorCode.FENCED_MEMBER_EPOCH: HeartbeatAction.REJOIN,
    ErrorCode.GROUP_ID_NOT_FOUND: HeartbeatAction.REJOIN_OR_FAIL,
    ErrorCode.NOT_COORDINATOR: HeartbeatAction.LOOK_UP,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HeartbeatAction.LOOK_UP,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HeartbeatAction.RETRY,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HeartbeatAction.REPORT,
}


class ShareMember:
    """See the module. `chance` returns random numbers in [0, 1).

    `member_id` is made by the client and kept through every rejoin.
    """

    def __init__(
        self, config: ShareConsumerConfig, member_id: str, backoff: Backoff, chance: Callable[[], float]
    ) -> None:
        self.member_id = member_id
        self._config = config
        self._max_poll_interval_s = config.max_poll_interval_ms / 1000
        self.state = ShareState.OUT
        self.epoch = JOIN
        self.assignment: Assignment = {}
        self.topics: frozenset[str] = frozenset()
        self.error: KohortError | None = None
        self._backoff = backoff
        self._chance = chance
        self._attempts = FRESH
        self._serial = 0  # of the request in flight; the outcome of an older one has no effect
        self._in_flight = False
        self._whole = True  # the next heartbeat carries all fields
        self._due = NEVER
        self._empty_s = FIRST_ASSIGNMENT_S
        self._polled_at = 0.0
        self._leave_at: float | None = None  # when a leave is due
        self.leave_by = NEVER  # when a leave without a response ends

    # --- subscription and polls

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        """Set the topics; no topics end the membership."""
        self.topics = topics
        self._polled_at = now
        if not topics:
            self.leave()
        elif self.state is ShareState.OUT:
            self._join(ShareTrigger.SUBSCRIBED)
        elif self.state in (ShareState.JOINING, ShareState.STABLE):
            self._whole, self._due = True, 0.0

    def leave(self) -> None:
        """Leave the group. The member is out when the request has an outcome."""
        self.assignment = {}
        self.topics = frozenset()
        if self.state is ShareState.STABLE or (self.state is ShareState.JOINING and self._in_flight):
            self._to(ShareTrigger.MUST_LEAVE)
            self._leave_at, self.leave_by = 0.0, NEVER
            self._in_flight, self._due = False, 0.0
        elif self.state in (ShareState.JOINING, ShareState.STALLED):
            self._to(ShareTrigger.LEFT)

    def polled(self, now: float) -> None:
        """The caller polls, which restarts `max_poll_interval_ms`."""
        self._polled_at = now
        if self.state is ShareState.STALLED:
            self._join(ShareTrigger.POLLED_AGAIN)

    def waited(self, until: float) -> None:
        """A poll has waited until then (monotonic s)."""
        self._polled_at = max(self._polled_at, until)

    # --- requests

    def next_request(self, now: float) -> tuple[int, ShareGroupHeartbeatRequest] | None:
        """The heartbeat that is due, with the serial number for its outcome; None if none is due."""
        in_group = self.state in (ShareState.JOINING, ShareState.STABLE)
        if in_group and now >= self._polled_at + self._max_poll_interval_s:
            self._leave_at = 0.0 if self.state is ShareState.STABLE or self._in_flight else None
            self._in_flight = False
            self.assignment = {}
            self._to(ShareTrigger.STALLED)
        if self._leave_at is not None and now >= self._leave_at:
            self._leave_at = None
            return self._sent(LEAVE, whole=False)
        if not in_group or self.state is ShareState.STALLED or self._in_flight or now < self._due_at():
            return None
        whole, self._whole = self._whole, False
        self._due = NEVER
        return self._sent(self.epoch, whole=whole)

    def _sent(self, epoch: int, *, whole: bool) -> tuple[int, ShareGroupHeartbeatRequest]:
        self._serial += 1
        self._in_flight = True
        request = ShareGroupHeartbeatRequest(
            group_id=self._config.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=self._config.rack if whole else None,
            subscribed_topic_names=tuple(sorted(self.topics)) if whole else None,
        )
        return self._serial, request

    def next_poll_at(self) -> float | None:
        """The time (monotonic s) to call `next_request` again if nothing happens."""
        if self.state is ShareState.LEAVING:
            return self.leave_by if self._leave_at is None else min(self._leave_at, self.leave_by)
        if self._leave_at is not None:
            return self._leave_at
        if self.state not in (ShareState.JOINING, ShareState.STABLE):
            return None
        stalled_at = self._polled_at + self._max_poll_interval_s
        return stalled_at if self._in_flight else min(self._due_at(), stalled_at)

    def _due_at(self) -> float:
        return max(self._due, self._attempts.not_before)

    # --- outcomes

    def on_response(self, serial: int, response: ShareGroupHeartbeatResponse, sent_at: float, now: float) -> bool:
        """Handle a response. Returns True if the coordinator must be looked up again."""
        if serial != self._serial:
            return False
        action = ACTIONS.get(response.error_code)
        if self._leaves and action in (HeartbeatAction.LOOK_UP, HeartbeatAction.RETRY):
            self._leave_again(now)
            return True
        if not self._ended():
            return False
        if response.error_code:
            return self._on_error(response, now)
        self._attempts = FRESH
        self.epoch = response.member_epoch
        if self.state is ShareState.JOINING:
            self._to(ShareTrigger.JOINED)
        if response.assignment is not None:
            self.assignment = {one.topic_id: one.partitions for one in response.assignment.topic_partitions}
        interval_s = response.heartbeat_interval_ms / 1000
        if self.assignment:
            self._empty_s = FIRST_ASSIGNMENT_S
        else:
            interval_s, self._empty_s = min(interval_s, self._empty_s), self._empty_s * 2
        # A subscription that changed meanwhile is due at once.
        self._due = 0.0 if self._whole else sent_at + interval_s
        return False

    def on_failure(self, serial: int, now: float) -> None:
        """Handle a request without a response."""
        if serial != self._serial:
            return
        if self._leaves:
            self.leave_by = min(self.leave_by, now + LEAVE_PATIENCE_S)
            self._leave_again(now)
        elif self._ended():
            self._again(now)

    def end_late_leave(self, now: float, lost_since: float = NEVER) -> bool:
        """End a leave that had no response in time, or has no coordinator since `lost_since` (monotonic s).

        Returns True if there was one.
        """
        is_late = self.state is ShareState.LEAVING and now >= min(self.leave_by, lost_since + LEAVE_PATIENCE_S)
        if is_late:
            self._leave_at = None
            self._serial += 1  # else its late response could count as that of a join
            self._ended()
        return is_late

    @property
    def _leaves(self) -> bool:
        """True if the member leaves, and does not join again after that."""
        return self.state is ShareState.LEAVING and not self.topics

    def _leave_again(self, now: float) -> None:
        self._in_flight = False
        self._attempts = self._attempts.failed(now, self._backoff, self._chance())
        self._leave_at = self._attempts.not_before

    def fail(self, error: KohortError) -> None:
        """A fatal error ends the membership."""
        self.assignment = {}
        if self.state is not ShareState.FAILED:
            self.error = error
            self._to(ShareTrigger.GAVE_UP)

    def _ended(self) -> bool:
        """Note the end of the request in flight. Returns False if it was a leave, whose outcome has no effect."""
        self._in_flight = False
        if self.state is ShareState.LEAVING:
            self._to(ShareTrigger.LEFT)
            if self.topics:
                self._join(ShareTrigger.SUBSCRIBED)
            return False
        return self.state in (ShareState.JOINING, ShareState.STABLE)

    def _on_error(self, response: ShareGroupHeartbeatResponse, now: float) -> bool:
        code = response.error_code
        action = ACTIONS.get(code, HeartbeatAction.FAIL)
        if action is HeartbeatAction.REJOIN_OR_FAIL:
            action = HeartbeatAction.REJOIN if self.epoch > JOIN else HeartbeatAction.FAIL
        match action:
            case HeartbeatAction.REJOIN:
                self._join(ShareTrigger.FENCED)
            case HeartbeatAction.LOOK_UP:
                self._again(now)
                return True
            case HeartbeatAction.RETRY:
                self._again(now)
            case HeartbeatAction.REPORT:
                self.error = heartbeat_error(response, self._config.group)
                self._again(now)
            case HeartbeatAction.FAIL:
                self.fail(heartbeat_error(response, self._config.group))
        return False

    def _again(self, now: float) -> None:
        self._attempts = self._attempts.failed(now, self._backoff, self._chance())
        self._whole, self._due = True, 0.0

    def _join(self, trigger: ShareTrigger) -> None:
        self._to(trigger)
        self.epoch = JOIN
        self.assignment = {}
        self._in_flight = False
        self._empty_s = FIRST_ASSIGNMENT_S
        self._whole, self._due = True, 0.0

    def _to(self, trigger: ShareTrigger) -> None:
        self.state = TRANSITIONS[self.state][trigger]


def heartbeat_error(response: ShareGroupHeartbeatResponse, group: str) -> KohortError:
    """The error of a heartbeat for the caller."""
    match response.error_code:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return group_error(response.error_code, group)
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return AuthorizationFailed(
                f"not allowed to read a topic: {response.error_message or ''}", hint="grant READ and DESCRIBE on it"
            )
        case ErrorCode.UNSUPPORTED_VERSION:
            return unsupported(group)
    error = BrokerError(response.error_code, response.error_message, api="ShareGroupHeartbeat", group=group)
    if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        error.hint = "a group of another type has this id: use another id"
    return error


def unsupported(group: str) -> ShareGroupsUnsupported:
    """The one error of a cluster without share groups."""
    return ShareGroupsUnsupported(
        "the cluster has no share groups (KIP-932)",
        hint="share groups need brokers of Kafka 4.2 or newer and the feature share.version=1",
        group=group,
    )
