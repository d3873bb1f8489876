"""InitProducerId (22), versions 0-5: an id for an idempotent producer, another one each time; for a transactional id
always the same, under a higher epoch each time.

Not done: transactions themselves, the ends of ids and epochs.
"""

from kohort.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.testing.fake_broker import codes
from kohort.testing.fake_broker.work import Work

KEY = 22
VERSIONS = (0, 5)


async def handle(work: Work, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return InitProducerIdResponse(error_code=codes.INVALID_REQUEST, producer_epoch=-1)
    producer_id, epoch = work.cluster.producer(request.transactional_id)
    return InitProducerIdResponse(error_code=codes.NONE, producer_id=producer_id, producer_epoch=epoch)
