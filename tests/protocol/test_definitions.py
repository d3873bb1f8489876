"""Oracle 2: every field of ours against the definitions inside Kafka's own jars, version by version."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import kohort.protocol.apis
from kohort.protocol import framing, membership
from kohort.protocol.catalogue import APIS
from kohort.protocol.primitives import WireType
from kohort.protocol.schema import MISSING, Struct, Top
from tests.protocol.definitions import KAFKA_VERSIONS, definitions, snake_case, span, valid_versions

# What is no API: our class -> the definition's name.
DATA: dict[type[Top], str] = {
    framing.RequestHeader: "RequestHeader",
    framing.ResponseHeader: "ResponseHeader",
    membership.Subscription: "ConsumerProtocolSubscription",
    membership.Assignment: "ConsumerProtocolAssignment",
}
OURS: dict[str, type[Top]] = {
    **{message.name: message.struct for api in APIS for message in (api.request, api.response)},
    **{name: struct for struct, name in DATA.items()},
}
# What must be here, by key.
PROMISED = (
    0,
    1,
    2,
    3,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
    19,
    20,
    21,
    22,
    23,
    24,
    25,
    26,
    28,
    30,
    31,
    32,
    36,
    37,
    42,
    44,
    47,
    60,
    68,
    69,
    71,
    72,
    75,
    76,
    77,
    78,
    79,
    88,
    89,
    90,
    91,
    92,
)
# Keys of APIs that came after a release.
NEWER: dict[str, set[int]] = {"4.4.0": set(), "3.9.1": {88, 89, 90, 91, 92}}
# Structs that Kafka declares twice under one name, inside two messages of one API; ours share a module.
RENAMED = {"TopicPartition": "TopicPartitions"}


def test_every_promised_api_is_here() -> None:
    assert tuple(api.key for api in APIS) == PROMISED


@pytest.mark.parametrize("name", OURS)
def test_our_versions_are_those_of_both_releases_together(name: str) -> None:
    struct = OURS[name]
    theirs = {version for kafka in KAFKA_VERSIONS for version in valid_versions(kafka, name)}
    assert set(range(struct._versions.since, struct._versions.until + 1)) == theirs
    assert min(theirs) == 0
    for kafka in KAFKA_VERSIONS:
        definition = definitions(kafka).get(name)
        if definition is None:
            continue
        assert struct._key == definition.get("apiKey")
        for version in valid_versions(kafka, name):
            assert (version in struct._flexible) == (version in span(definition["flexibleVersions"])), version


@pytest.mark.parametrize("kafka", KAFKA_VERSIONS)
@pytest.mark.parametrize("name", OURS)
def test_every_field_of_every_version_agrees(name: str, kafka: str) -> None:
    definition = definitions(kafka).get(name, {})
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    valid = valid_versions(kafka, name)
    for version in valid:
        ours = list(_our_lines(OURS[name], version, name))
        theirs = list(_their_lines(definition["fields"], common, version, name, valid))
        assert [line[:-1] for line in ours] == [line[:-1] for line in theirs], version
        for our_line, their_line in zip(ours, theirs, strict=True):
            # It only matters if a field may be left out silently where some version of the release lacks it.
            assert their_line[-1] in (our_line[-1], None), our_line[0]


def test_the_two_releases_were_covered(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for kafka in KAFKA_VERSIONS:
        versions = {name: valid_versions(kafka, name) for name in OURS if name in definitions(kafka)}
        lines = sum(
            len(list(_our_lines(OURS[name], version, name))) for name, span in versions.items() for version in span
        )
        rows.append(
            f"definitions of Apache Kafka {kafka}: {len(versions)} messages, {sum(map(len, versions.values()))} "
            f"versions, {lines} fields compared"
        )
        assert len(versions) == 2 * (len(PROMISED) - len(NEWER[kafka])) + len(DATA)
    with capsys.disabled():
        print("\n" + "\n".join(rows))


def test_every_field_says_what_it_means() -> None:
    files = [
        *Path(kohort.protocol.apis.__file__).parent.glob("[a-z]*.py"),
        *map(Path, (framing.__file__, membership.__file__)),
    ]
    declared = 0
    for file in files:
        tree = ast.parse(file.read_text())
        assert ast.get_docstring(tree), file
        for struct in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            for line, below in zip(struct.body, [*struct.body[1:], None], strict=True):
                if not isinstance(line, ast.AnnAssign) or not isinstance(line.value, ast.Call):
                    continue
                declared += 1
                says = (
                    below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
                )
                assert isinstance(says, str), f"{file.name}: {struct.name}: {ast.unparse(line.target)}"
                assert says.strip().endswith("."), says
    assert declared > 500


# A line: path, type, array, nullable, default, tag, flexible, ignorable.
Line = tuple[str, str, bool, bool, Any, int | None, bool, bool | None]


def _our_lines(struct: type[Struct], version: int, path: str) -> Iterator[Line]:
    for each in struct._table:
        if version not in each.versions:
            continue
        here = f"{path}.{each.name}"
        yield (
            here,
            each.of.name if isinstance(each.of, WireType) else each.of.__name__,
            each.array,
            version in each.nullable,
            each.default,
            each.tag if version in each.tagged else None,
            each.flexible,
            each.ignorable,
        )
        if not isinstance(each.of, WireType):
            yield from _our_lines(each.of, version, here)


def _their_lines(
    fields: list[dict[str, Any]], common: dict[str, Any], version: int, path: str, valid: Sequence[int]
) -> Iterator[Line]:
    for each in fields:
        versions = span(each["versions"])
        if version not in versions:
            continue
        here = f"{path}.{snake_case(each['name'])}"
        array = each["type"].startswith("[]")
        of = each["type"].removeprefix("[]")
        inside = each.get("fields") or common.get(of)
        yield (
            here,
            RENAMED.get(of, of) if path.startswith("ConsumerProtocol") else of,
            array,
            version in span(each.get("nullableVersions")),
            _default(of, array, each.get("default")),
            each["tag"] if version in span(each.get("taggedVersions")) else None,
            each.get("flexibleVersions") != "none",
            None if all(other in versions for other in valid) else each.get("ignorable") in (True, "true"),
        )
        if inside:
            yield from _their_lines(inside, common, version, here, [other for other in valid if other in versions])


def _default(of: str, array: bool, text: object) -> Any:
    if text is None:
        return MISSING
    text = str(text)
    if text == "null":
        return None
    if array:
        return ()
    if of == "string":
        return text
    return {"true": True, "false": False}[text.lower()] if of == "bool" else int(text, 0)


def test_the_comparison_can_fail() -> None:
    """A wrong default, a wrong order and a field too many are each seen."""
    struct = OURS["HeartbeatRequest"]
    right = list(_our_lines(struct, 4, "x"))
    definition = definitions("4.4.0")["HeartbeatRequest"]
    theirs = [
        line[:-1]
        for line in _their_lines(definition["fields"], {}, 4, "x", valid_versions("4.4.0", "HeartbeatRequest"))
    ]
    assert [line[:-1] for line in right] == theirs
    assert [line[:-1] for line in right[::-1]] != theirs
    assert [line[:-1] for line in right[:-1]] != theirs
    assert [(*line[:4], None, *line[5:-1]) for line in right] != theirs
