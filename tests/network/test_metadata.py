"""The cluster's view: a value that loses nothing by an incomplete response; and the times of its requests."""

import uuid
from contextlib import nullcontext

import pytest

from kohort.common import TopicPartition
from kohort.network.backoff import Backoff
from kohort.network.metadata import MOST_SHARED_PARTITIONS, NOTHING_KNOWN, BrokerNode, ClusterView
from kohort.network.metadata_refresh import MetadataRefresher, WantedTopics, topics_changed
from kohort.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.errors import UnsupportedVersion
from tests.coordinator_client.core_rig import Rig

ID = uuid.UUID(int=7)


def topic(
    name: str, leaders: dict[int, tuple[int, int]], *, code: int = 0, topic_id: uuid.UUID = ID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=(leader,)
            )
            for number, (leader, epoch) in leaders.items()
        ),
    )


def respond(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    brokers = tuple(MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092, rack=f"r{node}") for node in nodes)
    return MetadataResponse(brokers=brokers, cluster_id="c", topics=topics)


VIEW = NOTHING_KNOWN.updated(respond(topic("t", {0: (1, 5), 1: (2, 3)})), requested={"t"})


def seen(topic: MetadataResponseTopic, before: ClusterView = NOTHING_KNOWN) -> ClusterView:
    return before.updated(respond(topic), requested={"shared"})


def test_clients_of_a_process_share_the_views_of_equal_topics() -> None:
    first = seen(topic("shared", {0: (1, 5), 1: (2, 3)}))
    assert seen(topic("shared", {0: (1, 5), 1: (2, 3)})).topics["shared"] is first.topics["shared"]
    assert seen(topic("shared", {0: (1, 5), 1: (2, 3)}), first).topics["shared"] is first.topics["shared"]
    moved = seen(topic("shared", {0: (1, 5), 1: (1, 4)}))
    assert moved.leader(TopicPartition("shared", 1)) == BrokerNode(1, "b1", 9092, "r1")
    assert seen(topic("shared", {0: (1, 5)}, topic_id=uuid.UUID(int=8))).topic_id("shared") == uuid.UUID(int=8)


def test_a_client_that_knows_a_newer_leader_does_not_share_the_older_view_of_another() -> None:
    newer = seen(topic("shared", {0: (1, 5)}))
    old = topic("shared", {0: (2, 4)})
    assert seen(old).leader(TopicPartition("shared", 0)) == BrokerNode(2, "b2", 9092, "r2")
    assert seen(old, newer).leader(TopicPartition("shared", 0)) == BrokerNode(1, "b1", 9092, "r1")


