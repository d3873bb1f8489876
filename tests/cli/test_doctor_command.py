"""`kohort doctor` on real brokers: each rule that a broker can be brought to break, broken, then seen."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kohort.admin import Admin, GroupMissing
from kohort.assignors import get
from kohort.cli.doctor.facts import Case, committed_since
from kohort.cli.doctor.rules import RULES
from kohort.cli.main import main
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Consumer, RebalanceReason
from kohort.network.find_coordinator import coordinator_partition
from kohort.protocol.apis.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kohort.protocol.catalogue import API
from kohort.testing import FakeBroker, RealBroker, RealCluster
from kohort.testing.fake_broker import Alter, Call
from kohort.testing.plain_wire import send
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, numbers, poll_all_until, poll_until, produce
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS
from tests.network.auth.acls import allow
from tests.support.broker_selection import SelectedBroker

NOT_LEADER_OR_FOLLOWER = 6
Name = Callable[[str], str]
Doctor = Callable[..., dict[str, Any]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """`doctor(bootstrap, "--group", "g", code=1)`: what it printed as JSON, findings by rule under "found"."""

    def ran(bootstrap: str, *arguments: str, code: int | None = 1) -> dict[str, Any]:
        given = ["doctor", "--bootstrap", bootstrap, "--json", "--seconds", "0", *arguments]
        assert main(given) in ((0, 1) if code is None else (code,)), (capsys.readouterr(), arguments)
        reported: dict[str, Any] = json.loads(capsys.readouterr().out)
        return reported | {"found": {one["rule"]: one for one in reported.get("findings", ())}}

    return ran


def watched(doctor: Doctor, broker: SelectedBroker, group: str, rule: str) -> dict[str, Any]:
    """The doctor's findings after it has looked for as long as a slow machine needs to show `rule`."""
    found: dict[str, Any] = {}
    for seconds in ("3", "12", "48"):
        found = doctor(broker.bootstrap, "-g", group, "--seconds", seconds, code=None)["found"]
        if rule in found:
            break
    return found


@pytest.mark.broker
def test_a_healthy_group_gets_a_clean_bill(
    broker: SelectedBroker,
    make_topic: Callable[..., str],
    unique: Name,
    doctor: Doctor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, group = make_topic(1), unique("group")
    produce(broker.bootstrap, topic, numbers(0, 5))
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        consumer.commit({TopicPartition(topic, 0): 5})
        reported = doctor(broker.bootstrap, "-g", group, "--ms-per-record", "1", "--seconds", "0.3", code=0)
    assert (reported["findings"], reported["unchecked"]) == ([], {})
    assert sorted([*reported["satisfied"], *reported["not_requested"]]) == sorted(rule.name for rule in RULES)
    of_share_groups = {rule.name for rule in RULES if rule.name.startswith("share-")}
    assert set(reported["not_requested"]) == {"poll-seen", *of_share_groups}
    assert main(["doctor", "-b", broker.bootstrap]) == 0
    assert "satisfied: " in capsys.readouterr().out


@pytest.mark.broker
def test_settings_that_the_broker_refuses(broker: SelectedBroker, doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("session.timeout.ms=50\nheartbeat.interval.ms=40\nmax.poll.records=500\nmax.poll.interval.ms=40\n")
    reported = doctor(
        broker.bootstrap,
        "-F",
        str(file),
        "--ms-per-record",
        "2.5",
        "-X",
        "partition.assignment.strategy=cooperative-sticky,range",
    )
    assert set(reported["found"]) == {"session-timeout", "heartbeat", "poll-interval", "poll-budget", "migration"}
    assert "100 to 1800000" in reported["found"]["session-timeout"]["what"]


@pytest.mark.broker
def test_a_group_of_another_kind(broker: SelectedBroker, unique: Name, doctor: Doctor) -> None:
    group = unique("workers")
    doctor(broker.bootstrap, "-g", group, code=0)  # the coordinator is there now
    values = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "connect",
        "protocols": ({"name": "default", "metadata": b""},),
    }
    entry = API["JoinGroup"]
    response = send(broker.bootstrap, entry.key, 2, entry.request.build(values, 2), timeout_s=20)
    assert entry.response.parse(response, 2).error_code == 0
    assert "connect" in doctor(broker.bootstrap, "-g", group)["found"]["group-kind"]["what"]


@pytest.mark.broker
def test_members_that_do_not_fit(
    broker: SelectedBroker, make_topic: Callable[..., str], unique: Name, doctor: Doctor
) -> None:
    topic, group = make_topic(1), unique("group")
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(Consumer(broker.bootstrap, group=group, group_instance_id=name, client_id=name))
            for name in ("i-1", "i-2")
        )
        for one in (first, second):
            one.subscribe([topic])
        admin = stack.enter_context(Admin(broker.bootstrap))
        poll_all_until((first, second), lambda: settled(admin, group, 2))
        strategy = ("-X", "partition.assignment.strategy=roundrobin,sticky")
        reported = doctor(broker.bootstrap, "-g", group, *strategy, "-X", "group.instance.id=i-2")
    assert set(reported["found"]) == {"assignors", "instance-taken", "idle"}
    assert "i-2 at 127.0.0.1" in reported["found"]["instance-taken"]["what"]


