"""Arguments of callers: the last value that the wire has room for, and the first that is refused."""

import re
from collections.abc import Callable

import pytest

from kohort import TopicPartition
from kohort.coordinator_client.offset_reset import ResetPolicy
from kohort.network.arguments import (
    LONGEST_S,
    each_partition,
    name_given,
    offset_given,
    partition_given,
    pattern_given,
    seconds_given,
    times_given,
    topic_given,
    unsendable,
)
from kohort.network.errors import ConfigError

INT16, INT32, INT64 = 32_767, 2_147_483_647, 9_223_372_036_854_775_807


@pytest.mark.parametrize("given", [topic_given, lambda name: name_given(name, "a name")])
def test_a_string_has_at_most_as_many_bytes_as_an_int16_counts(given: Callable[[str], str]) -> None:
    assert unsendable("n" * INT16) == ""
    assert given("n" * INT16) == "n" * INT16
    for long in ("n" * (INT16 + 1), "n" * (INT16 - 1) + "é"):
        with pytest.raises(ValueError, match="it has 32768 bytes of UTF-8, and the limit is 32767"):
            given(long)


def test_a_partition_is_numbered_from_0_to_the_end_of_an_int32() -> None:
    for number in (0, INT32):
        assert partition_given(("t", number)) == TopicPartition("t", number)
    for number in (-1, INT32 + 1):
        with pytest.raises(ValueError, match="number is from 0 to 2147483647"):
            partition_given(("t", number))


def test_offsets_and_times_have_63_bits() -> None:
    one = TopicPartition("t", 0)
    for number in (0, INT64):
        assert offset_given(number) == number
        assert times_given({one: number}) == {one: number}
    for number in (-1, INT64 + 1):
        with pytest.raises(ValueError, match="an offset"):
            offset_given(number)
        with pytest.raises(ValueError, match="a time"):
            times_given({one: number})


def test_a_reset_goes_back_by_at_most_63_bits_of_milliseconds() -> None:
    seconds, milliseconds = divmod(INT64, 1000)
    assert ResetPolicy.of(f"by_duration:PT{seconds}.{milliseconds}S").back_ms == INT64
    assert ResetPolicy.of("by_duration:PT0S").back_ms == 0
    for beyond in (f"PT{seconds}.{milliseconds + 1}S", "-PT0.001S"):
        with pytest.raises(ConfigError, match="auto_offset_reset cannot be"):
            ResetPolicy.of(f"by_duration:{beyond}")


def test_a_time_out_is_held_between_nothing_and_the_longest() -> None:
    cases = {
        -1.0: 0.0,
        0: 0.0,
        1.5: 1.5,
        LONGEST_S: LONGEST_S,
        LONGEST_S + 1: LONGEST_S,
        float("inf"): LONGEST_S,
        10**400: LONGEST_S,
        -(10**400): 0.0,
    }
    for given, held in cases.items():
        assert seconds_given(given) == held, given


@pytest.mark.parametrize("pair", [("t", 0), TopicPartition("t", 0)])
def test_one_partition_is_no_list_of_partitions(pair: tuple[str, int]) -> None:
    with pytest.raises(TypeError, match="a list of partitions is needed, not one partition"):
        each_partition(pair)


def test_a_tuple_of_partitions_is_a_list_of_partitions() -> None:
    several = (("t", 0), ("u", 1))
    assert each_partition(several) == [TopicPartition("t", 0), TopicPartition("u", 1)]
    assert each_partition((("t", 0),)) == [TopicPartition("t", 0)]


def test_a_compiled_pattern_has_the_flags_in_front_that_its_text_does_not_set() -> None:
    flags = {
        "": 0,
        "(?a)": re.A,
        "(?i)": re.I,
        "(?m)": re.M,
        "(?s)": re.S,
        "(?x)": re.X,
        "(?aimsx)": re.A | re.I | re.M | re.S | re.X,
    }
    for front, given in flags.items():
        assert pattern_given(re.compile("a .b", given)) == f"{front}a .b"
    assert pattern_given(re.compile("(?i)a", re.I | re.S)) == "(?s)(?i)a"
