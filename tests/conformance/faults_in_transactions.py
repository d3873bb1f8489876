"""G4b and K: brokers that misunderstand transactions; only messages are bent, so that all else stays sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.protocol.apis.end_txn import EndTxnResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Call, FakeBroker
from tests.conformance.bending import Change, Fault, altered, bent, code, in_partitions, positions, requested, responded


def in_transaction(found: str, wrong: str) -> Change:
    """A code of a partition in a TxnOffsetCommit response."""
    return in_partitions(found, wrong)


def repeated(call: Call, broker: FakeBroker) -> bool:
    """True if the request has come before."""
    return sum(one.request == call.request for one in broker.calls_of(call.api)) > 1


def undecided(api: str, change: Callable[[dict[Any, Any]], None]) -> Callable[[FakeBroker], None]:
    """Before each call of `api`, `change` gets the offsets that the producer has in an open transaction."""

    def install(broker: FakeBroker) -> None:
        def control(call: Call) -> None:
            for (_group, producer), offsets in broker._cluster.groups._undecided.items():
                if producer == requested(call).producer_id:
                    change(offsets)

        broker.control(api, control)

    return install


def keep_first(offsets: dict[Any, Any]) -> None:
    for partition in list(offsets)[1:]:
        del offsets[partition]


def same_metadata(offsets: dict[Any, Any]) -> None:
    metadata = next(reversed(offsets.values())).metadata
    offsets.update({partition: committed._replace(metadata=metadata) for partition, committed in offsets.items()})


FAULTS: tuple[Fault, ...] = (
    Fault(
        "a transaction that is committed is aborted",
        bent("EndTxn", lambda request: request._replace(committed=False)),
        ("K2a", "K2c", "K1d"),
    ),
    Fault(
        "a transaction that is aborted is committed",
        bent("EndTxn", lambda request: request._replace(committed=True)),
        ("K2b",),
    ),
    Fault(
        "a transaction commits one partition only",
        undecided("EndTxn", keep_first),
        ("K2c",),
    ),
    Fault(
        "a transaction has the offsets of its last TxnOffsetCommit only",
        undecided("TxnOffsetCommit", dict.clear),
        ("K2c",),
    ),
    Fault(
        "the offsets of a transaction share their metadata",
        undecided("EndTxn", same_metadata),
        ("K2c",),
    ),
    Fault(
        "TxnOffsetCommit refuses a request without a member",
        bent(
            "TxnOffsetCommit",
            lambda request: (
                request
                if request.member_id
                else request._replace(member_id="other-member", generation_id_or_member_epoch=1)
            ),
        ),
        ("K4", "K2a", "K2b", "K2c", "K5", "K3", "G4b"),
    ),
    Fault(
        "a transaction's offset that is not decided yet passes for stable",
        altered("OffsetFetch", positions(lambda request, entry: entry._replace(error_code=0))),
        ("G4b",),
    ),
    Fault(
        "TxnOffsetCommit does not fence instances",
        altered("TxnOffsetCommit", in_transaction("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID")),
        ("K1a",),
    ),
    Fault(
        "TxnOffsetCommit accepts any member id",
        altered("TxnOffsetCommit", in_transaction("UNKNOWN_MEMBER_ID", "NONE")),
        ("K1b",),
    ),
    Fault(
        "TxnOffsetCommit takes any generation",
        altered("TxnOffsetCommit", in_transaction("ILLEGAL_GENERATION", "NONE")),
        ("K1c",),
    ),
    Fault(
        "TxnOffsetCommit takes an epoch that is over",
        altered("TxnOffsetCommit", in_transaction("INVALID_PRODUCER_EPOCH", "NONE")),
        ("K3", "K2b"),
    ),
    Fault(
        "TxnOffsetCommit takes a partition that is not there",
        altered("TxnOffsetCommit", in_transaction("UNKNOWN_TOPIC_OR_PARTITION", "NONE")),
        ("K5",),
    ),
    Fault(
        "AddOffsetsToTxn keeps to the code of old",
        altered("AddOffsetsToTxn", code("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")),
        ("K7a",),
    ),
    Fault(
        "EndTxn keeps to the code of old",
        altered("EndTxn", code("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")),
        ("K7b",),
    ),
    Fault(
        "EndTxn brings no next epoch",
        altered("EndTxn", lambda _request, response: response._replace(producer_epoch=response.producer_epoch - 1)),
        ("K2a", "K2b", "K2c"),
    ),
    Fault(
        "EndTxn takes no second request for a lost response",
        responded("EndTxn", lambda _call: EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE), repeated),
        ("K2a", "K2b", "K2c"),
    ),
    Fault(
        "TxnOffsetCommit wants the group to be added before, as in version 1",
        altered("TxnOffsetCommit", in_transaction("NONE", "INVALID_TXN_STATE")),
        ("K4", "K5", "K2c"),
    ),
)
