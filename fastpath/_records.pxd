# The layout of a batch header and its checksum, which encoding and decoding share.

cdef enum:
    BATCH_OVERHEAD = 61  # base offset to record count, magic 2
    LOG_OVERHEAD = 12  # base offset and length, which `length` does not count
    CODEC_MASK = 0x07
    APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20


cdef object crc32c()
