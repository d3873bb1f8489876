"""One broker, one world, and a session a connector and version of PySpark, which run side by side."""

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kohort.testing import RealBroker, jars
from tests.spark_jvm.outcome import Outcome
from tests.spark_jvm.page import KEPT
from tests.spark_jvm.venvs import ROOT, python_with
from tests.spark_jvm.world import BROKER, world
from tests.support.broker_selection import wanted_version

CONNECTOR = "4.0.0"
PYSPARKS = ("4.0.0", "4.3.0")
SESSIONS = (("kafka", CONNECTOR), *(("kohort", pyspark) for pyspark in PYSPARKS))
SESSION_TIMEOUT_S = 5000
Outcomes = dict[str, Outcome]


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with RealBroker(version=wanted_version(), properties=dict(BROKER)) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def names(bootstrap: str) -> Iterator[dict[str, str]]:
    """The values of `$name`."""
    with world(bootstrap, f"w{uuid.uuid4().hex[:6]}") as found:
        yield found


@pytest.fixture(scope="session")
def outcomes(names: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Outcomes]:
    """`outcomes("kafka", "4.0.0")`: every case through that connector on that PySpark."""
    reported = tmp_path_factory.mktemp("sessions") / "names.json"
    reported.write_text(json.dumps(names))
    for pyspark in PYSPARKS:
        python_with(pyspark)
    with ThreadPoolExecutor(len(SESSIONS)) as pool:
        found = dict(zip(SESSIONS, pool.map(lambda one: _run(one[0], one[1], reported), SESSIONS), strict=True))
    return lambda source, pyspark: found[source, pyspark]


def _run(source: str, pyspark: str, names: Path) -> Outcomes:
    out = KEPT / f"{source}-{pyspark}.json"
    run_session("session", source, pyspark, str(names), str(out), log=out.with_suffix(".log"))
    return {name: Outcome(**fields) for name, fields in json.loads(out.read_text()).items()}


def run_session(module: str, source: str, pyspark: str, *arguments: str, log: Path) -> None:
    """A module of this folder with a source, its arguments and the jars, on a version of PySpark."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with_jars = ",".join(map(str, jars.spark_connector(pyspark))) if source == "kafka" else ""
    command = [str(python_with(pyspark)), "-m", f"tests.spark_jvm.{module}", source, *arguments, with_jars]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    # Spark forks a Python for each step of a query; where bytecode may not be kept, each would compile kohort again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("w") as said:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=said, stderr=said, timeout=SESSION_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{module} of {source} on PySpark {pyspark} ended with {log.read_text()[-3000:]}")
