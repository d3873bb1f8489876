"""One broker, one world, and a session a connector and version of PySpark, each run when first asked for."""

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.testing import RealBroker, jars
from kohort.testing.selection import wanted_version
from tests.spark_jvm.outcome import Outcome
from tests.spark_jvm.venvs import ROOT, python_with
from tests.spark_jvm.world import world

CONNECTOR = "4.0.0"
SESSION_TIMEOUT_S = 1500
Outcomes = dict[str, Outcome]


@pytest.fixture(scope="session")
def names() -> Iterator[dict[str, str]]:
    """What `$name` stands for, on a broker whose log cleaner does not rest."""
    properties = {"log.cleaner.backoff.ms": "100"}
    with (
        RealBroker(version=wanted_version(), properties=properties) as broker,
        world(broker.bootstrap, f"w{uuid.uuid4().hex[:6]}") as found,
    ):
        yield found


@pytest.fixture(scope="session")
def outcomes(names: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Outcomes]:
    """`outcomes("kafka", "4.0.0")`: every case through that connector on that PySpark."""
    folder = tmp_path_factory.mktemp("sessions")
    known: dict[tuple[str, str], Outcomes] = {}

    def outcomes_of(source: str, pyspark: str) -> Outcomes:
        if (source, pyspark) not in known:
            known[source, pyspark] = _run(source, pyspark, names, folder)
        return known[source, pyspark]

    return outcomes_of


def _run(source: str, pyspark: str, names: dict[str, str], folder: Path) -> Outcomes:
    (folder / "names.json").write_text(json.dumps(names))
    out = folder / f"{source}-{pyspark}.json"
    with_jars = ",".join(map(str, jars.spark_connector(pyspark))) if source == "kafka" else ""
    command = [str(python_with(pyspark)), "-m", "tests.spark_jvm.session", source, str(folder / "names.json"), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, with_jars], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SESSION_TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"the session of {source} on PySpark {pyspark} ended with {done.stderr[-3000:]}")
    return {name: Outcome(**fields) for name, fields in json.loads(out.read_text()).items()}
