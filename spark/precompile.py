"""Bytecode for the Python archives of a Spark installation.

    python -m kohort.spark.precompile [SPARK_HOME]

Spark's Python processes import PySpark from `python/lib/pyspark.zip`. Python stores no bytecode for modules of an
archive, so each process compiles PySpark again: 0.3 s of CPU. Spark starts such a process for each stream. This command
stores the bytecode in the archives, beside the sources. A Python of another version than this one uses the sources.

Two thirds of the archive's modules are PySpark's own tests. This command leaves them out, because Python reads the
directory of the whole archive. Until Python 3.12 it does so for each imported folder, when Spark adds to its path.
"""

import argparse
import compileall
import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from py_compile import PycInvalidationMode

from kohort.common import KohortError

ARCHIVES = ("pyspark.zip", "py4j-*.zip")


def precompile(spark_home: Path) -> list[Path]:
    """Store bytecode of this Python's version in the archives of an installation, without tests. Returns their paths.

    A repeated call replaces the bytecode. Each archive is replaced as a whole. A running Python process of this
    installation may fail, because Python keeps an archive's directory in memory.

    Raises KohortError if an archive is missing or cannot be replaced.
    """
    folder = spark_home / "python" / "lib"
    found = [sorted(folder.glob(pattern)) for pattern in ARCHIVES]
    if not all(found):
        raise KohortError(
            "Spark's archives of Python are missing",
            hint="pass the folder of a Spark installation, or of the package pyspark",
            path=folder,
        )
    archives = [archive for some in found for archive in some]
    for archive in archives:
        try:
            _add_bytecode(archive)
        except zipfile.BadZipFile as error:
            raise KohortError("no zip archive", hint="install Spark again", path=archive) from error
        except OSError as error:
            hint = "run this as the owner of the Spark installation, with some 100 MB of free space"
            raise KohortError(f"cannot replace an archive: {error.strerror}", hint=hint, path=archive) from error
    return archives


def _add_bytecode(archive: Path) -> None:
    # In the archive's folder, because a rename replaces a file only within one file system.
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{archive.name}-") as work:
        modules, new = Path(work, "modules"), Path(work, archive.name)
        with zipfile.ZipFile(archive) as old:
            old.extractall(modules, [name for name in old.namelist() if "tests" not in PurePosixPath(name).parts])
        # Python reads bytecode from an archive only if it stands beside its source (legacy). Nothing changes a source
        # of an archive, so an import need not check it.
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            compileall.compile_dir(
                modules,
                quiet=2,  # a source that this Python cannot compile stays a source
                legacy=True,
                stripdir=str(modules),
                prependdir=str(archive),
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )
        with zipfile.ZipFile(new, "w") as made:
            for path in sorted(modules.rglob("*")):
                if path.is_file():  # each process reads bytecode, and none reads sources
                    packing = zipfile.ZIP_STORED if path.suffix == ".pyc" else zipfile.ZIP_DEFLATED
                    made.write(path, path.relative_to(modules), packing)
        shutil.copymode(archive, new)
        new.replace(archive)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kohort.spark.precompile", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "spark_home", nargs="?", type=Path, metavar="SPARK_HOME", help="default: $SPARK_HOME, else the package pyspark"
    )
    home = parser.parse_args(arguments).spark_home
    try:
        for archive in precompile(home or _installed()):
            print(archive)
    except KohortError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _installed() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    try:
        import pyspark
    except ImportError as error:
        raise KohortError("no Spark installation is known", hint="set SPARK_HOME, or pass its folder") from error
    return Path(pyspark.__path__[0])


if __name__ == "__main__":
    sys.exit(main())