def test_the_shared_views_have_an_upper_bound() -> None:
    many = dict.fromkeys(range(MOST_SHARED_PARTITIONS // 2 + 1), (1, 0))
    first = seen(topic("shared", many))
    seen(topic("shared too", many))
    assert seen(topic("shared", many)).topics["shared"] is not first.topics["shared"]
    huge = topic("shared", dict.fromkeys(range(MOST_SHARED_PARTITIONS + 1), (1, 0)))
    assert seen(huge).topics["shared"] is not seen(huge).topics["shared"]


def test_leaders_ids_and_racks() -> None:
    leader = VIEW.leader(TopicPartition("t", 1))
    assert leader == BrokerNode(2, "b2", 9092, "r2")
    assert VIEW.topic_id("t") == ID
    assert VIEW.partitions_of("t") == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert VIEW.racks_of("t") == {0: {"r1"}, 1: {"r2"}}
    assert VIEW.leader(TopicPartition("t", 9)) is None


@pytest.mark.proves("B-18")
def test_a_partition_of_a_number_that_cannot_be_is_not_planned_for() -> None:
    view = NOTHING_KNOWN.updated(respond(topic("t", {0: (1, 5), 2: (2, 3), 2**31 - 1: (1, 0)})), requested={"t"})
    assert view.partitions_of("t") == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert topics_changed(view, frozenset({"t"})).topics["t"].partitions == 3


@pytest.mark.proves("B-18")
def test_a_response_without_brokers_or_partitions_keeps_the_old_view() -> None:
    after = VIEW.updated(respond(topic("t", {}), nodes=()), requested={"t"})
    assert after.brokers == VIEW.brokers
    assert after.topics == VIEW.topics


@pytest.mark.proves("B-18")
def test_unknown_leaders_and_negative_partitions_do_no_harm() -> None:
    after = NOTHING_KNOWN.updated(respond(topic("t", {0: (77, 0), -3: (1, 0)})), requested={"t"})
    assert after.leader(TopicPartition("t", 0)) is None
    assert after.partitions_of("t") == (TopicPartition("t", 0),)


def test_an_answer_from_a_broker_that_has_not_heard_of_the_election_is_not_believed() -> None:
    after = VIEW.updated(respond(topic("t", {0: (2, 4), 1: (1, 4)})), requested={"t"})
    assert after.partition(TopicPartition("t", 0)) == VIEW.partition(TopicPartition("t", 0))
    leader = after.leader(TopicPartition("t", 1))
    assert leader is not None
    assert leader.node == 1


def test_a_topic_created_again_starts_over_with_its_epochs() -> None:
    after = VIEW.updated(respond(topic("t", {0: (2, 0)}, topic_id=uuid.UUID(int=8))), requested={"t"})
    found = after.partition(TopicPartition("t", 0))
    assert found is not None
    assert (found.leader, found.leader_epoch) == (2, 0)


def test_refused_topics_leave_the_view_and_keep_their_code() -> None:
    after = VIEW.updated(respond(topic("t", {}, code=29)), requested={"t"})
    assert "t" not in after.topics
    assert after.refused == {"t": 29}
    again = after.updated(respond(topic("t", {0: (1, 6)})), requested={"t"})
    assert again.refused == {}


def test_all_topics_replace_what_was_known_and_some_do_not() -> None:
    assert "t" in VIEW.updated(respond(topic("u", {0: (1, 0)})), requested={"u"}).topics
    assert "t" not in VIEW.updated(respond(topic("u", {0: (1, 0)})), requested=None).topics


def test_a_newer_leader_from_a_fetch_is_believed_an_older_one_is_not() -> None:
    partition = TopicPartition("t", 0)
    assert VIEW.with_leaders([]) is VIEW
    assert VIEW.with_leaders([(partition, 2, 5), (partition, -1, 9), (TopicPartition("x", 0), 1, 9)]) is VIEW
    assert VIEW.with_leaders([(TopicPartition("t", 9), 1, 9)]) is VIEW
    moved = VIEW.with_leaders([(partition, 3, 6)]).with_brokers([BrokerNode(3, "b3", 9092, None)])
    assert moved.leader(partition) == BrokerNode(3, "b3", 9092, None)
    assert VIEW.leader(partition) == BrokerNode(1, "b1", 9092, "r1")  # a value: the old one is as it was
    assert moved.partition(TopicPartition("t", 1)) == VIEW.partition(TopicPartition("t", 1))


def test_of_several_leaders_in_one_response_the_newest_counts_in_each_topic() -> None:
    before = VIEW.updated(respond(topic("u", {0: (1, 0)}), topic("v", {0: (1, 0)})), requested={"u", "v"})
    t0, t1, u0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
    moved = before.with_leaders([(t0, 2, 7), (u0, 2, 1), (t1, 1, 4), (t0, 1, 6)])
    found = {one: moved.partition(one) for one in (t0, t1, u0)}
    assert {one: (each.leader, each.leader_epoch) for one, each in found.items() if each} == {
        t0: (2, 7),
        t1: (1, 4),
        u0: (2, 1),
    }
    assert moved.topics["v"] is before.topics["v"]


# --- times of requests


def keeper() -> MetadataRefresher:
    return MetadataRefresher(Backoff(100, 1000, 0), max_age_s=300)


def send(one: MetadataRefresher, now: float) -> list[str] | None:
    make = one.next_request(now)
    assert make is not None, "nothing is owed"
    request = make()
    return None if request.topics is None else [str(each.name) for each in request.topics]


def test_what_was_never_requested_is_requested_at_once_and_then_kept_fresh() -> None:
    one = keeper()
    assert send(one, 0.0) == []  # brokers, to begin with
    assert one.next_request(0.0) is None  # one at a time
    one.set_topics(WantedTopics(frozenset({"t"})))
    one.on_response(respond(), 0.1, 0.5)
    assert send(one, 0.1) == ["t"]
    changed = one.on_response(respond(topic("t", {0: (1, 0)})), 0.2, 0.5)
    assert changed.topics["t"].partitions == 1
    assert changed.requested == {"t"}
    assert one.next_request(100.0) is None
    assert one.next_poll_at() == pytest.approx(300.2)
    assert send(one, 300.2) == ["t"]


def test_a_request_names_what_is_wanted_when_it_is_sent() -> None:
    """A new client names its topics while its first connection opens: one request instead of two."""
    one = keeper()
    make = one.next_request(0.0)
    assert make is not None
    before = one.requests_sent
    one.set_topics(WantedTopics(frozenset({"t"}), attempt=1))
    one.request_update(at_once=True)
    request = make()
    assert [each.name for each in request.topics or ()] == ["t"]
    assert one.requests_sent == before + 1, "a call that came before counts its response"
    one.add_transient(["later"])
    assert make() is request, "the same to each broker that it is sent to"
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.1, 0.5)
    assert send(one, 0.1) == ["later"]
    one.remove_transient(["later"])
    one.on_response(respond(topic("later", {0: (1, 0)})), 0.2, 0.5)
    assert one.next_request(100.0) is None
    assert one.view.topics.keys() == {"t"}


def test_new_topics_are_requested_alone_while_the_others_are_fresh() -> None:
    one = keeper()
    one.add_transient(["a"])
    assert send(one, 0.0) == ["a"]
    one.on_response(respond(topic("a", {0: (1, 0)})), 0.0, 0.5)
    one.add_transient(["b", "c"])
    assert send(one, 200.0) == ["b", "c"]
    changed = one.on_response(respond(topic("b", {0: (1, 0)}), topic("c", {0: (1, 0)})), 200.0, 0.5)
    assert changed.requested == {"b", "c"}
    assert one.view.topics.keys() == {"a", "b", "c"}
    assert one.next_poll_at() == pytest.approx(300.0), "the age is that of the first topic"
    one.add_transient(["d"])
    assert send(one, 300.0) == ["a", "b", "c", "d"], "the known ones are old"
    one.on_response(respond(*(topic(name, {0: (1, 0)}) for name in "abcd")), 300.0, 0.5)
    assert one.next_poll_at() == pytest.approx(600.0)


def ready() -> MetadataRefresher:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"a"})))
    send(one, 0.0)
    one.on_response(respond(topic("a", {0: (1, 0)})), 0.0, 0.5)
    return one


