"""Commands about a group of Kafka Streams, whose member is scripted."""

import json
from collections.abc import Iterator

import pytest

from kohort.cli.main import main
from kohort.testing import FakeBroker
from tests.admin.test_streams_groups import Member


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"source": 2}) as broker:
        Member(broker.bootstrap, "streams", "source", "store-changelog").join()
        yield broker


def test_describe_shows_its_tasks(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    described = ["group", "describe", "streams", "-b", fake.bootstrap]
    assert main([*described, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["group"], found["type"], found["state"]) == ("streams", "streams", "Stable")
    (member,) = found["members"]
    assert member["client_id"] == "streamer"
    assert member["active"] == [{"subtopology": "0", "partition": 0}, {"subtopology": "0", "partition": 1}]
    assert main(described) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("streams: Stable, streams, epoch ")
    assert "0_0 0_1" in printed


def test_the_doctor_finds_it_and_says_that_it_is_no_group_of_consumers(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--group", "streams", "--seconds", "0", "--json", "-b", fake.bootstrap])
    found = {one["rule"]: one["what"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert "group" not in found
    assert found["group-kind"] == "the group has the protocol type streams, so no consumer can join it"
