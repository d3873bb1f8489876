"""Kafka's compression codecs behind one interface, which decompresses *into* a given buffer.

A reused buffer causes no page faults, which makes decompression two to four times as fast. A full buffer also stops a
decompression bomb: no codec can write past the memory that the caller allocated. The caller first calls `size_bound`,
which walks the frame's own block headers. One call of the codec is then enough, except for hostile input.

cramjam supports all four codecs, and alone decides if a payload is broken. If installed, isal (gzip, twice as fast) and
zstandard are tried first. zstandard keeps its contexts: batches of 16 KiB need half the time to read, and two thirds to
write. Each library is imported inside the functions that call it, so a start does not wait for unused codecs.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from importlib.util import find_spec
from typing import Any

from kohort.common.named_tuple import NamedTuple
from kohort.fastpath._memory import Window


class Codec(IntEnum):
    """The three low bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DoesNotFit(Exception):
    """The target is full, and there is more output. It is not a fault: the caller grows the buffer, or stops."""


class Broken(ValueError):
    """The payload is not valid for its codec. The text gives the reason."""


class Compression(NamedTuple):
    """The functions that read and write one codec.

    `size_bound(source, limit)`: an upper bound of the decompressed size, or `limit` or more if the size may exceed it.
    `decompress_into(source, target)`: the number of bytes written. Raises DoesNotFit or Broken.
    `compress(source, level)`: bytes. `level` None is the codec's default.
    """

    size_bound: Callable[[memoryview, int], int]
    decompress_into: Callable[[memoryview, Any], int]
    compress: Callable[[Any, int | None], bytes]


# The libraries' messages for a full target, as opposed to a broken source.
_FULL = ("failed to write whole buffer", "is smaller than required")


def _cramjam_into(library: str, function: str = "decompress_into") -> Callable[[memoryview, Any], int]:
    def into(source: memoryview, target: Any) -> int:
        import cramjam

        try:
            written: int = getattr(getattr(cramjam, library), function)(source, target)
        except cramjam.DecompressionError as error:
            text = str(error)
            if any(full in text for full in _FULL):
                raise DoesNotFit from None
            raise Broken(text) from None
        else:
            return written

    return into


def _cramjam_compress(library: str) -> Callable[[Any, int | None], bytes]:
    def run(source: Any, level: int | None) -> bytes:
        import cramjam

        compress = getattr(cramjam, library).compress
        return bytes(compress(source) if level is None else compress(source, level))

    return run


# ---------------------------------------------------------------------------------------------------------------- gzip
def _gzip_bound(source: memoryview, limit: int) -> int:
    # RFC 1952: the last four bytes are the size modulo 2**32 of the last member only. Each attempt that does not fit
    # costs the whole payload again, so the first attempt has room for members that were not compressible.
    return max(int.from_bytes(source[-4:], "little"), len(source)) if len(source) >= 18 else 0


_GZIP_PIECE_BYTES = 1 << 20  # size of the library's output chunks, which is memory beside the target
_GZIP_MEMBERS = 16  # isal copies all that follows each member, so payloads with more members go to cramjam

_gzip_library_into = _cramjam_into("gzip")


def _isal_gzip_into(source: memoryview, target: Any) -> int:
    from isal import igzip_lib

    room = memoryview(target).cast("B")
    written, rest = 0, source
    for _ in range(_GZIP_MEMBERS):
        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        while not member.eof:
            # One byte more than fits distinguishes a full target from an exact fit.
            most = min(len(room) - written + 1, _GZIP_PIECE_BYTES)
            try:
                out = member.decompress(rest, max_length=most)
            except igzip_lib.IsalError as error:  # type: ignore[misc]  # the stubs do not say that it is an exception
                raise Broken(str(error)) from None
            if len(out) > len(room) - written:
                raise DoesNotFit
            room[written : written + len(out)] = out
            written += len(out)
            if not out and not member.eof:
                raise Broken("incomplete gzip stream")
            rest = memoryview(b"")
        if not member.unused_data:
            return written
        rest = memoryview(member.unused_data)
    return written + _gzip_library_into(rest, Window(target, written))


# -------------------------------------------------------------------------------------------------------------- snappy
XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16  # magic, then two int32 versions


def _is_xerial(source: memoryview) -> bool:
    return bytes(source[:8]) == XERIAL_MAGIC


def _xerial_blocks(source: memoryview) -> Iterator[memoryview]:
    # One at a time: a payload may have only empty blocks, and a list of them takes forty times their size.
    at = _XERIAL_HEADER_BYTES
    if len(source) < at:
        raise Broken("truncated xerial snappy header")
    while at < len(source):
        # snappy-java concatenates whole streams, and each begins with the header again.
        if source[at] == XERIAL_MAGIC[0] and _is_xerial(source[at : at + 8]):
            at += _XERIAL_HEADER_BYTES
            continue
        size = int.from_bytes(source[at : at + 4], "big")
        at += 4
        if at + size > len(source):
            raise Broken("xerial snappy block longer than the payload")
        yield source[at : at + size]
        at += size


