"""A topic is made as soon as a broker serves: the controller counts those that are fenced as none."""

import pytest

from kohort.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing import BrokerStateError, FakeBroker
from kohort.testing.fake_broker import Answer, Call
from kohort.testing.topics import create_topic


def refusing(code: ErrorCode, times: int) -> FakeBroker:
    """A broker that refuses so many CreateTopics requests."""
    fake = FakeBroker()

    def refuse(_call: Call) -> Answer:
        return Answer(
            CreateTopicsResponse(topics=(CreatableTopicResult(name="t", error_code=code, error_message="no"),))
        )

    fake.control("CreateTopics", refuse, times=times)
    return fake


def test_a_broker_that_is_fenced_for_a_moment_is_waited_for() -> None:
    with refusing(ErrorCode.INVALID_REPLICATION_FACTOR, 2) as fake:
        create_topic(fake.bootstrap, "t")
        assert len(fake.calls_of("CreateTopics")) == 3


@pytest.mark.parametrize(
    ("code", "replicas"), [(ErrorCode.INVALID_REPLICATION_FACTOR, 3), (ErrorCode.INVALID_PARTITIONS, 1)]
)
def test_another_refusal_is_an_error_at_once(code: ErrorCode, replicas: int) -> None:
    with refusing(code, 1) as fake, pytest.raises(BrokerStateError, match="topic not created: no"):
        create_topic(fake.bootstrap, "t", replicas=replicas)
