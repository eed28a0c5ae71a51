/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/check.c: checks every element of both buffers, and the bytes around them.
 *
 * Before a checked run the buffers and PERF_GUARD_BYTES on both sides are filled with a pattern, then the
 * input is put in. After it each element must be the result, the input, or still the pattern, as the
 * collective promises.
 *
 * All of these repeat: inputs after PERF_PERIOD elements, the pattern after 256 bytes. PERF_PERIOD is a
 * prime: no block or chunk is a period long, so a block in the wrong place shows. A run of elements of one
 * kind is compared with a table of one period, at the speed of memory. */
#include "tools/gyre-perf/perf.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

enum {
    MAX_TOLD = 3,
    PATTERN_BYTES = 256 * 64 /* a multiple of the pattern's period and of every element's size */
};

typedef enum { IS_RESULT, IS_INPUT, IS_PATTERN, IS_ANYTHING } kind_t;

/* One range under check. */
typedef struct {
    const perf_case_t *c;
    int rep, in_place, is_send;
    size_t send_at, recv_at; /* where this rank's input and result lie in it, elements */
} range_t;

static unsigned char pattern(size_t at) /* at: bytes from the start of the guard before the buffer */
{
    return (unsigned char)(at * 37 + 11);
}

void perf_fill_poison(unsigned char *base, size_t bytes)
{
    unsigned char table[PATTERN_BYTES];
    const size_t total = bytes + 2 * PERF_GUARD_BYTES;
    for (size_t i = 0; i < PATTERN_BYTES && i < total; i++)
        table[i] = pattern(i);
    for (size_t i = 0; i < total; i += PATTERN_BYTES)
        memcpy(base - PERF_GUARD_BYTES + i, table, base_min_size(PATTERN_BYTES, total - i));
}

void perf_fill_input(const perf_case_t *c, int rep, int in_place, unsigned char *base)
{
    unsigned char *at = base + (in_place ? perf_case_send_offset(c) * c->elem : 0);
    const size_t first = base_min_size(c->send_count, PERF_PERIOD), period = first * c->elem;
    const size_t total = c->send_count * c->elem;
    for (int leaf = 0; leaf < c->leaves; leaf++, at += total) {
        for (size_t i = 0; i < first; i++)
            for (size_t byte = 0; byte < c->elem; byte += 8) {
                uint64_t bits = perf_input_word(c, c->rank * c->leaves + leaf, rep, i, byte > 0);
                memcpy(at + i * c->elem + byte, &bits, base_min_size(c->elem - byte, 8)); /* little-endian */
            }
        for (size_t done = period; done < total; done += period)
            memcpy(at + done, at, base_min_size(period, total - done));
    }
}

/* What kind element i is, and up to where the elements are of that kind and in one piece. */
static kind_t kind_of(const range_t *r, size_t i, size_t *end)
{
    const perf_case_t *c = r->c;
    const size_t all = perf_case_range(c, r->is_send) / c->elem,
                 send_end = r->send_at + c->send_count * (size_t)c->leaves,
                 recv_end = r->recv_at + c->recv_count;
    *end = all;
    if (!r->is_send && i >= r->recv_at && i < recv_end) {
        *end = i + perf_expected_run(c, i - r->recv_at);
        return IS_RESULT;
    }
    if (!r->is_send && i < r->recv_at && c->recv_count > 0)
        *end = r->recv_at;
    if (r->in_place && c->coll->op == COLL_REDUCE_SCATTER)
        return IS_ANYTHING; /* the other blocks are the library's to use */
    if ((r->is_send || r->in_place) && c->send_count > 0) {
        if (i >= r->send_at && i < send_end) {
            const size_t leaf = (i - r->send_at) / c->send_count;
            *end = base_min_size(*end, r->send_at + (leaf + 1) * c->send_count);
            return IS_INPUT;
        }
        if (i < r->send_at)
            *end = base_min_size(*end, r->send_at);
    }
    return IS_PATTERN;
}

