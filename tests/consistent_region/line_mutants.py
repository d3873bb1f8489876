"""One-line faults in the region's sources, which the seeded world or a test without a broker must notice.

    python -m tests.consistent_region.line_mutants [--seeds N] [NUMBER ...]

Each is tried in a copy of the checkout. Results are lines of out/line-mutants.jsonl, and known ones are not run again.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.mutation.running import copy_tree

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "out" / "line-mutants.jsonl"
TREE = ROOT / "out" / "line-mutants"
WITHIN_S = 900


class LineMutant(NamedTuple):
    """A fault: `before` is in the file once. `equivalent`: the reason why no run can notice it."""

    file: str
    before: str
    after: str
    equivalent: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.before.strip()} -> {self.after.strip() or 'nothing'}"


MUTANTS = tuple(
    LineMutant(*one)
    for one in (
        ("coordinator_rules", "incarnation=incarnation,", "incarnation=1,"),
        ("coordinator_rules", "epoch=NO_EPOCH if past else record.epoch,", "epoch=record.epoch,"),
        ("coordinator_rules", "past = before is not None or record.newest is not None", "past = before is not None"),
        ("region_record", "if known.incarnation != ticket.incarnation:", "if False:"),
        ("coordinator_rules", "owned=0, lease_deadline=now)", "owned=0)"),
        (
            "coordinator_rules",
            "return record if owned else hand_over.released(record, ticket.member, leaving=True)",
            "return record",
        ),
        (
            "coordinator_rules",
            "if record.barrier is not None and record.barrier.generation != generation:",
            "if False:",
        ),
        ("coordinator_rules", "if epoch < record.epoch:\n        return record", "if False:\n        return record"),
        ("coordinator_rules", "if record.barrier is None or now < record.deadline:", "if record.barrier is None:"),
        ("coordinator_rules", "if now < record.last_at - CLOCKS_APART_S:", "if False:"),
        ("coordinator_rules", "if generation is not None and generation == record.reset_generation:", "if False:"),
        ("coordinator_rules", "if record.barrier is not None or epoch != record.epoch:", "if epoch != record.epoch:"),
        (
            "coordinator_rules",
            "next_sequence=record.next_sequence + 1,\n    )",
            "next_sequence=record.next_sequence,\n    )",
        ),
        (
            "coordinator_rules",
            "if record.barrier != barrier or ticket.member not in barrier.members:",
            "if record.barrier != barrier:",
        ),
        ("coordinator_rules", "if ticket.member in record.contributed:", "if False:"),
        (
            "coordinator_rules",
            "if (holder := record.held.get(one.task)) != ticket.member:",
            "if (holder := record.held.get(one.task)) is None:",
        ),
        ("coordinator_rules", "failures=0, handed={}, leaving={}", "handed={}, leaving={}"),
        (
            "coordinator_rules",
            "failures=0, handed={}, leaving={}",
            "failures=0, leaving={}",
            "a checkpoint begins once all partitions have owners, and an owner that takes a task removes its cut",
        ),
        ("coordinator_rules", "{**positions, **record.initial}", "{**record.initial, **positions}"),
        (
            "coordinator_rules",
            "tuple(one for one in record.complete[:-1] if one <= up_to)",
            "tuple(one for one in record.complete if one <= up_to)",
        ),
        ("coordinator_rules", "voided_up_to=record.next_sequence - 1)", "voided_up_to=sequence)"),
        ("coordinator_rules", "failures = 0 if forced else record.failures + 1", "failures = record.failures + 1"),
        (
            "coordinator_rules",
            "        epoch=record.epoch + 1,\n        failures",
            "        epoch=record.epoch,\n        failures",
        ),
        ("coordinator_rules", "*record.tasks, *record.handed.values()]", "*record.tasks]"),
        ("hand_over", "record.newest != base:", "False:"),
        ("hand_over", "if any(record.held.get(task) != ticket.member for task in (*given, *leaving)):", "if False:"),
        ("hand_over", "leaving=leaving, term=record.term + 1)", "leaving=leaving)"),
        ("hand_over", "record.handed.items() if task not in started}", "record.handed.items()}"),
        ("hand_over", "record.stopped is None and epoch == record.epoch ==", "record.stopped is None and epoch =="),
        ("log_lineage", "if ends and here.offset <= ends[-1][0]:", "if False:"),
        ("log_lineage", "now != position.topic_id:", "False:"),
        ("log_lineage", "self._polled.pop(partition, None)", "pass"),
        ("witness", "if one.lineage != past.lineage:", "if False:"),
        (
            "witness",
            "if sequence > max(view.newest or 0, view.past.voided_up_to):",
            "if sequence > max(view.newest or 0, 1 << 62):",
        ),
        (
            "witness",
            "at.sequence <= max(shared",
            "at.sequence < max(shared",
        ),
        ("offsets", "if before is None or next_offset <= before.offset:", "if before is None:"),
        ("region_member", "if position is None or records[0].offset < position.offset:", "if position is None:"),
        ("region_member", "self.offsets.register(())  # a reset between", "pass  # a reset between"),
        ("region_member", "self._cut_positions = self.offsets.positions()\n        self._counted", "self._counted"),
        ("region_member", "if view.newest != self.base:", "if False:"),
        ("region_member", "elif self.state in READING and view.epoch > self.epoch:", "elif False:"),
        ("region_member", "alone = forced and self.settings.hand_over", "alone = False"),
        ("region_member", "if self._request_failures >= REQUEST_ATTEMPTS:", "if False:"),
        (
            "region_member",
            "    def _responded(self) -> None:\n        self._request_failures = 0\n",
            "    def _responded(self) -> None:\n",
        ),
        (
            "region_member",
            "self._go(RegionTrigger.RELAUNCHED if self._relaunched else RegionTrigger.FIRST_LIFE)",
            "self._go(RegionTrigger.FIRST_LIFE)",
        ),
        ("hand_over", "later |= dict.fromkeys(leaving, ticket.member)", "pass"),
        (
            "hand_over",
            "leaving = {task: name for task, name in record.leaving.items() if task not in started}",
            "leaving = dict(record.leaving)",
        ),
        (
            "hand_over",
            "owner in record.members and record.members[owner].here(now, lease_s)",
            "owner in record.members",
        ),
        (
            "coordinator_rules",
            "hand_over.released(record, ticket.member, leaving=True)",
            "hand_over.released(record, ticket.member)",
        ),
        (
            "coordinator",
            "            if response.unfinished:\n                generation = coordinator_rules.NO_GENERATION\n",
            "",
        ),
        ("region_driver", "        self.states.drop_leaving(tuple(self.states.leaving))\n", ""),
        ("region_driver", "is not None} | self._unread", "is not None}"),
        ("region_driver", "                self._let_go()  # and it comes back\n", "                pass\n"),
        ("region_driver", "self._place(self._read_states(lambda: False))", "break"),
        ("region_driver", "        elif isinstance(error, ResetFailedError):", "        elif False:"),
        ("task_states", "        self.arriving.pop(task, None)\n", ""),
        ("task_states", "if start.sequence is None:", "if False:"),
        ("task_states", "self._carried.pop(task, None)", "pass"),
        ("task_states", "segments[len(cut.parts[name]) :]", "segments"),
        ("task_states", "if task != self._selected:", "if self._selected is None:"),
        ("coordinator", "cut = handed.get(task) or cuts.get(task)", "cut = cuts.get(task)"),
        ("coordinator", "if digest not in needed:", "if False:"),
        ("coordinator", 'books.delete(Key("manifest", self.group, _number(one)))', "pass"),
        (
            "region_driver",
            "return {one: OffsetAndMetadata(at.offset, at.leader_epoch) for one, at in starts.items()}",
            "return {one: OffsetAndMetadata(at.offset) for one, at in starts.items()}",
        ),
        ("region_driver", "if task not in live or one not in placed]", "if task not in live]"),
        ("region_driver", "        self._lineage.placed(starts)\n", ""),
        (
            "region_driver",
            "while tasks.keys() & self._arriving.keys():",
            "while tasks.keys() & self.states.arriving:",
        ),
        (
            "region_driver",
            "self._lineage.check(starts)  # a topic may have been created again while a large state was read",
            "pass",
        ),
        (
            "region_driver",
            "        self.states.keep(tasks)\n        self._give_up_arrivals()\n",
            "        self._give_up_arrivals()\n",
            "the hooks of a rebalance have dropped the tasks of other partitions already",
        ),
        (
            "region_driver",
            "new = {task: start for task, start in response.starts.items() if task not in live}",
            "new = dict(response.starts)",
        ),
        ("start_positions", "if position.offset > end[partition]:", "if False:"),
        ("start_positions", "if position.offset < first[partition]:", "if False:"),
        ("manifest", "if uncovered := sorted(set(ever_owned) - owner.keys()):", "if uncovered := []:"),
        ("region_record", "now < self.lease_deadline <= now +", "now < self.lease_deadline or now > now +"),
    )
)

WORLD = """
import logging, sys
from kohort.testing.simulation.world import run
logging.disable(logging.CRITICAL)
for seed in range({seeds}):
    run(seed)
