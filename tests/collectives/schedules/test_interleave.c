/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/schedules/test_interleave.c: runs schedules with numbers instead of symbols and in
 * random order, sharing nothing with the checker's run. Channels of all ranks take turns at random. A
 * message is copied when it is posted, when it is received or as late as the first step that may use it (as
 * with a view). A SEND is reported complete later still. The result must not depend on any of that.
 * With TEST_LONG=1 three times as many orders, and under a sanitizer more ranks than 11. */
/* takes: 2 */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/schedules/generator.h"
#include "tests/support/schedules.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FEW = 8 };
#else
enum { FEW = 11 };
#endif

typedef struct packet packet_t;
struct packet {
    packet_t *next;
    int src, dst;
    uint32_t step; /* the SEND */
    int channel, copied;
    uint64_t *data; /* its source as it was when posted, if copied */
};

typedef struct {
    uint64_t *memory; /* TMP, OUT and IN, the last two overlapping in place */
    size_t base[3], total;
    uint32_t at[COLL_MAX_CHANNELS];
    unsigned char *done; /* [nsteps] complete, so that others may depend on it */
    /* [nsteps] 1: a SEND whose data were taken, but which was not reported complete yet */
    unsigned char *told;
    packet_t *late[COLL_MAX_CHANNELS]; /* received, not copied yet */
    uint32_t late_step[COLL_MAX_CHANNELS];
} actor_t;

typedef struct {
    const sched_case_t *c;
    sched_world_t world;
    actor_t *actors;
    packet_t *first, **last; /* in the air, in the order of posting */
    unsigned random;
    size_t left; /* steps that have not started */
    base_arena_t arena;
} stage_t;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    return x * 0x81dadef4bc2dd44du;
}

static uint64_t contribution(int rank, size_t offset)
{
    return mix(((uint64_t)rank << 40) + offset + 1);
}

/* Neither commutative nor associative, so that any other order shows; with fast_order a plain sum. */
static uint64_t add(const stage_t *s, uint64_t x, uint64_t y)
{
    return s->c->fast ? x + y : mix(x * 3 + mix(y));
}

static uint64_t finish(uint64_t x)
{
    return x ^ 0x5555;
}

static uint64_t tree(const stage_t *s, const uint64_t *x, size_t k)
{
    size_t left = 1;
    if (k == 1)
        return x[0];
    while (2 * left < k)
        left *= 2;
    return add(s, tree(s, x, left), tree(s, x + left, k - left));
}

static uint64_t *place_of(actor_t *actor, coll_ref_t ref)
{
    return actor->memory + actor->base[ref.buf] + ref.offset;
}

static void set_up(stage_t *s, const sched_case_t *c)
{
    gyre_status_t status;
    *s = (stage_t){.c = c, .random = c->seed};
    s->last = &s->first;
    assert_true(sched_world_build(&s->world, c, &status));
    s->actors = base_arena_alloc(&s->arena, (size_t)c->n, sizeof *s->actors);
    for (int r = 0; r < c->n; r++) {
        const coll_args_t *a = &s->world.args[r];
        const coll_schedule_t *p = &s->world.schedules[r];
        actor_t *actor = &s->actors[r];
        size_t in_shift, out_shift, in, out;
        coll_extent(a, &in, &out);
        int aliased = coll_aliased(a, &in_shift, &out_shift);
        actor->base[COLL_OUT] = p->tmp_count + out_shift;
        actor->base[COLL_IN] = p->tmp_count + in_shift + (aliased ? 0 : out);
        actor->total = p->tmp_count + in + out + in_shift + out_shift;
        actor->memory = base_arena_alloc(&s->arena, actor->total, sizeof(uint64_t));
        actor->done = base_arena_alloc(&s->arena, p->nsteps + 1u, 1);
        actor->told = base_arena_alloc(&s->arena, p->nsteps + 1u, 1);
        for (size_t i = 0; i < actor->total; i++)
            actor->memory[i] = 0xbadbadbad00u + i;
        for (size_t i = 0; i < in; i++)
            *place_of(actor, coll_in(i)) = contribution(r, i);
        s->left += p->nsteps;
    }
}

static void take(stage_t *s, const packet_t *m, int rank, uint32_t step)
{
    const coll_step_t *to = &s->world.schedules[rank].steps[step];
    const coll_step_t *from = &s->world.schedules[m->src].steps[m->step];
    const uint64_t *data = m->copied ? m->data : place_of(&s->actors[m->src], from->at);
    if (to->count)
        memcpy(place_of(&s->actors[rank], to->at), data, to->count * sizeof *data);
    s->actors[rank].done[step] = 1;
    s->actors[m->src].told[m->step] = 1;
}

static void take_late(stage_t *s, int rank, int channel)
{
    actor_t *actor = &s->actors[rank];
    if (actor->late[channel])
        take(s, actor->late[channel], rank, actor->late_step[channel]);
    actor->late[channel] = NULL;
}

