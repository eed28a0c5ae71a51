/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/state.c: fp32 weights and moments as ranges of rows, in memory or in a file, for updates,
 * checkpoints, export.
 *
 * The file (ZeRO-Infinity's idea: Rajbhandari et al. 2021) has no name, so nothing stays. Bucket by bucket
 * its state is read into one window, updated and written back, while the kernel reads the next bucket's ahead
 * and still writes the one before. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "optim/convert.h"
#include "optim/store/internal.h"

static size_t parts_of(const optim_zero_t *zero)
{
    return zero_half(zero) ? 3 : 2; /* fp32 weights are the model's own */
}

static int open_nameless(const char *folder)
{
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return file;
    char path[4096]; /* a file system without O_TMPFILE */
    if ((size_t)snprintf(path, sizeof path, "%s/gyre-offload-XXXXXX", folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if ((file = mkostemp(path, O_CLOEXEC)) >= 0)
        unlink(path);
    return file;
}

static gyre_status_t no_file(const char *folder)
{
    return gyre_fail_errno(GYRE_ERR_IO, errno, "offload: no file can be made in %s", folder);
}

gyre_status_t optim_offload_check(const char *folder)
{
    int file = open_nameless(folder);
    if (file < 0)
        return no_file(folder);
    close(file);
    return GYRE_OK;
}

gyre_status_t zero_file_create(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    size_t bytes = plan->state * parts_of(zero) * sizeof(float);
    void *memory;
    if ((zero->file = open_nameless(plan->config.offload)) < 0)
        return no_file(plan->config.offload);
    int err = bytes ? posix_fallocate(zero->file, 0, (off_t)bytes) : 0; /* a full disk shows now */
    if (err)
        return gyre_fail_errno(GYRE_ERR_IO, err, "offload: cannot reserve %zu bytes in %s", bytes,
                               plan->config.offload);
    gyre_status_t status =
        zero_take(zero, OPTIM_MEMORY_OFFLOAD, plan->max_own * parts_of(zero) * sizeof(float), 0, &memory);
    zero->window = memory;
    return status;
}

static off_t file_at(const optim_zero_t *zero, size_t b)
{
    return (off_t)(zero->plan.bucket[b].at * parts_of(zero) * sizeof(float));
}

static size_t file_bytes(const optim_zero_t *zero, size_t b)
{
    return zero->plan.bucket[b].own * parts_of(zero) * sizeof(float);
}

/* `bytes` of the file at `offset`, which belong to bucket b. */
static gyre_status_t transfer(optim_zero_t *zero, size_t b, void *memory, size_t bytes, off_t offset,
                              int write)
{
    char *at = memory;
    zero->file_read += write ? 0 : bytes;
    for (size_t left = bytes; left > 0;) {
        ssize_t n = write ? pwrite(zero->file, at, left, offset) : pread(zero->file, at, left, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return gyre_fail_errno(GYRE_ERR_IO, n < 0 ? errno : EIO,
                                   "offload: cannot %s %zu bytes of %s in %s", write ? "write" : "read", left,
                                   zero->plan.params->row[zero->plan.bucket[b].row].name,
                                   zero->plan.config.offload);
        at += n;
        offset += n;
        left -= (size_t)n;
    }
    return GYRE_OK;
}

/* The window, where it is not a file's: `parts` vectors as long as the longest bucket. */
static gyre_status_t take_window(optim_zero_t *zero, size_t parts)
{
    size_t n = zero->plan.max_own ? zero->plan.max_own : 1;
    if (!zero->window && !(zero->window = malloc(n * parts * sizeof(float))))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu elements of state on their way", n);
    return GYRE_OK;
}

/* Weights without a state: those of 16 bits become fp32 in the window. */
static gyre_status_t open_weights(optim_zero_t *zero, size_t b, zero_view_t *view)
{
    char *own = zero_weight_own(zero, b);
    *view = (zero_view_t){.w = (float *)(void *)own};
    if (!zero_half(zero))
        return GYRE_OK;
    gyre_status_t status = take_window(zero, 1);
    if (status == GYRE_OK)
        optim_expand(zero->plan.config.precision, (uint16_t *)(void *)own, zero->window,
                     zero->plan.bucket[b].own);
    view->w = zero->window;
    return status;
}

static gyre_status_t close_weights(optim_zero_t *zero, size_t b, int changed)
{
    gyre_status_t status = GYRE_OK;
    if (zero->window && changed)
        status =
            zero->on->round_weights(zero, zero->window, zero_weight_own(zero, b), zero->plan.bucket[b].own);
    free(zero->window);
    zero->window = NULL;
    return status;
}

gyre_status_t zero_state_open(optim_zero_t *zero, size_t b, zero_view_t *view)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    float *weight = (float *)(void *)zero_weight_own(zero, b);
    if (zero->plan.config.weights_only)
        return open_weights(zero, b, view);
    if (zero->file < 0) {
        *view =
            (zero_view_t){zero->master ? zero->master + k->at : weight, zero->m + k->at, zero->v + k->second};
        return GYRE_OK;
    }
    gyre_status_t status = transfer(zero, b, zero->window, file_bytes(zero, b), file_at(zero, b), 0);
    *view = (zero_view_t){.m = zero->window, .v = zero->window + k->own, .w = weight};
    if (zero_half(zero))
        view->w = zero->window + 2 * k->own;
    return status;
}

gyre_status_t zero_state_close(optim_zero_t *zero, size_t b, int changed)
{
    if (zero->plan.config.weights_only)
        return close_weights(zero, b, changed);
    return zero->file >= 0 && changed
               ? transfer(zero, b, zero->window, file_bytes(zero, b), file_at(zero, b), 1)
               : GYRE_OK;
}

/* The same for the host to read and write: a device's goes through the window. */
static gyre_status_t open_for_host(optim_zero_t *zero, size_t b, zero_view_t *view)
{
    const size_t n = zero->plan.bucket[b].own;
    zero_view_t there;
    gyre_status_t status = zero_state_open(zero, b, zero->device ? &there : view);
    if (status != GYRE_OK || !zero->device)
        return status;
    if ((status = take_window(zero, 3)) != GYRE_OK)
        return status;
    *view = (zero_view_t){.m = zero->window, .v = zero->window + n, .w = zero->window + 2 * n};
    float *to[] = {view->m, view->v, view->w}, *from[] = {there.m, there.v, there.w};
    for (size_t i = 0; status == GYRE_OK && i < 3; i++)
        status = zero->on->read(zero, to[i], from[i], n * sizeof(float));
    return status;
}

static gyre_status_t close_for_host(optim_zero_t *zero, size_t b, const zero_view_t *view, int changed)
{
    const size_t n = zero->plan.bucket[b].own;
    zero_view_t there;
    if (!zero->device)
        return zero_state_close(zero, b, changed);
    gyre_status_t status = changed ? zero_state_open(zero, b, &there) : GYRE_OK;
    float *from[] = {view->m, view->v, view->w}, *to[] = {there.m, there.v, there.w};
    for (size_t i = 0; changed && status == GYRE_OK && i < 3; i++)
        status = zero->on->write(zero, to[i], from[i], n * sizeof(float));
    return status;
}

void zero_state_ahead(optim_zero_t *zero, size_t b)
{
    if (zero->file >= 0 && zero->plan.bucket[b].alias == MODEL_NONE)
        posix_fadvise(zero->file, file_at(zero, b), (off_t)file_bytes(zero, b), POSIX_FADV_WILLNEED);
}

float *zero_second(const optim_zero_t *zero, const zero_view_t *view, size_t r, size_t lo)
{
    const zero_plan_t *plan = &zero->plan;
    if (!view->v || zero_plan_muon(plan, r))
        return NULL;
    return view->v + (lo - plan->bucket[plan->bucket_of[r]].first) - plan->gap[r];
}

/* 1 if this rank is the lowest that holds what it holds of row r. */
static int owns(const optim_zero_t *zero, size_t r)
{
    const model_param_t *row = &zero->plan.params->row[r];
    return !(row->twin && row->kind == MODEL_HEAD) && (row->cut >= 0 || zero->tp_rank == 0) &&
           (zero->plan.config.stage > 0 || zero->plan.rank == 0);
}

/* ---- rows that 16 bits do not round -------------------------------------------------------------------- */

float *zero_exact(const optim_zero_t *zero, size_t r)
{
    const model_param_t *row = zero->plan.params->row;
    float *at = zero->exact;
    if (!at || !model_kind_is_exact(row[r].kind))
        return NULL;
    for (size_t i = 0; i < r; i++)
        at += model_kind_is_exact(row[i].kind) ? row[i].count : 0;
    return at;
}

/* From now on ranks have parts of them: x + -0.0 is x, to the bit. */
static void part_exact(optim_zero_t *zero)
{
    zero->exact_parts = 1;
    for (size_t i = 0; i < zero->exact_count; i++)
        zero->exact[i] = -0.0f;
}

/* Every rank has all of them. */
static gyre_status_t join_exact(optim_zero_t *zero)
{
    const int parts = zero->exact_parts && zero->plan.config.stage > 0 && !zero_alone(zero);
    zero->exact_parts = 0;
    return parts && zero->exact_count > 0 ? gyre_all_reduce(zero->exact, zero->exact, zero->exact_count,
                                                            GYRE_FLOAT32, GYRE_OP(GYRE_SUM), zero->groups.dp)
                                          : GYRE_OK;
}

/* ---- ranges of rows ------------------------------------------------------------------------------------ */

/* Where there is no fp32 but in zero->exact. */
static void visit_exact(optim_zero_t *zero, size_t r, const optim_zero_range_t *range, int load)
{
    float *exact = zero_exact(zero, r);
    if (exact && load)
        memcpy(exact + range->first, range->weight, range->count * sizeof *exact);
    else if (exact && zero->plan.config.weights_only && range->weight)
        memcpy(range->weight, exact + range->first, range->count * sizeof *exact);
}

/* given [rows]: the rows of the caller's table; NULL: they are the store's. */
static gyre_status_t visit(optim_zero_t *zero, const size_t *given, optim_state_t what,
                           optim_zero_range_fn fn, void *user)
{
    const zero_plan_t *plan = &zero->plan;
    int listed = what == OPTIM_STATE_LISTED, owned = listed || what == OPTIM_STATE_OWNED;
    gyre_status_t status = what == OPTIM_STATE_LOAD ? zero_store_forget(zero) : GYRE_OK;
    if (what == OPTIM_STATE_LOAD)
        part_exact(zero);
    for (size_t b = 0; status == GYRE_OK && b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b];
        zero_view_t view = {0};
        int open = 0; /* a file is not read for what nobody asks for */
        if (k->alias != MODEL_NONE)
            continue;
        for (size_t r = k->row; status == GYRE_OK && r < k->row + k->rows; r++) {
            const model_param_t *row = &plan->params->row[r];
            size_t lo, hi;
            if (!zero_plan_part(&zero->plan, r, &lo, &hi) || (owned && !owns(zero, r)))
                continue;
            if (!listed && !open &&
                ((status = zero_weights_wait(zero, b)) != GYRE_OK ||
                 (status = open_for_host(zero, b, &view)) != GYRE_OK))
                return status;
            open = 1;
            const optim_zero_range_t range = {.row = given ? given[r] : r,
                                              .global = row->global,
                                              .first = row->first + (lo - (row->grad - k->grad)),
                                              .count = hi - lo,
                                              .weight = listed ? NULL : view.w + (lo - k->first),
                                              .exp_avg = view.m ? view.m + (lo - k->first) : NULL,
                                              .exp_avg_sq = zero_second(zero, &view, r, lo)};
            if (what != OPTIM_STATE_LOAD)
                visit_exact(zero, r, &range, 0);
            status = fn(user, &range);
            if (what == OPTIM_STATE_LOAD)
                visit_exact(zero, r, &range, 1);
        }
        if (status == GYRE_OK && !listed && open)
            status = close_for_host(zero, b, &view, what == OPTIM_STATE_LOAD);
    }
    return status;
}

gyre_status_t optim_zero_state(optim_zero_t *zero, optim_state_t what, optim_zero_range_fn fn, void *user)
{
    const zero_experts_t *x = zero->experts;
    gyre_status_t status = visit(zero, x ? x->from[0] : NULL, what, fn, user);
    return status == GYRE_OK && x ? visit(x->store, x->from[1], what, fn, user) : status;
}

gyre_status_t optim_zero_loaded(optim_zero_t *zero, uint64_t steps, const optim_scaler_t *scaler)
{
    zero->steps = zero->verified = steps;
    if (scaler)
        zero->scaler = *scaler;
    gyre_status_t status = zero_store_forget(zero);
    if (status == GYRE_OK)
        status = join_exact(zero);
    for (size_t b = zero->plan.buckets; status == GYRE_OK && b-- > 0;) {
        zero_view_t view;
        if (zero->plan.bucket[b].alias != MODEL_NONE)
            continue;
        /* those of an earlier load may still be on their way */
        if ((status = zero_weights_wait(zero, b)) == GYRE_OK &&
            (status = zero_state_open(zero, b, &view)) == GYRE_OK)
            status = zero_weights_publish(zero, b, view.w);
        if (status == GYRE_OK)
            status = zero_state_close(zero, b, 0);
    }
    memset(zero->sent, 0, sizeof zero->sent); /* of no step */
    if (status == GYRE_OK && zero->experts)
        status = optim_zero_loaded(zero->experts->store, steps, scaler);
    return status;
}

void optim_zero_no_moments(const optim_zero_range_t *range)
{
    if (range->exp_avg)
        memset(range->exp_avg, 0, range->count * sizeof(float));
    if (range->exp_avg_sq)
        memset(range->exp_avg_sq, 0, range->count * sizeof(float));
}

typedef struct {
    const model_params_t *table;
    uint64_t seed;
} init_t;

static gyre_status_t init_range(void *user, const optim_zero_range_t *range)
{
    const init_t *init = user;
    model_param_init(&init->table->row[range->row], init->seed, range->first, range->count, range->weight);
    optim_zero_no_moments(range);
    return GYRE_OK;
}

gyre_status_t optim_zero_init(optim_zero_t *zero, uint64_t seed)
{
    init_t init = {.table = zero->experts ? zero->experts->given : zero->plan.params, .seed = seed};
    optim_scaler_t scaler;
    optim_scaler_begin(&scaler, &zero->plan.config.scaler);
    gyre_status_t status = optim_zero_state(zero, OPTIM_STATE_LOAD, init_range, &init);
    return status == GYRE_OK ? optim_zero_loaded(zero, 0, &scaler) : status;
}

/* A sum over elements of a hash of (row, element, bits): no order, no layout. */
static gyre_status_t digest_range(void *user, const optim_zero_range_t *range)
{
    uint64_t sum = 0, row = base_mix64(range->global + 1);
    for (size_t i = 0; i < range->count; i++) {
        uint32_t bits;
        memcpy(&bits, range->weight + i, sizeof bits);
        sum += base_mix64(row + (range->first + i) * 0x9e3779b97f4a7c15u + base_mix64(bits));
    }
    *(uint64_t *)user += sum;
    return GYRE_OK;
}

gyre_status_t optim_zero_digest(optim_zero_t *zero, uint64_t *digest)
{
    uint64_t sum = 0;
    gyre_status_t status = optim_zero_state(zero, OPTIM_STATE_OWNED, digest_range, &sum);
    if (status == GYRE_OK && zero->groups.world)
        status = gyre_all_reduce(&sum, &sum, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), zero->groups.world);
    if (status == GYRE_OK)
        *digest = sum;
    return status;
}

/* What a rank owns of a row that is gathered. */
typedef struct {
    uint64_t range[2]; /* first, count of the canonical row; count UNREAD: it cannot read it */
    float *value;      /* [count] */
} piece_t;
#define UNREAD UINT64_MAX

/* Elements [lo, hi) of bucket b, of the fp32 weights that this rank updates. Of a file it is they alone
 * that are read. */
static gyre_status_t read_weights(optim_zero_t *zero, size_t b, size_t lo, size_t hi, float *out)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    size_t at = lo - k->first, bytes = (hi - lo) * sizeof(float);
    gyre_status_t status = zero_weights_wait(zero, b);
    if (status != GYRE_OK)
        return status;
    if (zero->file >= 0 && zero_half(zero)) /* after the moments (zero_state_open) */
        return transfer(zero, b, out, bytes, file_at(zero, b) + (off_t)((2 * k->own + at) * sizeof(float)),
                        0);
    if (zero->plan.config.weights_only && zero_half(zero)) {
        optim_expand(zero->plan.config.precision, (const uint16_t *)(void *)zero_weight_own(zero, b) + at,
                     out, hi - lo);
        return GYRE_OK;
    }
    const float *weight =
        zero->master ? zero->master + k->at : (const float *)(const void *)zero_weight_own(zero, b);
    return zero->on->read(zero, out, weight + at, bytes);
}