"""


def fitting() -> list[str]:
    """The names of mutants whose text is not in its file exactly once."""
    return [
        one.name
        for one in MUTANTS
        if (ROOT / "consistent_region" / f"{one.file}.py").read_text().count(one.before) != 1
    ]


def noticed(one: LineMutant, seeds: int) -> str:
    """The first thing that notices the mutant, "" if nothing does."""
    path = TREE / "consistent_region" / f"{one.file}.py"
    original = path.read_text()
    path.write_text(original.replace(one.before, one.after))
    try:
        world = _run("-c", WORLD.format(seeds=seeds))
        if world:
            return f"world: {world}"
        tests = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not broker", "tests/consistent_region")
        return _run(*tests, "--deselect", "tests/consistent_region/test_region_simulation.py")
    finally:
        path.write_text(original)


def _run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    try:
        ended = subprocess.run(
            command,
            cwd=TREE,
            env={**os.environ, "PYTHONPATH": f"{TREE}/src"},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    if ended.returncode == 0:
        return ""
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return (named or lines or ["ended"])[-1][:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args()
    if stale := fitting():
        print("these do not fit the code any more:", *stale, sep="\n")
        return 2
    copy_tree(ROOT, TREE)
    known = {}
    if RESULTS.exists():
        known = {one["key"]: one["by"] for one in map(json.loads, RESULTS.read_text().splitlines())}
    survived = 0
    for number in given.numbers or range(len(MUTANTS)):
        one = MUTANTS[number]
        source = (TREE / "consistent_region" / f"{one.file}.py").read_text()
        key = hashlib.sha256(f"{source}{one}{given.seeds}".encode()).hexdigest()[:16]
        if key not in known:
            known[key] = noticed(one, given.seeds)
            with RESULTS.open("a") as file:
                file.write(json.dumps({"key": key, "name": one.name, "by": known[key]}) + "\n")
        by = known[key] or (one.equivalent and f"equivalent: {one.equivalent}")
        survived += not by
        print(f"{number:3} {'killed' if by else 'SURVIVED'}  {one.name}\n      {by}", flush=True)
    print(f"{len(given.numbers or MUTANTS)} mutants, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
