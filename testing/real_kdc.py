"""A real Kerberos of one's own: MIT's KDC on a port of the loopback interface, with principals, keytabs and tickets."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kohort.testing.child_process import Supervised
from kohort.testing.debian import unpacked
from kohort.testing.errors import KdcStartError
from kohort.testing.ports import free_ports
from kohort.testing.scratch import make_scratch, remove_scratch

PACKAGES: Final = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev")
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_SYSTEM: Final = (Path("/usr/sbin"), Path("/usr/bin"))


class RealKdc:
    """An empty realm, and its KDC; a context manager.

    `config` is the krb5.conf for clients, and for a broker's `-Djava.security.krb5.conf`; `environment` has them find
    it. Programs are the system's, or else come out of Debian's packages, which are downloaded once and not installed.
    Names of hosts are taken as they are written: `kafka/127.0.0.1` is a fine service.

    Raises PackagesUnavailable and KdcStartError. The KDC ends with this process, however that ends.
    """

    def __init__(self, realm: str = "KOHORT.TEST") -> None:
        self.realm = realm
        self.port = 0
        self._root: Path | None = None
        self._folder = Path()
        self._process: Supervised | None = None
        self._files = 0

    def __enter__(self) -> "RealKdc":
        if any(_of_system(program) is None for program in _PROGRAMS):
            self._root = unpacked("krb5", PACKAGES)
        self._folder = make_scratch("kohort-kdc-")
        try:
            self.port = free_ports(1)[0]
            self.config.write_text(self._client_config())
            (self._folder / "kdc.conf").write_text(self._server_config())
            self._run("kdb5_util", "create", "-s", "-r", self.realm, "-P", os.urandom(16).hex())
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        remove_scratch(self._folder)

    @property
    def config(self) -> Path:
        """krb5.conf."""
        return self._folder / "krb5.conf"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment with which a process finds this realm, without tickets of the calling user."""
        return {"KRB5_CONFIG": str(self.config), "KRB5CCNAME": f"FILE:{self._folder / 'nobody'}"}

    # --- principals

    def add(self, principal: str, password: str | None = None) -> None:
        """Create a principal, with a password or a random key. Raises KdcStartError if it exists."""
        self._admin(f"addprinc {f'-pw {password}' if password else '-randkey'} {principal}")

    def keytab(self, *principals: str) -> Path:
        """Return a new keytab file with new keys of principals. Their former keys become invalid.

        Raises KdcStartError for an unknown principal.
        """
        path = self._fresh("keytab")
        for principal in principals:
            self._admin(f"ktadd -k {path} {principal}")
        return path

    def tickets(self, principal: str, password: str, *, lifetime_s: int = 3600) -> str:
        """Request a ticket for `lifetime_s` seconds as kinit does. Returns its cache as a value for KRB5CCNAME.

        Raises KdcStartError if the KDC refuses.
        """
        cache = f"FILE:{self._fresh('tickets')}"
        self._run("kinit", "-c", cache, "-l", f"{lifetime_s}s", principal, response=password)
        return cache

    # --- its life

    def start(self, *, clock_ahead_s: int = 0) -> None:
        """Serve, also after `stop`. The KDC's clock is `clock_ahead_s` seconds ahead. Raises KdcStartError."""
        clock = {"LD_PRELOAD": str(_faketime()), "FAKETIME": f"+{clock_ahead_s}s"} if clock_ahead_s else {}
        command = [str(self._program("krb5kdc")), "-n", "-r", self.realm]
        self._process = Supervised(
            command,
            folder=self._folder,
            log=self._log,
            remove_if_orphaned=self._folder,
            environment=self._server_environment() | clock,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while "commencing operation" not in self._tail():
            if not self._process.running or time.monotonic() > deadline:
                raise KdcStartError(f"it does not serve: {self._tail()[-2000:]}", log=self._log, port=self.port)
            time.sleep(0.02)

    def stop(self) -> None:
        """End the KDC. Its port gives no response until `start`."""
        if self._process is not None:
            self._process.end(signal.SIGTERM, STOP_TIMEOUT_S)
            self._process = None
            self._log.unlink(missing_ok=True)  # the next one's first words are to be its own

    # --- inner

    @property
    def _log(self) -> Path:
        return self._folder / "kdc.log"

    def _tail(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _client_config(self) -> str:
        plugins = (
            "" if self._root is None else f"[dbmodules]\n db_module_dir = {self._libraries / 'krb5/plugins/kdb'}\n"
        )
        return (
            f"[libdefaults]\n default_realm = {self.realm}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {self.realm} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[logging]\n kdc = FILE:{self._log}\n{plugins}"
        )

    def _server_config(self) -> str:
        folder, address = self._folder, f"127.0.0.1:{self.port}"
        return (
            f"[kdcdefaults]\n kdc_listen = {address}\n kdc_tcp_listen = {address}\n"
            f"[realms]\n {self.realm} = {{\n  database_name = {folder / 'principals'}\n"
            f"  key_stash_file = {folder / 'stash'}\n  acl_file = {folder / 'acl'}\n"
            "  default_principal_flags = +preauth\n }\n"
        )

    @property
    def _libraries(self) -> Path:
        assert self._root is not None
        return next(self._root.glob("usr/lib/*/krb5")).parent

    def _server_environment(self) -> dict[str, str]:
        found = {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self._folder / "kdc.conf")}
        if self._root is not None:
            found["LD_LIBRARY_PATH"] = str(self._libraries)
        return found

    def _program(self, name: str) -> Path:
        if self._root is None:
            found = _of_system(name)
            assert found is not None
            return found
        return next(path for path in (self._root / "usr/sbin" / name, self._root / "usr/bin" / name) if path.exists())

    def _fresh(self, kind: str) -> Path:
        self._files += 1
        return self._folder / f"{kind}-{self._files}"

    def _admin(self, query: str) -> None:
        said = self._run("kadmin.local", "-r", self.realm, "-q", query)
        # It reports failures, and still exits with 0.
        if "while " in said:
            raise KdcStartError(f"kadmin {query.split()[0]} failed: {said.strip()[-500:]}")

    def _run(self, program: str, *arguments: str, response: str = "") -> str:
        done = subprocess.run(
            [str(self._program(program)), *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            input=f"{response}\n",
            env=self._server_environment(),
        )
        if done.returncode:
            raise KdcStartError(f"{program} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
        return done.stdout + done.stderr


def _faketime() -> Path:
    library = "usr/lib/*/faketime/libfaketime.so.1"
    return next(Path("/").glob(library), None) or next(unpacked("faketime", ("libfaketime",)).glob(library))


def _of_system(program: str) -> Path | None:
    return next((folder / program for folder in _SYSTEM if (folder / program).exists()), None)
