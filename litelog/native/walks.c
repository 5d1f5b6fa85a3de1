/*
 * Walks over whole buffers whose steps depend on the one before, so that NumPy cannot take them at once.
 *
 * Each function gets every buffer with its size, and reads and writes nothing outside of it. It stops at the first byte
 * that it is not sure about, and says how far it came: what that byte means is decided in Python, and nowhere else.
 *
 * Specified in litelog/native/README.md.
 */

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines; litelog works without this library"
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef SOURCE_CHECKSUM
#define SOURCE_CHECKSUM 0
#endif

typedef const uint8_t *bytes;

#include "checksums.h"

#include "digests.h"
#include "entries.h"
#include "frames.h"
#include "commits.h"
#include "kafka_records.h"
#include "kafka.h"
#include "lz4_frame.h"
#include "netlog.h"
#include "redis.h"
#include "syncs.h"

uint32_t litelog_source_checksum(void)
{
    return SOURCE_CHECKSUM;
}

/* Whether checksums are as fast as those of the packages that compute them otherwise. */
int64_t litelog_has_fast_checksums(void)
{
    return can_fold;
}
