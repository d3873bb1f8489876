"""Metadata responses without brokers. A broker that has just started knows none, so its view of topics is ignored;
one that requires a restart names none."""

import pytest

from kohort.network.requests import Endpoint, ResponseReceived
from kohort.protocol.apis.metadata import MetadataResponse, MetadataResponseTopic
from tests.coordinator_client.core_rig import Rig, metadata

UNKNOWN_TOPIC, REBOOTSTRAP_REQUIRED = 3, 129
NOTHING = MetadataResponse(brokers=(), cluster_id=None, topics=())


@pytest.mark.proves("B-18")
def test_a_topic_that_an_empty_broker_does_not_know_is_there_all_the_same() -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 0.0)
    before = rig.core.metadata.view
    rig.core.metadata.request_update()
    rig.turn(1.0)
    unknown = MetadataResponseTopic(error_code=UNKNOWN_TOPIC, name="t")
    rig.settle("Metadata", ResponseReceived(NOTHING._replace(topics=(unknown,)), 12), 1.0)
    assert rig.core.metadata.view == before
    rig.turn(1.1)
    rig.settle("Metadata", ResponseReceived(metadata({0: 2, 1: 2}), 12), 1.1)
    assert rig.core.metadata.view != before


@pytest.mark.proves("B-18")
def test_all_topics_are_not_none_because_of_an_empty_broker() -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 0.0)
    found = rig.core.lookups.look_up_topics(30.0)
    rig.turn(1.0)
    rig.settle("Metadata", ResponseReceived(NOTHING, 12), 1.0)
    rig.turn(1.0)
    assert not found.done()
    assert set(rig.core.metadata.view.topics) == {"t"}, (
        "a pattern would have matched nothing, and its member let all go"
    )
    rig.turn(1.1)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 1.1)
    rig.turn(1.1)
    assert set(found.result(0)) == {"t"}


@pytest.mark.proves("B-27")
@pytest.mark.parametrize(("strategy", "next_requested"), [("rebootstrap", "b"), ("none", "b1")])
def test_a_broker_that_wants_us_to_start_again_is_left_for_the_bootstrap_addresses(  # KIP-1102
    strategy: str, next_requested: str
) -> None:
    rig = Rig(metadata_recovery_strategy=strategy)
    rig.turn(0.0)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 13), 0.0)
    rig.core.endpoints.responded(Endpoint("b1", 9092), {})
    rig.core.metadata.request_update()
    rig.turn(1.0)
    rig.settle("Metadata", ResponseReceived(NOTHING._replace(error_code=REBOOTSTRAP_REQUIRED), 13), 1.0, "b1")
    rig.turn(1.1)
    (endpoint,) = [endpoint for endpoint, pending in rig.open if pending.api == "Metadata"]
    assert endpoint is not None
    assert endpoint.host == next_requested
