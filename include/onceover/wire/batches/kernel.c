/* Records at native speed: what onceover/wire/batches/records.py does record by record, for many at once.
 *
 * Every byte here may be an attacker's. Each read is compared with the end of what was handed over, each length and
 * count with what is left, offsets have 64 bits, and nothing is allocated: the caller brings the room, and is told
 * when it is too small. Whatever is wrong, or rare, is answered with NOT_ME: then the Python code does the same work,
 * and words the error. So this file may refuse more than it has to, and never accept what Python would refuse.
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
#define ABI 1

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

/* Return the CRC-32C of bytes. */
EXPORTED uint32_t onceover_crc32c(const uint8_t *bytes, int64_t size) { return crc32c(bytes, bytes + size); }
