"""Apache Kafka's own message definitions, read out of a kafka-clients jar at test time."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from kohort.protocol.schema import Versions
from kohort.testing import jars

# 4.4.0 is the newest release we speak; 3.9.1 still has the versions that 4.0 dropped.
KAFKA_VERSIONS = ("4.4.0", "3.9.1")
# Fields that the newest release has renamed, by message.
RENAMED_FIELDS = {"TxnOffsetCommitRequest": {"GenerationId": "GenerationIdOrMemberEpoch"}}


def clients_jar(kafka: str) -> Path:
    """The kafka-clients jar of one release."""
    return next(jar for jar in jars.clients(kafka) if jar.name == f"kafka-clients-{kafka}.jar")


@functools.cache
def definitions(kafka: str) -> dict[str, dict[str, Any]]:
    """Message name (as "JoinGroupRequest") -> definition."""
    with zipfile.ZipFile(clients_jar(kafka)) as jar:
        names = [name for name in jar.namelist() if name.startswith("common/message/") and name.endswith(".json")]
        found = {Path(name).stem: json.loads(_without_comments(jar.read(name).decode())) for name in names}
    for name, renamed in RENAMED_FIELDS.items():
        for field in found[name]["fields"]:
            field["name"] = renamed.get(field["name"], field["name"])
    return found


def valid_versions(kafka: str, name: str) -> range:
    """The versions of a message that a release can read and write; none if the release lacks the message."""
    versions = span(definitions(kafka).get(name, {}).get("validVersions"))
    return range(versions.since, versions.until + 1)


def span(text: str | None) -> Versions:
    """A range of versions as definitions write it; "none" and nothing at all are empty."""
    return Versions.of("" if text in (None, "none") else str(text))


def snake_case(name: str) -> str:
    """Kafka's CamelCase in Python's spelling."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _without_comments(text: str) -> str:
    # Comments stand on lines of their own, or behind a line's last token; no string of the definitions has "//" in it.
    return re.sub(r"//[^\n]*", "", text)
