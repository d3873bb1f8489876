"""`kohort group` and `kohort consume` for share groups, on the fake broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, ShareConsumer
from kohort.admin import GroupMissing, GroupNotEmpty
from kohort.cli.main import main
from kohort.common import TopicPartition
from kohort.network.errors import ConfigError
from kohort.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from kohort.protocol.errors import UnsupportedVersion
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter

PATIENCE_S = 60.0
P0 = TopicPartition("work", 0)
Run = Callable[..., Any]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"work": 2}, versions={"DescribeConfigs": (1, 4)}) as broker:
        broker.configure_group("jobs", {"share.auto.offset.reset": "earliest"})
        for partition in (0, 1):
            broker.produce("work", partition, [(b"k", b"%d" % number) for number in range(5)])
        yield broker
        assert broker.faults == []


@pytest.fixture
def run(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("group", "list", "--json")` is what it printed, parsed if that is JSON; `code=1` expects an error."""

    def ran(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--bootstrap", fake.bootstrap]) == code, capsys.readouterr().err
        printed = capsys.readouterr()
        if code:
            return printed.err
        return json.loads(printed.out) if "--json" in arguments else printed.out

    return ran


def worked(fake: FakeBroker, count: int) -> None:
    """A member accepts so many records and leaves."""
    with ShareConsumer(fake.bootstrap, group="jobs", max_poll_records=count, acquire_mode="record_limit") as consumer:
        consumer.subscribe(["work"])
        done = 0
        while done < count:
            for batch in consumer.poll(PATIENCE_S):
                for record in list(batch)[: count - done]:
                    consumer.acknowledge(record)
                    done += 1
        consumer.commit()


def test_a_share_group_is_listed_and_described_with_its_lag(fake: FakeBroker, run: Run) -> None:
    with ShareConsumer(fake.bootstrap, group="jobs", client_id="worker") as consumer:
        consumer.subscribe(["work"])
        consumer.poll(PATIENCE_S)
        consumer.commit()
        assert {"group": "jobs", "protocol_type": "share", "state": "Stable", "type": "share"} in run(
            "group", "list", "--json"
        )
        found = run("group", "describe", "jobs", "--json")
        assert (found["type"], found["state"], found["assignor"]) == ("share", "Stable", "simple")
        (member,) = found["members"]
        assert member["client_id"] == "worker"
        assert [(one["topic"], one["partition"]) for one in member["owned"]] == [("work", 0), ("work", 1)]
        assert "started in" in run("group", "describe", "jobs")
    lags = run("group", "lag", "jobs", "--json")
    assert lags["lag"] == sum(one["lag"] for one in lags["partitions"])
    assert lags["lag"] in (0, 5)
    assert "unknown" not in run("group", "lag", "jobs")
    heads = run("group", "lag", "jobs").splitlines()[1]
    assert [word for word in heads.split() if word.isalpha()] == ["partition", "start", "lag"]


def test_an_unknown_lag_of_a_share_partition_is_counted_apart(fake: FakeBroker, run: Run) -> None:
    def unknown(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        (group,) = response.groups
        (topic,) = group.topics
        first, second = topic.partitions
        parts = (first._replace(lag=-1), second._replace(lag=4))
        return response._replace(groups=(group._replace(topics=(topic._replace(partitions=parts),)),))

    worked(fake, 1)
    fake.control("DescribeShareGroupOffsets", lambda _call: Alter(unknown))
    assert "4 records wait in 2 partitions, 1 of unknown lag" in run("group", "lag", "jobs")
    assert "where 4 records wait, 1 of unknown lag" in run("group", "describe", "jobs")
    found = run("group", "lag", "jobs", "--json")
    assert (found["lag"], [one["lag"] for one in found["partitions"]]) == (4, [None, 4])


def test_offsets_of_an_empty_share_group_are_reset_and_exported(fake: FakeBroker, run: Run) -> None:
    worked(fake, 10)
    assert run("group", "lag", "jobs", "--json")["lag"] == 0
    changed = run("group", "offsets", "reset", "jobs", "--to", "2", "--topic", "work", "--json")
    assert [(one["partition"], one["before"], one["after"]) for one in changed["offsets"]] == [(0, 5, 2), (1, 5, 2)]
    assert run("group", "offsets", "export", "jobs", "--json") == {"work": {"0": 2, "1": 2}}
    assert run("group", "lag", "jobs", "--json")["lag"] == 6
    run("group", "offsets", "reset", "jobs", "--to", "latest", "--topic", "work", "--dry-run", "--json")
    shown = run("group", "offsets", "reset", "jobs", "--to", "latest", "--topic", "work", "--dry-run")
    assert "start" in shown
    assert "committed" not in shown
    assert run("group", "lag", "jobs", "--json")["lag"] == 6
    shifted = run("group", "offsets", "reset", "jobs", "--to", "+1", "--json")  # the partitions that it has started
    assert [(one["before"], one["after"]) for one in shifted["offsets"]] == [(2, 3), (2, 3)]
    assert run("group", "offsets", "reset", "jobs", "--to", "earliest", "--json")["offsets"][1]["after"] == 0
    assert run("group", "lag", "jobs", "--json")["lag"] == 10
    run("group", "delete", "jobs", "--yes")
    assert "no such group" in run("group", "lag", "jobs", code=1)


def test_settings_of_a_group_are_listed_and_changed(run: Run) -> None:
    found = run("group", "configs", "jobs", "--json")
    assert found["configs"]["share.auto.offset.reset"] == "earliest"
    run("group", "configs", "jobs", "--set", "share.delivery.count.limit=3", "--unset", "share.auto.offset.reset")
    found = run("group", "configs", "jobs", "--json")["configs"]
    assert (found["share.delivery.count.limit"], found["share.auto.offset.reset"]) == ("3", "latest")
    assert "name=value" in run("group", "configs", "jobs", "--set", "alone", code=1)
    run("group", "configs", "jobs", "--set", "no.such.setting=1", code=1)
    assert "share.auto.offset.reset" in run("group", "configs", "jobs")


def test_consume_accepts_what_it_has_written(fake: FakeBroker, run: Run) -> None:
    printed = run("consume", "work", "--share", "jobs", "--limit", "7", "--format", "json")
    records = [json.loads(line) for line in printed.splitlines()]
    assert len(records) == 7
    assert {record["delivery_count"] for record in records} == {1}
    assert run("group", "lag", "jobs", "--json")["lag"] == 3
    assert "excludes" in run("consume", "work", "--share", "jobs", "--from", "5", code=1)
    assert "excludes" in run("consume", "work", "--share", "jobs", "--from", "earliest", "--limit", "1", code=1)
    assert "excludes" in run("consume", "work", "--share", "jobs", "--to", "latest", "--limit", "1", code=1)


def test_consume_accepts_no_record_for_a_file_that_it_may_not_complete(
    fake: FakeBroker, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "records.parquet"
    refused = run("consume", "work", "--share", "jobs", "--limit", "7", "--parquet", str(file), code=1)
    assert "--share excludes --parquet" in refused
    assert not file.exists()
    assert fake.calls_of("ShareAcknowledge") == fake.calls_of("ShareFetch") == []


def test_a_member_that_cannot_be_removed_is_said_to_be_one(fake: FakeBroker, run: Run) -> None:
    with ShareConsumer(fake.bootstrap, group="jobs") as consumer:
        consumer.subscribe(["work"])
        consumer.poll(PATIENCE_S)
        error = run("group", "remove-members", "jobs", "--yes", code=1)
        assert error == "kohort: error: members of a share group cannot be removed (group=jobs); stop them\n"
        assert "no such member" in run("group", "remove-members", "jobs", "another", "--yes", code=1)
    assert run("group", "remove-members", "jobs", "--yes", "--json") == {"group": "jobs", "removed": []}


def test_the_admin_refuses_what_a_share_group_does_not_allow(fake: FakeBroker) -> None:
    with Admin(fake.bootstrap) as admin:
        with pytest.raises(GroupMissing):
            admin.delete_share_offsets("jobs", "work")
        with ShareConsumer(fake.bootstrap, group="jobs") as consumer:
            consumer.subscribe(["work"])
            consumer.poll(PATIENCE_S)
            with pytest.raises(GroupNotEmpty):
                admin.alter_share_offsets("jobs", {P0: 1})
            with pytest.raises(GroupNotEmpty):
                admin.delete_share_offsets("jobs", "work")
            consumer.commit()
        with pytest.raises(ConfigError):
            admin.set_group_configs("jobs", {"no.such.setting": "1"})
        with pytest.raises(ValueError, match="an offset"):
            admin.alter_share_offsets("jobs", {P0: -1})
        assert admin.share_offsets("jobs")
        admin.delete_share_offsets("jobs", "work", "unknown")
        assert admin.share_offsets("jobs") == []
        assert admin.describe_group("jobs").members == ()
        with pytest.raises(GroupMissing):
            admin.describe_group("nothing")


def test_a_broker_without_share_groups_has_none() -> None:
    with (
        FakeBroker(versions={"ShareGroupDescribe": None, "DescribeShareGroupOffsets": None}) as old,
        Admin(old.bootstrap) as admin,
    ):
        with pytest.raises(GroupMissing):
            admin.describe_group("jobs")
        with pytest.raises(UnsupportedVersion, match="DescribeShareGroupOffsets"):
            admin.share_offsets("jobs")
