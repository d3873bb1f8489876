"""A group as JSON, for replays of failed plans and for `kohort assign`.

The form is {"kohort": "group", "version": 1, "partitions": {topic: count}, "members": {id: member}, "racks": racks,
"lag": lag}. Only "partitions" and each member's "topics" are required. A replay also has "assignor" and "error".

- A member is {"topics": [...], "owned": {topic: [numbers]}, "generation": 7, "rack": "a", "user_data": base64,
  "instance_id": "x"}.
- "racks" is {topic: [[rack, ...] for each partition]}.
- "lag" is {topic: [records waiting in each partition]}.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kohort.assignors.errors import BadGroup
from kohort.assignors.group import NO_GENERATION, GroupView, Member
from kohort.common.foreign_text import parsed_json
from kohort.common.topic_partition import grouped

KIND, VERSION = "group", 1
MOST = (1 << 63) - 1  # an int64


def to_json(group: GroupView) -> dict[str, Any]:
    """Return the group as plain lists and dictionaries, from which `from_json` makes an equal group."""
    spans = list(pairwise(group.topic_offsets))
    document: dict[str, Any] = {
        "kohort": KIND,
        "version": VERSION,
        "partitions": {topic: stop - start for topic, (start, stop) in zip(group.topics, spans, strict=True)},
        "members": {member.id: _member_to_json(group, member) for member in group.members},
    }
    if group.racks is not None:
        document["racks"] = {
            topic: [sorted(replicas) for replicas in group.racks[start:stop]]
            for topic, (start, stop) in zip(group.topics, spans, strict=True)
        }
    if group.lag is not None:
        document["lag"] = {
            topic: list(group.lag[start:stop]) for topic, (start, stop) in zip(group.topics, spans, strict=True)
        }
    return document


def from_json(document: object) -> GroupView:
    """The group in a document. Raises `BadGroup`, with the place, if it is invalid."""
    if not isinstance(document, Mapping) or document.get("kohort") != KIND:
        raise BadGroup('not a group: the entry "kohort": "group" is missing')
    if document.get("version") != VERSION:
        raise BadGroup(f"version {document.get('version')!r} of the group file", hint=f"this kohort reads {VERSION}")
    partitions = _table(document.get("partitions"), "partitions")
    for topic, count in partitions.items():
        if not _is_count(count):
            raise BadGroup("the number of partitions is not a number", path=f"partitions.{topic}")
    lag: dict[tuple[str, int], int] | None = None
    if "lag" in document:
        lag = {}
        for topic, row in _table(document["lag"], "lag").items():
            waiting = _row(row, f"lag.{topic}", _is_count, "a number of records")
            if len(waiting) != (count := partitions.get(topic, len(waiting))):
                raise BadGroup(f"lag of {len(waiting)} partitions for a topic of {count}", path=f"lag.{topic}")
            lag |= {(topic, number): records for number, records in enumerate(waiting)}
    racks = None
    if "racks" in document:
        racks = {
            topic: [
                _row(replicas, f"racks.{topic}[{number}]", _is_text, "a rack")
                for number, replicas in enumerate(_row(row, f"racks.{topic}", _is_list, "a list of racks"))
            ]
            for topic, row in _table(document["racks"], "racks").items()
        }
    members = _table(document.get("members"), "members")
    reported = {member_id: _member_from_json(f"members.{member_id}", said) for member_id, said in members.items()}
    return GroupView.of(partitions, reported, racks, lag)


def read(path: Path) -> GroupView:
    """The group in a file. Raises `BadGroup` with the file's name."""
    try:
        return from_json(parsed_json(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise BadGroup(f"cannot read a group: {error}", file=path) from error
    except BadGroup as error:
        raise BadGroup(error.message, hint=error.hint, file=path, **error.place) from error


def _member_to_json(group: GroupView, member: Member) -> dict[str, Any]:
    said: dict[str, Any] = {"topics": list(member.topics)}
    if member.owned_partitions:
        said["owned"] = grouped(map(group.partition, member.owned_partitions))
    if member.generation != NO_GENERATION:
        said["generation"] = member.generation
    if member.rack is not None:
        said["rack"] = member.rack
    if member.user_data is not None:
        said["user_data"] = b2a_base64(member.user_data, newline=False).decode()
    if member.instance_id is not None:
        said["instance_id"] = member.instance_id
    return said


def _member_from_json(path: str, document: object) -> dict[str, Any]:
    said = dict(_table(document, path))
    said["topics"] = _row(said.get("topics"), f"{path}.topics", _is_text, "a topic")
    if "owned" in said:
        said["owned"] = {
            topic: _row(row, f"{path}.owned.{topic}", _is_count, "a partition")
            for topic, row in _table(said["owned"], f"{path}.owned").items()
        }
    for name in ("rack", "instance_id"):
        if said.get(name) is not None and not _is_text(said[name]):
            raise BadGroup("not a string", path=f"{path}.{name}")
    if type(said.get("generation", NO_GENERATION)) is not int:  # True is an int, too
        raise BadGroup("not a number", path=f"{path}.generation")
    if said.get("user_data") is not None:
        try:
            said["user_data"] = a2b_base64(said["user_data"], strict_mode=True)
        except (TypeError, Base64Error, ValueError) as error:
            raise BadGroup(f"not base64: {error}", path=f"{path}.user_data") from error
    return said


def _table(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadGroup("not an object" if value is not None else "missing", path=path)
    return value


def _row(value: object, path: str, fits: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise BadGroup("not a list" if value is not None else "missing", path=path)
    for place, item in enumerate(value):
        if not fits(item):
            raise BadGroup(f"{item!r} is not {what}", path=f"{path}[{place}]")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object) -> bool:
    return isinstance(value, list)