/* The bytes of element i. */
static void wanted(const range_t *r, kind_t kind, size_t i, unsigned char *to)
{
    const perf_case_t *c = r->c;
    for (size_t at = 0; at < c->elem; at += 8) {
        const size_t bytes = base_min_size(c->elem - at, 8);
        const int word = at > 0;
        uint64_t bits = 0;
        if (kind == IS_RESULT)
            (void)perf_expected_word(c, r->rep, i - r->recv_at, word, &bits); /* kind_of made sure of one */
        else if (kind == IS_INPUT)
            bits = perf_input_word(c, c->rank * c->leaves + (int)((i - r->send_at) / c->send_count), r->rep,
                                   (i - r->send_at) % c->send_count, word);
        memcpy(to + at, &bits, bytes); /* little-endian: the low bytes */
        for (size_t j = at; kind == IS_PATTERN && j < at + bytes; j++)
            to[j] = pattern(PERF_GUARD_BYTES + i * c->elem + j);
    }
}

/* An element in hexadecimal, as a number of its width. */
static const char *in_hex(const unsigned char *element, size_t bytes, char text[2 * 16 + 1])
{
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", element[bytes - 1 - i]);
    return text;
}

static void tell(const range_t *r, size_t i, const unsigned char *got, const unsigned char *want)
{
    const perf_case_t *c = r->c;
    char has[33], should[33];
    fprintf(stderr,
            "gyre-perf: rank %d: %s %s %s root %d, %zu bytes, %s: element %zu of the %s buffer is 0x%s"
            ", not 0x%s\n",
            c->rank, c->coll->name, gyre_type_name(c->type), c->coll->reduces ? perf_op_name(c->op) : "none",
            c->root, c->bytes, r->in_place ? "in place" : "out of place", i, r->is_send ? "send" : "receive",
            in_hex(got, c->elem, has), in_hex(want, c->elem, should));
}

/* Elements [from, end), all of one kind. */
static uint64_t check_run(const range_t *r, kind_t kind, const unsigned char *base, size_t from, size_t end,
                          int *told)
{
    static unsigned char table[PERF_PERIOD * 16]; /* one period, from `from` on */
    const size_t elem = r->c->elem;
    const size_t period = base_min_size(end - from, kind == IS_PATTERN ? PATTERN_BYTES / elem : PERF_PERIOD);
    uint64_t wrong = 0;
    for (size_t i = 0; i < period; i++)
        wanted(r, kind, from + i, table + i * elem);
    for (size_t at = from; at < end; at += period) {
        const size_t count = base_min_size(period, end - at);
        const unsigned char *got = base + at * elem;
        if (memcmp(got, table, count * elem) == 0)
            continue;
        for (size_t i = 0; i < count; i++) {
            if (memcmp(got + i * elem, table + i * elem, elem) == 0)
                continue;
            wrong++;
            if ((*told)++ < MAX_TOLD)
                tell(r, at + i, got + i * elem, table + i * elem);
        }
    }
    return wrong;
}

static uint64_t guard_errors(const unsigned char *base, size_t bytes)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < PERF_GUARD_BYTES; i++) {
        wrong += base[i - PERF_GUARD_BYTES] != pattern(i);
        wrong += base[bytes + i] != pattern(PERF_GUARD_BYTES + bytes + i);
    }
    return wrong;
}

uint64_t perf_check_range(const perf_case_t *c, int rep, int in_place, int is_send, const unsigned char *base,
                          int *told)
{
    const range_t r = {.c = c,
                       .rep = rep,
                       .in_place = in_place,
                       .is_send = is_send,
                       .send_at = in_place ? perf_case_send_offset(c) : 0,
                       .recv_at = in_place ? perf_case_recv_offset(c) : 0};
    const size_t bytes = perf_case_range(c, is_send);
    uint64_t wrong = guard_errors(base, bytes);
    if (wrong)
        fprintf(stderr,
                "gyre-perf: rank %d: %s %s: %" PRIu64
                " bytes next to the %s buffer of %zu bytes were changed\n",
                c->rank, c->coll->name, gyre_type_name(c->type), wrong, is_send ? "send" : "receive", bytes);
    for (size_t i = 0, end = 0; i < bytes / c->elem; i = end) {
        kind_t kind = kind_of(&r, i, &end);
        if (kind != IS_ANYTHING)
            wrong += check_run(&r, kind, base, i, end, told);
    }
    return wrong;
}
