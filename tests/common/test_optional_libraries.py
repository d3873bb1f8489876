"""A part of kohort without its library raises one error that names the extra."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("library", "extra", "uses"),
    [
        (
            "prometheus_client",
            "prometheus",
            (
                "import kohort.coordinator_client.exporting.prometheus",
                "import kohort.producer.exporting.prometheus",
            ),
        ),
        (
            "opentelemetry",
            "opentelemetry",
            (
                "import kohort.coordinator_client.exporting.opentelemetry",
                "import kohort.coordinator_client.exporting.spans",
                "import kohort.producer.exporting.opentelemetry",
                "import kohort.producer.spans",
                "import kohort.share_consumer.spans",
            ),
        ),
        ("pyspark", "spark", ("from kohort.spark import register", "from kohort.spark import kafka_rdd")),
        ("pyarrow", "arrow", ("from kohort.producer.arrow_rows import rows_of; rows_of([], 0, 'topic')",)),
    ],
)
def test_a_missing_library_is_one_error(library: str, extra: str, uses: tuple[str, ...]) -> None:
    code = f"""
import sys
from kohort import KohortError
sys.modules[{library!r}] = None
for use in {uses!r}:
    try:
        exec(use)
    except KohortError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(uses)
    for line in done.stdout.splitlines():
        assert line.endswith(f" needs {library}, which is not installed; pip install 'kohort[{extra}]'")
