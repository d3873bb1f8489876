"""Certificates of every kind, right and wrong, as PEM files; made in the test, for the test."""

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCAL = ("localhost", "127.0.0.1")
_USES = "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign"
_SIGNS = x509.KeyUsage(
    **{use: use in ("key_cert_sign", "crl_sign") for use in (*_USES.split(), "encipher_only", "decipher_only")}
)


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: bytes
    key: bytes

    def write(self, certificate: Path, key: Path) -> None:
        """Into files: each replaced whole, as tools that renew certificates do it."""
        for path, text in ((key, self.key), (certificate, self.certificate)):
            new = path.with_suffix(".new")
            new.write_bytes(text)
            new.replace(path)


@dataclass
class Authority:
    """Signs certificates. `pem` is what has to be trusted."""

    name: str
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def pem(self) -> bytes:
        return _signed(self.name, self._key, self.name, self._key, (), 0, 30, authority=True)

    def pair(self, name: str, *, hosts: tuple[str, ...] = LOCAL, since_days: float = 0, days: float = 30) -> Pair:
        """A certificate that is valid from `since_days` ago (less than 0: from then on), for `days`."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Pair(_signed(name, key, self.name, self._key, hosts, since_days, days), key_text(key))


def self_signed(name: str) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    return Pair(_signed(name, key, name, key, LOCAL, 0, 30), key_text(key))


def key_text(key: ec.EllipticCurvePrivateKey, password: str | None = None) -> bytes:
    sealed = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)


def _signed(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    by: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...],
    since_days: float,
    days: float,
    *,
    authority: bool = False,
) -> bytes:
    begin = datetime.now(UTC) - timedelta(days=since_days, minutes=5)
    built = (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        # RFC 5280 requires these, and so does ssl.create_default_context from Python 3.13 (VERIFY_X509_STRICT).
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    )
    if authority:
        built = built.add_extension(_SIGNS, critical=True)
    if hosts:
        built = built.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return built.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
