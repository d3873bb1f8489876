"""Authorized operations on a topic, a group or the cluster, as a bit field (KIP-430)."""

from typing import Final

NOT_REPORTED: Final = -(2**31)
BITS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
"""Operation by bit number, which is the operation's code in an ACL."""


def operations(field: int) -> frozenset[str] | None:
    """The operations of a bit field, by Kafka's names; None if not requested or not sent."""
    if field == NOT_REPORTED:
        return None
    return frozenset(name for bit, name in BITS.items() if field >> bit & 1)