def test_all_topics_are_requested_if_something_did_not_fit_the_view() -> None:
    one = ready()
    one.request_update()
    one.add_transient(["b"])
    assert send(one, 1.0) == ["a", "b"]
    one.on_response(respond(topic("a", {0: (1, 0)}), topic("b", {0: (-1, 0)})), 1.0, 0.5)
    one.add_transient(["c"])
    assert send(one, 2.0) == ["a", "b", "c"], "a topic has no leader"


def test_all_topics_are_requested_after_a_new_bootstrap() -> None:
    one = ready()
    one.view = one.view.without_brokers()
    one.add_transient(["b"])
    assert send(one, 1.0) == ["a", "b"]


def test_a_request_for_new_topics_that_failed_is_followed_by_one_for_all() -> None:
    one = ready()
    one.add_transient(["b"])
    assert send(one, 1.0) == ["b"]
    one.on_failure(1.0, 0.5)
    assert send(one, 2.0) == ["a", "b"]


def test_a_topic_dropped_while_new_ones_are_requested_is_requested_when_it_is_wanted_again() -> None:
    one = ready()
    one.add_transient(["b"])
    assert send(one, 1.0) == ["b"]
    one.set_topics(WantedTopics())
    one.set_topics(WantedTopics(frozenset({"a"})))
    one.on_response(respond(topic("b", {0: (1, 0)})), 1.0, 0.5)
    assert send(one, 1.0) == ["a"]


def test_a_request_that_no_connection_could_send_does_not_count() -> None:
    one = keeper()
    assert one.next_request(0.0) is not None
    one.on_failure(0.1, 0.5)
    assert one.requests_sent == 0
    assert one.next_request(0.15) is None
    assert send(one, 1.0) == []


@pytest.mark.parametrize(("given", "sent"), [((), False), ((False,), False), ((True,), True)])
def test_a_request_creates_topics_only_where_that_is_allowed(given: tuple[bool, ...], sent: bool) -> None:
    one = MetadataRefresher(Backoff(100, 1000, 0), 300.0, *given)
    one.set_topics(WantedTopics(frozenset({"t"})))
    make = one.next_request(0.0)
    assert make is not None
    assert make().allow_auto_topic_creation is sent


