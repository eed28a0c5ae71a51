/* tools/gyre-perf/check.c: every element of both buffers, and what lies beside them.
 *
 * Before a checked run the buffers and PERF_GUARD_BYTES on both sides are filled with a pattern, then the input is put in. After it each element
 * must be the result, the input, or still the pattern, whichever the collective promises. */
#include "tools/gyre-perf/perf.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_TOLD = 3 };

static unsigned char poison(size_t at)
{
    return (unsigned char)(at * 37 + 11);
}

void perf_fill_poison(unsigned char *base, size_t bytes)
{
    for (size_t i = 0; i < bytes + 2 * PERF_GUARD_BYTES; i++)
        base[i - PERF_GUARD_BYTES] = poison(i);
}

void perf_fill_input(const perf_case_t *c, int rep, int in_place, unsigned char *base)
{
    unsigned char *at = base + (in_place ? perf_case_send_offset(c) * c->elem : 0);
    for (size_t i = 0; i < c->send_count; i++) {
        uint64_t bits = perf_input(c, c->rank, rep, i);
        memcpy(at + i * c->elem, &bits, c->elem); /* little-endian: the low bytes */
    }
}

static uint64_t guard_errors(const unsigned char *base, size_t bytes)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < PERF_GUARD_BYTES; i++) {
        wrong += base[i - PERF_GUARD_BYTES] != poison(i);
        wrong += base[bytes + i] != poison(PERF_GUARD_BYTES + bytes + i);
    }
    return wrong;
}

static uint64_t poison_bits(const perf_case_t *c, size_t i)
{
    unsigned char bytes[8] = {0};
    uint64_t bits;
    for (size_t j = 0; j < c->elem; j++)
        bytes[j] = poison(PERF_GUARD_BYTES + i * c->elem + j);
    memcpy(&bits, bytes, sizeof bits);
    return bits;
}

static void tell(const perf_case_t *c, const char *buffer, int in_place, size_t i, uint64_t got,
                 uint64_t want)
{
    fprintf(stderr,
            "gyre-perf: rank %d: %s %s %s root %d, %zu bytes, %s: element %zu of the %s buffer is 0x%" PRIx64
            ", not 0x%" PRIx64 "\n",
            c->rank, c->coll->name, gyre_type_name(c->type), c->coll->reduces ? perf_op_name(c->op) : "none",
            c->root, c->bytes, in_place ? "in place" : "out of place", i, buffer, got, want);
}

/* What element i of a checked range must be; 0: anything. */
static int wanted(const perf_case_t *c, int rep, int in_place, int is_send, size_t i, uint64_t *bits)
{
    const size_t send_at = in_place ? perf_case_send_offset(c) : 0,
                 recv_at = in_place ? perf_case_recv_offset(c) : 0;
    if (!is_send && i >= recv_at && perf_expected(c, rep, i - recv_at, bits))
        return 1;
    if (in_place && c->coll->op == COLL_REDUCE_SCATTER)
        return 0; /* the other blocks are the library's to use */
    if ((is_send || in_place) && i >= send_at && i - send_at < c->send_count)
        *bits = perf_input(c, c->rank, rep, i - send_at);
    else
        *bits = poison_bits(c, i);
    return 1;
}

uint64_t perf_check_range(const perf_case_t *c, int rep, int in_place, int is_send, const unsigned char *base,
                          int *told)
{
    uint64_t wrong = guard_errors(base, c->bytes);
    const char *name = is_send ? "send" : "receive";
    if (wrong)
        fprintf(stderr,
                "gyre-perf: rank %d: %s %s: %" PRIu64
                " bytes beside the %s buffer of %zu bytes were changed\n",
                c->rank, c->coll->name, gyre_type_name(c->type), wrong, name, c->bytes);
    for (size_t i = 0; i < c->bytes / c->elem; i++) {
        uint64_t got = 0, want;
        if (!wanted(c, rep, in_place, is_send, i, &want))
            continue;
        memcpy(&got, base + i * c->elem, c->elem);
        if (got == want)
            continue;
        wrong++;
        if ((*told)++ < MAX_TOLD)
            tell(c, name, in_place, i, got, want);
    }
    return wrong;
}