def settled(admin: Admin, group: str, members: int) -> bool:
    """True if so many members are in a group that is Stable."""
    try:
        found = admin.describe_group(group)
    except GroupMissing:  # no member has joined yet
        return False
    return found.state == "Stable" and len(found.members) == members


class KeepsWhatItHas:
    """An assignor by the name of an eager one that lets nothing go: what a wrongly configured client does."""

    name = "range"
    rebalance = get("cooperative-sticky").rebalance
    _real = get("cooperative-sticky")
    subscription = _real.subscription
    assign = _real.assign


@pytest.mark.broker
def test_one_that_keeps_what_others_let_go(broker: SelectedBroker, topic: str, unique: Name, doctor: Doctor) -> None:
    group = unique("group")
    with ExitStack() as stack:
        keeper = stack.enter_context(
            Consumer(broker.bootstrap, group=group, assignors=[KeepsWhatItHas()], heartbeat_interval_ms=200)
        )
        keeper.subscribe([topic])
        poll_until(keeper, lambda: len(keeper.assignment) == 3)
        other = stack.enter_context(Consumer(broker.bootstrap, group=group))
        other.subscribe([topic])
        admin = stack.enter_context(Admin(broker.bootstrap))
        poll_all_until((keeper, other), lambda: settled(admin, group, 2) and len(keeper.assignment) < 3)
        reported = doctor(broker.bootstrap, "-g", group)
    assert "kept partitions" in reported["found"]["eager-cooperative"]["what"]


@pytest.mark.broker
@pytest.mark.skipif("consumer" not in PROTOCOLS, reason="KIP-848 is on from Kafka 4.0")
def test_members_of_both_protocols(broker: SelectedBroker, topic: str, unique: Name, doctor: Doctor) -> None:
    group = unique("group")
    with (
        Consumer(broker.bootstrap, group=group, protocol="consumer") as new,
        Consumer(broker.bootstrap, group=group, heartbeat_interval_ms=200) as classic,
    ):
        new.subscribe([topic])
        poll_until(new, lambda: len(new.assignment) == 3)
        classic.subscribe([topic])
        poll_all_until((new, classic), lambda: len(new.assignment) + len(classic.assignment) == 3 > len(new.assignment))
        reported = doctor(broker.bootstrap, "-g", group, "-X", "group.protocol=consumer")
    assert set(reported["found"]) == {"protocols"}


