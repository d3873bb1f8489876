"""A certificate authority and a broker's certificate, made by trustme."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from kohort.common.named_tuple import NamedTuple
from kohort.common.optional_libraries import needed
from kohort.testing.errors import BrokerStartError


class TlsFiles(NamedTuple):
    """`keystore` (PEM: the broker's key and certificate) and `ca_file` (PEM: what a client has to trust)."""

    keystore: Path
    ca_file: Path


def make_tls_files(folder: Path, *, names: tuple[str, ...] = ("localhost",), valid_days: int = 30) -> TlsFiles:
    """A new authority and a certificate for 127.0.0.1 and `names`; a negative `valid_days` has it expired.

    Raises BrokerStartError without trustme.
    """
    with needed("a TLS listener", "'kohort[testing]'", BrokerStartError):
        import trustme
        from cryptography.hazmat.primitives import serialization
    authority = trustme.CA()
    expiry = datetime.now(UTC) + timedelta(days=valid_days)
    issued = authority.issue_cert(*names, "127.0.0.1", common_name=names[0], not_after=expiry)
    # Kafka reads keys in PKCS#8 only, and trustme writes OpenSSL's older form.
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(folder / "broker.pem", folder / "ca.pem")
    files.keystore.write_bytes(key + b"".join(each.bytes() for each in issued.cert_chain_pems))
    authority.cert_pem.write_to_path(files.ca_file)
    return files
