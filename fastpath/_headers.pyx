# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The headers of one record, or of a slice in Arrow's layout. They are parsed when they are read."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from array import array
from collections import namedtuple
from itertools import accumulate, pairwise

from kohort.fastpath._memory cimport Block
from kohort.fastpath._store cimport NO_HEADERS, Run, Store
from kohort.fastpath._varint cimport varint

MOST_OFFSET = 0x7FFFFFFF
"""The largest offset that an int32 column of offsets holds."""

HeaderLayout = namedtuple("HeaderLayout", "total present offsets name_offsets names value_offsets values validity")
HeaderLayout.__doc__ = """All headers of a slice in Arrow's layout of list<struct<key: string, value: binary>>.

`total`: how many in all. `present`: a bit for each record, set where it has any. `offsets` (int32): where each record's
begin, one more than records. `names` and `values` with their int32 offsets. `validity`: a bit for each value.
"""


cdef tuple headers_at(const uint8_t *p, const uint8_t *end, bint in_bytes):
    """The headers of a record. `in_bytes`: the names as they are, which need not be UTF-8."""
    cdef int32_t count = 0, size = 0
    cdef int32_t i
    cdef list headers = []
    p = varint(p, end, &count)
    for i in range(count):
        p = varint(p, end, &size)
        if p == NULL or size < 0 or size > end - p:
            break
        if in_bytes:
            name = PyBytes_FromStringAndSize(<const char *>p, size)
        else:
            name = (<const char *>p)[:size].decode("utf-8", "replace")
        p += size
        p = varint(p, end, &size)
        if p == NULL or size > end - p:
            break
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, PyBytes_FromStringAndSize(<const char *>p, size)))
            p += size
    return tuple(headers)


cdef int _fits(int64_t total, str what) except -1:
    if total > MOST_OFFSET:
        raise OverflowError(f"a slice's headers have {total} {what}; an int32 offset ends at {MOST_OFFSET}: slice it")
    return 0


cdef object header_layout(Store store, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_ssize_t i
    cdef HeaderTotals totals = HeaderTotals(0, 0, 0)
    cdef Run *first = store.run_of(start)
    cdef Run *last = store.last_run()
    cdef Run *run = first
    cdef bint sound = True
    with nogil:
        for i in range(start, stop):
            while run < last and run[1].first <= i:
                run += 1
            if store.headers[i] != NO_HEADERS:
                if header_span(run.data + store.headers[i], run.data + run.size, &totals) == NULL:
                    sound = False
                    break
    if not sound:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    if totals.count == 0:
        return None
    _fits(totals.count, "entries")
    _fits(totals.name_bytes, "bytes of names")
    _fits(totals.value_bytes, "bytes of values")

    cdef Block present = Block((stop - start + 7) // 8)
    cdef Block offsets = Block((stop - start + 1) * 4)
    cdef Block name_offsets = Block((totals.count + 1) * 4)
    cdef Block names = Block(totals.name_bytes)
    cdef Block value_offsets = Block((totals.count + 1) * 4)
    cdef Block values = Block(totals.value_bytes)
    cdef Block validity = Block((totals.count + 7) // 8)
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int32_t count = 0, size = 0, h
    cdef int64_t done = 0, name_at = 0, value_at = 0  # a sum of two int32 may pass an int32 if the buffer has changed
    memset(present.data, 0, present.size)
    memset(validity.data, 0, validity.size)
    run = first
    with nogil:
        for i in range(start, stop):
            while run < last and run[1].first <= i:
                run += 1
            (<int32_t *>offsets.data)[i - start] = <int32_t>done
            if store.headers[i] == NO_HEADERS:
                continue
            present.data[(i - start) >> 3] |= 1 << ((i - start) & 7)
            end = run.data + run.size
            p = varint(run.data + store.headers[i], end, &count)
            for h in range(count):
                p = varint(p, end, &size)
                if p == NULL or size < 0 or size > end - p or name_at + size > totals.name_bytes or done >= totals.count:
                    sound = False
                    break
                (<int32_t *>name_offsets.data)[done] = <int32_t>name_at
                memcpy(names.data + name_at, p, size)
                name_at += size
                p = varint(p + size, end, &size)
                if p == NULL or size > end - p or (size > 0 and value_at + size > totals.value_bytes):
                    sound = False
                    break
                (<int32_t *>value_offsets.data)[done] = <int32_t>value_at
                if size >= 0:
                    memcpy(values.data + value_at, p, size)
                    value_at += size
                    p += size
                    validity.data[done >> 3] |= 1 << (done & 7)
                done += 1
            if not sound:
                break
        (<int32_t *>offsets.data)[stop - start] = <int32_t>done
        (<int32_t *>name_offsets.data)[done] = <int32_t>name_at
        (<int32_t *>value_offsets.data)[done] = <int32_t>value_at
    if not sound or done != totals.count:
        raise RuntimeError("the decoded buffer was changed while columns pointed into it")
    name_view, name_offset_view = memoryview(names), memoryview(name_offsets).cast("i")
    if not _is_utf8(names, name_offsets, totals.count):
        name_view, name_offset_view = _repaired(name_view, name_offset_view)
    return HeaderLayout(
        totals.count,
        memoryview(present).toreadonly(),
        memoryview(offsets).toreadonly().cast("i"),
        name_offset_view.toreadonly(),
        name_view.toreadonly(),
        memoryview(value_offsets).toreadonly().cast("i"),
        memoryview(values).toreadonly(),
        memoryview(validity).toreadonly(),
    )


cdef bint _is_utf8(Block names, Block offsets, int64_t count):
    cdef const int32_t *at = <const int32_t *>offsets.data
    cdef int64_t i
    try:
        (<const char *>names.data)[:names.size].decode("utf-8")
    except UnicodeDecodeError:
        return False
    for i in range(count):  # valid end to end, but is each name? No name may begin inside a character.
        if at[i] < names.size and (<uint8_t>names.data[at[i]] & 0xC0) == 0x80:
            return False
    return True


def _repaired(names, offsets):
    """Decode names that are not valid UTF-8 as Java does: U+FFFD (three bytes) for each invalid sequence."""
    parts = [bytes(names[a:b]).decode("utf-8", "replace").encode() for a, b in pairwise(offsets)]
    _fits(sum(map(len, parts)), "bytes of names")
    return memoryview(b"".join(parts)), memoryview(array("i", accumulate(map(len, parts), initial=0)))
