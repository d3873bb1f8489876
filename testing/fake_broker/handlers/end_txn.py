"""EndTxn (26), versions 0-4: markers are in the logs and offsets decided before the response.

Not done: version 5, with which a transaction ends by a new epoch (KIP-890); what transactions.py leaves out.
"""

from kohort.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kohort.testing.fake_broker.handler_context import Work

KEY = 26
VERSIONS = (0, 4)


async def handle(work: Work, request: EndTxnRequest) -> EndTxnResponse:
    error = work.transaction_error(request.transactional_id, request.producer_id, request.producer_epoch)
    error = error or work.cluster.transactions.end(request.transactional_id, committed=request.committed)
    work.tick()
    work.wake_fetches()
    return EndTxnResponse(error_code=error)