@pytest.mark.broker
def test_an_instance_id_that_two_have(broker: SelectedBroker, topic: str, unique: Name, doctor: Doctor) -> None:
    group, enough = unique("group"), threading.Event()

    def restart() -> None:
        while not enough.is_set():
            with Consumer(broker.bootstrap, group=group, group_instance_id="same") as consumer:
                consumer.subscribe([topic])
                poll_until(consumer, lambda consumer=consumer: bool(consumer.assignment))  # type: ignore[misc]

    with Consumer(broker.bootstrap, group=group, group_instance_id="same") as first:
        first.subscribe([topic])
        poll_until(first, lambda: len(first.assignment) == 3)
    fights = threading.Thread(target=restart)
    fights.start()
    try:
        found = watched(doctor, broker, group, "instance-clash")
    finally:
        enough.set()
        fights.join(120)
    assert "group.instance.id=same changed hands" in found["instance-clash"]["what"]


@pytest.mark.broker
def test_a_rebalance_that_waits_for_a_member_that_does_not_poll(
    broker: SelectedBroker, topic: str, unique: Name, doctor: Doctor
) -> None:
    group = unique("group")
    with ExitStack() as stack:
        busy, comes = (stack.enter_context(Consumer(broker.bootstrap, group=group)) for _ in range(2))
        busy.subscribe([topic])
        poll_until(busy, lambda: len(busy.assignment) == 3)
        comes.subscribe([topic])
        with Admin(broker.bootstrap) as admin:
            poll_until(comes, lambda: admin.describe_group(group).state == "PreparingRebalance")
        reported = doctor(broker.bootstrap, "-g", group, "--seconds", "0.5")
        assert "PreparingRebalance" in reported["found"]["stuck"]["what"]
        poll_all_until((busy, comes), lambda: len(busy.assignment) in (1, 2))


@pytest.mark.broker
def test_a_member_that_outran_its_poll_interval_is_on_its_tape(
    broker: SelectedBroker, topic: str, unique: Name, doctor: Doctor, tmp_path: Path
) -> None:
    tape = tmp_path / "member.tape"
    with Consumer(
        broker.bootstrap, group=unique("group"), tape=str(tape), max_poll_interval_ms=300, heartbeat_interval_ms=100
    ) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        while not any(one.cause.reason is RebalanceReason.POLL_STALLED for one in consumer.timeline()):
            time.sleep(0.05)  # which is what it is about
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
    reported = doctor(broker.bootstrap, "--tape", str(tape))
    assert "left its group" in reported["found"]["poll-seen"]["what"]


