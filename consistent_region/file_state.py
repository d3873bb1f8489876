"""State in files: copied whole, made durable, and put in place by one rename."""

import hashlib
import os
import shutil
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.common.foreign_text import parsed_json
from kohort.common.private_files import opener
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError
from kohort.consistent_region.manifest import canonical
from kohort.consistent_region.offsets import Positions
from kohort.network.arguments import unsendable

KEPT_SNAPSHOTS: Final = 4
MAGIC: Final = b"KFILES\n"  # so that a DictState, which is JSON too, does not take the names of files for its own
_CHUNK: Final = 1 << 20
_OF_ONE_OWNER: Final = "owner-" + "[0-9a-f]" * 32
_MARK: Final = "owned"


class FileState:
    """State in files under `files`, a folder of one task alone. A `StateHandle`.

    A snapshot is a copy of the files under `FOLDER/snapshots`, named by a hash of its contents. A checkpoint has only
    that name, and the SHA-256 and size of each file. The folder is therefore part of the state: without it, `restore`
    raises ResetFailedError, as it does for a changed copy. A copy appears by rename when all its files are on the disk.
    `kept` complete copies remain, which must be more than the region's `kept_checkpoints`. Copies have mode 0600.

    `files` has another place in each object, since a former owner of the task may still run. `restore` and
    `reset_initial` remove the files of former owners.

    Close or flush files before the handler returns: a copy does not have buffered data. A link to a file is copied as
    that file. Links to folders, pipes and sockets are refused.
    """

    def __init__(self, folder: str | Path, *, kept: int = KEPT_SNAPSHOTS) -> None:
        self.folder = Path(folder).absolute()  # a handler may change the working directory
        self.kept = kept
        self._last: str | None = None
        self._complete: deque[str] = deque(maxlen=kept)
        self._snapshots = self.folder / "snapshots"
        self._snapshots.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only what is here before this owner. A former one that goes on must not remove the files of this one.
        self._former = list(self.folder.glob(_OF_ONE_OWNER))
        self._own = self.folder / f"owner-{uuid.uuid4().hex}"
        self._mark = self._own / _MARK  # stands for the files of this owner, and goes before them
        self.files.mkdir(parents=True)
        self._mark.touch()

    @property
    def files(self) -> Path:
        """The folder in which the handler reads and writes."""
        return self._own / "files"

    def snapshot(self, offsets: Positions) -> bytes:
        """Copy the files. Returns the name of the copy with the listing of its files.

        Raises ConfigurationError for a link to a folder, a pipe, a socket, or a name that is not UTF-8, and OSError.
        """
        self.files.stat()  # `rglob` finds nothing in a folder that is gone, as in an empty one
        while True:
            copy = self._copied(self.files, self._own / "copying")
            self._mark.stat()  # without it, another owner had begun to remove the files, and the copy may lack some
            listing = listed(copy)
            name = hashlib.sha256(canonical(listing)).hexdigest()
            target = self._snapshots / name
            try:
                os.replace(copy, target)
            except OSError:
                if not target.is_dir():
                    raise
                shutil.rmtree(copy)  # this copy is there, perhaps since another owner made it just now
            with suppress(FileNotFoundError):  # another owner may remove it as an old one, until it is the newest
                self._make_newest(target)
                break
        _sync(self._snapshots)
        self._last = name
        return MAGIC + canonical({"files": listing, "name": name})

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        """Put a copy in place of the files. Raises ResetFailedError if the copy is gone or changed, and OSError."""
        try:
            value = parsed_json(snapshot.removeprefix(MAGIC))
            name, listing = str(value["name"]), dict(value["files"])
            own = hashlib.sha256(canonical(listing)).hexdigest()
        except (ValueError, TypeError, KeyError) as problem:
            raise ResetFailedError(f"the snapshot names no files: {problem}") from problem
        if name != own:
            raise ResetFailedError("the snapshot names no files: its name is not the hash of its listing")
        source = self._snapshots / name
        if not source.is_dir():
            raise ResetFailedError("the copy that the checkpoint names is not in this folder", folder=self.folder)
        if not _has(listed(source), listing):
            raise ResetFailedError("the copy that the checkpoint names is not what it was", folder=source)
        self._drop_former()  # a full disk may lack the room for both
        self._put(self._copied(source, self._own / "restoring"))
        self._last = name
        self.completed()

    def reset_initial(self) -> None:
        """Remove all files. Raises OSError."""
        empty = self._own / "restoring"
        shutil.rmtree(empty, ignore_errors=True)
        empty.mkdir(parents=True)
        self._drop_former()
        self._put(empty)

    def completed(self) -> None:
        """Remove copies that are older than those to keep. Raises OSError."""
        if self._last is None:
            return
        if self._last in self._complete:
            self._complete.remove(self._last)
        self._complete.append(self._last)
        if len(self._complete) < self.kept:
            return  # what this process has not seen complete may still be
        with suppress(FileNotFoundError):  # another owner removes copies, too; what is left goes the next time
            oldest_ns = (self._snapshots / self._complete[0]).stat().st_mtime_ns
            for one in self._snapshots.iterdir():
                if one.name not in self._complete and one.stat().st_mtime_ns < oldest_ns:
                    self._remove(one, oldest_ns)

    # --- inner

    def _remove(self, copy: Path, oldest_ns: int) -> None:
        # A removal that is cut off must not leave a part of a copy under the name of the whole.
        gone = copy.rename(copy.with_name(f"removed-{uuid.uuid4().hex}"))
        if gone.stat().st_mtime_ns < oldest_ns:
            shutil.rmtree(gone)
        else:  # another owner made it its newest just now, and may have made it again since the renaming
            with suppress(OSError):
                gone.rename(copy)

    def _make_newest(self, copy: Path) -> None:
        """Make the time of a copy the latest of all, also if the clock went back: `completed` removes older ones."""
        latest_ns = 0
        for one in self._snapshots.iterdir():
            with suppress(FileNotFoundError):  # a former owner that goes on may remove copies
                latest_ns = max(latest_ns, one.stat().st_mtime_ns if one != copy else 0)
        os.utime(copy)
        if copy.stat().st_mtime_ns <= latest_ns:
            os.utime(copy, ns=(latest_ns + 1, latest_ns + 1))

    def _copied(self, source: Path, target: Path) -> Path:
        """All of a folder, on the disk."""
        shutil.rmtree(target, ignore_errors=True)  # what a kill left
        try:
            return self._copy(source, target)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)  # it would fill up a full disk
            raise

    def _copy(self, source: Path, target: Path) -> Path:
        target.mkdir(parents=True)  # a later owner may have removed all of this one
        for path in sorted(source.rglob("*")):
            there = target / path.relative_to(source)
            if unsendable(path.name):  # JSON cannot hold it
                raise ConfigurationError(
                    "in a FileState, a name of a file is UTF-8", hint="rename the file", path=ascii(str(path))
                )
            if path.is_dir():
                if path.is_symlink():
                    # `rglob` does not follow it. Its files would be missing after a restore, without an error.
                    raise ConfigurationError("a FileState holds no link to a folder", hint="copy the folder", path=path)
                there.mkdir()
            elif not path.is_file():  # to open a pipe would wait for ever
                raise ConfigurationError(
                    "a FileState holds only files and folders", hint="remove pipes, sockets and broken links", path=path
                )
            else:
                with path.open("rb") as read, open(there, "xb", opener=opener) as write:
                    shutil.copyfileobj(read, write, _CHUNK)
                _sync(there)
        for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
            _sync(folder)
        return target

    def _put(self, folder: Path) -> None:
        """Make `folder` the files. A crash between leaves none, and the next life begins by going back anyway."""
        old = self._own / "old"
        shutil.rmtree(old, ignore_errors=True)
        if self.files.exists():
            os.replace(self.files, old)
        os.replace(folder, self.files)
        self._mark.touch()
        _sync(self._own)
        shutil.rmtree(old, ignore_errors=True)

    def _drop_former(self) -> None:
        for one in self._former:
            with suppress(OSError):
                (one / _MARK).unlink()
            shutil.rmtree(one, ignore_errors=True)


def listed(folder: Path) -> dict[str, list[object]]:
    """Relative name -> [SHA-256, size in bytes] of every file in a folder and below. An empty folder is `NAME/: []`."""
    found: dict[str, list[object]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            if not any(path.iterdir()):
                found[f"{path.relative_to(folder).as_posix()}/"] = []
        elif path.is_file():
            with path.open("rb") as file:
                digest = hashlib.sha256()
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
            found[path.relative_to(folder).as_posix()] = [digest.hexdigest(), path.stat().st_size]
    return found


def _has(found: dict[str, list[object]], listing: dict[str, list[object]]) -> bool:
    """True if a copy is that of a listing. Listings of older versions lack empty folders."""
    return found == {**{name: one for name, one in found.items() if name.endswith("/")}, **listing}


def _sync(path: Path) -> None:
    """Sync a file's content to the disk, or a folder's names."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