@pytest.mark.parametrize("allowed", [False, True])
def test_the_setting_says_whether_a_client_creates_topics(allowed: bool) -> None:
    rig = Rig(allow_auto_create_topics=allowed)
    rig.turn(0.0)
    (pending,) = [one for _endpoint, one in rig.open if one.api == "Metadata"]
    assert pending.request(13).allow_auto_topic_creation is allowed
    with nullcontext() if allowed else pytest.raises(UnsupportedVersion):  # a broker before 0.11 creates them
        pending.request(3)


def test_a_missing_topic_is_requested_ever_more_slowly() -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    now, waits = 0.0, []
    for _ in range(6):
        assert send(one, now) == ["t"]
        one.on_response(respond(topic("t", {}, code=3)), now, 0.5)
        wakes = one.next_poll_at()
        assert wakes is not None
        waits.append(round(wakes - now, 3))
        now = wakes
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert one.missing() == {"t"}


@pytest.mark.parametrize(
    ("leaders", "again"),
    [((1,), False), ((2, 1), False), ((1, 1, 2), False), ((-1,), True), ((1, -1, 2), True), ((1, 2, 3), True)],
)
def test_a_topic_is_requested_again_while_a_leader_is_not_known(leaders: tuple[int, ...], again: bool) -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    send(one, 0.0)
    one.on_response(respond(topic("t", {number: (node, 5) for number, node in enumerate(leaders)})), 0.0, 0.5)
    assert one.next_poll_at() == pytest.approx(0.1 if again else 300.0)


@pytest.mark.proves("B-41")
def test_a_partition_that_a_known_topic_lacks_is_looked_for_ever_more_slowly() -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    wanted = [TopicPartition("t", 0)]
    one.partitions = lambda: wanted
    assert not one.view.lacking([TopicPartition("unknown", 7)]), "the topic is missing, which is another reason"
    send(one, 0.0)
    one.on_response(respond(topic("t", {0: (1, 5)})), 0.0, 0.5)
    assert not one.view.lacking(wanted)
    assert one.next_poll_at() == pytest.approx(300.0)
    wanted.append(TopicPartition("t", 1))
    assert one.view.lacking(wanted) == {"t"}
    one.request_update()
    now, waits = 0.0, []
    for _ in range(6):
        wakes = one.next_poll_at()
        assert wakes is not None
        waits.append(round(wakes - now, 3))
        now = wakes
        assert send(one, now) == ["t"]
        one.on_response(respond(topic("t", {0: (1, 5)})), now, 0.5)
    assert waits == [0.1, 0.1, 0.2, 0.4, 0.8, 1.0]
    now = one.next_poll_at() or 0.0
    send(one, now)
    one.on_response(respond(topic("t", {0: (1, 5), 1: (1, 5)})), now, 0.5)
    assert one.next_poll_at() == pytest.approx(now + 300.0)


def test_names_of_others_that_are_missing_cost_a_bounded_rate() -> None:
    """A leader wants every name that any member subscribes to: 20,000 of them are requested every two seconds."""
    it = keeper()
    names = frozenset(f"t{number}" for number in range(20_000))
    it.set_topics(WantedTopics(names | {"here"}))
    now, requests = 0.0, 0
    while now < 10.0:
        if (make := it.next_request(now)) is not None:
            make()
            requests += 1
            it.on_response(respond(topic("here", {0: (1, 5)})), now, 0.5)
        wake = it.next_poll_at()
        assert wake is not None
        now = max(now + 0.001, wake)
    assert 4 <= requests <= 8
    it.add_transient(["mine"])  # a name that no response has covered does not wait
    assert it.next_request(10.9) is not None


@pytest.mark.parametrize(("mine", "least", "most"), [(frozenset(), 2, 4), (frozenset({"absent"}), 15, 30)])
def test_only_missing_topics_of_other_members_slow_the_requests(mine: frozenset[str], least: int, most: int) -> None:
    """2,000 names of another member are requested every 10 s; a missing topic of this member is not held up by it."""
    it = keeper()
    others = frozenset(f"t{number}" for number in range(2_000))
    it.set_topics(WantedTopics(others | {"here"} | mine, of_others=others))
    now, requests = 0.0, 0
    while now < 20.0:
        if (make := it.next_request(now)) is not None:
            make()
            requests += 1
            it.on_response(respond(topic("here", {0: (1, 5)})), now, 0.5)
        wake = it.next_poll_at()
        assert wake is not None
        now = max(now + 0.001, wake)
    assert least <= requests <= most


