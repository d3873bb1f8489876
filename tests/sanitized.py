"""Run a module against extensions built with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.sanitized tests.protocol.fuzz_codec --inputs 1000000
    python -m tests.sanitized --python-pool tests.fastpath.fuzz_records --inputs 1000000

With `--python-pool` small objects of Python come from Python's pool, where nothing fences them: 2.5 times as fast.
Memory that the extensions get from the C library stays fenced: all that is decoded into, and what is decoded.

Builds into out/sanitized (kept until a source changes) and leaves the ordinary build alone. Any over-read, overflow or
leaked-through undefined behaviour ends the run with the sanitizer's report and a non-zero exit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / "out" / "sanitized"
POOL = "--python-pool"
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"


def build() -> Path:
    """The folder to put on PYTHONPATH."""
    library = HOME / "lib"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-base", str(HOME / "base"), "--build-lib", str(library)],
        cwd=ROOT,
        env=os.environ | {"CFLAGS": FLAGS, "LDFLAGS": FLAGS},
        check=True,
    )
    return library


def environment(library: Path, *, python_pool: bool = False) -> dict[str, str]:
    """The environment that a Python needs to load sanitized extensions if it was not itself sanitized."""
    runtimes = [
        subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return os.environ | {
        "PYTHONPATH": f"{library}{os.pathsep}{ROOT}",
        "LD_PRELOAD": " ".join(runtimes),
        "PYTHONMALLOC": "pymalloc" if python_pool else "malloc",  # the latter fences every object of Python too
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=8",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main(arguments: list[str]) -> int:
    python_pool = arguments[:1] == [POOL]
    module = arguments[python_pool:]
    if not module:
        print(__doc__)
        return 2
    requested = environment(build(), python_pool=python_pool)
    return subprocess.run([sys.executable, "-m", *module], cwd=ROOT, env=requested, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
