"""kohort in an archive, as docs/spark-cluster.md has it, and jobs that are submitted with it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from packaging.requirements import Requirement

import kohort
from kohort.testing import SparkCluster, supervisor

ROOT = Path(__file__).parents[2]
BASE_PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
# Nothing of the checkout and of its environment reaches the cluster's processes.
CLEAN = {name: value for name, value in os.environ.items() if not re.match(r"PYTHON|PYSPARK|SPARK|VIRTUAL_ENV", name)}
SUPERVISED = (sys.executable, "-I", "-S", supervisor.__file__)

SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


class PageCommands(NamedTuple):
    """The commands of the page's section on archives, in their order there."""

    install: str
    pack: str
    link: str
    spark_home: str
    submit: str


def page_commands() -> PageCommands:
    """Read the commands, one a line. Raises TypeError if the page has more or fewer."""
    page = (ROOT / "docs" / "spark-cluster.md").read_text()
    section = page.split("## An archive for executors")[1].split("\n## ")[0]
    return PageCommands(*"\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines())


def needed(name: str, extra: str = "") -> Iterator[Distribution]:
    """The installed distributions that one needs, itself last."""
    found = distribution(name)
    for requirement in map(Requirement, found.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            try:
                yield from needed(requirement.name)
            except PackageNotFoundError:  # optional where it is not installed
                continue
    yield found


def pack(folder: Path) -> Path:
    """Make `packed` in a folder, a venv of kohort[arrow] and nothing else, and `environment.tar.gz` of it."""
    subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", folder / "packed"], check=True, env=CLEAN)
    site = next((folder / "packed").glob("lib/python*/site-packages"))
    for one in {found.name: found for found in needed("kohort", "arrow")}.values():
        for file in one.files or ():
            if one.name != "kohort" and ".." not in file.parts and "include" not in file.parts:
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    shutil.copytree(str(Path(kohort.__file__).parent), site / "kohort", ignore=shutil.ignore_patterns("*.c", "*.pyc"))
    with tarfile.open(folder / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "packed", arcname=".")
    return folder


def unpacked(folder: Path, packed: Path) -> str:
    """Do as the page says in `folder` with what `pack` has made. Returns the page's last two commands."""
    (folder / "environment.tar.gz").symlink_to(packed / "environment.tar.gz")
    (folder / "packed").symlink_to(packed / "packed")
    commands = page_commands()
    subprocess.run(commands.link, shell=True, cwd=folder, check=True)
    return f"{commands.spark_home} && {commands.submit}"


def submit(
    job: str,
    folder: Path,
    cluster: SparkCluster,
    command: str,
    *arguments: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    **environment: str,
) -> "subprocess.Popen[bytes]":
    """The page's command for a file of this folder, started in `folder`."""
    shutil.copy(Path(__file__).with_name(job), folder / "job.py")
    return started(" ".join([command, *arguments]), folder, cluster, settings, environment)


def started(
    command: str, folder: Path, cluster: SparkCluster, settings: Mapping[str, str], environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """The page's command with a cluster, in a clean environment. Its output is in `folder/log`.

    Its processes end with this one, however it ends, and by `ended`.
    """
    conf = " ".join(f"--conf {name}={value}" for name, value in {**SMALL, **settings}.items())
    submitted = command.replace("spark://HOST:7077", f"{cluster.url} {conf}")
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [*SUPERVISED, str(os.getpid()), "", "bash", "-c", submitted],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **CLEAN,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{CLEAN['PATH']}",
                "SPARK_HOME": str(cluster.spark_home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                **environment,
            },
        )


def ended(job: "subprocess.Popen[bytes]") -> None:
    """Kill the processes of a job that still runs."""
    assert job.stdin is not None
    job.stdin.close()
    job.wait()
