"""Checks every broker with a kept report, one after the other, and writes the table of README.md.

    make conformance                              all brokers: some ten minutes on two cores
    python docs/conformance/judge.py '*-3.9.1*'   the brokers of the matching reports

Apache Kafka comes from jars, librdkafka's mock cluster from confluent-kafka's wheel. A Tansu broker must be running;
its report has the command.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from kohort.conformance.catalogue import CHECKS

HERE = Path(__file__).parent
PROFILE = "docs/conformance/profiles/apache-kafka.toml"
REPORTS = ("--report", "html", "--report", "md", "--report", "json")
EXPIRY = (
    "--property",
    "offsets.retention.minutes=1",
    "--property",
    "offsets.retention.check.interval.ms=5000",
    "--only",
    "G7*",
)
KIP_848 = ("--property", "group.coordinator.rebalance.protocols=classic,consumer")
# Checks that end the process (B6, ...), and versions that are offered and broken.
MOCK = (
    "--leave-traces",
    "--skip",
    "B6,B7,B7b,B8,B12*,B13b,B25,I4b,M*",
    "--at-most",
    "JoinGroup=5",
    "--at-most",
    "SyncGroup=3",
    "--at-most",
    "Heartbeat=3",
    "--at-most",
    "LeaveGroup=3",
    "--at-most",
    "Metadata=8",
    "--at-most",
    "OffsetCommit=7",
    "--at-most",
    "OffsetFetch=5",
)


class Subject(NamedTuple):
    """`file`: the report's name. `start`: a version of Apache Kafka, or "" for librdkafka's mock cluster."""

    name: str
    file: str
    start: str
    options: tuple[str, ...] = ()


SUBJECTS = (
    *(
        Subject(f"Apache Kafka {version}", f"apache-kafka-{version}", version)
        for version in ("3.7.2", "3.9.1", "4.1.1", "4.3.1", "4.4.0")
    ),
    Subject("Apache Kafka 3.9.1, KIP-848 switched on", "apache-kafka-3.9.1-kip-848", "3.9.1", KIP_848),
    Subject(
        "Apache Kafka 4.3.1, three brokers with ACLs",
        "apache-kafka-4.3.1-three-brokers-acls",
        "4.3.1",
        ("--brokers", "3", "--acls"),
    ),
    *(
        Subject(f"Apache Kafka {version}, offsets kept a minute", f"apache-kafka-{version}-expiry", version, EXPIRY)
        for version in ("3.9.1", "4.3.1")
    ),
    Subject("librdkafka 2.16.0 mock cluster", "librdkafka-mock-2.16.0", "", MOCK),
)


@contextmanager
def mock_cluster() -> Iterator[str]:
    """The address of librdkafka's mock cluster, in a separate process, because its assertions may end it."""
    program = (
        "import confluent_kafka, sys;"
        "made = confluent_kafka.Producer({'test.mock.num.brokers': 1, 'bootstrap.servers': ''});"
        "node = next(iter(made.list_topics(timeout=10).brokers.values()));"
        "print(f'{node.host}:{node.port}', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        yield running.stdout.readline().strip()
        running.stdin.close()
        running.wait(10)


def judge(subject: Subject) -> int:
    """One report; the command's exit code."""
    output = f"docs/conformance/{subject.file}"
    common = [*subject.options, "--name", subject.name, *REPORTS, "--output", output]
    command = [str(Path(sys.executable).with_name("kohort")), "conformance"]
    if subject.start:
        code = subprocess.run(
            [*command, "--start", subject.start, "--profile", PROFILE, *common], check=False
        ).returncode
    else:
        with mock_cluster() as address:
            code = subprocess.run([*command, "--bootstrap", address, *common], check=False).returncode
    plain = HERE / f"{subject.file}.json"
    if plain.exists():
        # The HTML page has the frames of passed checks; the JSON is for comparison.
        plain.with_suffix(".json.gz").write_bytes(gzip.compress(plain.read_bytes(), 9, mtime=0))
        plain.unlink()
    return code


def table() -> str:
    """The counts of every kept report, with Tansu's."""
    rows = [
        "| broker | checks | pass | fail | blocked | deviation | not applicable | date | report |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(HERE.glob("*.json.gz")):
        report = json.loads(gzip.decompress(path.read_bytes()))
        counts = report["counts"]
        file = path.name.removesuffix(".json.gz")
        title = next(line for line in (HERE / f"{file}.md").read_text().splitlines() if line.startswith("# "))
        checks = len({result["check"] for result in report["results"]})
        cells = [
            str(checks),
            *(str(counts[name]) for name in ("pass", "fail", "blocked", "deviation", "not applicable")),
        ]
        rows.append(
            f"| {title.removeprefix('# Conformance of ')} | {' | '.join(cells)} | {report['started'][:10]} | "
            f"[html]({file}.html) [md]({file}.md) |"
        )
    return "\n".join(rows)


def renewed(page: str) -> str:
    """The text of README.md with the current table of reports and number of checks."""
    page = re.sub(r"(?<=runs )\d+(?= checks of a broker)", str(len(CHECKS)), page)
    return re.sub(r"\| broker \| .*?\n\n", lambda _: table() + "\n\n", page, count=1, flags=re.DOTALL)


def main() -> int:
    wanted = sys.argv[1:]
    chosen = [each for each in SUBJECTS if not wanted or any(fnmatchcase(each.file, word) for word in wanted)]
    codes = {each: judge(each) for each in chosen}
    page = HERE / "README.md"
    page.write_text(renewed(page.read_text()))
    # A failure of another broker is a finding. A failure of Apache Kafka is a defect, in kohort or in Apache Kafka.
    return max((code for each, code in codes.items() if each.start), default=0)


if __name__ == "__main__":
    sys.exit(main())
