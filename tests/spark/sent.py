"""Records for the tests of Spark's part, as they are handed to another library's producer."""

from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record as it was handed to the producer."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def varied(count: int, partitions: int = 3) -> list[Sent]:
    """Records with every kind of null, in turn over the partitions, a second apart."""
    return [
        Sent(
            n % partitions,
            None if n % 5 == 0 else b"key-%d" % n,
            None if n % 7 == 0 else b"" if n % 11 == 0 else b"value-%d" % n * (1 + n % 9),
            1_700_000_000_000 + n * 1000,
            () if n % 3 else (("n", b"%d" % n), ("n", b"again"), ("none", None), ("empty", b"")),
        )
        for n in range(count)
    ]
