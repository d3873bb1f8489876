"""What brokers' answers become for the caller, where it takes no broker of Kafka's own to see it."""

from typing import Any

import pytest

from kohort.admin import Admin
from kohort.coordinator_client.errors import AuthorizationFailed
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter


@pytest.mark.proves("B-31")
def test_a_topic_that_may_not_be_deleted_is_named() -> None:
    def refused(answer: Any) -> Any:
        return answer._replace(responses=tuple(one._replace(error_code=29) for one in answer.responses))

    with FakeBroker(topics={"topic": 1}) as fake, Admin(fake.bootstrap) as admin:
        fake.control("DeleteTopics", lambda _call: Alter(refused))
        with pytest.raises(AuthorizationFailed, match="delete") as raised:
            admin.delete_topics("topic")
        assert raised.value.place["topic"] == "topic"
