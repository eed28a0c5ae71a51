/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 2 3 4 */
/* tests/optim/mp_zero_bytes.c: what ZeRO says that it has sent is what the library sent: the bytes of each
 * group's communicator (gyre_comm_stats) are those of optim_zero_step_t.sent, in every stage, with uneven
 * shares and shards, 16 bits, and several micro-batches.
 *
 * The counters are those of a bandwidth-optimal algorithm, so such algorithms are forced: pairwise, which
 * sends on each rank what the formula says of that rank (but for all-reduce, whose shards the library cuts
 * itself), and, where the number of ranks is a power of two, butterfly, which sends as much on all ranks
 * together. (A ring that keeps the canonical order carries several partial sums, and small messages on one
 * host are posted whole for all to read.) */
#include <string.h>

#include "base/settings/settings.h"
#include "optim/batch.h"
#include "optim/store/internal.h"
#include "tests/support/mp.h"
#include "tests/support/create.h"

#define CHECK(condition) MP_CHECK(condition, "%s", gyre_last_error())

enum { LAYERS = 4, MAX_ROWS = 80, STEPS = 2, BATCH = 6 };
static const model_config_t shape = {
    .vocab = 37, .seq = 6, .layers = LAYERS, .hidden = 24, .heads = 4, .leaves = 4};

/* The groups whose bytes are looked at. */
typedef enum { OVER_DP, OVER_GATHERS, OVER_TIED, OVERS } over_t;

typedef struct {
    gyre_comm_t *world;
    size_t ranks, rank, dp;
    optim_zero_groups_t groups;
    model_params_t *whole, *local;
    optim_batch_t batch;
    size_t share, longest, micro;
    const char *algorithm;
} job_t;

static void begin_layout(job_t *job, size_t pp)
{
    unsigned char has[LAYERS];
    size_t dp_rank = job->rank % (job->ranks / pp), pp_rank = job->rank / (job->ranks / pp), first;
    job->dp = job->ranks / pp;
    for (size_t l = 0; l < LAYERS; l++)
        has[l] = l * pp / LAYERS == pp_rank;
    const model_slice_t slice = {.tp_size = 1, .has = has, .embed = pp_rank == 0, .head = pp_rank + 1 == pp};
    MP_OK(model_params_slice(job->whole, &slice, &job->local));
    job->groups = (optim_zero_groups_t){.world = job->world};
    MP_OK(gyre_comm_split(job->world, job->dp > 1 ? (int)pp_rank : -1, (int)job->rank, &job->groups.dp));
    MP_OK(gyre_comm_split(job->world, pp > 1 ? (int)dp_rank : -1, (int)job->rank, &job->groups.tied));
    const optim_batch_t batch = {.batch = BATCH};
    job->batch = optim_batch_complete(&batch);
    job->longest = 0;
    for (size_t d = 0; d < job->dp; d++) {
        size_t share;
        optim_batch_share(&job->batch, job->dp, d, &first, &share);
        job->longest = share > job->longest ? share : job->longest;
        job->share = d == dp_rank ? share : job->share;
    }
}

static void end_layout(job_t *job)
{
    gyre_comm_destroy(job->groups.dp);
    gyre_comm_destroy(job->groups.tied);
    model_params_destroy(job->local);
}

static void pass(const job_t *job, optim_zero_t *zero, size_t sequences, int backward)
{
    const model_store_t_f32 *store = optim_zero_store(zero);
    const model_params_t *p = job->local;
    const float *value[MAX_ROWS];
    float *grad[MAX_ROWS];
    if (sequences == 0) {
        MP_OK(optim_zero_idle(zero, 0, p->rows, (optim_pass_t)backward));
        return;
    }
    for (size_t at = backward ? 0 : p->rows; backward ? at < p->rows : at > 0;) {
        size_t begin, end;
        zero_plan_unit(&zero->plan, backward ? at : at - 1, &begin, &end);
        at = backward ? end : begin;
        int weights = !backward || p->row[begin].layer >= 0;
        if (weights)
            MP_OK(store->acquire(store->user, begin, end - begin, 0, 0, value));
        for (size_t i = 0; backward && i < sequences; i++) {
            MP_OK(store->place(store->user, i, begin, end - begin, grad));
            for (size_t r = begin; r < end; r++)
                memset(grad[r - begin], 0, p->row[r].count * sizeof(float));
            MP_OK(store->ready(store->user, i, begin, end - begin));
        }
        if (weights)
            store->release(store->user, begin, end - begin);
    }
}

static void step(const job_t *job, optim_zero_t *zero, optim_zero_step_t *out)
{
    size_t idle = job->longest - job->share;
    optim_zero_begin(zero);
    for (size_t i = 0; i < job->longest; i += job->micro) {
        size_t from = i > idle ? i : idle, to = i + job->micro < job->longest ? i + job->micro : job->longest;
        for (int backward = 0; backward < 2; backward++)
            pass(job, zero, to > from ? to - from : 0, backward);
    }
    MP_OK(optim_zero_finish(zero, 1.0 / BATCH, 0.01, out));
    for (size_t b = 0; b < zero->plan.buckets; b++) /* gathers go on after a step */
        MP_OK(zero_weights_wait(zero, b));
}

