"""AddOffsetsToTxn (25), versions 0-4: a group's offsets are part of the transaction.

Not done: what transactions.py leaves out.
"""

from kohort.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kohort.testing.fake_broker.handler_context import Work

KEY = 25
VERSIONS = (0, 4)


async def handle(work: Work, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    error = work.transaction_error(request.transactional_id, request.producer_id, request.producer_epoch)
    if not error:
        work.cluster.transactions.add(request.transactional_id, work.now, group=request.group_id)
        work.tick()
    return AddOffsetsToTxnResponse(error_code=error)
