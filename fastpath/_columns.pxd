# Record and RecordColumns, the result of decode.

cimport cython
from libc.stdint cimport int64_t

from kohort.fastpath._memory cimport Block
from kohort.fastpath._store cimport Run, Store


@cython.final
cdef class Record:
    cdef RecordColumns columns
    cdef Run *run
    cdef Py_ssize_t index

    cdef tuple _values(self)


@cython.final
cdef class RecordColumns:
    cdef Store store
    cdef Py_ssize_t start, stop
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int64_t next_offset
    cdef readonly tuple corrupt  # CorruptRecords of the batches that on_corrupt="skip_batch" skipped
    cdef readonly bint complete  # False: the buffer holds more, to be decoded from next_offset

    cdef RecordColumns part(self, Py_ssize_t start, Py_ssize_t stop)
    cdef _int64_view(self, Block block)
    cdef int64_t last_timestamp(self) noexcept


cdef RecordColumns columns_of(Store store, str topic, int partition, int64_t next_offset, tuple corrupt, bint complete)
