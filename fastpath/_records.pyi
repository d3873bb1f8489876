from collections.abc import Iterable
from typing import Literal

from typing_extensions import Buffer

from kohort.fastpath._columns import RecordColumns

def decode(
    buffer: Buffer,
    *,
    topic: str = "",
    partition: int = -1,
    from_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
    max_decompressed_bytes: int = ...,
    on_corrupt: Literal["raise", "skip_batch"] = "raise",
    high_watermark: int = -1,
) -> RecordColumns: ...
