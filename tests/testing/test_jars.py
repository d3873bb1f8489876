"""The jars in the cache: whole, as they were fetched, and refused or fetched again otherwise."""

import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.testing import JarsUnavailable, JdkMissing, jars
from kohort.testing.cache import cache_dir, locked
from kohort.testing.jar_checksums import pins
from kohort.testing.jdk import java, java_major


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PINS = {
    "kafka-clients-4.3.1.jar": sha256(b"clients"),
    "kafka_2.13-4.3.1.jar": sha256(b"broker"),
    "spark-sql-kafka-0-10_2.13-4.3.1.jar": sha256(b"broker"),
}


@pytest.fixture
def fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache and a resolver that makes two small jars; lists what it was called for."""
    monkeypatch.setenv("KOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "pins", lambda: PINS)
    requested: list[str] = []

    def resolve(wanted: jars._Recipe, scratch: Path) -> Path:
        requested.append(wanted.version)
        folder = scratch / "jars"
        folder.mkdir()
        (folder / wanted.proof).write_bytes(b"broker")
        (folder / f"kafka-clients-{wanted.version}.jar").write_bytes(b"clients")
        return folder

    monkeypatch.setattr(jars, "_resolve", resolve)
    jars._verified.cache_clear()
    return requested


def test_second_use_fetches_nothing(fetches: list[str]) -> None:
    first = jars.classpath("4.3.1")
    jars._verified.cache_clear()
    assert jars.classpath("4.3.1") == first
    assert [jar.name for jar in first] == ["kafka-clients-4.3.1.jar", "kafka_2.13-4.3.1.jar"]
    assert [jar.name for jar in jars.clients("4.3.1")] == ["kafka-clients-4.3.1.jar"]
    assert fetches == ["4.3.1"]


@pytest.mark.parametrize("damage", ["changed", "truncated", "removed", "added", "record"])
def test_damaged_set_is_noticed_and_fetched_again(
    fetches: list[str], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jar = jars.classpath("4.3.1")[0]
    if damage == "changed":
        jar.write_bytes(b"Clients")
    elif damage == "truncated":
        os.truncate(jar, 3)
    elif damage == "removed":
        jar.unlink()
    elif damage == "added":
        jar.with_name("stranger.jar").write_bytes(b"?")
    else:
        jar.with_name("sha256.json").write_text("{")
    jars._verified.cache_clear()
    assert [path.read_bytes() for path in jars.classpath("4.3.1")] == [b"clients", b"broker"]
    assert fetches == ["4.3.1", "4.3.1"]
    assert "fetching it again" in capsys.readouterr().err


def test_jar_that_does_not_match_its_pin_is_refused_and_not_kept(
    fetches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "pins", lambda: {"kafka-clients-4.3.1.jar": "0" * 64})
    with pytest.raises(JarsUnavailable, match="does not have its pinned") as caught:
        jars.classpath("4.3.1")
    assert caught.value.place["jar"] == "kafka-clients-4.3.1.jar"
    assert list(cache_dir().glob("**/*.jar")) == []


def test_a_version_without_pins_is_refused_unless_the_user_trusts_the_mirror(
    fetches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JarsUnavailable, match="without a pinned sha256") as caught:
        jars.classpath("4.9.9")
    assert "KOHORT_UNPINNED_JARS=1" in str(caught.value)
    assert list(cache_dir().glob("**/*.jar")) == []
    monkeypatch.setenv("KOHORT_UNPINNED_JARS", "1")
    assert len(jars.classpath("4.9.9")) == 2


@pytest.mark.parametrize("change", ["replaced", "added"])
def test_a_cached_set_with_a_record_of_its_own_is_held_against_the_pins(
    fetches: list[str], capsys: pytest.CaptureFixture[str], change: str
) -> None:
    jar = jars.classpath("4.3.1")[0]
    evil = jar if change == "replaced" else jar.with_name("aaa-1.0.jar")
    evil.write_bytes(b"evil")
    record = {each.name: sha256(each.read_bytes()) for each in jar.parent.glob("*.jar")}
    jar.with_name("sha256.json").write_text(json.dumps(record))
    jars._verified.cache_clear()
    assert [path.read_bytes() for path in jars.classpath("4.3.1")] == [b"clients", b"broker"]
    assert fetches == ["4.3.1", "4.3.1"]
    assert evil.name in capsys.readouterr().err


def test_pins_name_every_jar_of_the_default_version() -> None:
    jars._verified.cache_clear()
    here = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.classpath()}
    assert {name: pins().get(name) for name in here} == here


@pytest.mark.parametrize("fetch", [jars.classpath, jars.spark_connector])
def test_version_cannot_leave_the_cache(fetches: list[str], fetch: Callable[[str], list[Path]]) -> None:
    with pytest.raises(JarsUnavailable, match="no version"):
        fetch("../../4.3.1")
    assert fetches == []


def test_a_brokers_jars_and_a_connectors_are_two_sets_though_their_versions_be_alike(fetches: list[str]) -> None:
    broker, connector = jars.classpath("4.3.1"), jars.spark_connector("4.3.1")
    assert [jar.name for jar in connector] == ["kafka-clients-4.3.1.jar", "spark-sql-kafka-0-10_2.13-4.3.1.jar"]
    assert set(broker).isdisjoint(connector)
    assert fetches == ["4.3.1", "4.3.1"]


def test_failed_resolution_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_CACHE", str(tmp_path))
    monkeypatch.setenv("KOHORT_MAVEN_ROOT", (tmp_path / "no-such-mirror").as_uri())
    jars._verified.cache_clear()
    with pytest.raises(JarsUnavailable, match=r"4\.3\.1 could not be resolved") as caught:
        jars.classpath("4.3.1")
    assert "KOHORT_MAVEN_ROOT" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["kafka-4.3.1.lock"]


def test_without_pyspark_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    jars._verified.cache_clear()
    with pytest.raises(JarsUnavailable, match=r"kohort\[spark\].*kohort broker start --fake"):
        jars.classpath("4.3.1")


def hold(path: Path, ready: Path, log: Path) -> None:
    with locked(path):
        ready.touch()
        time.sleep(0.3)
        log.write_text("first")


def test_lock_keeps_a_second_process_out_until_the_first_is_done(tmp_path: Path) -> None:
    path, ready, log = tmp_path / "x.lock", tmp_path / "ready", tmp_path / "log"
    other = multiprocessing.get_context("spawn").Process(target=hold, args=(path, ready, log))
    other.start()
    while not ready.exists():
        assert other.is_alive(), "the other process died"
        time.sleep(0.01)
    with locked(path):
        assert log.read_text() == "first"
    other.join()


def test_java_home_without_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JdkMissing, match="install a JDK 17 or newer"):
        java()


def test_no_java_on_path_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JdkMissing, match="no Java on this machine"):
        java()


@pytest.mark.parametrize(("said", "major"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_292"', 8)])
def test_old_java_is_refused_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, major: int
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_major(old) == major
    with pytest.raises(JdkMissing, match=f"Java {major} is too old"):
        java()


def test_real_jars_hold_a_broker_and_the_oracle() -> None:
    """The set that the broker tests run on; read from the real cache."""
    jars._verified.cache_clear()
    names = [jar.name for jar in jars.classpath()]
    assert f"kafka_2.13-{jars.DEFAULT_VERSION}.jar" in names
    assert f"kafka-tools-{jars.DEFAULT_VERSION}.jar" in names
    oracle = [jar.name for jar in jars.clients()]
    for needed in ("kafka-clients-", "lz4-java-", "snappy-java-", "zstd-jni-", "slf4j-api-", "jackson-databind-"):
        assert any(name.startswith(needed) for name in oracle), needed


def test_supervisor_needs_nothing_but_the_standard_library_and_passes_the_exit_code_on() -> None:
    from kohort.testing import supervisor

    command = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), "", "/bin/sh", "-c", "exit 7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().strip().isdigit()
        assert running.wait(120) == 7


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_supervisor_ends_the_processes_of_its_command_too() -> None:
    from kohort.testing import supervisor

    command = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), "", "/bin/sh", "-c"]
    started = subprocess.Popen(
        [*command, "sleep 600 & echo $!; wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stderr is not None
    sleeper = int(started.stderr.readline())
    try:
        started.communicate(timeout=100)  # its standard input ends; the end of its outputs means that none is left
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(sleeper, signal.SIGKILL)
    assert started.returncode == 1


def fake_java(folder: Path, script: str) -> Path:
    """A program `java` in `folder`."""
    program = folder / "java"
    folder.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_folder_named_java_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin" / "java").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JdkMissing, match="JAVA_HOME holds no bin/java that this user may run"):
        java()


def test_java_of_a_relative_path_runs_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(tmp_path / "jdk" / "bin", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "jdk")
    assert java() == program


def test_java_may_print_any_bytes(tmp_path: Path) -> None:
    printing = "printf 'Picked up JAVA_TOOL_OPTIONS: -Dx=\\351\\n' >&2; echo 'openjdk version \"21.0.1\"' >&2"
    assert java_major(fake_java(tmp_path / "bin", printing)) == 21


def test_a_lock_is_waited_for_at_most_so_long(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with locked(path), pytest.raises(TimeoutError, match=re.escape(str(path))), locked(path, timeout_s=0.0):
        pass
    with locked(path, timeout_s=0.0):
        pass


def test_a_relative_cache_is_one_folder_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOHORT_CACHE", "cache")
    assert cache_dir() == tmp_path / "cache"
