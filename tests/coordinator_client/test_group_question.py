"""Who is in the group: what a coordinator may answer, and what becomes of it."""

from typing import Any

import pytest

from kohort import Consumer
from kohort.coordinator_client.errors import OperationTimeout
from kohort.testing.fake_broker import Alter, FakeBroker


@pytest.mark.parametrize("told", ["nothing", "of another group"])
def test_an_answer_without_the_group_is_none(told: str) -> None:
    def bend(answer: Any) -> Any:
        others = tuple(one._replace(group_id="another") for one in answer.groups)
        return answer._replace(groups=() if told == "nothing" else others)

    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        odd = fake.control("DescribeGroups", lambda _call: Alter(bend))
        with pytest.raises(OperationTimeout):
            consumer.group_members(0.5)
        assert odd.calls > 1, "it was asked again"
        odd.remove()
        assert consumer.group_members() == ()
