"""InitProducerId (22), versions 0-5: a new id for each idempotent producer. A transactional id always gets the same
producer id, under a higher epoch each time. Its open transaction is aborted.

Not done: the ends of ids and epochs.
"""

from kohort.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 22
VERSIONS = (0, 5)


async def handle(work: Work, request: InitProducerIdRequest) -> InitProducerIdResponse:
    name = request.transactional_id
    if name is None:
        producer_id = work.cluster.transactions.producer_id()
        return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
    if error := ErrorCode.INVALID_REQUEST if not name else work.group_error(name):
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    known = request.producer_id, request.producer_epoch
    error, producer_id, epoch = work.cluster.transactions.begin(name, request.transaction_timeout_ms, known)
    if error == ErrorCode.PRODUCER_FENCED and work.call.version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    work.tick()
    work.wake_fetches()
    return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
