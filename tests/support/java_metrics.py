"""The names of the metrics of Java's consumers, read from its jars."""

import os
import subprocess
from pathlib import Path

from kohort.testing import jars
from kohort.testing.jdk import java

QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


def names_of_java(*, share: bool = False) -> set[str]:
    """`group/name` of each metric of a consumer, or of a share consumer."""
    classpath = os.pathsep.join(map(str, jars.clients(jars.DEFAULT_VERSION)))
    source = Path(__file__).with_name("JavaMetricNames.java")
    command = [str(java()), "-XX:TieredStopAtLevel=1", QUIET, "-cp", classpath, str(source), *(["share"] * share)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())
