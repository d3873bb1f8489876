"""EndTxn (26), versions 0-5: markers are in the logs and offsets decided before the response. With version 5 a
transaction ends by a new epoch (KIP-890).

Not done: what transactions.py leaves out.
"""

from kohort.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kohort.testing.fake_broker.handler_context import Work

KEY = 26
VERSIONS = (0, 5)
FIRST_WITH_EPOCH = 5


async def handle(work: Work, request: EndTxnRequest) -> EndTxnResponse:
    response = _ended(work, request)
    work.tick()
    work.wake_fetches()
    return response


def _ended(work: Work, request: EndTxnRequest) -> EndTxnResponse:
    name, producer_id, epoch = request.transactional_id, request.producer_id, request.producer_epoch
    if work.call.version < FIRST_WITH_EPOCH:
        error = work.transaction_error(name, producer_id, epoch)
        return EndTxnResponse(error_code=error or work.cluster.transactions.end(name, committed=request.committed))
    if error := work.group_error(name):
        return EndTxnResponse(error_code=error)
    error, producer_id, epoch = work.cluster.transactions.end_epoch(
        name, producer_id, epoch, committed=request.committed
    )
    return EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
