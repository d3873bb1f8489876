"""The two ways of a transaction, and the request versions of each (KIP-98, KIP-890)."""

from collections.abc import Mapping
from typing import Final

from kohort.common.named_tuple import NamedTuple

FEATURE: Final = "transaction.version"
SECOND: Final = 2


class Limits(NamedTuple):
    """The highest and the lowest version of a request; None is no limit."""

    max_version: int | None = None
    min_version: int | None = None


LAST_OFFSETS: Final = 5
"""Version 6 of TxnOffsetCommit identifies topics by id, which a producer knows only of topics that it writes."""

ANY: Final = Limits()


class TransactionVersion(NamedTuple):
    """The way in which partitions enter a transaction, and in which it ends.

    With `implicit`, brokers add a partition by its first Produce request, and a group by TxnOffsetCommit. Each end of a
    transaction then brings the next epoch, so that late requests of it are refused. `limits`: of the request versions.
    """

    implicit: bool
    limits: Mapping[str, Limits]


# Version 6 of InitProducerId is for transactions that are prepared (KIP-939), which no released broker completes.
NO_TRANSACTIONS: Final[Mapping[str, Limits]] = {"InitProducerId": Limits(5)}
"""The limits of an idempotent producer without a transactional id."""

V1: Final = TransactionVersion(
    False,
    {
        **NO_TRANSACTIONS,
        "Produce": Limits(11),
        "AddPartitionsToTxn": Limits(3),
        "TxnOffsetCommit": Limits(4),
        "EndTxn": Limits(4),
    },
)
V2: Final = TransactionVersion(
    True,
    {
        **NO_TRANSACTIONS,
        "Produce": Limits(min_version=12),
        "TxnOffsetCommit": Limits(LAST_OFFSETS, 5),
        "EndTxn": Limits(min_version=5),
    },
)


def agreed(features: Mapping[str, int]) -> TransactionVersion:
    """The version to use with a cluster that has finalized these features (KIP-584)."""
    return V2 if features.get(FEATURE, 0) >= SECOND else V1
