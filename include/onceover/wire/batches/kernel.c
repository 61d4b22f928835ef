/* Records at native speed: what onceover/wire/batches/records.py does record by record, for many at once.
 *
 * Every byte here may be an attacker's. Each read is compared with the end of what was handed over, each length and
 * count with what is left, offsets have 64 bits, and nothing is allocated: the caller brings the room. Whatever is
 * wrong, rare, or too much for the room is answered with NOT_ME: then the Python code does the same work, and words the
 * error. So this file may refuse more than it has to, and never accept what Python would refuse.
 */
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define EXPORTED __attribute__((visibility("default")))
/* Of what is passed and given back: kernel.py asks for the same number. */
#define ABI 2

/* ---- CRC-32C */

#define POLYNOMIAL 0x82F63B78u
#define HWCAP_WITH_CRC (1u << 7)

static uint32_t table[8][256];

static uint64_t little64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8); /* every machine that this is compiled for is little-endian */
    return value;
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, const uint8_t *end) {
    for (; end - at >= 8; at += 8) {
        uint64_t word = little64(at) ^ crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++)
            crc ^= table[7 - byte][(word >> (8 * byte)) & 0xFF];
    }
    for (; at < end; at++)
        crc = table[0][(crc ^ *at) & 0xFF] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2,crc32"))) static uint32_t crc_by_hardware(uint32_t crc, const uint8_t *at,
                                                                  const uint8_t *end) {
    uint64_t wide = crc;
    for (; end - at >= 8; at += 8)
        wide = __builtin_ia32_crc32di(wide, little64(at));
    for (; at < end; at++)
        wide = __builtin_ia32_crc32qi((uint32_t)wide, *at);
    return (uint32_t)wide;
}
/* Not by __builtin_cpu_supports, which says no in what zig links. */
static int has_hardware(void) {
    uint32_t a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) != 0;
}
#elif defined(__aarch64__)
__attribute__((target("crc"))) static uint32_t crc_by_hardware(uint32_t crc, const uint8_t *at,
                                                               const uint8_t *end) {
    for (; end - at >= 8; at += 8)
        crc = __crc32cd(crc, little64(at));
    for (; at < end; at++)
        crc = __crc32cb(crc, *at);
    return crc;
}
#if defined(__linux__)
static int has_hardware(void) { return (getauxval(AT_HWCAP) & HWCAP_WITH_CRC) != 0; }
#else
static int has_hardware(void) { return 1; }
#endif
#else
#define crc_by_hardware crc_by_table
static int has_hardware(void) { return 0; }
#endif

static int hardware;

static uint32_t crc32c(const uint8_t *at, const uint8_t *end) {
    return ~(hardware ? crc_by_hardware(~0u, at, end) : crc_by_table(~0u, at, end));
}

static void make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int slice = 1; slice < 8; slice++)
            table[slice][byte] = (table[slice - 1][byte] >> 8) ^ table[0][table[slice - 1][byte] & 0xFF];
}

/* Return the version of this interface, or -1 where this machine computes checksums wrongly. Called once, before all
 * else. */
EXPORTED int32_t onceover_abi(void) {
    static const uint8_t known[] = "123456789 123456789";
    make_table();
    hardware = has_hardware();
    uint32_t by_table = ~crc_by_table(~0u, known, known + 9);
    int same = crc32c(known, known + sizeof known) == ~crc_by_table(~0u, known, known + sizeof known);
    return by_table == 0xE3069283u && same ? ABI : -1;
}

/* Return the CRC-32C of bytes; as a table computes it where `plainly` says so. */
EXPORTED uint32_t onceover_crc32c(const uint8_t *bytes, int64_t size, int32_t plainly) {
    return plainly ? ~crc_by_table(~0u, bytes, bytes + size) : crc32c(bytes, bytes + size);
}

/* ---- numbers */

#define NOT_ME (-1)
/* Below it, a base timestamp and a delta cannot add up to more than 63 bits, nor an offset and a delta. */
#define WRAPS_FROM ((int64_t)1 << 61)

static int64_t big16(const uint8_t *at) { return (int16_t)(at[0] << 8 | at[1]); }

static int64_t big32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return (int32_t)__builtin_bswap32(value);
}

static int64_t big64(const uint8_t *at) { return (int64_t)__builtin_bswap64(little64(at)); }