def _snappy_bound(source: memoryview, limit: int) -> int:
    import cramjam

    total = 0
    for block in _xerial_blocks(source) if _is_xerial(source) else (source,):
        try:
            total += cramjam.snappy.decompress_raw_len(block)
        except cramjam.DecompressionError as error:
            raise Broken(str(error)) from None
        if total >= limit:
            break
    return total


_snappy_raw_into = _cramjam_into("snappy", "decompress_raw_into")


def _snappy_into(source: memoryview, target: Any) -> int:
    if not _is_xerial(source):
        return _snappy_raw_into(source, target)
    written = 0
    for block in _xerial_blocks(source):
        written += _snappy_raw_into(block, Window(target, written))
    return written


def _snappy_compress(source: Any, level: int | None) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(source))


# ----------------------------------------------------------------------------------------------------------------- lz4
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_UNCOMPRESSED_BIT = 0x80000000

# Kafka's clients write independent blocks of 64 KiB without checksums, because the batch has its own. Kafka's brokers
# reject linked blocks. The header of such a frame is constant, and so is its checksum byte (0x82).
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_END_MARK = bytes(4)
_LZ4_KAFKA_BLOCK_BYTES = 1 << 16


def _lz4_bound(source: memoryview, limit: int) -> int:
    """Return the sum of the blocks' maximum sizes. The library rejects an invalid frame."""
    total, at = 0, 0
    while at + 7 <= len(source) and total < limit:
        if int.from_bytes(source[at : at + 4], "little") != _LZ4_MAGIC:
            break
        flags, block_bytes = source[at + 4], _LZ4_BLOCK_BYTES.get(source[at + 5] >> 4 & 7, 1 << 22)
        block_checksum, content_size, content_checksum = flags & 0x10, flags & 0x08, flags & 0x04
        at += 7 + (8 if content_size else 0)
        while at + 4 <= len(source) and total < limit:
            size = int.from_bytes(source[at : at + 4], "little")
            at += 4
            if size == 0:
                at += 4 if content_checksum else 0
                break
            stored = size & ~_UNCOMPRESSED_BIT
            total += stored if size & _UNCOMPRESSED_BIT else block_bytes
            at += stored + (4 if block_checksum else 0)
    return total


_lz4_library_into = _cramjam_into("lz4")


def _lz4_into(source: memoryview, target: Any) -> int:
    """Decompress block by block if the frame is as Kafka's clients write it, which saves the library a copy of each."""
    import cramjam

    if source[: len(_LZ4_HEADER)] == _LZ4_HEADER:
        written, at, end = 0, len(_LZ4_HEADER), len(source) - len(_LZ4_END_MARK)
        while at < end:
            size = int.from_bytes(source[at : at + 4], "little")
            block = source[at + 4 : at + 4 + size]
            if size & _UNCOMPRESSED_BIT or len(block) < size:
                break
            room = Window(target, written)
            most = min(len(room), _LZ4_KAFKA_BLOCK_BYTES)
            try:
                written += cramjam.lz4.decompress_block_into(block, room, output_len=most)
            except cramjam.DecompressionError:
                break
            at += 4 + size
        if at == end and source[end:] == _LZ4_END_MARK:
            return written
    return _lz4_library_into(source, target)


def _legacy_lz4_into(source: memoryview, target: Any) -> int:
    """Decompress a frame block by block and ignore its header's checksum: magic 0 computed it wrongly (KAFKA-3160)."""
    import cramjam

    if len(source) < 7 or int.from_bytes(source[:4], "little") != _LZ4_MAGIC:
        raise Broken("not an lz4 frame")
    flags, block_bytes = source[4], _LZ4_BLOCK_BYTES.get(source[5] >> 4 & 7)
    if block_bytes is None or flags >> 6 != 1:
        raise Broken("unknown lz4 frame version or block size")
    if not flags & 0x20:
        raise Broken("an lz4 frame of linked blocks, which Kafka does not write")
    room = memoryview(target).cast("B")
    scratch = bytearray(block_bytes)
    written, at = 0, 7 + (8 if flags & 0x08 else 0)
    while True:
        if at + 4 > len(source):
            raise Broken("truncated lz4 frame")
        size = int.from_bytes(source[at : at + 4], "little")
        at += 4
        if size == 0:
            return written
        stored = size & ~_UNCOMPRESSED_BIT
        block = source[at : at + stored]
        at += stored + (4 if flags & 0x10 else 0)
        if len(block) < stored or stored > block_bytes:
            raise Broken("lz4 block longer than the frame allows")
        if size & _UNCOMPRESSED_BIT:
            plain: Any = block
        else:
            try:
                size = cramjam.lz4.decompress_block_into(block, scratch, output_len=block_bytes)
            except cramjam.DecompressionError as error:
                raise Broken(str(error)) from None
            plain = memoryview(scratch)[:size]
        if written + len(plain) > len(room):
            raise DoesNotFit
        room[written : written + len(plain)] = plain
        written += len(plain)


