/* Records of an expanded batch as the audit reads them: where their fields lie, what they hash to, and whether two
 * sides hold the same. Shares nothing with the copy's kernel (G9).
 *
 * Every byte here may be an attacker's. Each read is compared with the end of what was handed over, each length with
 * what is left, sums that may not fit are looked at before they are believed, and nothing is allocated: the caller
 * brings the room. It stops before a record that is wrong or rare; then the Python code takes over there, which also
 * words the error. So this file may refuse more than it has to, and never accept what Python would refuse.
 */
#include <stdint.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
/* Of what is passed and given back: outlines.py asks for the same number. */
#define ABI 1

/* ---- BLAKE2b (RFC 7693) of 128 bits, without a key */

#define HASH_BYTES 16
#define BLOCK_BYTES 128
/* Length of the hash, of no key, and of a tree that is none. */
#define PARAMETERS (0x01010000u ^ HASH_BYTES)

static const uint64_t IV[8] = {0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
                               0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u};

typedef struct {
    uint64_t state[8], hashed;
    uint8_t block[BLOCK_BYTES];
    int64_t filled;
} Blake;

static inline uint64_t little64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8); /* where a machine is not little-endian, onceover_abi says no */
    return value;
}

#define ROTATED(value, bits) ((value) >> (bits) | (value) << (64 - (bits)))
#define MIX(a, b, c, d, x, y)                                                                                         \
    a += b + (x), d ^= a, d = ROTATED(d, 32), c += d, b ^= c, b = ROTATED(b, 24);                                     \
    a += b + (y), d ^= a, d = ROTATED(d, 16), c += d, b ^= c, b = ROTATED(b, 63)
#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                                         \
    MIX(v0, v4, v8, v12, w[a], w[b]);                                                                                 \
    MIX(v1, v5, v9, v13, w[c], w[d]);                                                                                 \
    MIX(v2, v6, v10, v14, w[e], w[f]);                                                                                \
    MIX(v3, v7, v11, v15, w[g], w[h]);                                                                                \
    MIX(v0, v5, v10, v15, w[i], w[j]);                                                                                \
    MIX(v1, v6, v11, v12, w[k], w[l]);                                                                                \
    MIX(v2, v7, v8, v13, w[m], w[n]);                                                                                 \
    MIX(v3, v4, v9, v14, w[o], w[p])

/* Mix a block into the state; `hashed` counts its bytes already. */
static void mix_block(Blake *blake, const uint8_t *block, int last) {
    uint64_t w[16], *s = blake->state;
    for (int word = 0; word < 16; word++)
        w[word] = little64(block + 8 * word);
    uint64_t v0 = s[0], v1 = s[1], v2 = s[2], v3 = s[3], v4 = s[4], v5 = s[5], v6 = s[6], v7 = s[7];
    uint64_t v8 = IV[0], v9 = IV[1], v10 = IV[2], v11 = IV[3];
    uint64_t v12 = IV[4] ^ blake->hashed, v13 = IV[5], v14 = last ? ~IV[6] : IV[6], v15 = IV[7];
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    s[0] ^= v0 ^ v8, s[1] ^= v1 ^ v9, s[2] ^= v2 ^ v10, s[3] ^= v3 ^ v11;
    s[4] ^= v4 ^ v12, s[5] ^= v5 ^ v13, s[6] ^= v6 ^ v14, s[7] ^= v7 ^ v15;
}

static void start(Blake *blake) {
    memcpy(blake->state, IV, sizeof IV);
    blake->state[0] ^= PARAMETERS;
    blake->hashed = 0;
    blake->filled = 0;
}

/* Add bytes. A block is kept until more follows it: the last one is mixed in otherwise. */
static void add(Blake *blake, const uint8_t *at, int64_t size) {
    while (size > 0) {
        if (blake->filled == BLOCK_BYTES) {
            blake->hashed += BLOCK_BYTES;
            mix_block(blake, blake->block, 0);
            blake->filled = 0;
        }
        for (; !blake->filled && size > BLOCK_BYTES; at += BLOCK_BYTES, size -= BLOCK_BYTES) {
            blake->hashed += BLOCK_BYTES;
            mix_block(blake, at, 0);
        }
        int64_t part = BLOCK_BYTES - blake->filled < size ? BLOCK_BYTES - blake->filled : size;
        memcpy(blake->block + blake->filled, at, (size_t)part);
        blake->filled += part;
        at += part;
        size -= part;
    }
}

