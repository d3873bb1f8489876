"""The files of a formatted data folder, cached once per version. Kafka's own tool starts a JVM for them, about a
second per node.

Of two formatted folders of one version, only the ids in meta.properties differ. The tool is the only source of the
files: this module copies its result and writes other ids. A folder with SCRAM users holds secrets and is not kept.
"""

import base64
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kohort.testing.cache import cache_dir

META = "meta.properties"
RECORDS: Final = ("bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
"""The file with the first metadata records: up to 4.3, and from 4.4 on."""

DECIDE: Final = frozenset(
    (
        "inter.broker.protocol.version",
        "metadata.log.dir",
        "unstable.feature.versions.enable",
        "unstable.metadata.versions.enable",
    )
)
"""The settings of a broker from which the tool takes the feature levels of the first records, and their folder."""


def new_id() -> str:
    """22 characters as Kafka writes uuids; a leading "-" would be taken for an option."""
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def kept_storage(jars: Sequence[Path]) -> Path:
    """The folder of the cache for the files that the tool of `jars` writes."""
    made_of = "\n".join(map(str, jars))
    return cache_dir() / "formatted" / hashlib.sha256(made_of.encode()).hexdigest()[:16]


def copy_storage(kept: Path, data: Path, ids: dict[str, str]) -> bool:
    """Fill `data` from `kept`, with `ids` (by their names in meta.properties); False if nothing is cached yet."""
    try:
        meta = (kept / META).read_text()
    except FileNotFoundError:
        return False
    data.mkdir(parents=True, exist_ok=True)
    _copy_records(kept, data)
    for name, value in ids.items():
        meta = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", meta)
    (data / META).write_text(meta)
    return True


def _copy_records(folder: Path, to: Path) -> None:
    """Raises FileNotFoundError if the folder has none."""
    name = next((one for one in RECORDS if (folder / one).exists()), RECORDS[0])
    (to / name).parent.mkdir(exist_ok=True)
    shutil.copyfile(folder / name, to / name)


def keep_storage(kept: Path, data: Path) -> None:
    """Cache the files of `data`, a folder that the tool has just formatted. Of two processes, the first one's files
    stay."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=kept.parent))
    try:
        shutil.copyfile(data / META, unfinished / META)
        _copy_records(data, unfinished)
        os.rename(unfinished, kept)
    except OSError:  # a version without these files, or another process was quicker
        shutil.rmtree(unfinished, ignore_errors=True)