@pytest.mark.broker
def test_offsets_that_the_log_no_longer_has_and_lag_that_grows(
    broker: SelectedBroker, topic: str, unique: Name, doctor: Doctor
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    group, p0, p1 = unique("group"), TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(broker.bootstrap, topic, numbers(0, 8))
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.assign([p0, p1])
        consumer.commit({p0: 2, p1: 7})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cut = admin.delete_records([Place(topic, 0, 5)])
    assert [one.result(120).low_watermark for one in cut.values()] == [5]
    enough = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        while not enough.wait(0.01):
            producer.produce(topic, b"more", partition=0)
            assert producer.flush(120) == 0

    writes = threading.Thread(target=write)
    writes.start()
    try:
        found = watched(doctor, broker, group, "lag")
    finally:
        enough.set()
        writes.join(120)
    assert set(found) == {"offsets-lost", "offsets-beyond", "offsets-none", "lag"}
    assert "3 unread offsets were deleted" in found["offsets-lost"]["what"]
    assert found["offsets-beyond"]["where"] == f"{topic} 1"
    assert found["offsets-none"]["where"] == f"{topic} 2"
    assert "no members" in found["lag"]["what"]


@pytest.mark.broker
def test_who_has_written_to_the_offsets_topic_is_heard(broker: SelectedBroker, topic: str, unique: Name) -> None:
    properties = {"bootstrap.servers": broker.bootstrap}
    for group in (unique("group"), unique("another"), unique("third")):
        with Consumer(broker.bootstrap, group=group) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.commit({TopicPartition(topic, 0): 0})
        with Case({**properties, "group.id": group}) as case:
            count = len(case.offsets_topic.partitions)
            place = TopicPartition("__consumer_offsets", coordinator_partition(group, count))
            assert committed_since(case.admin, properties, group, place, 0)
            assert not committed_since(case.admin, properties, f"{group}-of-nobody", place, 0)
            assert not committed_since(case.admin, properties, group, place, 1 << 50)
            inactivity = case.inactivity
        assert inactivity is not None
        assert (inactivity.at_least_s, inactivity.kept_s) == (None, 7 * 86400.0)


@pytest.mark.parametrize("responses", [0, 1])
def test_a_leader_that_does_not_respond_is_not_taken_for_a_silent_group(responses: int) -> None:
    place = TopicPartition("__consumer_offsets", 0)
    # The time ends in the back-off, and in no request for metadata.
    times: dict[str, Any] = {"default_api_timeout_ms": 1000, "retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    with FakeBroker(topics={place.topic: 1}) as fake, Admin(fake.bootstrap, **times) as admin:

        def moved(call: Call) -> Alter | None:
            nobody = ListOffsetsPartitionResponse(partition_index=0, error_code=NOT_LEADER_OR_FOLLOWER)
            topic = ListOffsetsTopicResponse(name=place.topic, partitions=(nobody,))
            before = len(fake.calls_of("ListOffsets")) <= responses
            return None if before else Alter(lambda response: response._replace(topics=(topic,)))

        fake.control("ListOffsets", moved)
        with pytest.raises(KohortError, match="ListOffsets"):
            committed_since(admin, {"bootstrap.servers": fake.bootstrap}, "group", place, 0)


@pytest.mark.broker
def test_records_from_the_future(
    broker: SelectedBroker, make_topic: Callable[..., str], doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Producer

    topic = make_topic(1, config={"message.timestamp.after.max.ms": str(1 << 60)})
    with Case({"bootstrap.servers": broker.bootstrap}, topics=[topic]) as case:
        ahead = case.now_ms + 7_200_000
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"early", timestamp=ahead)
    assert producer.flush(120) == 0
    assert "a producer's clock" in doctor(broker.bootstrap, "-t", topic)["found"]["clock"]["what"]
    assert main(["doctor", "-b", broker.bootstrap, "-t", topic]) == 1
    assert "records from the future" in capsys.readouterr().out
    assert doctor(broker.bootstrap, "-t", topic, "-t", f"{topic}-nowhere")["found"].keys() == {"clock", "topic"}


@pytest.fixture(scope="module")
def unkind() -> Iterator[RealBroker]:
    """A broker that denies what is not allowed, creates topics by itself, and advertises a port without a listener."""
    with RealBroker(
        users={"alice": "s3cret"}, acls=True, proxy_ports=[1], properties={"auto.create.topics.enable": True}
    ) as broker:
        create_topic(broker.bootstrap, "open", partitions=1)
        create_topic(broker.bootstrap, "closed", partitions=1)
        allow(broker, "TOPIC", "open")
        allow(broker, "GROUP", "readers")
        yield broker


@pytest.mark.broker
def test_an_advertised_address_that_cannot_be_reached(unkind: RealBroker, doctor: Doctor) -> None:
    reported = doctor(unkind.behind_proxy())
    advertised = unkind.node.layout.advertised_ports["PROXIED"]
    assert f"127.0.0.1:{advertised}, which cannot be reached" in reported["found"]["listeners"]["what"]
    assert "no broker can be reached" in reported["unchecked"]["versions"]


@pytest.mark.broker
def test_rights_that_are_missing_and_topics_made_by_accident(unkind: RealBroker, doctor: Doctor) -> None:
    assert set(doctor(unkind.bootstrap)["found"]) == {"auto-create"}
    alice = [
        "-X",
        "security.protocol=SASL_PLAINTEXT",
        "-X",
        "sasl.mechanism=PLAIN",
        "-X",
        "sasl.username=alice",
        "-X",
        "sasl.password=s3cret",
    ]
    reported = doctor(unkind.bootstrap_sasl, *alice, "-g", "strangers", "-t", "open", "-t", "closed")
    assert reported["found"]["group-rights"]["where"] == "group strangers"
    assert reported["found"]["topic-rights"]["where"] == "topic closed"
    assert "DESCRIBE_CONFIGS" in reported["unchecked"]["session-timeout"]
    reported = doctor(unkind.bootstrap_sasl, *alice, "-g", "readers", "-t", "open", code=2)
    assert reported["findings"] == [{**reported["found"]["group"]}]  # it is not there yet: good to know
    assert {"topic-rights", "group-rights"} <= set(reported["satisfied"])
    assert "s3cret" not in json.dumps(reported)


@pytest.mark.full
@pytest.mark.broker
def test_partitions_whose_brokers_are_away(cluster3: RealCluster, unique: Name, doctor: Doctor) -> None:
    one_copy, three = unique("single"), unique("triple")
    bootstrap = cluster3.bootstrap
    create_topic(bootstrap, one_copy, partitions=3)
    create_topic(bootstrap, three, replicas=3, config={"min.insync.replicas": "3"})
    gone = cluster3.nodes[2]
    topics = ("-t", one_copy, "-t", three)
    whole = doctor(bootstrap, *topics, code=None)["found"]
    assert not {"leader", "replicas"} & whole.keys()
    with Admin(bootstrap) as admin:
        admin.committed(unique("group"))  # so that there is a topic of offsets
    gone.kill()
    try:
        left = ",".join(f"127.0.0.1:{node.layout.ports['PLAINTEXT']}" for node in cluster3.nodes[:2])
        limit = time.monotonic() + PATIENCE_S
        found: dict[str, Any] = {}
        while not {"leader", "replicas", "offsets-topic"} <= found.keys() and time.monotonic() < limit:
            found = doctor(left, *topics, code=None)["found"]
    finally:
        cluster3.start()
    assert found["leader"]["where"].startswith(one_copy)
    assert found["replicas"]["where"] == f"{three} 0"
    assert found["offsets-topic"]["severity"] == "warning"


def test_a_broker_that_does_not_speak_the_new_protocol(doctor: Doctor) -> None:
    with FakeBroker(versions={"JoinGroup": (0, 3), "ConsumerGroupHeartbeat": None}) as fake:
        reported = doctor(fake.bootstrap, "-X", "group.protocol=consumer")
        assert "ConsumerGroupHeartbeat" in reported["found"]["versions"]["what"]


def test_wrong_input_is_one_line_and_exit_code_2(doctor: Doctor, tmp_path: Path) -> None:
    def error(bootstrap: str, *arguments: str) -> str:
        return str(doctor(bootstrap, *arguments, code=2)["error"])

    assert "did you mean" in error("127.0.0.1:1", "-X", "session.timeout=5")
    assert "session_timeout_ms must be int" in error("127.0.0.1:1", "-X", "session.timeout.ms=soon")
    assert "cannot reach the broker" in error("127.0.0.1:1", "-X", "kohort.bootstrap.timeout.ms=100")
    assert "no such" in error("127.0.0.1:1", "--profile", "mars").replace("profile 'mars' without a file", "no such")


def test_the_rules_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rules", "--json"]) == 0
    assert [one["rule"] for one in json.loads(capsys.readouterr().out)] == [rule.name for rule in RULES]
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert [rule.name for rule in RULES if f"| `{rule.name}` | {rule.about} |" not in page] == []
    assert main(["doctor", "--rules"]) == 0
    assert "poll-budget" in capsys.readouterr().out


def test_the_doctor_writes_no_frame_on_the_tape_of_the_member(tmp_path: Path) -> None:
    path = tmp_path / "live.tape"
    with FakeBroker() as fake, Consumer(fake.bootstrap, group="g", tape=str(path)) as consumer:
        assert consumer.topics() == {}
        before = path.read_bytes()
        assert main(["doctor", "-b", fake.bootstrap, "-g", "g", "--seconds", "0", "-X", f"kohort.tape={path}"]) in (
            0,
            2,
        )
        assert path.read_bytes() == before
