"""Apache Kafka's jars, and Spark's Kafka connector, resolved once for each version and kept in the user's cache.

The resolver is the Ivy jar that PySpark ships, so a user needs only pip and Java. One resolution brings the broker, the
command-line tools and one slf4j binding. Ivy checks each download against the repository's own checksum.

When the set is fetched, and at each later use, the sha256 of every jar must be the one in `jar_checksums.py`. A mirror,
or a process that writes to the cache, can therefore not add or replace a jar. A version without pins is rejected,
unless KOHORT_UNPINNED_JARS=1. Such a set is compared with the checksums of its first download.

A set is resolved beside its final place and renamed into it under a lock: other processes see a whole set or none.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from kohort.testing.cache import cache_dir, locked
from kohort.testing.errors import JarsUnavailable
from kohort.testing.jar_checksums import pins
from kohort.testing.jdk import java
from kohort.testing.progress import Progress, progress

DEFAULT_VERSION = "4.3.1"
TRIED_VERSIONS = ("3.7.2", "3.9.1", "4.1.0", "4.1.1", "4.2.2", "4.3.1", "4.4.0")
UNPINNED_JARS = "KOHORT_UNPINNED_JARS"
RESOLVE_TIMEOUT_S = 900.0
_RECORD = "sha256.json"
_CLIENT_JARS = ("kafka-clients-", "lz4-java-", "snappy-java-", "zstd-jni-", "slf4j-", "jackson-", "jose4j-")

_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="maven"/>
  <resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers>
</ivysettings>
"""
# Connect's runtime comes with the tools and brings a web server that no tool used here needs; up to 3.9 they also bring
# a second slf4j binding, under which a broker logs nothing.
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="kohort" module="kafka-at-hand"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
    {extra}
    <exclude org="org.slf4j" module="slf4j-reload4j"/>
    <exclude org="org.apache.kafka" module="connect-runtime"/>
    <exclude org="org.apache.kafka" module="connect-api"/>
  </dependencies>
</ivy-module>
"""
# Up to 3.9 the broker loads a log4j 1 class at its start without declaring it.
_RELOAD4J = '<dependency org="ch.qos.reload4j" name="reload4j" rev="1.2.25" conf="default->default"/>'
# PySpark brings Spark, Hadoop, Scala and slf4j. Second copies would be loaded beside the first.
_CONNECTOR_MODULE = """<ivy-module version="2.0">
  <info organisation="kohort" module="spark-connector"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{version}" conf="default->default"/>
    <exclude org="org.apache.hadoop"/>
    <exclude org="org.slf4j"/>
    <exclude org="org.scala-lang"/>
    <exclude org="org.scala-lang.modules"/>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A set of jars: its display name, its cache key, its Ivy module, and the jar without which it is incomplete."""

    title: str
    slug: str
    version: str
    module: str
    proof: str

    @property
    def named(self) -> str:
        return f"{self.title} {self.version}"


def classpath(version: str = DEFAULT_VERSION) -> list[Path]:
    """Return all jars that a broker of `version` and its command-line tools need, fetched at the first call.

    Raises JarsUnavailable (no PySpark with Ivy, no network, unknown version) and JdkMissing.
    """
    return list(_verified(_broker(_checked(version, "Apache Kafka")), cache_dir()))


def clients(version: str = DEFAULT_VERSION) -> list[Path]:
    """kafka-clients and what it needs (codecs, slf4j, Jackson): enough to use Kafka's own classes as an oracle."""
    return [jar for jar in classpath(version) if jar.name.startswith(_CLIENT_JARS)]


def spark_connector(version: str) -> list[Path]:
    """Spark's own Kafka connector of a version of Spark, and what it needs besides Spark; fetched at the first call.

    It is what the Spark source is held against. Raises as `classpath` does.
    """
    return list(_verified(_connector(_checked(version, "Apache Spark")), cache_dir()))


@lru_cache(maxsize=16)
def _verified(wanted: _Recipe, cache: Path) -> tuple[Path, ...]:
    # Named after its recipe too, so that a set which an older release of this library chose is not taken for this one.
    folder = cache / f"{wanted.slug}-{wanted.version}-{hashlib.sha256(wanted.module.encode()).hexdigest()[:8]}"
    with locked(cache / f"{wanted.slug}-{wanted.version}.lock"):
        if folder.exists():
            digests = _digests(folder.glob("*.jar"))
            damage = _damage(folder, digests)
            if damage is None:
                return tuple(sorted(folder.resolve().glob("*.jar")))
            print(f"{wanted.named} in the cache: {damage}; fetching it again", file=sys.stderr, flush=True)
            shutil.rmtree(folder)
        with tempfile.TemporaryDirectory(prefix=f"{wanted.slug}-{wanted.version}-", dir=cache) as scratch:
            fetched = _resolve(wanted, Path(scratch))
            digests = _digests(fetched.glob("*.jar"))
            _check_pins(digests)
            (fetched / _RECORD).write_text(json.dumps(digests, indent=1, sort_keys=True))
            fetched.rename(folder)
    return tuple(sorted(folder.resolve().glob("*.jar")))


