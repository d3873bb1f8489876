"""Installs the library `gssapi` into this environment: `python -m tests.network.auth.kerberos_library [REQUIREMENT]`.

Without a requirement it takes the version of constraints.txt.

It is only published as source. If krb5's headers are installed (Debian: libkrb5-dev), pip builds it by itself.
Otherwise it is built against the packages of the tests' KDC, and loads their libraries.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from kohort.testing.debian import unpacked
from kohort.testing.real_kdc import PACKAGES


def main(requirements: list[str]) -> int:
    if find_spec("gssapi") is not None:
        return 0
    environment = dict(os.environ)
    if shutil.which("krb5-config") is None:
        print("== krb5's headers, programs and libraries out of Debian's packages (nothing is installed)", flush=True)
        environment |= against(unpacked("krb5", PACKAGES))
    print("== building gssapi: some two minutes", flush=True)
    # Not out of pip's cache, nor into it: the next environment may have its libraries elsewhere.
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir"]
    wanted = requirements or ["-c", "constraints.txt", "gssapi"]
    return subprocess.run([*pip, *wanted], env=environment, check=False).returncode


def against(root: Path) -> dict[str, str]:
    """The environment that gssapi's own setup.py reads in place of a call of krb5-config."""
    headers, libraries = root / "usr/include", next(root.glob("usr/lib/*/krb5")).parent
    newest = libraries / "libgssapi_krb5.so.2"  # there, unless the system's is the same
    return {
        "GSSAPI_COMPILER_ARGS": f"-DHAS_GSSAPI_EXT_H -I{headers / 'mit-krb5'} -I{headers}",
        "GSSAPI_LINKER_ARGS": f"-L{libraries} -Wl,-rpath,{libraries} -l:libgssapi_krb5.so.2",
        "GSSAPI_MAIN_LIB": str(newest) if newest.exists() else newest.name,
        "GSSAPI_SUPPORT_DETECT": "true",
        "PATH": f"{root / 'usr/bin'}{os.pathsep}{os.environ['PATH']}",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
