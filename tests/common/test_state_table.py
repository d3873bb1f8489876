"""The look-up in the tables of every state machine: a pair is legal by being there, and a defect otherwise."""

from typing import Any

import pytest

from kohort.common.state_table import IllegalTransition
from kohort.consistent_region import states as region
from kohort.coordinator_client.group import states as group
from kohort.producer import transaction_states as transactions
from kohort.share_consumer import states as share

TABLES: dict[str, tuple[Any, Any]] = {
    "member": (group.TRANSITIONS, group.Trigger),
    "member, KIP-848": (group.CONSUMER_GROUP_TRANSITIONS, group.Trigger),
    "coordinator": (group.COORDINATOR_TRANSITIONS, group.CoordinatorTrigger),
    "region": (region.TRANSITIONS, region.RegionTrigger),
    "checkpoint": (region.PHASES, region.Step),
    "share member": (share.TRANSITIONS, share.ShareTrigger),
    "producer": (transactions.TRANSITIONS, transactions.TxnTrigger),
}


@pytest.mark.proves("F-08")
@pytest.mark.parametrize("name", TABLES)
def test_what_a_table_lacks_is_refused_with_both_names(name: str) -> None:
    table, triggers = TABLES[name]
    for state, row in table.items():
        for trigger in triggers:
            if trigger in row:
                continue
            with pytest.raises(IllegalTransition, match="report it") as caught:
                row[trigger]
            assert caught.value.place == {"state": state.name, "trigger": trigger.name}


@pytest.mark.parametrize("name", TABLES)
def test_every_state_has_a_row(name: str) -> None:
    table, _ = TABLES[name]
    states: Any = type(next(iter(table)))
    missing = set(states) - set(table)
    assert missing == ({group.MemberState.PLANNING, group.MemberState.SYNCING} if "848" in name else set())
