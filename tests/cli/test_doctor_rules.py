"""Every rule of the doctor: facts in which it finds something, and the same facts mended, in which it does not."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kohort.admin import (
    BrokerDescription,
    GroupDescription,
    MemberDescription,
    SharePartitionOffset,
    TopicDescription,
)
from kohort.admin.topics import PartitionDescription
from kohort.cli.doctor.command import FOUND, OK, UNCHECKED, exit_code
from kohort.cli.doctor.finding import Finding, Severity
from kohort.cli.doctor.group_rules import TimedSnapshot
from kohort.cli.doctor.offset_rules import CommittedOffsets, Inactivity
from kohort.cli.doctor.rules import RULES, Opinion, Rule, judge
from kohort.cli.doctor.share_rules import ShareTape
from kohort.common import TopicPartition
from kohort.common.errors import KohortError
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.network.errors import AuthorizationFailed, UnknownTopic
from kohort.protocol.catalogue import APIS

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
SETTINGS = ConsumerConfig(bootstrap=("kafka:9092",), group="billing")
BOUNDS = {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000"}
ALL_VERSIONS = {api.key: api.versions for api in APIS}
NEAR = BrokerDescription(1, "kafka", 9092, None)
HERE = BrokerDescription(1, "localhost", 9092, None)


def member(name: str, **more: Any) -> MemberDescription:
    return MemberDescription(
        **{
            "member_id": f"{name}-1",
            "instance_id": None,
            "client_id": name,
            "host": "h",
            "owned": frozenset({P0}),
            **more,
        }
    )


def group(*members: MemberDescription, **more: Any) -> GroupDescription:
    return GroupDescription(
        **{"group": "billing", "type": "classic", "state": "Stable", "assignor": "range", "members": members, **more}
    )


def topic(*partitions: PartitionDescription, name: str = "payments", **more: Any) -> TopicDescription:
    return TopicDescription(
        **{"topic": name, "topic_id": UUID(int=1), "internal": False, "partitions": partitions, "configs": {}, **more}
    )


def looks(lags: list[int], *groups: GroupDescription) -> list[TimedSnapshot]:
    described = groups or (group(member("a")),)
    return [TimedSnapshot(at, described[at % len(described)], lag) for at, lag in enumerate(lags)]


WHOLE = PartitionDescription(0, 1, (1, 2, 3), (1, 2, 3))
LEADERLESS = PartitionDescription(0, -1, (1, 2, 3), ())
THIN = PartitionDescription(0, 1, (1, 2, 3), (1, 2))
ONE_LEFT = PartitionDescription(0, 1, (1, 2, 3), (1,))
TWO = {"min.insync.replicas": "2"}
THREE_BROKERS = tuple(replace(NEAR, node=node) for node in (1, 2, 3))
HOLDER = {"instance_id": "i-1"}

# rule -> (facts in which it finds something, how bad, what has to be in it, facts that change for it to be satisfied)
FAILING: dict[str, list[tuple[dict[str, Any], Severity, str, dict[str, Any]]]] = {
    "listeners": [
        (
            {"brokers": (NEAR,), "reached": {"kafka:9092": "Connection refused"}},
            Severity.ERROR,
            "kafka:9092",
            {"reached": {"kafka:9092": None}},
        ),
    ],
    "loopback": [
        ({"settings": SETTINGS, "brokers": (HERE,)}, Severity.ERROR, "localhost:9092", {"brokers": (NEAR,)}),
        (
            {"settings": SETTINGS, "brokers": (replace(HERE, host="127.0.0.1"),)},
            Severity.ERROR,
            "127.0.0.1:9092",
            {"settings": SETTINGS.but(bootstrap=("localhost:9092",))},
        ),
    ],
    "versions": [
        (
            {"settings": SETTINGS.but(protocol="consumer"), "versions": {1: {**ALL_VERSIONS, 68: (7, 9)}}},
            Severity.ERROR,
            "ConsumerGroupHeartbeat",
            {"settings": SETTINGS},
        ),
        (
            {"settings": SETTINGS, "versions": {1: {key: one for key, one in ALL_VERSIONS.items() if key != 11}}},
            Severity.ERROR,
            "JoinGroup",
            {"versions": {1: ALL_VERSIONS}},
        ),
    ],
    "upgrade": [
        (
            {"versions": {1: ALL_VERSIONS, 2: {**ALL_VERSIONS, 1: (4, 12)}}},
            Severity.NOTE,
            "1; 2",
            {"versions": {1: ALL_VERSIONS, 2: dict(ALL_VERSIONS)}},
        ),
    ],
    "session-timeout": [
        (
            {"settings": SETTINGS.but(session_timeout_ms=5_000), "broker_configs": {1: BOUNDS}},
            Severity.ERROR,
            "6000 to 1800000",
            {"settings": SETTINGS},
        ),
        (
            {
                "settings": SETTINGS,
                "broker_configs": {1: BOUNDS, 2: {**BOUNDS, "group.max.session.timeout.ms": "9000"}},
            },
            Severity.ERROR,
            "6000 to 9000",
            {"broker_configs": {1: BOUNDS, 2: BOUNDS}},
        ),
    ],
    "heartbeat": [
        (
            {"settings": SETTINGS.but(heartbeat_interval_ms=45_000)},
            Severity.ERROR,
            "not below",
            {"settings": SETTINGS.but(heartbeat_interval_ms=15_000)},
        ),
        (
            {"settings": SETTINGS.but(heartbeat_interval_ms=15_001)},
            Severity.WARNING,
            "more than a third",
            {"settings": SETTINGS.but(heartbeat_interval_ms=15_000)},
        ),
    ],
    "poll-interval": [
        (
            {"settings": SETTINGS.but(max_poll_interval_ms=44_999)},
            Severity.WARNING,
            "44999",
            {"settings": SETTINGS.but(max_poll_interval_ms=45_000)},
        ),
    ],
    "poll-budget": [
        (
            {"settings": SETTINGS.but(max_poll_records=500), "ms_per_record": 600.0},
            Severity.ERROR,
            "300000 ms",
            {"ms_per_record": 300.0},
        ),
        (
            {"settings": SETTINGS.but(max_poll_records=500), "ms_per_record": 301.0},
            Severity.WARNING,
            "over half",
            {"ms_per_record": 300.0},
        ),
        ({"settings": SETTINGS, "ms_per_record": 10.0}, Severity.WARNING, "only 30000 fit", {"ms_per_record": 1.0}),
    ],
    "poll-seen": [({"settings": SETTINGS, "stalls": [3.5, 9.0]}, Severity.ERROR, "2 times", {"stalls": []})],
    "migration": [
        (
            {"settings": SETTINGS.but(assignors=("cooperative-sticky", "range"))},
            Severity.NOTE,
            "range",
            {"settings": SETTINGS.but(assignors=("cooperative-sticky",))},
        ),
    ],
    "auto-create": [
        (
            {"settings": SETTINGS, "broker_configs": {1: {"auto.create.topics.enable": "true"}}},
            Severity.WARNING,
            "a producer's first",
            {"broker_configs": {1: {"auto.create.topics.enable": "false"}}},
        ),
    ],
    "group": [({"settings": SETTINGS, "group": None}, Severity.NOTE, "does not exist", {"group": group()})],
    "group-kind": [
        ({"group": group(protocol_type="connect")}, Severity.ERROR, "connect", {"group": group(protocol_type="")}),
    ],
    "assignors": [
        (
            {"settings": SETTINGS, "group": group(assignor="sticky")},
            Severity.ERROR,
            "'sticky'",
            {"settings": SETTINGS.but(assignors=("range", "sticky"))},
        ),
    ],
    "share-start": [
        (
            {
                "settings": SETTINGS,
                "share_configs": {"share.auto.offset.reset": "latest"},
                "share_offsets": [SharePartitionOffset(P0, 5, 1, 0)],
                "share_ends": {P0: 5, P1: 7},
            },
            Severity.WARNING,
            "skips the present records of 1 partition",
            {"share_configs": {"share.auto.offset.reset": "earliest"}},
        ),
        (
            {
                "settings": SETTINGS,
                "share_configs": {"share.auto.offset.reset": "latest"},
                "share_offsets": [SharePartitionOffset(P0, 5, 1, 0)],
                "share_ends": {P0: 5, P1: 0},
            },
            Severity.NOTE,
            "latest",
            {"share_configs": {"share.auto.offset.reset": "by_duration:P1D"}},
        ),
    ],
    "share-lock": [
        (
            {
                "settings": SETTINGS,
                "share_configs": {"share.record.lock.duration.ms": "30000"},
                "ms_per_record": 60.0,
            },
            Severity.WARNING,
            "need 30000 ms",
            {"ms_per_record": 59.0},
        ),
    ],
    "share-renewal": [
        (
            {"settings": SETTINGS, "share_configs": {"share.renew.acknowledge.enable": "false"}},
            Severity.NOTE,
            "no renewal",
            {"share_configs": {"share.renew.acknowledge.enable": "true"}},
        ),
    ],
    "share-expired": [
        ({"shared": ShareTape(10, 0, 1, 2)}, Severity.WARNING, "2 times", {"shared": ShareTape(10, 0, 1, 0)}),
    ],
    "share-repeated": [
        (
            {"shared": ShareTape(100, 2, 5, 0), "share_configs": {"share.delivery.count.limit": "5"}},
            Severity.WARNING,
            "for the last time",
            {"shared": ShareTape(100, 2, 4, 0)},
        ),
        (
            {"shared": ShareTape(100, 10, 2, 0), "share_configs": {"share.delivery.count.limit": "5"}},
            Severity.WARNING,
            "10 of 100 deliveries",
            {"shared": ShareTape(100, 9, 2, 0)},
        ),
    ],
    "eager-cooperative": [
        (
            {"group": group(member("a", kept=frozenset({P0})), member("b"))},
            Severity.ERROR,
            "a at h",
            {"group": group(member("a", kept=frozenset({P0})), member("b"), assignor="cooperative-sticky")},
        ),
    ],
    "protocols": [
        (
            {"group": group(member("a", classic=True), member("b", classic=False))},
            Severity.WARNING,
            "1 members use",
            {"group": group(member("a", classic=False), member("b", classic=False))},
        ),
    ],
    "instance-taken": [
        (
            {"settings": SETTINGS.but(group_instance_id="i-1"), "group": group(member("a", **HOLDER))},
            Severity.ERROR,
            "a at h",
            {"group": group(member("a"))},
        ),
    ],
    "instance-clash": [
        (
            {"looks": looks([0, 0], group(member("a", **HOLDER)), group(member("b", **HOLDER)))},
            Severity.ERROR,
            "a at h, b at h",
            {"looks": looks([0, 0], group(member("a", **HOLDER)))},
        ),
    ],
    "stuck": [
        (
            {"settings": SETTINGS, "looks": looks([0, 0, 0], group(state="PreparingRebalance"))},
            Severity.WARNING,
            "300000",
            {"looks": looks([0, 0, 0], group(state="PreparingRebalance"), group())},
        ),
    ],
    "lag": [
        (
            {"looks": looks([10, 20, 30, 40, 50, 60])},
            Severity.WARNING,
            "from 10 to 60",
            {"looks": looks([10, 90, 10, 90, 10, 90])},
        ),
    ],
    "idle": [
        (
            {"group": group(member("a"), member("b", owned=frozenset()))},
            Severity.NOTE,
            "b at h",
            {"group": group(member("a"), member("b", owned=frozenset()), state="PreparingRebalance")},
        ),
    ],
    "offsets-lost": [
        (
            {"settings": SETTINGS, "committed": [CommittedOffsets(P0, 5, 8, 20), CommittedOffsets(P1, 9, 9, 9)]},
            Severity.ERROR,
            "3 unread offsets",
            {"committed": [CommittedOffsets(P0, 8, 8, 20)]},
        ),
    ],
    "offsets-beyond": [
        (
            {"settings": SETTINGS, "committed": [CommittedOffsets(P0, 21, 8, 20)]},
            Severity.ERROR,
            "payments-0 at 21",
            {"committed": [CommittedOffsets(P0, 20, 8, 20)]},
        ),
    ],
    "offsets-none": [
        (
            {"settings": SETTINGS, "committed": [CommittedOffsets(P0, 1, 0, 2)], "unread": [P1]},
            Severity.NOTE,
            "latest",
            {"settings": SETTINGS.but(auto_offset_reset="earliest")},
        ),
    ],
    "offsets-expire": [
        (
            {"inactivity": Inactivity("billing", 5.25 * 86400, 7 * 86400)},
            Severity.WARNING,
            "7.0 days",
            {"inactivity": Inactivity("billing", None, 7 * 86400)},
        ),
        ({"inactivity": Inactivity("billing", 2700, 3600)}, Severity.WARNING, "0.8 h or more", {"inactivity": None}),
    ],
    "clock": [
        (
            {"newest_ms": {P0: 1_000_061_000, P1: 5}, "now_ms": 1_000_000_000, "topic_configs": {}},
            Severity.WARNING,
            "a producer's clock",
            {"now_ms": 1_000_001_000},
        ),
        (
            {
                "newest_ms": {P0: 1_000_090_000},
                "now_ms": 1_000_000_000,
                "topic_configs": {"payments": {"message.timestamp.type": "LogAppendTime"}},
            },
            Severity.WARNING,
            "a broker's clock",
            {"newest_ms": {}},
        ),
    ],
    "topic": [
        (
            {"topics": {"payments": UnknownTopic("no such topic")}},
            Severity.ERROR,
            "no such topic",
            {"topics": {"payments": topic(WHOLE)}},
        ),
    ],
    "leader": [
        (
            {"topics": {"payments": topic(LEADERLESS)}},
            Severity.ERROR,
            "no leader",
            {"topics": {"payments": topic(WHOLE)}},
        )
    ],
    "replicas": [
        (
            {"topics": {"payments": topic(ONE_LEFT)}, "topic_configs": {"payments": TWO}},
            Severity.ERROR,
            "min.insync",
            {"topics": {"payments": topic(WHOLE)}},
        ),
        (
            {"topics": {"payments": topic(THIN)}, "topic_configs": {"payments": TWO}},
            Severity.WARNING,
            "one more",
            {"topics": {"payments": topic(WHOLE)}},
        ),
    ],
    "offsets-topic": [
        (
            {"offsets_topic": topic(LEADERLESS), "offsets_configs": TWO, "brokers": THREE_BROKERS},
            Severity.ERROR,
            "neither join nor commit",
            {"offsets_topic": topic(WHOLE)},
        ),
        (
            {"offsets_topic": topic(THIN), "offsets_configs": TWO, "brokers": THREE_BROKERS},
            Severity.WARNING,
            "depend on what is left",
            {"offsets_topic": topic(WHOLE)},
        ),
        (
            {
                "offsets_topic": topic(PartitionDescription(0, 1, (1,), (1,))),
                "offsets_configs": {},
                "brokers": THREE_BROKERS,
            },
            Severity.WARNING,
            "fewer than 3 copies",
            {"brokers": THREE_BROKERS[:1]},
        ),
    ],
    "topic-rights": [
        (
            {"topics": {"payments": topic(WHOLE, allowed=frozenset({"DESCRIBE"}))}},
            Severity.ERROR,
            "READ it",
            {"topics": {"payments": topic(WHOLE, allowed=frozenset({"READ", "DESCRIBE"}))}},
        ),
        (
            {"topics": {"payments": AuthorizationFailed("no")}},
            Severity.ERROR,
            "DESCRIBE",
            {"topics": {"payments": topic(WHOLE, allowed=None)}},
        ),
    ],
    "group-rights": [
        (
            {"settings": SETTINGS, "group_allowed": frozenset({"DESCRIBE"})},
            Severity.ERROR,
            "READ the group",
            {"group_allowed": frozenset({"READ"})},
        ),
    ],
}
CASES = [(rule, *case) for rule in RULES for case in FAILING.get(rule.name, ())]


def found_by(rule: Rule, facts: Mapping[str, Any]) -> list[Finding]:
    opinion = judge(SimpleNamespace(**facts), [rule])
    assert not opinion.unchecked
    return [one for _, one in opinion.findings]


def test_every_rule_has_facts_in_which_it_finds_something() -> None:
    assert [rule.name for rule in RULES if rule.name not in FAILING] == []
    assert set(FAILING) == {rule.name for rule in RULES}
    assert len(RULES) == len({rule.name for rule in RULES})


@pytest.mark.parametrize(("rule", "facts", "severity", "reported", "mended"), CASES)
def test_a_rule_finds_it_says_where_and_what_to_do(
    rule: Rule, facts: dict[str, Any], severity: Severity, reported: str, mended: dict[str, Any]
) -> None:
    (found,) = found_by(rule, facts)
    assert found.severity is severity
    assert reported in found.what
    assert found.where
    assert found.do
    assert found_by(rule, facts | mended) == []


def test_what_the_coordinator_decides_is_not_held_against_settings() -> None:
    settings = SETTINGS.but(protocol="consumer", session_timeout_ms=1, heartbeat_interval_ms=1)
    facts = {"settings": settings, "broker_configs": {1: BOUNDS}, "group": group(assignor="uniform", type="consumer")}
    for name in ("session-timeout", "heartbeat", "poll-interval", "assignors"):
        assert found_by(next(rule for rule in RULES if rule.name == name), facts) == [], name


def test_a_fact_that_cannot_be_had_is_reported_and_leaves_the_other_rules_alone() -> None:
    class Case:
        settings = SETTINGS

        @property
        def broker_configs(self) -> None:
            raise AuthorizationFailed("not allowed to see settings")

    opinion = judge(Case(), [rule for rule in RULES if rule.name in ("session-timeout", "heartbeat")])
    assert [(rule.name, error.message) for rule, error in opinion.unchecked] == [
        ("session-timeout", "not allowed to see settings")
    ]
    assert [rule.name for rule in opinion.satisfied] == ["heartbeat"]
    assert exit_code(opinion) == UNCHECKED


def test_exit_codes() -> None:
    rule = RULES[0]
    note, warning = (Finding(one, "w", "w", "d") for one in (Severity.NOTE, Severity.WARNING))
    assert exit_code(Opinion()) == OK
    assert exit_code(Opinion(findings=[(rule, note)])) == OK
    assert exit_code(Opinion(findings=[(rule, warning)], unchecked=[(rule, KohortError("no"))])) == FOUND
    assert exit_code(Opinion(findings=[(rule, note)], unchecked=[(rule, KohortError("no"))])) == UNCHECKED
