"""The doctor's rules of share groups, with facts of a broker and of a tape."""

from pathlib import Path

from kohort import ShareConsumer
from kohort.cli.doctor.facts import Case
from kohort.cli.doctor.rules import RULES, judge
from kohort.testing import FakeBroker

SHARE_RULES = [rule for rule in RULES if rule.name.startswith("share-") or rule.name == "group-kind"]


def test_facts_of_a_share_group_and_of_a_tape(tmp_path: Path) -> None:
    with FakeBroker(topics={"work": 1}, versions={"DescribeConfigs": (1, 4)}) as broker:
        broker.configure_group(
            "jobs", {"share.auto.offset.reset": "earliest", "share.renew.acknowledge.enable": "false"}
        )
        broker.produce("work", 0, [(b"", b"v")] * 4)
        tape = tmp_path / "member.tape"
        with ShareConsumer(broker.bootstrap, group="jobs", tape=str(tape)) as consumer:
            consumer.subscribe(["work"])
            (batch,) = consumer.poll(60)
            consumer.acknowledge(batch, "release")
            (again,) = consumer.poll(60)
            broker.expire_share_locks("jobs")
            consumer.acknowledge(again)
            assert consumer.commit()
            given = {"bootstrap.servers": broker.bootstrap, "group.id": "jobs"}
            with Case(given, tape=tape, ms_per_record=100.0) as case:
                opinion = judge(case, SHARE_RULES)
                shared = case.shared
    assert opinion.unchecked == []
    assert opinion.not_requested == []
    assert {rule.name for rule, _found in opinion.findings} == {
        "share-lock",
        "share-renewal",
        "share-expired",
        "share-repeated",
    }
    assert (shared.delivered, shared.repeated, shared.highest, shared.refused) == (8, 4, 2, 1)


def test_rules_of_share_groups_are_not_requested_for_others(tmp_path: Path) -> None:
    with (
        FakeBroker(topics={"work": 1}) as broker,
        Case({"bootstrap.servers": broker.bootstrap, "group.id": "g"}) as case,
    ):
        opinion = judge(case, [rule for rule in SHARE_RULES if rule.name != "group-kind"])
    assert len(opinion.not_requested) == len(SHARE_RULES) - 1
