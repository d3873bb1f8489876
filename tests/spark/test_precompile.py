"""Bytecode in the Python archives of a Spark installation."""

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kohort.common import KohortError
from kohort.spark.precompile import main, precompile

FAILING = """
import pyspark_of_test, traceback
try:
    pyspark_of_test.fail()
except ValueError:
    print(traceback.format_exc())
"""
IMPORTED = "import pyspark.worker as one, py4j.java_gateway as two; print(one.__file__, two.__file__)"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this PySpark's archives, with bytecode."""
    import pyspark

    home = tmp_path_factory.mktemp("spark")
    shutil.copytree(Path(pyspark.__path__[0], "python", "lib"), home / "python" / "lib")
    precompile(home)
    return home


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An installation whose archives have one module each, and sources for another Python."""
    library = tmp_path / "python" / "lib"
    library.mkdir(parents=True)
    for name, module in (("pyspark.zip", "pyspark_of_test"), ("py4j-1-src.zip", "py4j_of_test")):
        with zipfile.ZipFile(library / name, "w") as archive:
            archive.writestr(f"{module}.py", "def fail():\n    raise ValueError('the message')\n")
            archive.writestr("other_python.py", "this is no Python")
            archive.writestr("package/tests/test_it.py", "")
            archive.writestr("package/testing/tests.py", "")
    return tmp_path


def output(home: Path, code: str) -> str:
    """The output of a Python process that imports modules from the archives of `home`."""
    path = os.pathsep.join(str(archive) for archive in (home / "python" / "lib").glob("*.zip"))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pyspark_is_imported_from_bytecode(installation: Path) -> None:
    library = installation / "python" / "lib"
    [py4j] = library.glob("py4j-*.zip")
    assert output(installation, IMPORTED).split() == [
        str(library / "pyspark.zip" / "pyspark" / "worker.pyc"),
        str(py4j / "py4j" / "java_gateway.pyc"),
    ]
    assert sorted(path.name for path in library.iterdir()) == sorted(["pyspark.zip", py4j.name])


def test_tests_are_left_out(small: Path) -> None:
    precompile(small)
    with zipfile.ZipFile(small / "python" / "lib" / "pyspark.zip") as archive:
        assert set(archive.namelist()) == {
            "other_python.py",
            "package/testing/tests.py",
            "package/testing/tests.pyc",
            "pyspark_of_test.py",
            "pyspark_of_test.pyc",
        }


def test_bytecode_is_not_packed(installation: Path) -> None:
    with zipfile.ZipFile(installation / "python" / "lib" / "pyspark.zip") as archive:
        packed = {entry.filename: entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()}
    assert packed["pyspark/testing/utils.py"]
    assert not packed["pyspark/testing/utils.pyc"]


def test_a_traceback_has_the_archives_path_and_the_line(small: Path) -> None:
    precompile(small)
    shown = output(small, FAILING)
    assert f'File "{small}/python/lib/pyspark.zip/pyspark_of_test.py", line 2, in fail' in shown
    assert "    raise ValueError('the message')" in shown


def test_a_repeated_call_compiles_the_sources_of_then(small: Path) -> None:
    precompile(small)
    archive = small / "python" / "lib" / "pyspark.zip"
    with zipfile.ZipFile(archive) as old:
        bytecode = old.read("pyspark_of_test.pyc")
    with zipfile.ZipFile(archive, "w") as new:
        new.writestr("pyspark_of_test.py", "text = 'new'\n")
        new.writestr("pyspark_of_test.pyc", bytecode)
    precompile(small)
    assert output(small, "import pyspark_of_test as one; print(one.text, one.__file__)").split() == [
        "new",
        str(archive / "pyspark_of_test.pyc"),
    ]


def test_another_python_uses_the_sources(small: Path) -> None:
    precompile(small)
    archive = small / "python" / "lib" / "pyspark.zip"
    with zipfile.ZipFile(archive) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    bytecode = entries["pyspark_of_test.pyc"]
    assert bytecode.startswith(importlib.util.MAGIC_NUMBER)
    entries["pyspark_of_test.pyc"] = b"\0\0\r\n" + bytecode[len(importlib.util.MAGIC_NUMBER) :]
    with zipfile.ZipFile(archive, "w") as new:
        for name, content in entries.items():
            new.writestr(name, content)
    assert output(small, "import pyspark_of_test as one; print(one.__file__)").strip() == str(
        archive / "pyspark_of_test.py"
    )


def test_modes_are_kept(small: Path) -> None:
    archive = small / "python" / "lib" / "pyspark.zip"
    archive.chmod(0o640)
    assert precompile(small)[0] == archive
    assert stat.S_IMODE(archive.stat().st_mode) == 0o640


def test_a_missing_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KohortError, match=r"archives of Python are missing .*pass the folder of a Spark installation"):
        precompile(tmp_path)


def test_a_broken_archive_stays(small: Path) -> None:
    archive = small / "python" / "lib" / "pyspark.zip"
    archive.write_bytes(b"no zip")
    with pytest.raises(KohortError, match=r"no zip archive \(path=.*pyspark.zip\); install Spark again"):
        precompile(small)
    assert archive.read_bytes() == b"no zip"


def test_an_installation_of_another_user_is_an_error(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object, **_settings: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)  # root may write anywhere
    with pytest.raises(KohortError, match=r"cannot replace an archive: Permission denied .*owner of the Spark"):
        precompile(small)


def test_the_command_lists_what_it_replaced(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(small)]) == 0
    library = small / "python" / "lib"
    assert capsys.readouterr().out.split() == [str(library / "pyspark.zip"), str(library / "py4j-1-src.zip")]


def test_the_command_takes_spark_home(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(small / "none"))
    assert main([]) == 1
    assert str(small / "none") in capsys.readouterr().err


def test_without_spark_home_it_is_the_installed_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark

    done: list[Path] = []

    def note(home: Path) -> list[Path]:
        done.append(home)
        return []

    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("kohort.spark.precompile.precompile", note)
    assert main([]) == 0
    assert done == [Path(pyspark.__path__[0])]
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main([]) == 1
    assert "no Spark installation is known; set SPARK_HOME, or pass its folder" in capsys.readouterr().err
