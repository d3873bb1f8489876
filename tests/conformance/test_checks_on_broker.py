"""The checks themselves, as tests: one a check, failing with its verdicts and frames."""

import asyncio
import time
from collections.abc import Callable, Mapping

import pytest

from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Check, Selection
from kohort.conformance.report import Report
from kohort.conformance.runner import conduct
from kohort.conformance.verdict import CheckVerdict
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker
# What Apache Kafka is known to get wrong: see docs/conformance/profiles. It also leaves a group behind.
LEFT_OUT = "N1b,N1c"
SELECTION = Selection.of("", CHECKS, skip=LEFT_OUT)


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> str:
    named: str = request.config.getoption("--bootstrap")
    if named:
        return named
    broker: SelectedBroker = request.getfixturevalue("broker")
    return broker.bootstrap


@pytest.fixture(scope="module")
def report(address: str) -> Report:
    async def run() -> Report:
        target = await BrokerUnderTest.reach(address)
        return await conduct(target, CHECKS, selection=SELECTION)

    return asyncio.run(run())


# The lines of docs/behaviours.md that a check of streams groups proves.
PROVEN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("S1a", "S1b", "S1c", "S1d"), ("ST-01",)),
    **dict.fromkeys(("S2b", "S2c", "S3e"), ("ST-27",)),
    **dict.fromkeys(("S4a", "S4b", "S4c"), ("ST-28",)),
    "S2a": ("ST-06",),
    "S3b": ("ST-02",),
    "S3c": ("ST-03",),
    "S5a": ("ST-04", "ST-23"),
    "S5b": ("ST-05", "ST-06"),
    "S5c": ("ST-07",),
    "S6a": ("ST-08", "ST-09", "ST-23"),
    "S6b": ("ST-11", "ST-12"),
    "S7a": ("ST-22",),
    "S7b": ("ST-17",),
    "S8a": ("ST-23",),
    "S8d": ("ST-29",),
    "S9a": ("ST-21",),
    "S10a": ("ST-19",),
    "S10b": ("ST-18",),
}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(one, id=one.id, marks=[pytest.mark.proves(*PROVEN[one.id])] if one.id in PROVEN else [])
        for one in CHECKS
    ],
)
def test_check(check: Check, report: Report) -> None:
    """Not applicable is no failure, and no skip either: the reason is the verdict."""
    results = [result for result in report.results if result.check == check.id]
    assert results or check.id in LEFT_OUT.split(",")
    bad = [result for result in results if result.verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED)]
    frames = "\n".join(str(frame) for frame in bad[0].frames) if bad else ""
    assert not bad, f"{[result.cell for result in bad]}: {bad[0].reason}\n{frames}"


def test_run_was_whole(report: Report) -> None:
    assert not report.ended_early
    assert report.counts[CheckVerdict.PASS] > 0


def test_most_checks_apply_to_the_reference(report: Report, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--bootstrap"):
        pytest.skip("how much of it applies to another broker is that broker's own business")
    assert report.counts[CheckVerdict.PASS] > 900
    # A broker of one node, without users and without a wait at first joins, rules out some; nothing else may.
    reasons = {result.reason for result in report.results if result.verdict is CheckVerdict.NOT_APPLICABLE}
    assert len(reasons) < 20, reasons


def test_clean_up_leaves_nothing_and_touches_nothing_else(
    address: str, report: Report, unique: Callable[[str], str]
) -> None:
    """Existing resources are still there afterwards; those of the run are deleted."""
    assert report.left_behind == ()
    topic = unique("bystander")
    create_topic(address, topic)

    async def run() -> tuple[set[str], set[str], set[str]]:
        target = await BrokerUnderTest.reach(address)
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        values: dict[str, object] = {
            "group_id": topic,
            "member_id": "",
            "topics": ({"name": topic, "partitions": (partition,)},),
        }
        await target.request("OffsetCommit", values, at_most=9)
        before = await groups(target)
        await conduct(target, CHECKS, selection=Selection.of("F*,H*,B1", CHECKS), timing=False)
        again = await BrokerUnderTest.reach(address)
        until = time.monotonic() + PATIENCE_S
        while True:
            names = await again.request("Metadata", {"topics": None}, at_most=7)
            topics, after = {entry.name for entry in names.topics}, await groups(again)
            # The broker follows the controller, which has deleted the topics.
            if time.monotonic() > until or not any(map(of_a_run, topics | after)):
                await again.close()
                return before, after, topics

    before, after, topics = asyncio.run(run())
    assert topic in before & after, "other groups of this broker are those of other tests, which come and go"
    assert topic in topics
    assert not [name for name in (*topics, *after) if of_a_run(name)]


def of_a_run(name: str) -> bool:
    return name.startswith("kohort-conformance-")


async def groups(target: BrokerUnderTest) -> set[str]:
    response = await target.request("ListGroups", {"states_filter": (), "types_filter": ()})
    return {entry.group_id for entry in response.groups}
