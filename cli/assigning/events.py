"""Events of a group, as changes of its JSON document (`assignors/group_file.py`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from kohort.common import KohortError
from kohort.common.whole_number import whole

Document = dict[str, Any]
MOST_PARTITIONS = 2_000_000  # of all topics; more than a cluster has, and what memory can hold with racks and lag


class BadEvent(KohortError):
    """An event that is invalid for this group. The hint has the syntax of events."""


def check_size(document: Document) -> None:
    """Raises BadEvent for a group whose topics have more than `MOST_PARTITIONS` partitions."""
    size = sum(document["partitions"].values())
    if size > MOST_PARTITIONS:
        raise BadEvent(f"the topics have {size} partitions, more than {MOST_PARTITIONS:,}")


def happen(document: Document, event: str) -> Document:
    """Return the document after the event, without changing the given one. `FORMS` has the syntax of events."""
    kind, _, rest = event.partition(":")
    if kind not in _EVENTS:
        near = get_close_matches(kind, _EVENTS, n=1)
        raise BadEvent(
            f"no event {kind!r}",
            hint=f"did you mean {near[0]!r}? Events: {', '.join(FORMS)}" if near else f"events: {', '.join(FORMS)}",
        )
    changed = copy.deepcopy(document)
    _EVENTS[kind](changed, [part for part in rest.split(":") if part])
    return changed


def _join(document: Document, parts: list[str]) -> None:
    members = document["members"]
    names, topics = _only(parts, 2, "join"), sorted(document["partitions"])
    name = names[0] or next(f"new-{n}" for n in range(1, len(members) + 2) if f"new-{n}" not in members)
    if name in members:
        raise BadEvent("a member of that name is in the group already", member=name)
    members[name] = {"topics": names[1].split(",") if names[1] else topics}
    racks = sorted({said["rack"] for said in members.values() if said.get("rack")})
    if racks:
        # To the rack with the fewest members, as an operator would.
        held = [said.get("rack") for said in members.values()]
        members[name]["rack"] = min(racks, key=lambda rack: (held.count(rack), rack))


def _leave(document: Document, parts: list[str]) -> None:
    members = document["members"]
    if not members:
        raise BadEvent("the group has no member to leave")
    name = _only(parts, 1, "leave")[0] or sorted(members)[-1]
    del members[_known(name, members, "member")]


def _grow(document: Document, parts: list[str]) -> None:
    topic, named = _only(parts, 2, "grow")
    partitions = document["partitions"]
    before = partitions[_known(topic, partitions, "topic")]
    count = whole(named)
    if count is None or count <= before:
        raise BadEvent(f"a topic of {before} partitions grows to more, not {named or 'nothing'}", topic=topic)
    partitions[topic] = count
    check_size(document)
    for name, fill in (("racks", []), ("lag", 0)):
        if topic in document.get(name, {}):
            row = document[name][topic]
            # New partitions are placed like the old ones, round the racks.
            row += [row[index % before] if name == "racks" and before else fill for index in range(before, count)]


def _subscribe(document: Document, parts: list[str]) -> None:
    name, topics = _only(parts, 2, "subscribe")
    said = document["members"][_known(name, document["members"], "member")]
    said["topics"] = [topic for topic in topics.split(",") if topic]
    # A client releases a topic that is no longer subscribed before it joins.
    said["owned"] = {topic: row for topic, row in said.get("owned", {}).items() if topic in said["topics"]}


_EVENTS: Mapping[str, Callable[[Document, list[str]], None]] = {
    "join": _join,
    "leave": _leave,
    "grow": _grow,
    "subscribe": _subscribe,
}
FORMS = ("join[:MEMBER[:TOPIC,...]]", "leave[:MEMBER]", "grow:TOPIC:PARTITIONS", "subscribe:MEMBER:TOPIC,...")


def _only(parts: list[str], most: int, kind: str) -> list[str]:
    if len(parts) > most:
        form = next(form for form in FORMS if form.startswith(kind))
        raise BadEvent(f"too many parts in {':'.join([kind, *parts])!r}", hint=f"write {form}")
    return parts + [""] * (most - len(parts))


def _known(name: str, known: Mapping[str, Any], what: str) -> str:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise BadEvent(
            f"no {what} {name!r} in the group",
            hint=f"did you mean {near[0]!r}?" if near else f"the group has: {', '.join(sorted(known)[:10])}",
        )
    return name
