"""The states of a member of a share group (KIP-932), and all transitions, as one literal table.

A share group has no revocation. The coordinator puts a member on its newest assignment at once, and several members may
have one partition. So the machine has no state in which the member waits for a hook or for other members. An absent
pair is a defect of kohort (`IllegalTransition`). `share_member.py` decides on triggers.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kohort.common.state_table import state_table


class ShareState(Enum):
    """The state of this member in its share group. Each value is a sentence for people."""

    OUT = "not in the group"
    """There is no subscription. This is the state at the start and after a leave. Nothing is sent. Ends with a
    subscription."""

    JOINING = "waiting for the group to join"
    """ShareGroupHeartbeat with epoch 0 is due or in flight. It carries the topics and the rack. The assignment is
    empty. Ends with a response."""

    STABLE = "in the group"
    """The coordinator knows the member. The newest assignment is in use, also if it is empty. Heartbeats are sent. Ends
    with the loss of the membership, or with a leave."""

    STALLED = "left the group: max_poll_interval_ms passed without a poll"
    """The member has sent epoch -1, so that other members get its partitions. Records that were returned stay acquired.
    Nothing more is sent until the next poll."""

    LEAVING = "leaving the group"
    """ShareGroupHeartbeat with epoch -1 is due or in flight. A response ends it, also an error. If the coordinator
    moves, or its connection ends, it is sent again."""

    FAILED = "stopped by an error"
    """A fatal error. Every poll raises it. Nothing is sent. Nothing leads out."""


class ShareTrigger(Enum):
    """The conclusions of `share_member.py`."""

    SUBSCRIBED = "there is a subscription"
    JOINED = "the coordinator responded with an epoch"
    FENCED = "the coordinator does not know the member or its epoch any more"
    STALLED = "max_poll_interval_ms passed without a poll"
    POLLED_AGAIN = "poll was called again"
    MUST_LEAVE = "unsubscribe or close"
    LEFT = "the leave has an outcome, or was not needed"
    GAVE_UP = "an error that no retry cures"


_S, _T = ShareState, ShareTrigger

TRANSITIONS: Final[Mapping[ShareState, Mapping[ShareTrigger, ShareState]]] = state_table(
    {
        _S.OUT: {
            _T.SUBSCRIBED: _S.JOINING,
            _T.GAVE_UP: _S.FAILED,
        },
        _S.JOINING: {
            _T.JOINED: _S.STABLE,
            _T.FENCED: _S.JOINING,
            _T.STALLED: _S.STALLED,
            _T.MUST_LEAVE: _S.LEAVING,
            _T.LEFT: _S.OUT,
            _T.GAVE_UP: _S.FAILED,
        },
        _S.STABLE: {
            _T.FENCED: _S.JOINING,
            _T.STALLED: _S.STALLED,
            _T.MUST_LEAVE: _S.LEAVING,
            _T.GAVE_UP: _S.FAILED,
        },
        _S.STALLED: {
            _T.POLLED_AGAIN: _S.JOINING,
            _T.LEFT: _S.OUT,
            _T.GAVE_UP: _S.FAILED,
        },
        _S.LEAVING: {
            _T.LEFT: _S.OUT,
            _T.GAVE_UP: _S.FAILED,
        },
        _S.FAILED: {},
    }
)