def test_stale_is_retried_but_no_faster_than_the_backoff() -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    send(one, 0.0)
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.0, 0.5)
    one.request_update()
    assert one.next_request(0.05) is None
    assert send(one, 0.1) == ["t"]


def test_a_call_does_not_wait_for_the_backoff() -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    send(one, 0.0)
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.0, 0.5)
    one.request_update(at_once=True)
    one.request_update()  # a reason that may wait does not hold the call up
    assert send(one, 0.01) == ["t"]
    one.request_update(at_once=True)  # after the request is sent, so its response does not count
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.02, 0.5)
    assert send(one, 0.02) == ["t"]
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.03, 0.5)
    one.request_update()
    assert one.next_request(0.04) is None, "one request for each call"


def test_a_call_does_not_wait_because_a_topic_is_missing() -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    for now in (0.0, 1.0, 2.0):  # its pace has grown
        send(one, now)
        one.on_response(respond(topic("t", {}, code=3)), now, 0.5)
    assert one.next_request(2.0) is None
    one.request_update(at_once=True)
    assert send(one, 2.0) == ["t"]


def test_a_call_waits_after_a_request_that_failed() -> None:
    one = keeper()
    send(one, 0.0)
    one.on_failure(0.0, 0.5)
    one.request_update(at_once=True)
    assert one.next_request(0.09) is None
    assert send(one, 0.1) == []


def test_everything_for_patterns() -> None:
    one = keeper()
    one.set_topics(WantedTopics(all_topics=True))
    assert send(one, 0.0) is None
    changed = one.on_response(respond(topic("a", {0: (1, 0)}), topic("b", {0: (1, 0)})), 0.0, 0.5)
    assert changed.complete
    assert set(changed.topics) == {"a", "b"}


@pytest.mark.parametrize("under_way", [False, True], ids=["after the response", "while it is under way"])
def test_what_nobody_wanted_for_a_while_is_asked_for_anew(under_way: bool) -> None:
    one = keeper()
    wanted, nothing = WantedTopics(frozenset({"t"})), WantedTopics()
    one.set_topics(wanted)
    assert send(one, 0.0) == ["t"]
    if under_way:
        one.set_topics(nothing)
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.1, 0.5)
    one.set_topics(nothing)
    assert one.view.topics == {}
    assert one.next_request(1.0) is None
    one.set_topics(wanted)
    assert send(one, 1.0) == ["t"]


def test_a_topic_that_was_not_among_all_is_requested_when_it_is_wanted() -> None:
    one = keeper()
    one.add_all_topics()
    assert send(one, 0.0) is None
    one.on_response(respond(topic("old", {0: (1, 0)})), 0.0, 0.5)
    one.remove_all_topics()
    one.set_topics(WantedTopics(frozenset({"old"})))
    assert one.next_request(1.0) is None
    one.add_transient(["new"])
    assert send(one, 1.0) == ["new", "old"]
    one.on_response(respond(topic("old", {0: (1, 0)}), topic("new", {0: (1, 0)})), 1.0, 0.5)
    assert one.next_request(2.0) is None


def test_needs_of_look_ups_count() -> None:
    one = keeper()
    one.add_transient(["t"])
    one.add_transient(["t"])
    one.remove_transient(["t"])
    assert one.names == {"t"}
    one.remove_transient(["t"])
    assert one.names == frozenset()


def test_a_view_forgets_what_is_not_requested() -> None:
    assert VIEW.forgetting([]).topics == {}
    assert isinstance(VIEW.forgetting(["t"]), ClusterView)
    assert "t" in VIEW.forgetting(["t"]).topics


def test_a_member_that_takes_what_is_known_for_old_has_it_asked_again() -> None:
    one = keeper()
    one.set_topics(WantedTopics(frozenset({"t"})))
    send(one, 0.0)
    one.on_response(respond(topic("t", {0: (1, 0)})), 0.1, 0.5)
    assert one.next_request(10.0) is None
    one.set_topics(WantedTopics(frozenset({"t"}), attempt=1))
    assert send(one, 10.0) == ["t"]
