"""Judges the history of a soak run: what a group must never do, under any faults of its members and brokers.

    one owner         of a partition in a generation, and at a time
    owners only       no member of ours hands out records that it does not own, nor after another owned them
    in order          within an ownership of ours records come without a gap and without going back
    where it stood    an ownership of ours begins at what the group had committed: no commit is lost
    commits           nothing is committed that was not read, nothing of ours by a non-owner, nothing backwards
    in time           no commit of ours outlives its timeout, except by what the machine took from it
    no loss           every record that a broker has acknowledged is read by at least one member
    alive             no member of ours fails, the group reads to the end, and healthy members report it. A group
                      that moves between protocols has arrived at the one that its members speak

A group that all members have left may be made again by the next member with the other protocol. Its generations then
begin at 1 again. A killed member owns nothing from then on. A member that was frozen, or got on_lost, may believe
for a while that it owns what another has; it may not act on that. Findings about the other clients are kept apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from tests.soak.history import Entry
from tests.soak.plan import OURS

NEVER = 1 << 63
ALLOWED_S = 1.0
BACK = "is back"
# What a commit may end with in a group that changes and on brokers that come and go.
DUE_IN_COMMITS = ("CommitFailed", "RebalanceInProgress", "OperationTimeout")


class Finding(NamedTuple):
    """`rule`: as in the list above. `ours`: whether it is about a member of ours, or about the group as a whole."""

    rule: str
    ours: bool
    text: str


@dataclass(slots=True)
class Ownership:
    """`member` owned `partition` from `begin` to `end` (ns). `sure`: it ended in good order, not by loss or
    time-out."""

    member: str
    kind: str
    partition: int
    begin: int
    end: int = NEVER
    sure: bool = True
    next_offset: int | None = None


@dataclass(slots=True)
class Commit:
    """`ended` and `outcome` stay as they are where it is not known how it ended."""

    member: str
    kind: str
    began: int
    offsets: dict[int, int]
    ended: int = NEVER
    outcome: str = "unknown"
    timeout_s: float | None = None
    took_s: float = 0.0
    starved_s: float = 0.0


@dataclass(slots=True)
class Story:
    """A history, put in order."""

    ownerships: dict[int, list[Ownership]] = field(default_factory=dict)
    frozen: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    broken: list[tuple[int, int]] = field(default_factory=list)
    converts: bool = False

    def found(self, rule: str, kind: str, text: str) -> None:
        self.findings.append(Finding(rule, kind in OURS or not kind, text))

    def was_frozen(self, member: str, begin: int, end: int) -> bool:
        return any(start < end and begin < stop for start, stop in self.frozen.get(member, ()))

    def was_empty(self, begin: int, end: int) -> bool:
        """True if between these times there was one at which no member owned anything."""
        reached = begin
        for one in sorted((one for all_of in self.ownerships.values() for one in all_of), key=lambda one: one.begin):
            if one.begin > reached:
                break
            reached = max(reached, one.end)
        return reached < end


def judge(history: Iterable[Entry]) -> list[Finding]:
    """Everything that must not have happened."""
    entries = list(history)
    story = Story(converts=any(entry.what == "converting" for entry in entries))
    _see_brokers(story, entries)
    _see_freezes(story, entries)
    _see_commits(story, entries)
    _see_ownerships(story, entries)
    _one_owner_a_generation(story, entries)
    _one_owner_at_a_time(story)
    _deliveries(story, entries)
    _commit_rules(story, entries)
    _in_time(story)
    _no_loss(story, entries)
    _alive(story, entries)
    return story.findings


def _see_brokers(story: Story, entries: list[Entry]) -> None:
    for entry in entries:
        if entry.what == "broker" and entry.facts["act"] == BACK and story.broken:
            story.broken[-1] = (story.broken[-1][0], entry.at)
        elif entry.what == "broker":
            story.broken.append((entry.at, NEVER))


def _see_freezes(story: Story, entries: list[Entry]) -> None:
    since: dict[str, int] = {}
    for at, _who, what, facts in entries:
        if what == "stopped":
            since[facts["member"]] = at
        elif what in ("continued", "killed") and facts["member"] in since:
            story.frozen.setdefault(facts["member"], []).append((since.pop(facts["member"]), at))
    for member, at in since.items():
        story.frozen.setdefault(member, []).append((at, NEVER))


def _see_commits(story: Story, entries: list[Entry]) -> None:
    waiting: dict[tuple[str, int], Commit] = {}
    for entry in entries:
        if entry.what == "committing":
            offsets = {int(one): to for one, to in entry.facts["offsets"].items()}
            commit = Commit(entry.who, entry.kind, entry.at, offsets, timeout_s=entry.facts.get("timeout_s"))
            waiting[entry.who, entry.facts["number"]] = commit
            story.commits.append(commit)
        elif entry.what == "commit":
            commit = waiting.pop((entry.who, entry.facts["number"]))
            commit.ended, commit.outcome = entry.at, entry.facts["outcome"]
            commit.took_s, commit.starved_s = entry.facts.get("took_s", 0.0), entry.facts.get("starved_s", 0.0)


def _see_ownerships(story: Story, entries: list[Entry]) -> None:
    held: dict[str, dict[int, Ownership]] = {}

    def let_go(member: str, partitions: Iterable[int], at: int, *, sure: bool = True) -> None:
        mine = held.get(member, {})
        for partition in partitions:
            if partition in mine:
                over = mine.pop(partition)
                over.end, over.sure = at, sure

    for entry in entries:
        at, who, what, facts = entry
        match what:
            case "assigned":
                mine = held.setdefault(who, {})
                gone = sorted(mine.keys() - set(facts["assignment"]))
                if entry.kind in OURS and gone:
                    story.found("one owner", entry.kind, f"{gone} went from {who} without a callback at {at}")
                let_go(who, gone, at, sure=False)
                if entry.kind in OURS and (twice := mine.keys() & set(facts["partitions"])):
                    story.found("one owner", entry.kind, f"{who} was given {sorted(twice)}, which it had, at {at}")
                for partition in facts["partitions"]:
                    let_go(who, [partition], at)
                    mine[partition] = Ownership(who, entry.kind, partition, at)
                    story.ownerships.setdefault(partition, []).append(mine[partition])
            case "revoked":
                let_go(who, facts["partitions"], at)
            case "lost":
                let_go(who, facts["partitions"], at, sure=False)
            case "left" | "failed":
                if what == "left" and entry.kind in OURS and held.get(who):
                    story.found("one owner", entry.kind, f"{who} left without letting {sorted(held[who])} go")
                let_go(who, [*held.get(who, ())], at)
            case "closing" if entry.kind not in OURS:  # not every client calls its listener
                let_go(who, [*held.get(who, ())], at)
            case "killed" | "ended":
                let_go(facts["member"], [*held.get(facts["member"], ())], at)


def _one_owner_a_generation(story: Story, entries: list[Entry]) -> None:
    owners: dict[tuple[int, int], Entry] = {}
    for entry in entries:
        if entry.what != "assigned" or entry.facts["generation"] < 0:
            continue
        for partition in entry.facts["assignment"]:
            other = owners.setdefault((entry.facts["generation"], partition), entry)
            if other.who != entry.who and story.converts and story.was_empty(other.at, entry.at):
                owners[entry.facts["generation"], partition] = entry  # of another group, which counts from 1 again
            elif other.who != entry.who:
                kind = "" if {entry.kind, other.kind} & set(OURS) else entry.kind
                text = f"{partition} in generation {entry.facts['generation']}: {other.who} and {entry.who}"
                story.found("one owner", kind, text)


def _one_owner_at_a_time(story: Story) -> None:
    for partition, ownerships in story.ownerships.items():
        for one, other in combinations(sorted(ownerships, key=lambda each: each.begin), 2):
            if one.member == other.member or other.begin >= one.end or not one.sure:
                continue
            if story.was_frozen(one.member, one.begin, one.end):
                continue
            text = f"{partition}: {one.member} had it until {one.end}, {other.member} from {other.begin}"
            story.found("one owner", one.kind, text)


def _deliveries(story: Story, entries: list[Entry]) -> None:
    for entry in entries:
        if entry.what != "delivered":
            continue
        began = entry.facts["began"]
        for partition, first, following in entry.facts["slices"]:
            who = f"{entry.who} read {partition} from {first} to {following} at {entry.at}"
            mine = _holding(story, entry.who, partition, entry.at)
            if mine is None:
                story.found("owners only", entry.kind, f"{who}, which it does not own")
                continue
            for other in story.ownerships[partition]:
                if other.member != entry.who and mine.begin < other.begin < began:
                    story.found("owners only", entry.kind, f"{who}, {other.member}'s since {other.begin}")
            if mine.next_offset is None:
                _begins_well(story, mine, first, entry.at, who)
            elif mine.next_offset != first:
                story.found("in order", entry.kind, f"{who}, after {mine.next_offset}")
            mine.next_offset = following


def _holding(story: Story, member: str, partition: int, at: int) -> Ownership | None:
    owned = story.ownerships.get(partition, ())
    return next((one for one in owned if one.member == member and one.begin <= at <= one.end), None)


def _begins_well(story: Story, mine: Ownership, first: int, at: int, who: str) -> None:
    """The first record of an ownership is the one that the group stood at."""
    stood = _committed(story, mine.partition, mine.begin, at)
    if not min(stood) <= first <= max(stood):
        story.found("where it stood", mine.kind, f"{who}, but committed was {sorted(stood)}")


def _committed(story: Story, partition: int, begin: int, until: int) -> set[int]:
    """The offsets that may be stored for a partition between two times: the last commit, and possible later ones."""
    reported = [one for one in story.commits if partition in one.offsets and one.began < until]
    stored = [one for one in reported if one.outcome == "ok" and one.ended < begin]
    last = max((one.began for one in stored), default=-1)
    possible = [one for one in reported if _may_be_stored(story, one) and _over_by(story, one, partition) > last]
    return {one.offsets[partition] for one in possible} | ({0} if not stored else set())


def _may_be_stored(story: Story, commit: Commit) -> bool:
    if commit.kind not in OURS or commit.outcome.startswith(("ok", "unknown", "OperationTimeout")):
        return True  # what another client's error means for what is stored is not ours to say
    # A broker that dies with a commit in its hands may have stored it; the next attempt, at another, is then refused.
    # So is that of a member that was frozen meanwhile.
    died = any(begin < commit.ended and commit.began < end for begin, end in story.broken)
    return died or story.was_frozen(commit.member, commit.began, commit.ended)


def _over_by(story: Story, commit: Commit, partition: int) -> int:
    """The time (ns) from which a commit can no longer be stored. With an unknown outcome: the next assignment of the
    partition."""
    if commit.outcome == "ok":
        return commit.ended
    return min((one.begin for one in story.ownerships.get(partition, ()) if one.begin > commit.began), default=NEVER)


def _commit_rules(story: Story, entries: list[Entry]) -> None:
    read = _read_by_any(entries)
    for commit in story.commits:
        who = f"{commit.member} committed {commit.offsets} at {commit.began}: {commit.outcome}"
        if commit.kind in OURS and not commit.outcome.startswith(("ok", "unknown", *DUE_IN_COMMITS)):
            story.found("commits", commit.kind, f"{who}, which is not due")
        for partition, offset in commit.offsets.items() if commit.outcome == "ok" else ():
            if offset - 1 not in read.get(partition, ()):
                story.found("commits", commit.kind, f"{who}, but no member read {partition} up to {offset}")
            _by_an_owner(story, commit, partition, who)
    _never_back(story)


def _read_by_any(entries: list[Entry]) -> dict[int, set[int]]:
    """The offsets that were handed out, by partition."""
    read: dict[int, set[int]] = {}
    for entry in entries:
        for partition, first, following in entry.facts["slices"] if entry.what == "delivered" else ():
            read.setdefault(partition, set()).update(range(first, following))
    return read


def _by_an_owner(story: Story, commit: Commit, partition: int, who: str) -> None:
    mine = _holding(story, commit.member, partition, commit.began)
    if mine is None:
        story.found("commits", commit.kind, f"{who}, which does not own {partition}")
        return
    for other in story.ownerships[partition]:
        if other.member != commit.member and mine.begin < other.begin < commit.began:
            story.found("commits", commit.kind, f"{who}, but {partition} is {other.member}'s since {other.begin}")


def _in_time(story: Story) -> None:
    for commit in story.commits:
        if commit.timeout_s is None:
            continue
        over_s = commit.took_s - commit.timeout_s - commit.starved_s
        if over_s > ALLOWED_S and not story.was_frozen(commit.member, commit.began, commit.ended):
            text = f"{commit.member}'s commit at {commit.began} took {over_s:.1f} s more than its {commit.timeout_s:g}"
            story.found("in time", commit.kind, text)


def _never_back(story: Story) -> None:
    stored = [one for one in story.commits if one.outcome == "ok"]
    for partition in {each for one in stored for each in one.offsets}:
        about = [one for one in stored if partition in one.offsets]
        by_end = iter(sorted(about, key=lambda one: one.ended))
        following, last = next(by_end, None), None
        for commit in sorted(about, key=lambda one: one.began):
            while following is not None and following.ended < commit.began:
                if last is None or following.began >= last.began:
                    last = following
                following = next(by_end, None)
            if last is not None and last.offsets[partition] > commit.offsets[partition]:
                text = f"{partition}: {last.member} stored {last.offsets[partition]} by {last.ended}, {commit.member} "
                story.found("commits", commit.kind, f"{text}{commit.offsets[partition]} from {commit.began} on")


def _no_loss(story: Story, entries: list[Entry]) -> None:
    read = _read_by_any(entries)
    lost: dict[int, list[int]] = {}
    for entry in entries:
        for partition, offset in entry.facts["acks"] if entry.what == "produced" else ():
            if offset not in read.get(partition, ()):
                lost.setdefault(partition, []).append(offset)
    for partition, offsets in sorted(lost.items()):
        text = f"{len(offsets)} records of {partition} were not read by any member: {min(offsets)} to {max(offsets)}"
        story.found("no loss", "", text)


def _alive(story: Story, entries: list[Entry]) -> None:
    drained: dict[str, Any] = {"done": False, "behind": "unknown: the run did not come to its end"}
    for entry in entries:
        if entry.what == "failed":
            story.found("alive", entry.kind, f"{entry.who} failed at {entry.at}: {entry.facts['error']}")
        elif entry.what == "left" and not entry.facts["healthy"] and not _had_no_chance(story, entry):
            story.found("alive", entry.kind, f"{entry.who} was unwell at {entry.at}: {entry.facts['reason']}")
        elif entry.what == "drained":
            drained = entry.facts
        elif entry.what == "became" and entry.facts["kind"] != entry.facts["due"]:
            text = f"the group is one of the {entry.facts['kind'] or 'unknown'} protocol, not {entry.facts['due']}"
            story.found("alive", "", text)
        elif entry.what == "ended" and entry.facts["code"]:
            kind = entry.facts["member"].rpartition("-")[0]
            story.found("alive", kind, f"{entry.facts['member']} ended with {entry.facts['code']} at {entry.at}")
    if not drained["done"]:
        story.found("alive", "", f"the group did not read to the end: {drained['behind']}")


def _had_no_chance(story: Story, left: Entry) -> bool:
    """True if it got SIGTERM before it had reached any broker, while a broker was away."""
    member = any(one.member == left.who for all_of in story.ownerships.values() for one in all_of)
    return not member and any(begin < left.at < end for begin, end in story.broken)


def ours(findings: Iterable[Finding]) -> Iterator[str]:
    """The findings against our own client, as lines."""
    return (f"{one.rule}: {one.text}" for one in findings if one.ours)
