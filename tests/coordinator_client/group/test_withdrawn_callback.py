"""A hook call that is due when the user parts is withdrawn, and cannot be taken any more. A hook that lets go may
commit as ever."""

import asyncio
import time
from collections.abc import Callable

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import AsyncConsumer, Consumer, RebalanceHooks, Revoked
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.protocol.apis.offset_commit import OffsetCommitRequest
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, Witness, poll_until


def closes(core: ConsumerCore, now: float) -> None:
    core.request_close(now, now + 30.0)


def unsubscribes(core: ConsumerCore, now: float) -> None:
    core.unsubscribe()


@pytest.mark.proves("B-36", "G-15")
@pytest.mark.parametrize("part", [closes, unsubscribes])
def test_an_assignment_that_nobody_was_told_of_is_not_told_once_the_consumer_parts(
    part: Callable[[ConsumerCore, float], None],
) -> None:
    hooks = Witness()
    with FakeBroker(topics={"topic": 2}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["topic"], hooks=hooks)
        session, limit = consumer._session, time.monotonic() + PATIENCE_S
        while session.read(lambda core: core._hook) is None:  # the driver joins by itself; no poll takes the call
            assert time.monotonic() < limit
            time.sleep(0.01)
        with session.driver.lock:  # between this and the next turn of the driver
            now = session.driver.now()
            part(session.core, now)
            assert session.core.take_hook(now) is None
        session.driver.wakeup()
        consumer._run_until(lambda core: core.out, PATIENCE_S)
        assert session.read(lambda core: core.out)
    assert hooks.kinds() == []  # what was never given cannot be let go


@pytest.mark.proves("G-15", "S-08")
def test_on_revoked_may_commit_while_the_consumer_unsubscribes() -> None:
    mine = TopicPartition("topic", 0)

    class Commits(RebalanceHooks):
        def on_revoked(self, event: Revoked) -> None:
            consumer.commit({mine: 7})

    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["topic"], hooks=Commits())
        poll_until(consumer, lambda: bool(consumer.assignment))
        owner = consumer.group_metadata()
        consumer.unsubscribe()
        (call,) = fake.calls_of("OffsetCommit")
        assert isinstance(call.request, OffsetCommitRequest)
        assert (call.request.generation_id_or_member_epoch, call.request.member_id) == (
            owner.generation,
            owner.member_id,
        )
        assert fake.group("group").offsets[mine].offset == 7
        consumer.commit({mine: 9})  # in a group that is empty now any client may
        assert fake.group("group").offsets[mine].offset == 9


class Raises(RebalanceHooks):
    def on_revoked(self, event: Revoked) -> None:
        raise RuntimeError("on_revoked is faulty")


@pytest.mark.proves("B-36", "B-43")
def test_a_hook_that_raises_does_not_keep_a_closing_consumer_in_its_group() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap, group="group")
        consumer.subscribe(["topic"], hooks=Raises())
        poll_until(consumer, lambda: bool(consumer.assignment))
        with pytest.raises(RuntimeError, match="faulty"):
            consumer.close(PATIENCE_S)
        assert len(fake.calls_of("LeaveGroup")) == 1

        async def asynchronous() -> None:
            other = AsyncConsumer(fake.bootstrap, group="other")
            other.subscribe(["topic"], hooks=Raises())
            while not other.assignment:
                await other.poll(0.1)
            with pytest.raises(RuntimeError, match="faulty"):
                await other.close(PATIENCE_S)

        asyncio.run(asyncio.wait_for(asynchronous(), PATIENCE_S))
        assert len(fake.calls_of("LeaveGroup")) == 2