static void post(stage_t *s, int rank, uint32_t step)
{
    const coll_step_t *from = &s->world.schedules[rank].steps[step];
    packet_t *m = base_arena_alloc(&s->arena, 1, sizeof *m);
    *m = (packet_t){.src = rank, .dst = from->peer, .step = step, .channel = from->channel};
    m->copied = sched_random(&s->random) % 3 == 0;
    if (m->copied) {
        m->data = base_arena_alloc(&s->arena, from->count + 1, sizeof *m->data);
        memcpy(m->data, place_of(&s->actors[rank], from->at), from->count * sizeof *m->data);
    }
    *s->last = m;
    s->last = &m->next;
}

static int receive(stage_t *s, int rank, uint32_t step)
{
    const coll_step_t *to = &s->world.schedules[rank].steps[step];
    actor_t *actor = &s->actors[rank];
    for (packet_t **m = &s->first; *m; m = &(*m)->next) {
        packet_t *found = *m;
        if (found->src != to->peer || found->dst != rank || found->channel != to->channel)
            continue;
        assert_int_equal(to->count, s->world.schedules[found->src].steps[found->step].count);
        *m = found->next;
        if (s->last == &found->next)
            s->last = m;
        take_late(s, rank, to->channel);
        actor->late[to->channel] = found;
        actor->late_step[to->channel] = step;
        if (to->at.buf != COLL_TMP || sched_random(&s->random) % 2)
            take_late(s, rank, to->channel);
        return 1;
    }
    return 0;
}

static void compute(stage_t *s, int rank, uint32_t step)
{
    const coll_step_t *p = &s->world.schedules[rank].steps[step];
    const coll_ref_t *sources = s->world.schedules[rank].sources + p->src;
    uint64_t x[128];
    assert_true(p->nsrc <= 128);
    for (size_t i = 0; i < p->count; i++) {
        for (uint32_t k = 0; k < p->nsrc; k++)
            x[k] = place_of(&s->actors[rank], sources[k])[i];
        uint64_t sum = tree(s, x, p->nsrc);
        place_of(&s->actors[rank], p->at)[i] = p->flags & COLL_FINAL ? finish(sum) : sum;
    }
    s->actors[rank].done[step] = 1;
}

/* In all ranks' memory at once; that other ranks do the same elsewhere meanwhile is what the checker
 * proved. */
static void work_jointly(stage_t *s, int rank, uint32_t step)
{
    const coll_step_t *p = &s->world.schedules[rank].steps[step];
    const int all = p->peer == COLL_FROM_ALL;
    uint64_t x[128];
    for (size_t i = 0; i < p->count; i++) {
        size_t at = p->at.offset + i;
        for (int r = 0; all && r < s->c->n; r++)
            x[r] = *place_of(&s->actors[r], coll_in(at));
        uint64_t value =
            all ? finish(tree(s, x, (size_t)s->c->n)) : *place_of(&s->actors[s->c->root], coll_in(at));
        for (int r = 0; r < s->c->n; r++)
            if (all || r == p->peer)
                *place_of(&s->actors[r], coll_out(at)) = value;
    }
    s->actors[rank].done[step] = 1;
}

/* Lets one channel of one rank take a step, if it can. */
static int act(stage_t *s, int rank, int channel)
{
    const coll_schedule_t *p = &s->world.schedules[rank];
    actor_t *actor = &s->actors[rank];
    uint32_t *at = &actor->at[channel];
    while (*at < p->nsteps && p->steps[*at].channel != channel)
        ++*at;
    if (*at >= p->nsteps)
        return 0;
    const coll_step_t *step = &p->steps[*at];
    for (uint32_t i = 0; i < step->ndep; i++)
        if (!actor->done[p->deps[step->dep + i]])
            return 0;
    if (step->kind == COLL_STEP_RECV) {
        if (!receive(s, rank, *at))
            return 0;
    } else {
        take_late(s, rank, channel);
        if (step->kind == COLL_STEP_SEND)
            post(s, rank, *at);
        else if (step->kind == COLL_STEP_JOINT)
            work_jointly(s, rank, *at);
        else
            compute(s, rank, *at);
    }
    ++*at;
    s->left--;
    return 1;
}

/* Things that may happen at any time: a late copy, and the news that a SEND is complete. */
static int catch_up(stage_t *s, int rank, int all)
{
    actor_t *actor = &s->actors[rank];
    int moved = 0;
    for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++) {
        if (!actor->late[ch] || (!all && sched_random(&s->random) % 2))
            continue;
        take_late(s, rank, ch);
        moved = 1;
    }
    for (uint32_t i = 0; i < s->world.schedules[rank].nsteps; i++) {
        if (!actor->told[i] || (!all && sched_random(&s->random) % 2))
            continue;
        actor->told[i] = 0;
        moved = actor->done[i] = 1;
    }
    return moved;
}