static void add_number(Blake *blake, int64_t number) {
    uint8_t bytes[8];
    memcpy(bytes, &number, 8);
    add(blake, bytes, 8);
}

static void finish(Blake *blake, uint8_t *hash) {
    blake->hashed += (uint64_t)blake->filled;
    memset(blake->block + blake->filled, 0, (size_t)(BLOCK_BYTES - blake->filled));
    mix_block(blake, blake->block, 1);
    memcpy(hash, blake->state, HASH_BYTES);
}

/* ---- records */

/* Below it, a base offset and a delta cannot add up to more than 63 bits. */
#define WRAPS_FROM ((int64_t)1 << 61)
#define NULL_SIZE (-1)
/* As _MOST_HEADERS of batches.py. */
#define MOST_HEADERS 100000
/* What stands in a hash for a timestamp that is not compared. */
#define UNTIMED (-1)

/* A record: sizes are -1 for null, `headers` is behind their number; all places count from the window's beginning. */
typedef struct {
    int64_t offset, timestamp, key, key_size, value, value_size, headers, header_count, end;
} Outline;

/* Read a signed varint of at most 64 bits; return where it ends, NULL where there is none before `end`. */
static inline const uint8_t *varint(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t found = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
        uint64_t byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        found |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return at;
        }
    }
    return NULL;
}

/* Read the size of a field, and go behind the field; NULL where it does not lie before `end`. */
static inline const uint8_t *field(const uint8_t *at, const uint8_t *end, const uint8_t **begin, int64_t *size) {
    if (!(at = varint(at, end, size)) || *size < NULL_SIZE || *size > end - at)
        return NULL;
    *begin = at;
    return *size == NULL_SIZE ? at : at + *size;
}

/* Go behind headers; NULL where these are not exactly so many, or a name is null. */
static const uint8_t *behind_headers(const uint8_t *at, const uint8_t *end, int64_t count) {
    const uint8_t *begin;
    int64_t size;
    for (; count; count--)
        if (!(at = field(at, end, &begin, &size)) || size < 0 || !(at = field(at, end, &begin, &size)))
            return NULL;
    return at;
}

/* Outline the record that lies between `at` and `end`, but for offset and timestamp, of which the deltas are there;
 * return 0 where it is not usual. */
static int outline(const uint8_t *window, const uint8_t *at, const uint8_t *end, Outline *row) {
    const uint8_t *key, *value;
    if (at >= end || !(at = varint(at + 1, end, &row->timestamp)) || !(at = varint(at, end, &row->offset)))
        return 0;
    if (!(at = field(at, end, &key, &row->key_size)) || !(at = field(at, end, &value, &row->value_size)))
        return 0;
    if (!(at = varint(at, end, &row->header_count)) || row->header_count < 0 || row->header_count > MOST_HEADERS)
        return 0;
    row->key = key - window;
    row->value = value - window;
    row->headers = at - window;
    row->end = end - window;
    return behind_headers(at, end, row->header_count) == end;
}

/* Outline the whole records of a window from `at` on, as many as there is room for. Return how many; it ends before
 * one that is cut off, and before one that is not usual.
 *
 * `log_append`: whether `max_timestamp` is everybody's. */
EXPORTED int64_t onceover_outlines(const uint8_t *window, int64_t size, int64_t at, int64_t base_offset,
                                   int64_t last_delta, int64_t base_timestamp, int64_t max_timestamp,
                                   int32_t log_append, Outline *rows, int64_t room) {
    const uint8_t *next = window + at, *end = window + size;
    int64_t found = 0, reached = -1, length;
    if (at < 0 || at > size || base_offset < 0 || base_offset >= WRAPS_FROM || last_delta >= WRAPS_FROM)
        return 0;
    for (; found < room; found++) {
        Outline *row = rows + found;
        const uint8_t *begin = varint(next, end, &length);
        if (!begin || length < 0 || length > end - begin || !outline(window, begin, begin + length, row))
            break;
        if (row->offset <= reached || row->offset > last_delta)
            break;
        reached = row->offset;
        row->offset += base_offset;
        if (log_append)
            row->timestamp = max_timestamp;
        else if (__builtin_add_overflow(base_timestamp, row->timestamp, &row->timestamp))
            break;
        next = begin + length;
    }
    return found;
}

static void add_field(Blake *blake, const uint8_t *begin, int64_t size) {
    add_number(blake, size);
    add(blake, begin, size);
}

