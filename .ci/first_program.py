"""Run README's commands and its first program with an installed kohort, as they are printed, on the fake broker.

    python -I .ci/first_program.py

Needs `kohort[cli]`. The program reads for ever, so it is ended after its first record.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
ADDRESS = "localhost:9092"
RECORD = "0 b'anna' b'42'\n"
KOHORT = (sys.executable, "-m", "kohort.cli.main")


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    text = README.replace(ADDRESS, f"127.0.0.1:{port}").replace("--port 9092", f"--port {port}")
    shell, program = re.findall(r"\n```(?:python)?\n(.*?)```", text, re.DOTALL)[:2]
    commands = [shlex.split(line, comments=True)[1:] for line in shell.splitlines() if line.startswith("kohort")]
    with tempfile.TemporaryDirectory() as folder:
        own = os.environ | {"KOHORT_CACHE": folder}  # with brokers of its own
        try:
            for command in commands:
                subprocess.run([*KOHORT, *command], env=own, check=True)
            reading = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True)
            assert reading.stdout is not None
            record = reading.stdout.readline()
            reading.kill()
            reading.wait()
        finally:
            subprocess.run([*KOHORT, "broker", "stop"], env=own, check=False)
    if record != RECORD:
        sys.exit(f"README's first program printed {record!r}, and not {RECORD!r}")
    print("README's first program has read its record")


if __name__ == "__main__":
    main()
