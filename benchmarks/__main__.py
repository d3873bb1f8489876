"""`python -m benchmarks` runs them all; `python -m benchmarks codec assign` runs those two.

Options behind the names are for the benchmark: `python -m benchmarks light --runs 1`. The result of a run with options
is kept in `out/benchmarks` and not in `benchmarks/results`, except with `--keep`.

Each module of this folder with a function `run(report)` is a benchmark, and its function `parser()` has its options.
"""

import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path

from benchmarks.report import RESULTS, Report

SHORT_RUNS = Path("out/benchmarks")
KEEP = "--keep"
NOT_BENCHMARKS = frozenset({"__init__", "__main__", "report"})


def names() -> list[str]:
    """Benchmarks by name, in alphabetical order."""
    here = Path(__file__).parent
    return sorted(path.stem for path in here.glob("*.py") if path.stem not in NOT_BENCHMARKS and _runs(path))


def main(arguments: list[str]) -> int:
    known = names()
    chosen = list(takewhile(lambda one: not one.startswith("-"), arguments))
    given = [one for one in arguments[len(chosen) :] if one != KEEP]
    folder = SHORT_RUNS if given and KEEP not in arguments else RESULTS
    if unknown := sorted(set(chosen) - set(known)):
        print(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in chosen or known:
        module = import_module(f"benchmarks.{name}")
        report = Report(name, " ".join(("python -m benchmarks", name, *given)))
        if hasattr(module, "parser"):
            report.options = module.parser().parse_args(given)
        elif given:
            print(f"{name} has no options: {' '.join(given)}", file=sys.stderr)
            return 2
        print(f"== {name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        module.run(report)
        print("-- times better than")
        report.print_ratios()
        print(f"-- kept as {report.save(folder.absolute()).relative_to(Path.cwd())}")
    return 0


def _runs(path: Path) -> bool:
    return "\ndef run(report" in path.read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
