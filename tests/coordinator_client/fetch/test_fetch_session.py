"""Fetch sessions (KIP-227): partitions sent once, those sent again, and fetches without a session."""

import uuid
from types import MappingProxyType

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client.fetch import fetcher
from kohort.coordinator_client.fetch.fetch_session import INT32_MAX, FetchSession, Wanted
from kohort.network.request_versions import fit
from kohort.protocol.apis.fetch import FetchRequest
from kohort.protocol.codec import Message
from tests.coordinator_client.fetch.test_fetcher import ID, P0, P1, P2, Rig, batch, data, requested

UUID_OF_U = uuid.UUID(int=9)


def want(offset: int, topic_id: uuid.UUID = ID) -> Wanted:
    return Wanted(topic_id, offset, 4, 1000)


def test_a_session_says_everything_once_and_then_what_changed() -> None:
    session = FetchSession()
    first = session.next_request({P0: want(1), P1: want(1)})
    assert (first.session_id, first.epoch, set(first.changed)) == (0, 0, {P0, P1})
    session.responded(77)
    second = session.next_request({P0: want(5), P1: want(1)})
    assert (second.session_id, second.epoch, set(second.changed), second.forgotten) == (77, 1, {P0}, {})
    session.responded(77)
    third = session.next_request({P1: want(1)})
    assert (third.epoch, third.changed, third.forgotten) == (2, {}, {P0: ID})


def test_a_topic_created_again_is_forgotten_under_its_old_id() -> None:
    session = FetchSession()
    session.next_request({P0: want(1)})
    session.responded(77)
    new = uuid.UUID(int=2)
    request = session.next_request({P0: want(1, new)})
    assert request.forgotten == {P0: ID}
    assert request.changed == {P0: want(1, new)}
    assert session.topic_name(new) == "t"
    assert session.topic_name(ID) is None, "records of the old topic are none of the new one"


def test_no_topic_has_the_zero_id() -> None:
    session = FetchSession()
    session.next_request({P0: want(1, uuid.UUID(int=0))})
    assert session.topic_name(uuid.UUID(int=0)) is None


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_topic_created_again_is_not_forgotten_with_the_old_one_where_only_names_are_said(version: int) -> None:
    """A broker first adds the topics of the request to its list, then removes the forgotten ones, by name up to
    version 12."""
    rig = Rig()
    rig.owed()
    rig.respond(1)
    new, before = uuid.UUID(int=2), rig.view.topics["t"]
    rig.view = rig.view._replace(topics=MappingProxyType({"t": before._replace(id=new)}))
    order = rig.owed()[1]
    assert order.request.session_epoch == 1
    said = Message.of(FetchRequest).parse(Message.of(FetchRequest).build(fit(order.request, version), version), version)
    listed = {(topic, number) for topic in ("t" if version < 13 else ID,) for number in (0, 1)}
    listed |= {(one.topic or one.topic_id, each.partition) for one in said.topics for each in one.partitions}
    listed -= {(one.topic or one.topic_id, each) for one in said.forgotten_topics_data for each in one.partitions}
    assert listed == {("t" if version < 13 else new, number) for number in (0, 1)}


def test_doubt_opens_a_new_session_and_a_broker_without_sessions_hears_everything() -> None:
    session = FetchSession()
    session.next_request({P0: want(1)})
    session.responded(77)
    session.reset()
    again = session.next_request({P0: want(1)})
    assert (again.session_id, again.epoch, set(again.changed)) == (77, 0, {P0})  # the old one does not linger (KIP-227)
    session.responded(78)
    later = session.next_request({P0: want(2), P1: want(1)})
    assert (later.session_id, later.epoch, set(later.changed)) == (78, 1, {P0, P1})
    session.responded(0)
    bare = session.next_request({P0: want(2)})
    assert (bare.session_id, bare.epoch, set(bare.changed), bare.forgotten) == (0, 0, {P0}, {})


def test_a_request_without_a_session_has_what_was_moved_back_behind_other_topics() -> None:
    session, other = FetchSession(), TopicPartition("u", 0)
    wanted = {P0: want(1), other: want(1, UUID_OF_U), P1: want(1)}
    assert list(session.next_request(wanted).changed) == [P0, P1, other]
    session.responded(0)
    session.move_back(P0)
    again = session.next_request({P2: want(1)} | wanted)
    assert list(again.changed) == [P1, other, P0, P2]
    topics = [(topic.topic, [one.partition for one in topic.partitions]) for topic in fetcher._by_topic(again.changed)]
    assert topics == [("t", [1]), ("u", [0]), ("t", [0, 2])]


@pytest.mark.parametrize(("until", "epoch"), [((P0, P1), -1), ((P0,), 0), ((), 0)])
def test_a_read_that_is_soon_over_takes_none_of_the_sessions_that_a_broker_has(
    until: tuple[TopicPartition, ...], epoch: int
) -> None:
    rig = Rig()
    rig.fetcher.until = dict.fromkeys(until, 1000)
    request = rig.owed()[1].request
    assert (request.session_id, request.session_epoch) == (0, epoch)
    rig.respond(1, data(0, batch(100)), session=0 if epoch < 0 else 77)
    order = rig.owed()[1]
    assert order.request.session_epoch == (-1 if epoch < 0 else 1)
    assert requested(order) == ({P0: 103, P1: 100} if epoch < 0 else {P0: 103})


def test_a_read_of_many_partitions_has_a_session_wherever_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "SOON_OVER_PARTITIONS", 1)
    rig = Rig()
    rig.fetcher.until = dict.fromkeys((P0, P1, P2), 1000)
    orders = rig.owed()
    assert (orders[1].request.session_epoch, orders[2].request.session_epoch) == (0, -1)


def test_a_session_in_doubt_is_closed_once_none_is_needed() -> None:
    session = FetchSession()
    session.next_request({P0: want(1)})
    session.responded(77)
    session.reset()
    last = session.next_request({P0: want(1)}, kept=False)
    assert (last.session_id, last.epoch) == (77, -1)
    session.responded(0)
    assert session.next_request({P0: want(1)}, kept=False).session_id == 0


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession(77, INT32_MAX)
    session.responded(77)
    assert session.epoch == 1
