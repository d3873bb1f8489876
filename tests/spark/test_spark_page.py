"""docs/spark.md lists every read in the table of cases that differs from Spark's own connector."""

from pathlib import Path

from tests.spark.packed_environment import page_commands
from tests.spark_jvm.cases import CASES
from tests.spark_jvm.page import BEYOND, CHECKPOINTS, differences

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_every_difference_is_on_the_page_and_no_other() -> None:
    wanted = [(case.name, case.why) for case in differences()]
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    reported = [(row[0], row[-1]) for row in rows if len(row) == 4 and row[0] != "---"]
    assert reported == wanted


def test_what_the_reads_do_not_show_is_on_the_page() -> None:
    assert BEYOND in PAGE
    assert CHECKPOINTS in PAGE


def test_every_mistake_is_on_the_page() -> None:
    rows = [line.strip("| ").split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| ")]
    assert [case.name for case in CASES if case.count is None and case.name not in rows] == []
    assert f"{len(CASES)} reads" in PAGE


def test_the_commands_of_an_archive_are_those_that_a_cluster_runs() -> None:
    """`make test-cluster` runs the last three."""
    commands = page_commands()
    assert commands.link == "ln -s packed environment"
    assert commands.spark_home.startswith("export SPARK_HOME=")
    assert "spark-submit --master spark://HOST:7077 " in commands.submit
