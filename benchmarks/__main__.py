"""`python -m benchmarks` runs them all; `python -m benchmarks codec assign` runs those two.

Each module of this folder with a function `run(report)` is a benchmark. The first line of its docstring is its title.
"""

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.report import Report

NOT_BENCHMARKS = frozenset({"__init__", "__main__", "report"})


def names() -> list[str]:
    """Benchmarks by name, in alphabetical order."""
    here = Path(__file__).parent
    return sorted(path.stem for path in here.glob("*.py") if path.stem not in NOT_BENCHMARKS and _runs(path))


def main(chosen: list[str]) -> int:
    known = names()
    if unknown := sorted(set(chosen) - set(known)):
        print(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in chosen or known:
        module = import_module(f"benchmarks.{name}")
        report = Report(name)
        print(f"== {name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        module.run(report)
        print("-- times better than")
        report.print_ratios()
        print(f"-- kept as {report.save().relative_to(Path.cwd())}")
    return 0


def _runs(path: Path) -> bool:
    return "\ndef run(report" in path.read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
