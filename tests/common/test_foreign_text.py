"""Text of others is shown on one line, cut, without orders to a terminal and without secrets."""

import base64
import pickle
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.common import KohortError, TopicPartition
from kohort.common.foreign_text import MOST_CHARACTERS, cut, escaped, exception_text, scrubbed
from kohort.network.requests import Endpoint
from kohort.protocol.errors import BrokerError
from kohort.testing import BrokerStartError
from tests.support.unprintable_error import UnprintableError

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029"


@given(st.text(st.characters() | st.sampled_from(BIDI + BREAKS + "\x1b\x07\x9b\x7f\ud800"), max_size=30))
def test_what_is_shown_is_one_line_without_orders(text: str) -> None:
    shown = escaped(text)
    assert not set(shown) & set(BIDI + BREAKS + "\t")
    assert not any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 for each in shown)
    shown.encode()  # no lone surrogate
    assert escaped(shown) == shown
    assert len(shown.splitlines()) <= 1


def test_words_of_every_script_stay() -> None:
    text = "naïve 東京 שלום мир 👋🏽 a\u00a0b"
    assert escaped(text) == text
    assert escaped("two\n\tlines\x1b[31m", lines=True) == "two\n\tlines\\x1b[31m"


def test_an_exception_whose_text_raises_has_its_kind_for_a_text() -> None:
    assert exception_text(KeyError("x")) == "KeyError: 'x'"
    assert exception_text(UnprintableError()) == "UnprintableError"


def test_a_long_text_is_cut_with_a_note() -> None:
    assert cut("a" * MOST_CHARACTERS) == "a" * MOST_CHARACTERS
    assert cut("a" * 30_000) == "a" * 300 + "... (29700 more characters)"


def test_the_end_of_a_log_in_an_error_is_kept_and_is_the_same_elsewhere() -> None:
    error = BrokerStartError("it ended:\n" + "a line\n" * 3_000 + "the cause", node=1)
    assert error.message.startswith("it ended:\na line\n")
    assert error.message.endswith("a line\nthe cause")
    assert " characters left out) ..." in error.message
    assert len(error.message) < 2_100
    for one in (error, KohortError("x" * 5_000, hint="y" * 5_000, topic="t")):
        copy = pickle.loads(pickle.dumps(one))
        assert (str(copy), copy.args, copy.hint, copy.place) == (str(one), one.args, one.hint, one.place)


@given(secret=st.text(min_size=3, max_size=30), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_secret_is_found_however_it_is_spelled(secret: str, before: bytes, after: bytes) -> None:
    raw = secret.encode()
    quoted = "".join(f"%{byte:02x}" for byte in raw)
    spellings = [secret, quote(secret, safe=""), quote_plus(secret), raw.hex(), raw.hex().upper(), quoted]
    for spelling in spellings:
        assert spelling not in scrubbed(f"bad header: {spelling}!", [secret]).replace("***", "")
    whole = base64.b64encode(before + raw + after).decode()
    left = scrubbed(f"Basic {whole}", [secret])
    assert whole not in left or len(raw) < 4
    if len(raw) >= 6:
        assert "***" in left


@pytest.mark.parametrize("name", ["u", "me", "you"])
def test_no_bits_of_a_secret_are_left_beside_its_base64(name: str) -> None:
    for secret in ("s3cr et/", "s3cr et/x", "s3cr et/xy"):
        header = base64.b64encode(f"{name}:{secret}".encode()).decode()
        left = scrubbed(f"Basic {header}!", [secret]).removeprefix("Basic ").removesuffix("***!")
        assert 6 * len(left) <= 8 * len(f"{name}:")


def test_the_text_of_a_broker_cannot_forge_a_line_of_an_error() -> None:
    forged = "\x1b]0;PWN\x07\n2026-01-01 INFO root: login of admin succeeded\u202e" + "x" * 30_000
    for error in (BrokerError(58, forged), KohortError(forged, hint=forged, topic=forged)):
        for shown in (str(error), error.message, str(pickle.loads(pickle.dumps(error)))):
            assert len(shown.splitlines()) == 1
            assert len(shown) < 5_000
            assert "\x1b" not in shown
            assert "\u202e" not in shown
    assert error.place["topic"] == forged  # what code acts on is unchanged


def test_names_in_log_lines_take_one_line() -> None:
    """A pattern subscription takes the names that a broker gives."""
    assert str(TopicPartition("t\n2026-01-01 INFO \u202e", 3)) == "t\\n2026-01-01 INFO \\u202e-3"
    assert str(Endpoint("host\x1b[2J", 1)) == "host\\x1b[2J:1"


@pytest.mark.parametrize("name", ["grp\nkohort: 0 groups deleted", "\u202eevil", "a\tb"])
def test_a_name_on_a_terminal_takes_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from kohort.cli.terminal import cell, markup, say

    say(f"deleted {name}")
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "\u202e" not in out + cell(name).plain + markup(name)
    assert "\n" not in cell(name).plain + markup(name)