/* This rank's piece of row `global` of the whole table: into memory that it takes, or into `whole` at its
 * place there. */
static gyre_status_t take_piece(optim_zero_t *zero, size_t global, float *whole, piece_t *piece)
{
    const model_params_t *params = zero->plan.params;
    size_t r = 0, lo, hi;
    while (r < params->rows && (params->row[r].global != global || !owns(zero, r)))
        r++;
    if (r == params->rows || !zero_plan_part(&zero->plan, r, &lo, &hi))
        return GYRE_OK;
    size_t b = zero->plan.bucket_of[r];
    piece->range[0] = params->row[r].first + lo - (params->row[r].grad - zero->plan.bucket[b].grad);
    piece->range[1] = hi - lo;
    if (!whole && !(piece->value = malloc((hi - lo) * sizeof(float))))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu elements of a row", hi - lo);
    return read_weights(zero, b, lo, hi, whole ? whole + piece->range[0] : piece->value);
}

/* `mine`: of taking this rank's piece, which others hear of before they wait for it. */
static gyre_status_t gather_pieces(optim_zero_t *zero, gyre_status_t mine, piece_t *piece, float *canonical)
{
    gyre_comm_t *world = zero->groups.world;
    size_t n = (size_t)gyre_comm_size(world), unread = n;
    uint64_t *all = calloc(2 * n, sizeof *all);
    size_t *counts = calloc(2 * n, sizeof *counts);
    if (mine == GYRE_OK && (!all || !counts))
        mine = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the ranges of %zu ranks", n);
    char why[512] = ""; /* a collective may leave words of its own */
    if (mine != GYRE_OK) {
        snprintf(why, sizeof why, "%s", gyre_last_error());
        piece->range[1] = UNREAD;
    }
    gyre_status_t status = all && counts ? gyre_all_gather(piece->range, all, 2, GYRE_UINT64, world) : mine;
    for (size_t p = 0; status == GYRE_OK && p < n; p++) {
        counts[p] = (size_t)all[2 * p + 1];
        counts[n + p] = (size_t)all[2 * p];
        unread = all[2 * p + 1] == UNREAD ? p : unread;
    }
    if (status == GYRE_OK && mine != GYRE_OK)
        status = gyre_fail_quiet(mine, "%s", why);
    if (status == GYRE_OK && unread < n)
        status = gyre_fail_quiet(GYRE_ERR_IO, "rank %zu cannot read its part of the weights, and says why",
                                 unread);
    if (status == GYRE_OK)
        status = gyre_gatherv(piece->value, (size_t)piece->range[1], canonical, counts, counts + n,
                              GYRE_FLOAT32, 0, world);
    free(all);
    free(counts);
    return status;
}

gyre_status_t optim_zero_gather_row(optim_zero_t *zero, const model_params_t *whole, size_t row,
                                    float *canonical)
{
    if (row >= whole->rows)
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: row %zu is out of range: there are %zu", row, whole->rows);
    if (whole->row[row].twin && whole->row[row].kind == MODEL_HEAD)
        row = model_params_find(whole, MODEL_WTE, 0);
    piece_t piece = {0};
    optim_zero_t *holder =
        zero->experts && model_kind_of_experts(whole->row[row].kind) ? zero->experts->store : zero;
    gyre_status_t status = take_piece(holder, row, zero->groups.world ? NULL : canonical, &piece);
    if (zero->groups.world)
        status = gather_pieces(zero, status, &piece, canonical);
    if (status != GYRE_OK && zero->groups.world && gyre_comm_error(zero->groups.world) != GYRE_OK &&
        !zero->lost)
        zero->lost = piece.value;
    else
        free(piece.value);
    return status;
}