def _lz4_compress(source: Any, level: int | None) -> bytes:
    import cramjam

    if level is not None:  # only the library's frames have levels
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(bytes(source))  # it takes no other buffer
        return bytes(frame.finish())
    view = memoryview(source).cast("B")
    parts = [_LZ4_HEADER]  # composed here, because the library's own frames have checksums of blocks
    for at in range(0, len(view), _LZ4_KAFKA_BLOCK_BYTES):
        plain = view[at : at + _LZ4_KAFKA_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(packed) < len(plain):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(plain) | _UNCOMPRESSED_BIT).to_bytes(4, "little"), bytes(plain))
    return b"".join((*parts, _LZ4_END_MARK))


# ---------------------------------------------------------------------------------------------------------------- zstd
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 1 << 17
_ZSTD_SIZE_FIELD_BYTES = (0, 2, 4, 8)
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)


def _zstd_bound(source: memoryview, limit: int) -> int:
    total, at = 0, 0
    while at < len(source) and total < limit:
        size, end = _zstd_frame(source, at, limit - total)
        if end <= at:
            break
        total, at = total + size, end
    return total


def _zstd_frame(source: memoryview, at: int, limit: int) -> tuple[int, int]:
    """Return (maximum size, end) of the frame at `at` by RFC 8878; (0, `at`) if there is none.

    The size is the content size if the frame has it, otherwise the sum of the blocks' maxima. Past `limit` it is not
    exact.
    """
    if at + 5 > len(source) or int.from_bytes(source[at : at + 4], "little") != _ZSTD_MAGIC:
        return 0, at
    descriptor = source[at + 4]
    single_segment, checksum = descriptor & 0x20, descriptor & 0x04
    size_bytes = _ZSTD_SIZE_FIELD_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    at += 5 + (0 if single_segment else 1) + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    claimed = int.from_bytes(source[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    at += size_bytes
    last, total = False, 0
    while not last and at + 3 <= len(source) and total < limit:
        header = int.from_bytes(source[at : at + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        total += _ZSTD_BLOCK_BYTES if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
    return min(claimed, total) if size_bytes else total, at + (4 if checksum else 0)


_zstd_library_into = _cramjam_into("zstd")
_ZSTD_PIECE_BYTES = 1 << 20  # above it a second copy costs more than a kept context saves, and takes memory
_contexts = threading.local()  # a context serves one thread at a time
_zstd_library_compress = _cramjam_compress("zstd")


def _zstandard_into(source: memoryview, target: Any) -> int:
    # zstandard does not always notice trailing bytes, so they are checked first.
    import zstandard

    if len(target) <= _ZSTD_PIECE_BYTES and _zstd_frame(source, 0, _ZSTD_PIECE_BYTES)[1] == len(source):
        try:
            context = _contexts.decompressor
        except AttributeError:
            context = _contexts.decompressor = zstandard.ZstdDecompressor()
        # cramjam distinguishes a broken payload, one that is too long, and several frames.
        with contextlib.suppress(zstandard.ZstdError):
            # zstandard allocates the memory that a frame declares before it has read the frame.
            if zstandard.frame_content_size(source) <= len(target):
                plain = context.decompress(source, max_output_size=len(target))
                if len(plain) <= len(target):
                    memoryview(target).cast("B")[: len(plain)] = plain
                    return len(plain)
    return _zstd_library_into(source, target)


def _zstandard_compress(source: Any, level: int | None) -> bytes:
    if level is not None:  # a context is made for one level
        return _zstd_library_compress(source, level)
    try:
        context = _contexts.compressor
    except AttributeError:
        import zstandard

        context = _contexts.compressor = zstandard.ZstdCompressor()
    packed: bytes = context.compress(source)
    return packed


CODECS: dict[int, Compression] = {
    Codec.GZIP: Compression(
        _gzip_bound,
        _isal_gzip_into if find_spec("isal") is not None else _gzip_library_into,
        _cramjam_compress("gzip"),
    ),
    Codec.SNAPPY: Compression(_snappy_bound, _snappy_into, _snappy_compress),
    Codec.LZ4: Compression(_lz4_bound, _lz4_into, _lz4_compress),
    Codec.ZSTD: Compression(
        _zstd_bound,
        *(
            (_zstandard_into, _zstandard_compress)
            if find_spec("zstandard") is not None
            else (_zstd_library_into, _zstd_library_compress)
        ),
    ),
}

LEGACY_LZ4 = CODECS[Codec.LZ4]._replace(decompress_into=_legacy_lz4_into)


def codec_of(codec: "str | int | Codec") -> Codec:
    """Return a codec by Kafka's name for it ("none", "gzip", "snappy", "lz4", "zstd") or by its number."""
    if isinstance(codec, str):
        try:
            return Codec[codec.upper()]
        except KeyError:
            names = ", ".join(known.name.lower() for known in Codec)
            raise ValueError(f"unknown codec {codec!r}: use one of {names}") from None
    return Codec(codec)
