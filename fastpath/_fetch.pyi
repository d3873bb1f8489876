from typing import NamedTuple

from typing_extensions import Buffer

FIRST_VERSION: int
LAST_VERSION: int

class SliceEnd(NamedTuple):
    next_offset: int | None
    leader_epoch: int

class FetchedPartition(NamedTuple):
    topic_id: bytes
    number: int
    high_watermark: int
    last_stable: int
    log_start: int
    records: memoryview | None
    next_offset: int
    leader_epoch: int

def slice_end(records: Buffer) -> SliceEnd: ...
def fetch_response(frame: memoryview, version: int, session_id: int, most: int) -> list[FetchedPartition] | None: ...
def fetch_request_topics(changed: list[tuple[bytes, int, int, int, int]]) -> bytes: ...
