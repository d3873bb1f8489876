"""A lock of an open file between processes. The system releases it when its holder dies."""

import sys
from typing import IO

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: IO[str]) -> bool:
        """Lock the first byte, which need not exist. Returns False if another process holds it."""
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def try_lock(file: IO[str]) -> bool:
        """Lock the file. Returns False if another open file holds the lock. Raises OSError if there are no locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(file: IO[str]) -> None:
        """Unlock the file, which a forked child may have open for longer."""
        fcntl.flock(file, fcntl.LOCK_UN)
