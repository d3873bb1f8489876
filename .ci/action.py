"""Run the steps of `action.yml` as a workflow does, against the fake broker.

    python .ci/action.py WHEELS

The action installs kohort from its own folder. Here it takes a wheel of the folder WHEELS, made from the same source.
Steps that use another action are left out. Raises CalledProcessError if a step fails, and SystemExit if a report is
missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PORT = 39092
ONLY = "--only\nD1*\n"


def filled(text: str, inputs: dict[str, str]) -> str:
    """The text with its expressions replaced by the inputs."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


def main(wheels: Path) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (wheel,) = wheels.glob(f"*-{tag}-{tag}-*.whl")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    inputs |= {"bootstrap": f"127.0.0.1:{PORT}", "arguments": ONLY}
    with tempfile.TemporaryDirectory() as folder:
        home, summary = Path(folder), Path(folder, "summary.md")
        venv.create(home / "venv", with_pip=True)
        programs = home / "venv" / "bin"
        environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(wheel),
            "GITHUB_STEP_SUMMARY": str(summary),
            "KOHORT_CACHE": folder,
        }
        serve = [programs / "kohort", "broker", "start", "--fake", "--port", str(PORT)]
        try:
            for step in (step for step in action["runs"]["steps"] if "run" in step):
                print(f"== {step['name']}", flush=True)
                own = {name: filled(value, inputs) for name, value in step.get("env", {}).items()}
                if "BOOTSTRAP" in own:
                    subprocess.run(serve, env=environment, check=True)
                shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
                subprocess.run(shell, cwd=home, env=environment | own, check=True)
        finally:
            subprocess.run([programs / "kohort", "broker", "stop"], env=environment, check=False)
        missing = [name for name in ("xml", "html", "json") if not (home / f"conformance.{name}").exists()]
        if missing or "D1" not in summary.read_text():
            sys.exit(f"the action wrote no {', '.join(missing) or 'summary'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
