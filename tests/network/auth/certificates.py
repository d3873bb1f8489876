"""Certificates, right and wrong, as PEM files; made in the test, for the test."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from trustme import CA

LOCAL = ("localhost", "127.0.0.1")


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


def signed(by: CA, name: str, *, hosts: tuple[str, ...] = LOCAL, since_days: float = 0, days: float = 30) -> Pair:
    """A certificate that is valid from `since_days` ago (less than 0: from then on), for `days`."""
    begin = datetime.now(UTC) - timedelta(days=since_days, minutes=5)
    leaf = by.issue_cert(*hosts, common_name=name, not_before=begin, not_after=begin + timedelta(days=days))
    return Pair(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes())


def self_signed() -> Pair:
    """An authority's own certificate."""
    authority = CA()
    return Pair(authority.cert_pem.bytes(), authority.private_key_pem.bytes())