/* Bytes that this rank has sent and received over each group so far. */
static void count(const optim_zero_t *zero, uint64_t sent[OVERS], uint64_t received[OVERS])
{
    const gyre_comm_t *comm[OVERS] = {
        [OVER_DP] = zero->groups.dp, [OVER_GATHERS] = zero->gather_comm, [OVER_TIED] = zero->groups.tied};
    for (int i = 0; i < OVERS; i++) {
        gyre_comm_stats_t stats = {.size = sizeof stats};
        if (comm[i])
            MP_OK(gyre_comm_stats(comm[i], &stats));
        sent[i] = stats.bytes_sent;
        received[i] = stats.bytes_received;
    }
}

static uint64_t over_all(const job_t *job, uint64_t mine)
{
    MP_OK(gyre_all_reduce(&mine, &mine, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), job->world));
    return mine;
}

static void check_group(const job_t *job, const char *what, int by_rank, uint64_t sent, uint64_t received,
                        uint64_t want)
{
    MP_CHECK(!by_rank || sent == want, "%s, %s: %llu bytes sent, ZeRO counts %llu", job->algorithm, what,
             (unsigned long long)sent, (unsigned long long)want);
    uint64_t all = over_all(job, want), out = over_all(job, sent), in = over_all(job, received);
    MP_CHECK(out == all && in == all, "%s, %s: all ranks sent %llu and received %llu bytes, ZeRO counts %llu",
             job->algorithm, what, (unsigned long long)out, (unsigned long long)in, (unsigned long long)all);
}

static void try(job_t *job, const optim_zero_config_t *how)
{
    optim_zero_config_t config = *how;
    optim_zero_t *zero = NULL;
    config.share = job->share;
    config.group = optim_batch_group(&job->batch);
    config.bucket_bytes = 6000;
    MP_OK(create_zero(job->local, &job->groups, &config, &zero));
    MP_OK(optim_zero_init(zero, 3));
    uint64_t before[OVERS], before_in[OVERS], after[OVERS], after_in[OVERS], idle[OVERS], idle_in[OVERS];
    uint64_t weight = zero_half(zero) ? 2 : 4, grad = config.grad16 ? 2 : 4;
    int drifted, pairwise = strcmp(job->algorithm, "pairwise") == 0;
    for (size_t b = 0; b < zero->plan.buckets; b++)
        MP_OK(zero_weights_wait(zero, b));
    for (int i = 0; i < STEPS; i++) {
        optim_zero_step_t done;
        count(zero, idle,
              idle_in); /* a step compares replicas, too: two words, which are no gradients or weights */
        MP_OK(zero_verify_part(zero, 0, 1, &drifted));
        count(zero, before, before_in);
        step(job, zero, &done);
        count(zero, after, after_in);
        for (int k = 0; k < OVERS; k++) {
            after[k] -= before[k] + (before[k] - idle[k]);
            after_in[k] -= before_in[k] + (before_in[k] - idle_in[k]);
        }
        check_group(job, "reductions and gathers after the update", pairwise && config.stage > 0,
                    after[OVER_DP], after_in[OVER_DP],
                    (done.sent[OPTIM_TRAFFIC_ALL_REDUCE] + done.sent[OPTIM_TRAFFIC_REDUCE_SCATTER]) * grad +
                        done.sent[OPTIM_TRAFFIC_ALL_GATHER] * weight);
        check_group(job, "gathers just in time", pairwise, after[OVER_GATHERS], after_in[OVER_GATHERS],
                    done.sent[OPTIM_TRAFFIC_GATHER] * weight);
        check_group(job, "tied rows", 0, after[OVER_TIED], after_in[OVER_TIED],
                    done.sent[OPTIM_TRAFFIC_TIED] * grad);
        CHECK(job->dp == 1 || over_all(job, after[OVER_DP]) > 0);
        CHECK(config.stage < 3 || job->dp == 1 || over_all(job, after[OVER_GATHERS]) > 0);
    }
    optim_zero_destroy(zero);
}

static void try_algorithm(job_t *job, const char *algorithm, int first_stage)
{
    static const struct {
        model_precision_t precision;
        int grad16;
    } kind[] = {{MODEL_FLOAT32, 0}, {MODEL_BFLOAT16, 0}, {MODEL_BFLOAT16, 1}};
    MP_OK(base_settings_set(SET_ALGO, algorithm, "the test"));
    job->algorithm = algorithm;
    for (size_t pp = 1; pp <= (job->ranks % 2 ? 1u : 2u); pp++) {
        begin_layout(job, pp); /* new communicators: an old one keeps its plans */
        for (int stage = first_stage; stage < 4; stage++)
            for (size_t k = 0; k < sizeof kind / sizeof kind[0]; k++) {
                job->micro = k == 0 ? 1 : k == 1 ? 2 : job->longest;
                try(job, &(optim_zero_config_t){
                             .stage = stage, .precision = kind[k].precision, .grad16 = kind[k].grad16});
            }
        end_layout(job);
    }
}

int main(void)
{
    job_t job = {0};
    MP_OK(gyre_init(NULL, &job.world));
    job.rank = (size_t)gyre_comm_rank(job.world);
    job.ranks = (size_t)gyre_comm_size(job.world);
    MP_OK(model_params_create(&shape, &job.whole));
    CHECK(job.whole->rows <= MAX_ROWS);
    try_algorithm(&job, "pairwise", 0);
    if ((job.ranks & (job.ranks - 1)) == 0)
        try_algorithm(&job, "butterfly", 1); /* small vectors are all-reduced whole */
    model_params_destroy(job.whole);
    MP_OK(gyre_finalize(job.world));
    return 0;
}
