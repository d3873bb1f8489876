"""Checks that a broker serves, and counts the brokers it sees."""

import struct

from kohort.testing.plain_wire import send

_METADATA = 3


def brokers_seen(address: str, *, timeout_s: float = 2.0) -> int:
    """The number of brokers that the one at `address` lists in Metadata v1; 0 if it does not respond yet."""
    try:
        response = send(address, _METADATA, 1, struct.pack(">i", 0), timeout_s=timeout_s)  # about no topic
    except OSError:
        return 0
    return int(struct.unpack_from(">i", response)[0])