/* Hash a record as record_hash of recordhash.py does. */
static void hash_record(const uint8_t *window, const Outline *row, int timed, uint8_t *hash) {
    int64_t numbers[4] = {timed ? row->timestamp : UNTIMED, row->key_size, row->value_size, row->header_count};
    Blake blake;
    start(&blake);
    add(&blake, (const uint8_t *)numbers, sizeof numbers);
    add(&blake, window + row->key, row->key_size);
    add(&blake, window + row->value, row->value_size);
    if (row->header_count)
        add_number(&blake, row->header_count);
    const uint8_t *at = window + row->headers, *end = window + row->end, *begin = at;
    int64_t size;
    for (int64_t left = 2 * row->header_count; left && (at = field(at, end, &begin, &size)); left--)
        add_field(&blake, begin, size);
    finish(&blake, hash);
}

static int same_field(const uint8_t *one, int64_t size, const uint8_t *other, int64_t other_size) {
    return size == other_size && (size <= 0 || !memcmp(one, other, (size_t)size));
}

/* Tell whether two records are the same for certain. Headers that are written in other bytes may be. */
static int same(const uint8_t *one, const Outline *mine, const uint8_t *other, const Outline *theirs, int timed) {
    return (!timed || mine->timestamp == theirs->timestamp) && mine->header_count == theirs->header_count &&
           same_field(one + mine->key, mine->key_size, other + theirs->key, theirs->key_size) &&
           same_field(one + mine->value, mine->value_size, other + theirs->value, theirs->value_size) &&
           same_field(one + mine->headers, mine->end - mine->headers, other + theirs->headers,
                      theirs->end - theirs->headers);
}

/* Of some records: bytes of keys and values; the smallest timestamp behind the last negative one (or that, where
 * nothing is behind it), the largest, and whether some are negative; the sum of the hashes, in two halves. */
typedef struct {
    int64_t bytes, first, last, negative;
    uint64_t sum_high, sum_low;
} Totals;

static const Totals NOTHING = {.first = -1, .last = INT64_MIN};

static void count_in(Totals *totals, const Outline *row, const uint8_t *hash) {
    int64_t timestamp = row->timestamp;
    totals->bytes += (row->key_size > 0 ? row->key_size : 0) + (row->value_size > 0 ? row->value_size : 0);
    if (totals->first < 0 || timestamp < totals->first)
        totals->first = timestamp;
    if (timestamp > totals->last)
        totals->last = timestamp;
    totals->negative |= timestamp < 0;
    uint64_t low = __builtin_bswap64(little64(hash + 8));
    totals->sum_high += __builtin_bswap64(little64(hash));
    totals->sum_low += low;
    totals->sum_high += totals->sum_low < low;
}

/* Write the hashes of records, one behind the other, and what they have together. */
EXPORTED void onceover_hashes(const uint8_t *window, const Outline *rows, int64_t count, int32_t timed,
                              uint8_t *hashes, Totals *totals) {
    *totals = NOTHING;
    for (int64_t index = 0; index < count; index++, hashes += HASH_BYTES) {
        hash_record(window, rows + index, timed, hashes);
        count_in(totals, rows + index, hashes);
    }
}

/* Return how many records of two sides are the same, one by one from the first on; write their hashes, and what they
 * have together on either side. */
EXPORTED int64_t onceover_agree(const uint8_t *one, const Outline *mine, const uint8_t *other, const Outline *theirs,
                                int64_t count, int32_t timed, uint8_t *hashes, Totals *totals) {
    int64_t index = 0;
    totals[0] = totals[1] = NOTHING;
    for (; index < count && same(one, mine + index, other, theirs + index, timed); index++, hashes += HASH_BYTES) {
        hash_record(one, mine + index, timed, hashes);
        count_in(totals, mine + index, hashes);
        count_in(totals + 1, theirs + index, hashes);
    }
    return index;
}

/* Return the version of this interface, or -1 where this machine hashes wrongly. Called once, before all else. */
EXPORTED int32_t onceover_abi(void) {
    static const uint8_t known[HASH_BYTES] = {0x84, 0xDE, 0xC5, 0x18, 0x07, 0x38, 0x24, 0x6D,
                                             0x83, 0x4C, 0x8A, 0x9C, 0x9C, 0x1C, 0x3C, 0x5E};
    uint8_t seen[HASH_BYTES];
    Blake blake;
    start(&blake);
    for (int64_t number = 0; number < 40; number++)
        add_number(&blake, number);
    finish(&blake, seen);
    return memcmp(seen, known, HASH_BYTES) ? -1 : ABI;
}
