"""The embedded consumer protocol: versions of others, odd members, hostile leaders."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.common.errors import WireError
from kohort.protocol import membership
from kohort.protocol.errors import UnsupportedVersion
from kohort.protocol.membership import (
    Assignment,
    CooperativeStickyUserData,
    StickyUserData,
    Subscription,
    TopicPartitions,
)

FULL = Subscription(
    topics=("payments", "refunds"),
    user_data=b"\x01",
    owned_partitions=(TopicPartitions(topic="payments", partitions=(0, 2)),),
    generation_id=7,
    rack_id="eu-1a",
)
WHAT_A_VERSION_KEEPS = {
    0: Subscription(topics=FULL.topics, user_data=FULL.user_data),
    1: FULL._replace(generation_id=-1, rack_id=None),
    2: FULL._replace(rack_id=None),
    3: FULL,
}


@pytest.mark.parametrize("version", WHAT_A_VERSION_KEEPS)
def test_each_version_keeps_what_it_has(version: int) -> None:
    data = membership.build_subscription(FULL, version)
    assert data[:2] == version.to_bytes(2, "big")
    assert membership.parse_subscription(data) == WHAT_A_VERSION_KEEPS[version]


def test_known_bytes() -> None:
    """The bytes that any consumer of the 0.9 protocol sends for topic "t"."""
    assert membership.build_subscription(Subscription(topics=("t",)), 0).hex() == "000000000001000174ffffffff"
    assignment = Assignment(assigned_partitions=(TopicPartitions(topic="t", partitions=(1,)),))
    assert membership.build_assignment(assignment, 0).hex() == ("0000000000010001740000000100000001ffffffff")


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    data = (9).to_bytes(2, "big") + membership.build_subscription(FULL, 3)[2:] + b"fields of the future"
    assert membership.parse_subscription(data) == FULL


def test_trailing_bytes_in_a_known_version_are_an_error() -> None:
    with pytest.raises(WireError, match="unread"):
        membership.parse_assignment(membership.build_assignment(Assignment(), 3) + b"x")


@pytest.mark.proves("B-20")
@pytest.mark.parametrize("claimed", [1, 2, 3])
def test_a_member_that_claims_more_than_it_sends_is_read_as_version_0(claimed: int) -> None:
    data = claimed.to_bytes(2, "big") + membership.build_subscription(FULL, 0)[2:]
    assert membership.parse_subscription(data) == WHAT_A_VERSION_KEEPS[0]


@pytest.mark.proves("B-20")
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\3garbage", b"\xff\xff" + bytes(12)])
def test_an_undecodable_subscription_is_an_error_of_the_wire(data: bytes) -> None:
    with pytest.raises(WireError):
        membership.parse_subscription(data)


def test_no_bytes_are_no_assignment() -> None:
    assert membership.parse_assignment(b"") == Assignment()


@pytest.mark.proves("B-19")
@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0000000000003fffffff"),  # user data of 1 GiB
        bytes.fromhex("00037fffffff"),  # 2 billion topics
        bytes.fromhex("0003000000010001747fffffff00000001"),  # 2 billion partitions
        bytes.fromhex("800000000000ffffffff"),  # version -32768
        bytes.fromhex("000100000001ffff00000000ffffffff"),  # a topic called null
    ],
)
def test_a_hostile_assignment_is_refused_without_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            membership.parse_assignment(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024


@given(st.binary(max_size=64))
def test_any_bytes_are_a_value_or_a_wire_error(data: bytes) -> None:
    for parse in (membership.parse_subscription, membership.parse_assignment, membership.parse_sticky):
        try:
            parse(data)
        except WireError:
            continue


def test_a_version_that_does_not_exist_cannot_be_built() -> None:
    with pytest.raises(UnsupportedVersion):
        membership.build_subscription(FULL, 4)


class TestStickyUserData:
    VALUE = StickyUserData(previous_assignment=(TopicPartitions(topic="t", partitions=(1,)),), generation=5)

    def test_version_1_carries_the_generation(self) -> None:
        data = membership.build_sticky(self.VALUE)
        assert data.hex() == "00000001000174000000010000000100000005"
        assert membership.parse_sticky(data) == self.VALUE

    def test_version_0_is_recognised_by_its_length(self) -> None:
        assert membership.parse_sticky(membership.build_sticky(self.VALUE)[:-4]) == self.VALUE._replace(generation=-1)

    def test_cooperative_sticky_carries_the_generation_only(self) -> None:
        data = membership.build_cooperative_sticky(CooperativeStickyUserData(generation=5))
        assert data == b"\0\0\0\5"
        assert membership.parse_cooperative_sticky(data) == CooperativeStickyUserData(generation=5)
        with pytest.raises(WireError):
            membership.parse_cooperative_sticky(b"\0\0\0")
