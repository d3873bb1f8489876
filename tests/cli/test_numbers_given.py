"""Whole numbers in options that are texts: ASCII digits only, and not so many that Python refuses them."""

import pytest

from kohort.cli.main import main
from kohort.common.counted import counted
from kohort.common.whole_number import whole
from kohort.testing import FakeBroker

COMMANDS = (
    "consume t -b {} --from {}",
    "consume t -b {} --to {}",
    "consume t -b {} --from=-{}",
    "group offsets reset g -b {} --yes --to {}",
    "group offsets reset g -b {} --yes --to=+{}",
    "conformance -b {} --only D3a@{}",
    "conformance -b {} --at-most JoinGroup={}",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "digits", [5000 * "9", "\uff13", "\u00b2", "1_0"], ids=["many", "wide", "superscript", "underscore"]
)
def test_other_digits_are_refused_by_name(command: str, digits: str, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"t": 20}) as fake:
        assert main(command.format(fake.bootstrap, digits).split()) in (1, 2)
    error = capsys.readouterr().err
    assert "is neither an offset nor a time" in error or "B4@5" in error or "JoinGroup=5" in error


@pytest.mark.parametrize("digits", [5000 * "9", "\uff11\uff12"])
def test_an_api_key_has_ascii_digits(digits: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wire", "explain", "00", "--only", digits]) == 1
    assert "no API" in capsys.readouterr().err


def test_the_number_of_a_text() -> None:
    assert [whole(text) for text in ("0", "007", 18 * "9")] == [0, 7, 10**18 - 1]
    assert [whole(text) for text in ("", "-1", "+1", " 1", "1_0", "1.0", "\u00b2", "\uff11", 19 * "1")] == [None] * 9


def test_one_is_singular() -> None:
    assert [counted(count, "record") for count in (0, 1, 2, 1000)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,000 records",
    ]
