"""InitProducerId (22), versions 0-5: an id for an idempotent producer, another one each time.

Not done: transactions (refused), the limit on ids.
"""

from kohort.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.testing.fake_broker import codes
from kohort.testing.fake_broker.work import Work

KEY = 22
VERSIONS = (0, 5)


async def handle(work: Work, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=codes.INVALID_REQUEST, producer_epoch=-1)
    return InitProducerIdResponse(error_code=codes.NONE, producer_id=work.cluster.next_producer_id(), producer_epoch=0)