def _damage(folder: Path, digests: Mapping[str, str]) -> str | None:
    """The difference between a cached set and its record or its pins, or None."""
    try:
        recorded: dict[str, str] = json.loads((folder / _RECORD).read_text())
    except (OSError, ValueError):
        return "its record of checksums is missing or unreadable"
    for name in sorted(recorded.keys() | digests.keys()):
        if recorded.get(name) != digests.get(name):
            return f"{name} is not what was fetched"
    try:
        _check_pins(digests)
    except JarsUnavailable as error:
        return str(error)
    return None if digests else "it is empty"


def _digests(jars: Iterable[Path]) -> dict[str, str]:
    found = {}
    for jar in jars:
        with jar.open("rb") as handle:
            found[jar.name] = hashlib.file_digest(handle, "sha256").hexdigest()
    return found


def _check_pins(digests: Mapping[str, str]) -> None:
    known = pins()
    unpinned_allowed = os.environ.get(UNPINNED_JARS) == "1"
    for name, digest in sorted(digests.items()):
        if name not in known and not unpinned_allowed:
            raise JarsUnavailable(
                "a jar without a pinned sha256 is not run",
                hint=f"use a pinned version ({', '.join(TRIED_VERSIONS)}), or trust the mirror with {UNPINNED_JARS}=1",
                jar=name,
                got=digest,
            )
        if known.get(name, digest) != digest:
            raise JarsUnavailable(
                "a jar does not have its pinned sha256",
                hint="do not run it: check the Maven mirror that served it",
                jar=name,
                expected=known[name],
                got=digest,
            )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise JarsUnavailable(
        "Apache Kafka is resolved with the Ivy that PySpark ships, and PySpark is not installed",
        hint="pip install 'kohort[spark]', or start the fake broker with `kohort broker start --fake`",
    )


def _checked(version: str, title: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise JarsUnavailable(f"{version!r} is no version of {title}", hint="give it as MAJOR.MINOR.PATCH")
    return version


def _broker(version: str) -> _Recipe:
    module = _IVY_MODULE.format(version=version, extra=_RELOAD4J if version.startswith("3.") else "")
    return _Recipe("Apache Kafka", "kafka", version, module, f"kafka_2.13-{version}.jar")


def _connector(version: str) -> _Recipe:
    proof = f"spark-sql-kafka-0-10_2.13-{version}.jar"
    return _Recipe(
        "Spark's Kafka connector", "spark-connector", version, _CONNECTOR_MODULE.format(version=version), proof
    )


def _resolve(wanted: _Recipe, scratch: Path) -> Path:
    """Run Ivy; returns the folder of jars inside `scratch`."""
    root = os.environ.get("KOHORT_MAVEN_ROOT")
    (scratch / "settings.xml").write_text(_IVY_SETTINGS.format(root=f' root="{root}"' if root else ""))
    (scratch / "ivy.xml").write_text(wanted.module)
    jars = scratch / "jars"
    command = [
        str(java()),
        "-Xmx256m",
        *_proxy_options(),
        f"-Divy.default.ivy.user.dir={scratch / 'ivy'}",
        "-jar",
        str(_ivy_jar()),
        "-settings",
        str(scratch / "settings.xml"),
        "-ivy",
        str(scratch / "ivy.xml"),
        "-confs",
        "default",
        "-types",
        "jar",
        "bundle",
        "-cache",
        str(scratch / "ivy" / "cache"),
        "-retrieve",
        f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
    ]
    print(f"{wanted.named}: downloading it, once. This takes about a minute.", file=sys.stderr, flush=True)
    with progress(wanted.named) as bar:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watchdog = threading.Timer(RESOLVE_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            said = _follow(process, bar)
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
    if process.returncode != 0 or not (jars / wanted.proof).exists():
        raise JarsUnavailable(
            f"{wanted.named} could not be resolved: {_reason(said)}",
            hint="check the version, and that Maven Central (or the mirror in KOHORT_MAVEN_ROOT) can be reached",
        )
    return jars


def _follow(process: "subprocess.Popen[str]", bar: Progress) -> list[str]:
    """Turn Ivy's lines into progress until it ends; returns the lines."""
    said = []
    found = fetched = 0
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line.rstrip())
        if "\tfound " in line:
            found += 1
            bar.update("finding what it needs", found, None)
        elif "[SUCCESSFUL ]" in line:
            fetched += 1
            bar.update("downloading jars", min(fetched, found), found)
    process.wait()
    return said


def _reason(said: list[str]) -> str:
    for needle in ("UnknownHostException", "Connection refused", "timed out", "unresolved dependency", "not found"):
        for line in said:
            if needle in line:
                return line.strip(" \t:*")
    return said[-1] if said else "Ivy printed nothing"


def _proxy_options() -> list[str]:
    """Java reads no HTTPS_PROXY by itself; everything else (truststores, ...) goes through JAVA_TOOL_OPTIONS."""
    options = []
    for scheme in ("http", "https"):
        proxy = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        if proxy:
            parts = urlsplit(proxy if "://" in proxy else f"//{proxy}")
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 3128}"]
    return options
