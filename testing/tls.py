"""A certificate authority and a broker's certificate, made with the JDK's own keytool."""

import subprocess
from pathlib import Path

from kohort.common.named_tuple import NamedTuple
from kohort.testing.errors import BrokerStartError
from kohort.testing.jdk import keytool

PASSWORD = "kohort-test"  # guards a key that lives for one test run


class TlsFiles(NamedTuple):
    """`keystore` (PKCS12: the broker's key and chain) and `ca_file` (PEM: what a client has to trust)."""

    keystore: Path
    ca_file: Path


def make_tls_files(folder: Path, *, names: tuple[str, ...] = ("localhost",), valid_days: int = 30) -> TlsFiles:
    """A self-made authority and a certificate for 127.0.0.1 and `names`; a negative `valid_days` has it expired."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_store, keystore, ca_file = folder / "ca.p12", folder / "broker.p12", folder / "ca.pem"
    request, signed = folder / "broker.csr", folder / "broker.pem"
    start = "-40d" if valid_days < 0 else "-1d"
    validity = str(40 + valid_days if valid_days < 0 else valid_days + 1)
    subject_names = "SAN=" + ",".join([*(f"dns:{name}" for name in names), "ip:127.0.0.1"])
    _keytool(
        ca_store,
        "-genkeypair",
        "-alias",
        "ca",
        "-keyalg",
        "EC",
        "-groupname",
        "secp256r1",
        "-dname",
        "CN=kohort test authority",
        "-ext",
        "bc:c",
        "-validity",
        "3650",
    )
    _keytool(ca_store, "-exportcert", "-alias", "ca", "-rfc", "-file", str(ca_file))
    _keytool(
        keystore,
        "-genkeypair",
        "-alias",
        "broker",
        "-keyalg",
        "EC",
        "-groupname",
        "secp256r1",
        "-dname",
        f"CN={names[0]}",
        "-validity",
        "3650",
    )
    _keytool(keystore, "-certreq", "-alias", "broker", "-file", str(request))
    _keytool(
        ca_store,
        "-gencert",
        "-alias",
        "ca",
        "-infile",
        str(request),
        "-outfile",
        str(signed),
        "-rfc",
        "-ext",
        subject_names,
        "-startdate",
        start,
        "-validity",
        validity,
    )
    _keytool(keystore, "-importcert", "-alias", "ca", "-file", str(ca_file), "-noprompt")
    _keytool(keystore, "-importcert", "-alias", "broker", "-file", str(signed), "-noprompt")
    return TlsFiles(keystore, ca_file)


def _keytool(store: Path, *arguments: str) -> None:
    command = [
        str(keytool()),
        "-J-XX:TieredStopAtLevel=1",
        "-J-XX:+UseSerialGC",
        *arguments,
        "-keystore",
        str(store),
        "-storetype",
        "PKCS12",
        "-storepass",
        PASSWORD,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise BrokerStartError(f"keytool {arguments[0]} failed: {(done.stdout + done.stderr).strip()}")
