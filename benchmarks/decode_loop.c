/* A straight loop over batches of magic 2 into columns: what a C programmer would write, and what ours is measured by.
 *
 * The same columns as kohort.fastpath makes, the same checks of every length against the end, the checksum by the CPU's
 * own instruction; no codecs, no aborted transactions, no policy. Returns how many records, or -1 at the first lie. */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#endif

typedef struct { uint32_t start; int32_t size; } span;

static inline int32_t be32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)__builtin_bswap32(v); }
static inline int64_t be64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)__builtin_bswap64(v); }

/* Three streams at once, as the instruction's latency asks for, would need their checksums joined by a table; one stream
 * is what a straight loop has. */
static uint32_t crc32c(const uint8_t *p, int64_t n) {
    uint64_t crc = 0xFFFFFFFFu, word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
#if defined(__x86_64__)
        crc = _mm_crc32_u64(crc, word);
#else
        crc = __crc32cd((uint32_t)crc, word);
#endif
    }
    for (; n > 0; n--, p++) {
#if defined(__x86_64__)
        crc = _mm_crc32_u8((uint32_t)crc, *p);
#else
        crc = __crc32cb((uint32_t)crc, *p);
#endif
    }
    return ~(uint32_t)crc;
}

static inline const uint8_t *varlong(const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (p >= end) return 0;
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return p;
        }
    }
    return 0;
}

#define READ(into) if (!(p = varlong(p, end, &(into)))) return -1

int64_t decode_loop(const uint8_t *data, int64_t size, int check_crc, int64_t *offsets, int64_t *timestamps, span *keys,
                    span *values, uint32_t *headers) {
    const uint8_t *batch = data, *stop = data + size;
    int64_t n = 0;
    while (stop - batch >= 61) {
        int64_t batch_size = (int64_t)be32(batch + 8) + 12;
        if (batch_size < 61) return -1;
        if (batch_size > stop - batch) break;
        if (check_crc && crc32c(batch + 21, batch_size - 21) != (uint32_t)be32(batch + 17)) return -1;
        const uint8_t *p = batch + 61, *batch_end = batch + batch_size;
        int64_t base_offset = be64(batch), base_timestamp = be64(batch + 27);
        int32_t count = be32(batch + 57);
        for (int32_t i = 0; i < count; i++, n++) {
            const uint8_t *end = batch_end;
            int64_t length, timestamp_delta, offset_delta, key, value, header_count, each;
            READ(length);
            if (length < 1 || length > end - p) return -1;
            end = p++ + length;
            READ(timestamp_delta);
            READ(offset_delta);
            READ(key);
            if (key > end - p) return -1;
            keys[n].start = (uint32_t)(p - data);
            keys[n].size = (int32_t)key;
            if (key > 0) p += key;
            READ(value);
            if (value > end - p) return -1;
            values[n].start = (uint32_t)(p - data);
            values[n].size = (int32_t)value;
            if (value > 0) p += value;
            offsets[n] = base_offset + offset_delta;
            timestamps[n] = base_timestamp + timestamp_delta;
            headers[n] = (uint32_t)(p - data);
            READ(header_count);
            for (; header_count > 0; header_count--) {
                for (int part = 0; part < 2; part++) {
                    READ(each);
                    if (each > end - p) return -1;
                    if (each > 0) p += each;
                }
            }
            if (p != end) return -1;
        }
        batch += batch_size;
    }
    return n;
}
