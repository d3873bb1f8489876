# Big-endian numbers, byte by byte: right on every machine. Compilers make one load or store and a swap of each.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t load16(const uint8_t *p) noexcept nogil:
    return <uint16_t>(<uint32_t>p[0] << 8 | p[1])


cdef inline uint32_t load32(const uint8_t *p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline uint64_t load64(const uint8_t *p) noexcept nogil:
    return (
        <uint64_t>p[0] << 56 | <uint64_t>p[1] << 48 | <uint64_t>p[2] << 40 | <uint64_t>p[3] << 32
        | <uint64_t>p[4] << 24 | <uint64_t>p[5] << 16 | <uint64_t>p[6] << 8 | p[7]
    )


cdef inline int16_t be16(const uint8_t *p) noexcept nogil:
    return <int16_t>load16(p)


cdef inline int32_t be32(const uint8_t *p) noexcept nogil:
    return <int32_t>load32(p)


cdef inline int64_t be64(const uint8_t *p) noexcept nogil:
    return <int64_t>load64(p)


cdef inline void store16(uint8_t *p, uint16_t v) noexcept nogil:
    p[0], p[1] = <uint8_t>(v >> 8), <uint8_t>v


cdef inline void store32(uint8_t *p, uint32_t v) noexcept nogil:
    p[0], p[1], p[2], p[3] = <uint8_t>(v >> 24), <uint8_t>(v >> 16), <uint8_t>(v >> 8), <uint8_t>v


cdef inline void store64(uint8_t *p, uint64_t v) noexcept nogil:
    store32(p, <uint32_t>(v >> 32))
    store32(p + 4, <uint32_t>v)
