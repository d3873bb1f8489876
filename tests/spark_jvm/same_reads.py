"""The same reads through Spark's own connector and through kohort: rows equal, errors no worse explained.

`make test-spark-jvm` runs this. It is no part of `make test`, because it needs a second PySpark in a venv of its own.
"""

import re
from collections.abc import Callable
from string import Template

import pytest

from tests.spark_jvm.cases import CASES, Case
from tests.spark_jvm.conftest import CONNECTOR, PYSPARKS, Outcomes

pytestmark = [pytest.mark.broker, pytest.mark.timeout(6000)]
EACH = pytest.mark.parametrize("case", [pytest.param(case, id=case.name.replace(" ", "-")) for case in CASES])


@EACH
def test_sparks_connector_does_as_the_table_says(
    case: Case, outcomes: Callable[[str, str], Outcomes], names: dict[str, str]
) -> None:
    theirs = outcomes("kafka", CONNECTOR)[case.name]
    if case.count is None:
        assert theirs.rows is None
        assert re.search(_filled(case.theirs, names), theirs.error)
    else:
        assert theirs.error == ""
        assert theirs.rows is not None
        assert len(theirs.rows) == case.count
    assert case.pieces is None or theirs.pieces == case.pieces


@EACH
@pytest.mark.parametrize("pyspark", PYSPARKS)
def test_kohort_reads_the_same_or_says_better_why_not(
    case: Case, pyspark: str, outcomes: Callable[[str, str], Outcomes], names: dict[str, str]
) -> None:
    ours, theirs = outcomes("kohort", pyspark)[case.name], outcomes("kafka", CONNECTOR)[case.name]
    if case.ours:
        assert ours.rows is None
        assert re.search(_filled(case.ours, names), ours.error)
    else:
        assert ours.error == ""
        assert ours.rows == theirs.rows
        assert ours.columns == theirs.columns
    wanted = case.pieces if case.our_pieces is None else case.our_pieces
    assert wanted is None or ours.pieces == wanted


def test_all_that_differs_is_explained() -> None:
    differs = [case for case in CASES if (case.count is not None and case.ours) or case.our_pieces is not None]
    assert [case.name for case in differs if not case.why] == []
    assert [case.name for case in CASES if case.why and case not in differs] == []


def _filled(pattern: str, names: dict[str, str]) -> str:
    return Template(pattern).substitute({name: re.escape(value) for name, value in names.items()})
