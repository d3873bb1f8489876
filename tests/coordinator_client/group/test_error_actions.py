"""The tables of reactions, and what becomes of a commit that was refused (E-05)."""

import pytest

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.error_actions import (
    REACTIONS,
    CommitVerdict,
    ErrorAction,
    commit_verdict,
    fatal_error,
)
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.network.request_versions import fit
from kohort.protocol.codec import Message
from kohort.protocol.errors import ERRORS
from tests.coordinator_client.group.member_rig import Rig, tps

T = tps("t-0..1")


def test_every_code_in_the_tables_is_one_of_kafkas() -> None:
    for row in REACTIONS.values():
        assert row.keys() <= ERRORS.keys()


def test_what_kafka_calls_retriable_is_never_fatal() -> None:
    for api, row in REACTIONS.items():
        for code, reaction in row.items():
            assert not (ERRORS[code].retriable and reaction is ErrorAction.FATAL), (api, code)


@pytest.mark.proves("E-02", "E-05")
def test_fatal_errors_carry_code_name_place_and_advice() -> None:
    error = fatal_error(26, "JoinGroup", "g")
    assert (error.code, error.name) == (26, "INVALID_SESSION_TIMEOUT")
    assert "session_timeout_ms" in str(error)
    assert error.place == {"api": "JoinGroup", "group": "g"}


@pytest.mark.proves("E-05")
@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (3, CommitVerdict.CHECK_TOPIC),
        (100, CommitVerdict.CHECK_TOPIC),
        (7, CommitVerdict.RETRY),
        (14, CommitVerdict.RETRY),
        (15, CommitVerdict.RETRY),
        (16, CommitVerdict.RETRY),
        (27, CommitVerdict.HOLD),
        (82, CommitVerdict.FENCED),
        (12, CommitVerdict.RAISE),
        (28, CommitVerdict.RAISE),
        (29, CommitVerdict.RAISE),
        (30, CommitVerdict.RAISE),
        (-1, CommitVerdict.RAISE),
        (999, CommitVerdict.RAISE),
    ],
)
def test_commit_verdicts_that_do_not_depend_on_the_member(code: int, verdict: CommitVerdict) -> None:
    rig = Rig()
    rig.reach_stable(T)
    sent = rig.ready.view.identity
    rig.post(ev.CommitRefused(code, sent, T))
    assert commit_verdict(code, sent, rig.ready.view) is verdict


@pytest.mark.proves("E-05", "S-12")
@pytest.mark.parametrize("code", [22, 25])
def test_a_commit_fails_when_the_group_went_on_without_us(code: int) -> None:
    rig = Rig()
    rig.reach_stable(T)
    sent = rig.ready.view.identity
    rig.post(ev.CommitRefused(code, sent, T))
    assert commit_verdict(code, sent, rig.ready.view) is CommitVerdict.FAIL
    rig.run_hook()
    rig.joined(generation=2, me="m2")
    assert commit_verdict(code, sent, rig.ready.view) is CommitVerdict.FAIL, "we came back with another identity"


@pytest.mark.proves("E-05")
@pytest.mark.parametrize("code", [22, 25])
def test_a_commit_is_held_when_we_went_on_with_the_group(code: int) -> None:
    rig = Rig()
    rig.reach_stable(())
    sent = rig.ready.view.identity
    rig.post(ev.RebalanceEnforced())
    rig.post(ev.CommitRefused(code, sent, T))
    assert commit_verdict(code, sent, rig.ready.view) is CommitVerdict.HOLD, "our join is under way"
    rig.joined(generation=2)
    assert commit_verdict(code, sent, rig.ready.view) is CommitVerdict.HOLD, "it had a response"


@pytest.mark.proves("E-05")
def test_a_commit_outside_any_membership_fails_for_good() -> None:
    rig = Rig()
    outside = rig.ready.view.identity
    assert commit_verdict(25, outside, rig.ready.view) is CommitVerdict.FAIL


@pytest.mark.proves("G-17", "B-42")
@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_backoff_doubles_to_its_ceiling_and_is_spread(jitter: float) -> None:
    settings = MemberSettings(group_id="g", retry_backoff_ms=100, retry_backoff_ms_max=1_000, jitter=jitter)
    waits = [settings.backoff_s(attempt) for attempt in range(1, 8)]
    assert waits == sorted(waits)
    assert waits[1] == pytest.approx(2 * waits[0])
    assert waits[-1] == pytest.approx(0.8 + 0.4 * jitter)
    assert settings.backoff_s(10_000) == waits[-1]


def test_settings_follow_each_other() -> None:
    settings = MemberSettings(group_id="g", max_poll_interval_ms=7_000)
    assert settings.rebalance_ms == 7_000
    assert settings._replace(rebalance_timeout_ms=9_000).rebalance_ms == 9_000
    assert settings.leaves
    assert not settings._replace(instance_id="i").leaves
    assert settings._replace(instance_id="i", leave_on_close=True).leaves


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"])
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_every_request_can_be_built_in_every_version_that_can_say_it(api: str, instance_id: str | None) -> None:
    """The machine fills in all it means; `fit` makes it sayable. Static names alone need newer versions."""
    rig = Rig(instance_id=instance_id, leave_on_close=True)
    rig.reach_stable(())
    rig.heartbeat()
    rig.post(ev.CloseRequested(rig.now + 5))
    request = rig.last(api)
    codec = Message.of(type(request))
    static_since = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3}
    lowest, highest = codec.versions
    for version in range(max(lowest, static_since.get(api, 0) if instance_id else 0), highest + 1):
        assert codec.build(fit(request, version), version)
