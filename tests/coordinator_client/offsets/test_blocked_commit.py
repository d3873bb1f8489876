"""A commit whose caller has a hook to run."""

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.errors import RebalanceInProgress
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Close
from tests.coordinator_client.consumer_helpers import PATIENCE_S, Witness, poll_until, wait_until

RETRY_MS = 200_000  # no look-up of the coordinator ends meanwhile


def test_a_commit_ends_while_a_hook_waits_for_its_caller_and_no_coordinator_is_known() -> None:
    """The hook runs in the caller's next poll, and the caller waits for the commit."""
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(
            fake.bootstrap,
            group="g",
            enable_auto_commit=False,
            assignors=["range"],
            retry_backoff_ms=RETRY_MS,
            retry_backoff_max_ms=RETRY_MS,
        ) as consumer,
    ):
        consumer.subscribe(["t"], hooks=Witness())
        poll_until(consumer, lambda: bool(consumer.assignment))
        core = consumer._session.driver.core
        refused = fake.control("FindCoordinator", lambda _call: Close())
        consumer.enforce_rebalance()
        wait_until(lambda: core.hook_is_due)
        fake.disconnect()
        wait_until(lambda: core.view is not None and core.view.coordinator is None)
        with pytest.raises(RebalanceInProgress):
            consumer.commit({TopicPartition("t", 0): 0}, timeout_s=PATIENCE_S / 2)
        refused.remove()
