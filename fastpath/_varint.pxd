# Zigzag varints of Kafka, read within bounds, and unsigned ones, written. They are in a .pxd because the walk over
# records calls them for every field: every unit inlines its own.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


# Every reader takes its start and its limit, and returns its end: NULL if it would pass the limit.
cdef inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef uint32_t raw, shift, byte
    if p == NULL or p >= end:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if p >= end or shift > 28:
                return NULL
            byte = p[0]
            if shift == 28 and byte & 0x70:  # more bits than the type has
                return NULL
            p += 1
            raw |= <uint32_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


cdef inline const uint8_t *varlong(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef uint64_t raw
    cdef uint32_t shift, byte
    if p == NULL or p >= end:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            if p >= end or shift > 63:
                return NULL
            byte = p[0]
            if shift == 63 and byte & 0x7E:  # more bits than the type has
                return NULL
            p += 1
            raw |= <uint64_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return p


# It returns the end of what it writes. A compact length takes five bytes at most.
cdef inline uint8_t *put_uvarint(uint8_t *p, uint64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1