/* Read a varint of at most 64 bits; return where it ends, NULL where there is none before `end`. */
static inline const uint8_t *varint(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    if (at >= end)
        return NULL;
    uint64_t byte = *at++;
    if (byte < 0x80) {
        *value = byte;
        return at;
    }
    uint64_t found = byte & 0x7F;
    for (int shift = 7; shift < 70 && at < end; shift += 7) {
        byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        found |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = found;
            return at;
        }
    }
    return NULL;
}

static inline int64_t signed_of(uint64_t zigzag) { return (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1); }

/* Shifted as unsigned: a negative number must not be. */
static inline uint64_t zigzag_of(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline int64_t varint_size(uint64_t value) { return (70 - __builtin_clzll(value | 1)) / 7; }

static inline uint8_t *put(uint8_t *out, uint64_t value) {
    for (; value > 0x7F; value >>= 7)
        *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

/* ---- batch headers (docs/facts.md) */

#define HEADER_BYTES 61
#define CRC_FROM 21
#define CODEC_MASK 0x07
#define NONE 0
#define LZ4 3
#define LOG_APPEND_TIME 0x08
#define CONTROL 0x20
#define KNOWN_ATTRIBUTES 0x7F
/* Length, attributes and two deltas take a byte each at least. */
#define LEAST_RECORD_BYTES 4

typedef struct {
    int64_t base_offset, attributes, last_delta, base_timestamp, max_timestamp, count;
} Batch;

/* Read the header of the batch at `at`; return where the batch ends, NULL where none that is usual begins there. */
static const uint8_t *header(const uint8_t *at, const uint8_t *end, Batch *batch) {
    if (end - at < HEADER_BYTES)
        return NULL;
    int64_t size = big32(at + 8) + 12;
    if (size < HEADER_BYTES || size > end - at || at[16] != 2)
        return NULL;
    batch->base_offset = big64(at);
    batch->attributes = big16(at + 21);
    batch->last_delta = big32(at + 23);
    batch->base_timestamp = big64(at + 27);
    batch->max_timestamp = big64(at + 35);
    batch->count = big32(at + 57);
    if (batch->base_offset < 0 || batch->base_offset >= WRAPS_FROM || batch->last_delta < 0 || batch->count < 0 ||
        (batch->attributes & ~KNOWN_ATTRIBUTES))
        return NULL;
    return at + size;
}

/* Tell whether readers see no record of it; whose transaction was aborted, its batches are not handed over. */
static int is_empty(const Batch *batch) { return (batch->attributes & CONTROL) || !batch->count; }

/* ---- records */

/* Where records go: `out` up to `end`; `runs` are pairs of a source offset and a count. */
typedef struct {
    uint8_t *out, *end;
    int64_t from, to; /* source offsets: what is taken */
    int64_t *runs, runs_room, run_count;
    int64_t expected; /* the next source offset, where it belongs to the same run */
    int64_t plain;    /* what records may take before compression, where `out` has them compressed */
    int merging;      /* of several batches; see Unmergeable in records.py */
    int64_t count, base_timestamp, max_timestamp;
} Sink;

/* What is found of a record: its content lies between `body` and `end`. */
typedef struct {
    int64_t offset, timestamp;
    const uint8_t *body, *end;
    uint8_t attributes;
} Record;

/* Of a record: length, attributes and two deltas. */
#define MOST_HEAD 26

/* Count a record in, and write what comes before its content to `head`, which has MOST_HEAD bytes; return how many,
 * NOT_ME where there is no room for one more run. */
static inline int64_t admit(Sink *sink, const Record *record, uint8_t *head) {
    if (!sink->count)
        sink->base_timestamp = sink->max_timestamp = record->timestamp;
    else if (record->timestamp > sink->max_timestamp)
        sink->max_timestamp = record->timestamp;
    if (record->offset != sink->expected) {
        if (sink->run_count >= sink->runs_room)
            return NOT_ME;
        sink->runs[2 * sink->run_count] = record->offset;
        sink->runs[2 * sink->run_count + 1] = 0;
        sink->run_count++;
    }
    sink->runs[2 * sink->run_count - 1]++;
    sink->expected = record->offset + 1;
    uint64_t stamp = zigzag_of(record->timestamp - sink->base_timestamp), index = (uint64_t)sink->count++ << 1;
    int64_t length = 1 + varint_size(stamp) + varint_size(index) + (record->end - record->body);
    uint8_t *out = put(head, (uint64_t)length << 1);
    *out++ = record->attributes;
    return put(put(out, stamp), index) - head;
}

static inline int append(Sink *sink, const Record *record) {
    uint8_t head[MOST_HEAD];
    int64_t head_size = admit(sink, record, head), size = record->end - record->body;
    if (head_size < 0 || sink->end - sink->out < head_size + size)
        return NOT_ME;
    memcpy(sink->out, head, (size_t)head_size);
    memcpy(sink->out + head_size, record->body, (size_t)size);
    sink->out += head_size + size;
    return 0;
}

static inline int wanted(const Sink *sink, const Record *record) {
    return record->offset >= sink->from && record->offset < sink->to;
}

/* Read the record at `at` of a batch, `last_delta` being the one before; return where it ends, NULL where none does. */
static inline const uint8_t *next_record(const Batch *batch, const uint8_t *at, const uint8_t *end,
                                         int64_t *last_delta, Record *record) {
    int stamped = (batch->attributes & LOG_APPEND_TIME) != 0;
    int64_t base = stamped ? batch->max_timestamp : batch->base_timestamp;
    uint64_t size, stamp, delta;
    if (base <= -WRAPS_FROM || base >= WRAPS_FROM)
        return NULL;
    if (!(at = varint(at, end, &size)) || (size & 1) || size >> 1 > (uint64_t)(end - at) || size < 2)
        return NULL;
    record->end = at + (size >> 1);
    record->attributes = *at++;
    if (!(at = varint(at, record->end, &stamp)) || stamp >= WRAPS_FROM)
        return NULL;
    if (!(at = varint(at, record->end, &delta)) || (delta & 1) || delta >> 1 > (uint64_t)batch->last_delta)
        return NULL;
    if ((int64_t)(delta >> 1) <= *last_delta)
        return NULL;
    *last_delta = (int64_t)(delta >> 1);
    record->offset = batch->base_offset + *last_delta;
    record->timestamp = stamped ? base : base + signed_of(stamp);
    record->body = at;
    return record->end;
}

/* Append the wanted ones of a batch's records, which are exactly what lies between `at` and `end`. */
static int take(Sink *sink, const Batch *batch, const uint8_t *at, const uint8_t *end) {
    int64_t last_delta = -1;
    Record record;
    for (int64_t left = batch->count; left; left--) {
        if (!(at = next_record(batch, at, end, &last_delta, &record)))
            return NOT_ME;
        if (wanted(sink, &record) && ((sink->merging && record.attributes) || append(sink, &record)))
            return NOT_ME;
    }
    return at == end ? 0 : NOT_ME;
}

/* ---- LZ4 frames, as Kafka's clients and this product write them: independent blocks, no checksum of the whole */

#define LZ4_MAGIC 0x184D2204u
#define LZ4_FLAGS 0x60u
#define LZ4_WITH_SIZE 0x08u
#define LZ4_WITH_CHECKSUMS 0x10u
#define LZ4_STORED 0x80000000u
/* Of a block: its last match begins so far before its end, and its last bytes are no match. */
#define LZ4_LAST_MATCH 12
#define LZ4_LAST_LITERALS 5

static uint32_t little32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static uint32_t rotated(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

#define XX1 2654435761u
#define XX2 2246822519u
#define XX3 3266489917u
#define XX4 668265263u
#define XX5 374761393u

static uint32_t xx_round(uint32_t hash, const uint8_t *at) { return rotated(hash + little32(at) * XX2, 13) * XX1; }

/* Return the xxHash-32 of bytes. */
static uint32_t xxh32(const uint8_t *at, const uint8_t *end) {
    uint32_t size = (uint32_t)(end - at), hash = XX5;
    if (size >= 16) {
        uint32_t a = XX1 + XX2, b = XX2, c = 0, d = 0 - XX1;
        for (; end - at >= 16; at += 16) {
            a = xx_round(a, at);
            b = xx_round(b, at + 4);
            c = xx_round(c, at + 8);
            d = xx_round(d, at + 12);
        }
        hash = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
    }
    hash += size;
    for (; end - at >= 4; at += 4)
        hash = rotated(hash + little32(at) * XX3, 17) * XX4;
    for (; at < end; at++)
        hash = rotated(hash + *at * XX5, 11) * XX1;
    hash = (hash ^ hash >> 15) * XX2;
    hash = (hash ^ hash >> 13) * XX3;
    return hash ^ hash >> 16;
}

/* Add to a length of 15 what the bytes behind it say; return where they end, NULL where they do not. */
static inline const uint8_t *longer(const uint8_t *at, const uint8_t *end, int64_t *length) {
    while (at < end) {
        uint8_t byte = *at++;
        *length += byte;
        if (byte != 255)
            return at;
    }
    return NULL;
}

/* Copy what was written `distance` bytes before; more than that many repeat. */
static inline void repeat(uint8_t *out, int64_t distance, int64_t length, const uint8_t *room) {
    const uint8_t *from = out - distance;
    uint8_t *end = out + length;
    if (distance >= 8 && room - end >= 8)
        for (; out < end; out += 8, from += 8)
            memcpy(out, from, 8);
    else
        while (out < end)
            *out++ = *from++;
}

/* Expand one block to `out`, which has room up to `room`; return where it ends there, NULL where it is not usual. */
static uint8_t *lz4_block(const uint8_t *at, const uint8_t *end, uint8_t *out, const uint8_t *room) {
    uint8_t *first = out, *last_match = NULL;
    while (at < end) {
        uint8_t token = *at++;
        int64_t length = token >> 4;
        if (length == 15 && !(at = longer(at, end, &length)))
            return NULL;
        if (length > end - at || length > room - out)
            return NULL;
        if (length <= 16 && end - at >= 16 && room - out >= 16)
            memcpy(out, at, 16);
        else
            memcpy(out, at, (size_t)length);
        out += length;
        at += length;
        if (at == end)
            return last_match && (length < LZ4_LAST_LITERALS || out - last_match < LZ4_LAST_MATCH) ? NULL : out;
        if (end - at < 2)
            return NULL;
        int64_t distance = at[0] | at[1] << 8;
        at += 2;
        length = token & 15;
        if (length == 15 && !(at = longer(at, end, &length)))
            return NULL;
        length += 4;
        if (!distance || distance > out - first || length > room - out)
            return NULL;
        repeat(out, distance, length, room);
        last_match = out;
        out += length;
    }
    return NULL;
}

/* Expand one frame, which ends where its bytes do, to `out`; return where it ends there, NULL where it is not usual. */
static uint8_t *lz4_frame(const uint8_t *at, const uint8_t *end, uint8_t *out, const uint8_t *room) {
    if (end - at < 7 || little32(at) != LZ4_MAGIC)
        return NULL;
    const uint8_t *descriptor = at + 4;
    uint32_t flags = descriptor[0], block_code = descriptor[1] >> 4;
    int64_t size = flags & LZ4_WITH_SIZE ? 10 : 2;
    int64_t checksum = flags & LZ4_WITH_CHECKSUMS ? 4 : 0;
    if ((flags & ~(LZ4_WITH_SIZE | LZ4_WITH_CHECKSUMS)) != LZ4_FLAGS)
        return NULL;
    if (block_code < 4 || block_code > 7 || (descriptor[1] & 0x0F))
        return NULL;
    if (end - descriptor < size + 1 || descriptor[size] != (uint8_t)(xxh32(descriptor, descriptor + size) >> 8))
        return NULL;
    int64_t most = (int64_t)1 << (2 * block_code + 8);
    uint8_t *first = out;
    for (at = descriptor + size + 1; end - at >= 4;) {
        uint32_t stated = little32(at);
        int64_t length = stated & ~LZ4_STORED;
        at += 4;
        if (!stated) {
            if (at != end || (size == 10 && (uint64_t)(out - first) != little64(descriptor + 2)))
                return NULL;
            return out;
        }
        if (!length || length > most || length + checksum > end - at)
            return NULL;
        if (checksum && little32(at + length) != xxh32(at, at + length))
            return NULL;
        if (stated & LZ4_STORED) {
            if (length > room - out)
                return NULL;
            memcpy(out, at, (size_t)length);
            out += length;
        } else if (!(out = lz4_block(at, at + length, out, room - out > most ? out + most : room))) {
            return NULL;
        }
        at += length + checksum;
    }
    return NULL;
}

/* ---- one block a record: what is compressed already stays so, but for what comes before a record's content */

/* The descriptor of a frame of independent blocks of at most 64 KiB, with its checksum. */
static const uint8_t lz4_head[] = {0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82};
#define LZ4_BLOCK_BYTES 65536
#define LZ4_BLOCK_SIZE_BYTES 4

static uint8_t *put_longer(uint8_t *out, int64_t length) {
    for (length -= 15; length >= 255; length -= 255)
        *out++ = 255;
    *out++ = (uint8_t)length;
    return out;
}

/* Write one sequence of a block: bytes as they are, in two parts, and what is repeated, unless `length` is 0. Return
 * where it ends, NULL where that is not before `end`. */
static uint8_t *put_sequence(uint8_t *out, const uint8_t *end, const uint8_t *head, int64_t head_size,
                             const uint8_t *from, int64_t size, int64_t distance, int64_t length) {
    int64_t literals = head_size + size, more = length ? length - 4 : 0;
    /* A token, both lengths' bytes, and a distance. */
    if (end - out < literals + literals / 255 + more / 255 + 5)
        return NULL;
    *out++ = (uint8_t)((literals < 15 ? literals : 15) << 4 | (more < 15 ? more : 15));
    if (literals >= 15)
        out = put_longer(out, literals);
    memcpy(out, head, (size_t)head_size);
    memcpy(out + head_size, from, (size_t)size);
    out += literals;
    if (length) {
        *out++ = (uint8_t)distance;
        *out++ = (uint8_t)(distance >> 8);
        if (more >= 15)
            out = put_longer(out, more);
    }
    return out;
}

/* Write a record's block with another head, from `block`, which was expanded to `plain`. Whatever repeats bytes of the
 * old head is written out; all else repeats what is as far away as before. Return where it ends, NULL without room. */
static uint8_t *put_block(uint8_t *out, const uint8_t *end, const uint8_t *head, int64_t head_size,
                          const Record *record, const uint8_t *plain, const uint8_t *block,
                          const uint8_t *block_end) {
    const uint8_t *written = record->body;
    for (const uint8_t *at = block; at < block_end;) {
        uint8_t token = *at++;
        int64_t length = token >> 4;
        if (length == 15 && !(at = longer(at, block_end, &length)))
            return NULL;
        plain += length;
        at += length;
        if (at >= block_end)
            break;
        int64_t distance = at[0] | at[1] << 8;
        at += 2;
        length = token & 15;
        if (length == 15 && !(at = longer(at, block_end, &length)))
            return NULL;
        length += 4;
        if (plain - record->body >= distance) {
            out = put_sequence(out, end, head, head_size, written, plain - written, distance, length);
            if (!out)
                return NULL;
            head_size = 0;
            written = plain + length;
        }
        plain += length;
    }
    return put_sequence(out, end, head, head_size, written, record->end - written, 0, 0);
}

/* Append the only record of a batch, whose payload is a frame of one block, as a block of its own. */
static int splice(Sink *sink, const Batch *batch, const uint8_t *frame, const uint8_t *frame_end, uint8_t *scratch,
                  int64_t scratch_room) {
    const uint8_t *plain_end = lz4_frame(frame, frame_end, scratch, scratch + scratch_room);
    if (!plain_end)
        return NOT_ME;
    const uint8_t *block = frame + 4 + (frame[4] & LZ4_WITH_SIZE ? 11 : 3);
    uint32_t found = little32(block);
    block += LZ4_BLOCK_SIZE_BYTES;
    const uint8_t *block_end = block + (found & ~LZ4_STORED);
    /* One block, and its checksum, is all there is. */
    if (frame_end - block_end != 4 + (frame[4] & LZ4_WITH_CHECKSUMS ? 4 : 0))
        return NOT_ME;
    int64_t last_delta = -1;
    Record record;
    if (next_record(batch, scratch, plain_end, &last_delta, &record) != plain_end)
        return NOT_ME;
    if (!wanted(sink, &record))
        return 0;
    if (record.attributes)
        return NOT_ME;
    uint8_t head[MOST_HEAD];
    int64_t head_size = admit(sink, &record, head), size = head_size + (record.end - record.body);
    uint8_t *out = sink->out + LZ4_BLOCK_SIZE_BYTES, *after;
    sink->plain -= size;
    if (head_size < 0 || size > LZ4_BLOCK_BYTES || sink->plain < 0)
        return NOT_ME;
    if (found & LZ4_STORED) {
        if (sink->end - out < size)
            return NOT_ME;
        memcpy(out, head, (size_t)head_size);
        memcpy(out + head_size, record.body, (size_t)(size - head_size));
        after = out + size;
    } else if (!(after = put_block(out, sink->end, head, head_size, &record, scratch, block, block_end))) {
        return NOT_ME;
    }
    uint32_t stated = (uint32_t)(after - out) | (found & LZ4_STORED);
    if (after - out > LZ4_BLOCK_BYTES)
        return NOT_ME;
    memcpy(sink->out, &stated, LZ4_BLOCK_SIZE_BYTES);
    sink->out = after;
    return 0;
}

/* ---- what is called */

enum { MADE_BYTES, MADE_COUNT, MADE_BASE_TIMESTAMP, MADE_MAX_TIMESTAMP, MADE_RUNS, MADE_CODEC };

static void tell(const Sink *sink, const uint8_t *out, int64_t codec, int64_t *made) {
    made[MADE_BYTES] = sink->out - out;
    made[MADE_COUNT] = sink->count;
    made[MADE_BASE_TIMESTAMP] = sink->base_timestamp;
    made[MADE_MAX_TIMESTAMP] = sink->max_timestamp;
    made[MADE_RUNS] = sink->run_count;
    made[MADE_CODEC] = codec;
}

/* Rewrite the records of one decompressed batch from one source offset to before another, as one payload.
 *
 * `batch` is what of its header is needed, as in Batch. Returns 0 with `made` filled in; NOT_ME. */
EXPORTED int32_t onceover_rewrite(const uint8_t *payload, int64_t size, const Batch *batch, int64_t from, int64_t to,
                                  uint8_t *out, int64_t room, int64_t *runs, int64_t runs_room, int64_t *made) {
    if (batch->base_offset < 0 || batch->base_offset >= WRAPS_FROM || batch->last_delta < 0 || batch->count < 1)
        return NOT_ME;
    Sink sink = {.out = out, .end = out + room, .from = from, .to = to, .runs = runs, .runs_room = runs_room};
    sink.expected = -1;
    if (take(&sink, batch, payload, payload + size) || !sink.count)
        return NOT_ME;
    tell(&sink, out, batch->attributes & CODEC_MASK, made);
    return 0;
}

/* Make neighbouring batches, which lie one behind the other in `batches`, one payload of the records from a source
 * offset on. Checksums are compared; batches without records are left out.
 *
 * `scratch` is where a compressed batch is expanded. With `spliced`, every batch has one record in LZ4, and what is
 * made is a frame of it that expands to so many bytes at most, in which each stays as compressed as it was. Returns 0
 * with `made` filled in; NOT_ME. */
EXPORTED int32_t onceover_merge(const uint8_t *batches, int64_t size, int64_t from, int64_t spliced, uint8_t *scratch,
                                int64_t scratch_room, uint8_t *out, int64_t room, int64_t *runs, int64_t runs_room,
                                int64_t *made) {
    Sink sink = {.out = out, .end = out + room, .from = from, .to = INT64_MAX, .runs = runs, .runs_room = runs_room};
    int64_t strongest = NONE;
    sink.expected = -1;
    sink.plain = spliced;
    sink.merging = 1;
    if (spliced) {
        /* At the end comes a block of no size. */
        if (room < (int64_t)sizeof lz4_head + LZ4_BLOCK_SIZE_BYTES)
            return NOT_ME;
        memcpy(out, lz4_head, sizeof lz4_head);
        sink.out += sizeof lz4_head;
        sink.end -= LZ4_BLOCK_SIZE_BYTES;
    }
    for (const uint8_t *at = batches, *end = batches + size; at < end;) {
        Batch batch;
        const uint8_t *after = header(at, end, &batch);
        if (!after || crc32c(at + CRC_FROM, after) != (uint32_t)big32(at + 17))
            return NOT_ME;
        int64_t codec = batch.attributes & CODEC_MASK;
        const uint8_t *payload = at + HEADER_BYTES, *payload_end = after;
        at = after;
        if (is_empty(&batch))
            continue;
        if (codec == LZ4)
            strongest = LZ4;
        else if (codec != NONE)
            return NOT_ME;
        if (spliced) {
            if (batch.count != 1 || codec != LZ4 ||
                splice(&sink, &batch, payload, payload_end, scratch, scratch_room))
                return NOT_ME;
            continue;
        }
        if (codec == LZ4) {
            payload_end = lz4_frame(payload, payload_end, scratch, scratch + scratch_room);
            payload = scratch;
        }
        if (!payload_end || take(&sink, &batch, payload, payload_end))
            return NOT_ME;
    }
    if (!sink.count)
        return NOT_ME;
    if (spliced) {
        memset(sink.out, 0, LZ4_BLOCK_SIZE_BYTES);
        sink.out += LZ4_BLOCK_SIZE_BYTES;
    }
    tell(&sink, out, strongest, made);
    return 0;
}

/* What is worth merging, as onceover/wire/batches/runs.py says it. */
typedef struct {
    int64_t tiny_records, tiny_bytes, small_bytes, merge_from, packed_bytes, plain_bytes;
} Policy;

/* Where a run begins and ends, and its last batch; how many batches with records it has, and at most how many records;
 * the bytes of these, and how many batches are compressed; its lowest timestamp. */
typedef struct {
    int64_t from, to, last, batches, records, payload_bytes, packed, lowest;
} Run;

enum { OTHER, EMPTY, PACKED, TINY, SMALL };

static int kind_of(const Batch *batch, int64_t size, const Policy *policy) {
    int64_t codec = batch->attributes & CODEC_MASK;
    int tiny = size <= policy->tiny_bytes && batch->count <= policy->tiny_records;
    if (is_empty(batch))
        return tiny ? EMPTY : OTHER;
    if (codec == LZ4)
        return tiny ? PACKED : OTHER;
    if (codec != NONE || batch->count > (size - HEADER_BYTES) / LEAST_RECORD_BYTES)
        return OTHER;
    return tiny ? TINY : size <= policy->small_bytes ? SMALL : OTHER;
}

/* Find runs of neighbouring batches that are worth merging, from `at` on, in what a Fetch that aborted nothing of gave.
 *
 * `position` is the next source offset that is wanted, `reached` the one behind the batch before `at`. Whatever does
 * not follow from what is before it, or is not usual, ends the search: the rest is for Python. Returns how many were
 * found; as many as there is room for: there may be more. */
EXPORTED int64_t onceover_runs(const uint8_t *records, int64_t size, int64_t at, int64_t position, int64_t reached,
                               const Policy *policy, Run *runs, int64_t room) {
    int64_t found = 0;
    int small = 0, going = 0;
    Run run = {0};
    while (found < room) {
        Batch batch;
        const uint8_t *after = at < size ? header(records + at, records + size, &batch) : NULL;
        int64_t bytes = after ? after - (records + at) : 0;
        int kind = OTHER;
        if (after && batch.base_offset >= reached && batch.base_offset + batch.last_delta >= position)
            kind = kind_of(&batch, bytes, policy);
        int64_t most = run.packed || kind == PACKED ? policy->packed_bytes : policy->plain_bytes;
        int fits = kind != OTHER && run.to + bytes - run.from <= most && !(run.packed && kind == SMALL) &&
                   !(small && kind == PACKED);
        if (going && !fits) {
            if (run.batches >= policy->merge_from)
                runs[found++] = run;
            going = small = 0;
            continue; /* the same batch may begin the next one */
        }
        if (!after || batch.base_offset < reached)
            break;
        reached = batch.base_offset + batch.last_delta + 1;
        if (kind != OTHER && (going || kind != EMPTY)) {
            if (!going)
                run = (Run){.from = at, .lowest = INT64_MAX};
            going = 1;
            run.packed += kind == PACKED;
            small |= kind == SMALL;
            run.last = at;
            run.to = at + bytes;
            if (kind != EMPTY) {
                run.batches++;
                run.records += batch.count;
                run.payload_bytes += bytes - HEADER_BYTES;
                run.lowest = batch.base_timestamp < run.lowest ? batch.base_timestamp : run.lowest;
            }
        }
        at += bytes;
    }
    return found;
}