static void play(stage_t *s)
{
    unsigned n = (unsigned)s->c->n;
    for (unsigned idle = 0; s->left;) {
        int rank = (int)(sched_random(&s->random) % n);
        int moved = act(s, rank, (int)(sched_random(&s->random) % COLL_MAX_CHANNELS));
        if (sched_random(&s->random) % 8 == 0)
            moved |= catch_up(s, rank, 0);
        idle = moved ? 0 : idle + 1;
        if (idle < 40 * n)
            continue;
        for (int r = 0; r < s->c->n; r++)
            for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++)
                moved |= catch_up(s, r, 1) | act(s, r, ch);
        if (!moved)
            fail_msg("stuck with %zu steps to go", s->left);
        idle = 0;
    }
    for (int r = 0; r < s->c->n; r++)
        catch_up(s, r, 1);
    assert_null(s->first);
}

/* Over ranks 0 .. ranks - 1. */
static uint64_t reduced(const stage_t *s, int ranks, int block, size_t i)
{
    uint64_t x[128];
    for (int r = 0; r < ranks; r++)
        x[r] = contribution(r, i + (block < 0 ? 0 : s->world.args[r].displs[block]));
    return finish(tree(s, x, (size_t)ranks));
}

/* What OUT element i of a rank must be; 0: it must not have been touched. */
static uint64_t expected(const stage_t *s, int rank, size_t i)
{
    const coll_args_t *a = &s->world.args[rank];
    int root = s->c->root;
    switch (s->c->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
        return reduced(s, s->c->n, -1, i);
    case COLL_REDUCE_SCATTER:
        return reduced(s, s->c->n, rank, i);
    case COLL_SCAN:
    case COLL_EXSCAN:
        return reduced(s, coll_op_inputs(s->c->op, s->c->n, rank), -1, i);
    case COLL_BROADCAST:
        return contribution(root, i);
    case COLL_SCATTER:
        return contribution(root, s->world.args[root].displs[rank] + i);
    case COLL_ALL_TO_ALL:
        for (int r = 0; r < s->c->n; r++)
            if (i >= a->rdispls[r] && i - a->rdispls[r] < a->rcounts[r])
                return contribution(r, s->world.args[r].displs[rank] + i - a->rdispls[r]);
        return 0;
    default:
        for (int r = 0; r < s->c->n; r++)
            if (i >= a->displs[r] && i - a->displs[r] < a->counts[r])
                return contribution(r, i - a->displs[r]);
        return 0;
    }
}

static void check_results(stage_t *s, const char *text)
{
    for (int r = 0; r < s->c->n; r++) {
        size_t in, out, in_shift, out_shift;
        actor_t *actor = &s->actors[r];
        coll_extent(&s->world.args[r], &in, &out);
        int aliased = coll_aliased(&s->world.args[r], &in_shift, &out_shift);
        for (size_t i = 0; i < out; i++) {
            uint64_t want = expected(s, r, i), has = *place_of(actor, coll_out(i));
            if (want == 0)
                want = 0xbadbadbad00u + actor->base[COLL_OUT] + i;
            if (has != want)
                fail_msg("%s: rank %d, element %zu is wrong", text, r, i);
        }
        for (size_t i = 0; i < in; i++) {
            size_t address = i + in_shift;
            if (aliased && address >= out_shift && address < out_shift + out)
                continue;
            assert_true(*place_of(actor, coll_in(i)) == contribution(r, i));
        }
    }
}

static void perform(const sched_case_t *c)
{
    if (!sched_case_served(c))
        return;
    stage_t s;
    char text[200];
    sched_case_print(c, text, sizeof text);
    set_up(&s, c);
    play(&s);
    check_results(&s, text);
    sched_world_free(&s.world);
    base_arena_free(&s.arena);
}

static void test_random_orders(void **state)
{
    (void)state;
    unsigned random = 11;
    const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 23}, all = getenv("TEST_LONG") != NULL;
    const size_t few = all ? sizeof sizes / sizeof *sizes : FEW, worlds = all ? 3 * few : few;
    for (coll_algo_t algo = COLL_RING; algo < COLL_ALGO_END; algo++) {
        for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++) {
            for (size_t i = 0; coll_algo_serves(algo, op, NULL) && i < worlds; i++) {
                int n = sizes[i % few];
                unsigned mix_in = sched_random(&random);
                int vector = coll_op_is_vector(op);
                sched_case_t c = {
                    .algo = algo, .op = op, .n = n, .seed = mix_in, .root = (int)(mix_in % (unsigned)n)};
                for (unsigned form = 0; form < 12; form++) {
                    c.place = (place_t)(form % 3);
                    c.count = op == COLL_BARRIER ? 0 : vector ? 3u * (unsigned)n + 20 : 1 + form % 7;
                    c.chunk = 2 + form % 4;
                    c.one_shot = form & 1 && op == COLL_ALL_REDUCE;
                    c.fast = form >= 8;
                    c.ragged = form >= 6 && !vector && op != COLL_BARRIER;
                    c.hosts = (hosts_t)(form % HOSTS_END);
                    c.seed += 7;
                    perform(&c);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_orders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
