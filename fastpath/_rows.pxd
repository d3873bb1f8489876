# The hashes of keys, which `producer/_open_batch` shares with `_rows`.

from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t murmur2_of(const uint8_t *p, Py_ssize_t size) noexcept nogil
cdef uint32_t crc32_of(const uint8_t *p, Py_ssize_t size) noexcept nogil
