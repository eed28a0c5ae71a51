/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/config.c: the rules for a configuration, and the meaning of its zeros. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/network/config.h"

/* Of any extent, so that no product of three of them overflows and no search below takes long. What the BLAS
 * takes as the width of a matrix is an int, and has a limit of its own: check_widths. */
#define LIMIT 1048576u

static model_rope_t complete_rope(const model_rope_t *rope)
{
    const int yarn = rope->type == MODEL_ROPE_YARN, rotations = yarn || rope->type == MODEL_ROPE_LLAMA3;
    model_rope_t r = {.theta = rope->theta > 0.0 ? rope->theta : 10000.0, .type = rope->type};
    if (r.type != MODEL_ROPE_PLAIN)
        r.factor = rope->factor;
    if (rotations) {
        r.low = rope->low;
        r.high = rope->high;
        r.original = rope->original;
    }
    if (yarn)
        r.attention = rope->attention > 0.0 ? rope->attention : 1.0 + 0.1 * log(fmax(1.0, rope->factor));
    r.untruncated = yarn && rope->untruncated;
    if (yarn)
        r.scores = rope->scores;
    return r;
}

model_config_t model_config_complete(const model_config_t *config)
{
    model_config_t c = *config;
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.head_dim = c.head_dim ? c.head_dim : c.hidden / (c.heads ? c.heads : 1);
    c.value_dim = c.kv_latent > 0 && c.value_dim > 0 ? c.value_dim : c.head_dim;
    c.ffn = c.ffn ? c.ffn : 4 * c.hidden;
    c.leaves = c.leaves ? c.leaves : 1;
    c.vocab_padded = c.vocab_padded ? c.vocab_padded : (c.vocab + c.leaves - 1) / c.leaves * c.leaves;
    c.rotary_dim = c.rotary_dim ? c.rotary_dim : c.head_dim;
    c.rope = complete_rope(&c.rope);
    c.nope_every = c.nope_every > c.layers ? 0 : c.nope_every;
    c.window = c.window_every == 1 ? 0 : c.window; /* each layer sees all */
    c.window_every = c.window_every > c.layers ? 0 : c.window_every;
    if (c.window == 0) {
        c.window_from = c.window_every = 0;
        c.local_theta = 0.0;
    }
    c.norm_eps = c.norm_eps > 0.0 ? c.norm_eps : 1e-5;
    c.query_scale = c.query_scale == (double)c.head_dim ? 0.0 : c.query_scale;
    c.deepnorm = c.deepnorm > 0.0 ? c.deepnorm : 1.0;
    c.embed_shrink = c.embed_shrink > 0.0 ? c.embed_shrink : 1.0;
    c.top_k = c.top_k ? c.top_k : 2;
    c.capacity = c.capacity > 0.0 ? c.capacity : 1.25;
    c.groups = c.groups ? c.groups : 1;
    c.top_groups = c.top_groups ? c.top_groups : c.groups;
    c.routed_scale = c.routed_scale > 0.0 ? c.routed_scale : 1.0;
    c.dense_first = c.experts > 0 ? c.dense_first : 0;
    c.dense_ffn = c.dense_first == 0 ? 0 : c.dense_ffn ? c.dense_ffn : c.ffn;
    return c;
}

int model_config_is_sparse(const model_config_t *c, size_t layer)
{
    return c->experts > 0 && layer >= c->dense_first;
}

size_t model_config_mlp(const model_config_t *c, size_t layer)
{
    return c->experts == 0 ? c->ffn : model_config_is_sparse(c, layer) ? c->shared_ffn : c->dense_ffn;
}

size_t model_config_latents(const model_config_t *c)
{
    return c->kv_latent > 0 ? c->q_latent + c->kv_latent + c->rotary_dim : 0;
}

int model_config_is_local(const model_config_t *config, size_t layer)
{
    int all =
        layer < config->window_from || (config->window_every > 0 && (layer + 1) % config->window_every == 0);
    return config->window > 0 && !all;
}

size_t model_config_window(const model_config_t *config, size_t layer)
{
    return model_config_is_local(config, layer) && config->window < config->seq ? config->window : 0;
}

int model_config_turns(const model_config_t *config, size_t layer)
{
    return config->pos == MODEL_POS_ROPE &&
           !(config->nope_every > 0 && (layer + 1) % config->nope_every == 0);
}

size_t model_config_copies(const model_config_t *config)
{
    return base_max_size(1, config->leaves / config->kv_heads);
}

size_t model_config_key_heads(const model_config_t *config)
{
    return base_max_size(config->kv_heads, config->leaves);
}

size_t model_config_sharing(const model_config_t *config, size_t tp)
{
    return tp / base_min_size(tp, config->kv_heads);
}

double model_config_query_scale(const model_config_t *c)
{
    const double over = c->query_scale > 0.0 ? c->query_scale : (double)c->head_dim;
    const double times = 1.0 + 0.1 * c->rope.scores * log(fmax(1.0, c->rope.factor));
    return over / (times * times * times * times);
}

size_t model_config_capacity(const model_config_t *config)
{
    const model_config_t c = model_config_complete(config);
    if (c.experts == 0)
        return 0;
    double slots = ceil(c.capacity * (double)c.top_k * (double)c.seq / (double)c.experts);
    return slots < 1.0 ? 1 : slots < (double)c.seq ? (size_t)slots : c.seq;
}

/* ---- the rules: each returns 0 and names in `broken` the one that is not kept ------------------------- */

#define WHY 200
typedef struct {
    int quiet; /* in: the search for another value wants no words */
    char why[WHY];
    /* offsets of fields, another value of which may be enough; 0: no field (`vocab`, which is never such a
     * field) */
    size_t vary[2];
} broken_t;
_Static_assert(offsetof(model_config_t, vocab) == 0, "0 names no field that is varied");

#define BROKEN(broken, ...) ((broken)->quiet ? 0 : (snprintf((broken)->why, WHY, __VA_ARGS__), 0))

typedef struct {
    const char *name;
    size_t value, least, most;
} extent_t;

static int check_extents(const extent_t *extent, size_t count, broken_t *broken)
{
    for (size_t i = 0; i < count; i++)
        if (extent[i].value < extent[i].least || extent[i].value > extent[i].most)
            return BROKEN(broken, "%s is %zu: it must lie in %zu..%zu", extent[i].name, extent[i].value,
                          extent[i].least, extent[i].most);
    return 1;
}

/* The given fields, from which the rest is computed: the arithmetic of model_config_complete stays small. */
static int check_given(const model_config_t *c, broken_t *broken)
{
    const extent_t extent[] = {{"vocab", c->vocab, 1, LIMIT},   {"seq", c->seq, 1, LIMIT},
                               {"layers", c->layers, 1, LIMIT}, {"hidden", c->hidden, 1, LIMIT},
                               {"heads", c->heads, 1, LIMIT},   {"leaves", c->leaves, 0, LIMIT}};
    return check_extents(extent, sizeof extent / sizeof extent[0], broken);
}

/* Columns of the weights of a complete configuration. */
static int check_widths(const model_config_t *c, broken_t *broken)
{
    const extent_t extent[] = {{"kv_heads", c->kv_heads, 1, LIMIT},
                               {"head_dim", c->head_dim, 1, LIMIT},
                               {"value_dim", c->value_dim, 1, LIMIT},
                               {"kv_latent", c->kv_latent, 0, LIMIT},
                               {"q_latent", c->q_latent, 0, LIMIT},
                               {"dense_ffn", c->dense_ffn, 0, LIMIT},
                               {"shared_ffn", c->shared_ffn, 0, LIMIT},
                               {"ffn", c->ffn, 1, LIMIT},
                               {"vocab_padded", c->vocab_padded, 1, 2 * LIMIT},
                               {"pos_offset", c->pos_offset, 0, LIMIT},
                               {"rotary_dim", c->rotary_dim, 1, LIMIT},
                               {"experts", c->experts, 0, LIMIT},
                               {"top_k", c->top_k, 1, LIMIT}};
    if (!check_extents(extent, sizeof extent / sizeof extent[0], broken))
        return 0;
    const extent_t width[] = {
        {"heads * head_dim", c->heads * c->head_dim, 1, INT_MAX},
        {"(heads + 2 kv_heads) * head_dim", (c->heads + 2 * model_config_key_heads(c)) * c->head_dim, 1,
         INT_MAX},
        {"heads * value_dim", c->heads * c->value_dim, 1, INT_MAX / 4},
        {"dense_ffn or shared_ffn of both halves of a gate",
         (c->gated ? 2 : 1) * (c->dense_ffn > c->shared_ffn ? c->dense_ffn : c->shared_ffn), 0, INT_MAX},
        {"ffn of both halves of a gate", (c->gated ? 2 : 1) * c->ffn, 1, INT_MAX}};
    return check_extents(width, sizeof width / sizeof width[0], broken);
}

static int divides(const char *whole_name, size_t whole, const char *part_name, size_t part, broken_t *broken)
{
    return whole % part == 0 ||
           BROKEN(broken, "%s %zu is not divisible by %s %zu", whole_name, whole, part_name, part);
}

/* Of what is given. */
static int check_head_dim(const model_config_t *c, broken_t *broken)
{
    broken->vary[0] = offsetof(model_config_t, heads);
    broken->vary[1] = offsetof(model_config_t, hidden);
    return c->head_dim != 0 || divides("hidden", c->hidden, "heads", c->heads, broken);
}

static int check_kv_heads(const model_config_t *c, broken_t *broken)
{
    broken->vary[0] = offsetof(model_config_t, kv_heads);
    broken->vary[1] = offsetof(model_config_t, heads);
    return divides("heads", c->heads, "kv_heads", c->kv_heads, broken);
}

static int check_leaves(const model_config_t *c, broken_t *broken)
{
    broken->vary[0] = offsetof(model_config_t, leaves);
    broken->vary[1] = 0;
    if ((c->leaves & (c->leaves - 1)) != 0)
        return BROKEN(broken, "leaves %zu is no power of two", c->leaves);
    if (c->kv_heads % c->leaves != 0 && c->leaves % c->kv_heads != 0)
        return BROKEN(broken, "kv_heads %zu and leaves %zu: one must divide the other", c->kv_heads,
                      c->leaves);
    if (c->kv_heads < c->leaves && c->qk_whole)
        return BROKEN(broken, "leaves %zu share %zu kv_heads: those of qk_whole, which have one norm, cannot",
                      c->leaves, c->kv_heads);
    return divides("heads", c->heads, "leaves", c->leaves, broken) &&
           (c->experts > 0 ? divides("experts", c->experts, "leaves", c->leaves, broken)
                           : divides("ffn", c->ffn, "leaves", c->leaves, broken)) &&
           divides("dense_ffn", c->dense_ffn, "leaves", c->leaves, broken) &&
           divides("shared_ffn", c->shared_ffn, "leaves", c->leaves, broken) &&
           divides("vocab_padded", c->vocab_padded, "leaves", c->leaves, broken);
}

/* Rotations and positions that a scaled frequency is computed from. */
static int check_rope(const model_rope_t *rope, broken_t *broken)
{
    if (rope->type != MODEL_ROPE_PLAIN && !(rope->factor >= 1.0))
        return BROKEN(broken, "factor %g of scaled rotary positions: it must be at least 1", rope->factor);
    if (rope->type != MODEL_ROPE_LLAMA3 && rope->type != MODEL_ROPE_YARN)
        return 1;
    if (!(rope->low > 0.0 && rope->high > rope->low))
        return BROKEN(broken,
                      "rotations %g and %g of scaled rotary positions (low_freq_factor, high_freq_factor; "
                      "beta_slow, beta_fast): they must be above 0, and rise",
                      rope->low, rope->high);
    if (rope->original < 1 || rope->original > LIMIT)
        return BROKEN(broken, "original_max_position_embeddings %zu: it must lie in 1..%u", rope->original,
                      LIMIT);
    return rope->theta > 1.0 || BROKEN(broken, "rope_theta %g: it must be above 1", rope->theta);
}

static int check_latents(const model_config_t *c, broken_t *broken)
{
    if (c->kv_latent == 0)
        return c->q_latent == 0 || BROKEN(broken, "q_latent %zu: it needs kv_latent", c->q_latent);
    if (c->pos != MODEL_POS_ROPE || c->norm != MODEL_NORM_RMS || c->gain_plus_1 || !c->no_qkv_bias)
        return BROKEN(broken, "kv_latent: it needs rotary positions, RMSNorm without gain_plus_1, and "
                              "no_qkv_bias");
    if (c->kv_heads != c->heads)
        return BROKEN(broken, "kv_heads %zu with kv_latent: each of the %zu heads has keys of its own",
                      c->kv_heads, c->heads);
    return !(c->qk_norm || c->top_query) || BROKEN(broken, "kv_latent and %s together: no model has both",
                                                   c->qk_norm ? "qk_norm" : "top_query");
}

static int check_router(const model_config_t *c, broken_t *broken)
{
    const size_t each = c->experts / c->groups;
    if (!(c->z_loss >= 0.0 && c->router_z >= 0.0))
        return BROKEN(broken, "z_loss %g, router_z %g: they must not lie below 0", c->z_loss, c->router_z);
    if (c->router_z > 0.0 && (c->experts == 0 || c->router_sigmoid))
        return BROKEN(broken, "router_z %g: it is of logits of experts' softmax, which the model lacks",
                      c->router_z);
    if (c->experts == 0)
        return (!c->shared_ffn && !c->router_sigmoid && !c->raw_weights && c->groups == 1) ||
               BROKEN(broken, "shared_ffn, router_sigmoid, raw_weights and groups need experts");
    if (c->top_k > c->experts)
        return BROKEN(broken, "top_k %zu: there are %zu experts", c->top_k, c->experts);
    if (c->experts % c->groups != 0 || c->top_groups > c->groups || c->top_groups * each < c->top_k)
        return BROKEN(
            broken,
            "%zu of %zu groups of %zu experts: groups are equal, and those chosen have at least the "
            "top_k %zu",
            c->top_groups, c->groups, c->experts, c->top_k);
    if (c->router_sigmoid && c->groups > 1 && each < 2)
        return BROKEN(broken, "groups %zu of %zu experts: with router_sigmoid each has at least 2", c->groups,
                      c->experts);
    if (c->dense_first >= c->layers)
        return BROKEN(broken, "dense_first %zu: it must leave a layer with experts of the %zu",
                      c->dense_first, c->layers);
    if (c->router_sigmoid && c->balance > 0.0)
        return BROKEN(broken, "balance with router_sigmoid: scores are no probabilities");
    return ((c->dense_first == 0 && c->shared_ffn == 0) || c->no_mlp_bias) ||
           BROKEN(broken, "dense_first or shared_ffn with biases of MLPs: no model has both");
}

static int check_features(const model_config_t *c, broken_t *broken)
{
    broken->vary[0] = 0;
    if (c->vocab_padded < c->vocab)
        return BROKEN(broken, "vocab_padded %zu is less than vocab %zu", c->vocab_padded, c->vocab);
    if (c->pos == MODEL_POS_ROPE && (c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim))
        return BROKEN(broken, "rotary_dim %zu: it must be even and at most head_dim (%zu)", c->rotary_dim,
                      c->head_dim);
    if (c->pos == MODEL_POS_ROPE && !check_rope(&c->rope, broken))
        return 0;
    if (c->nope_every > 0 && c->pos != MODEL_POS_ROPE)
        return BROKEN(broken, "nope_every %zu: it is of rotary positions, which the model lacks",
                      c->nope_every);
    if (!(c->dropout >= 0.0 && c->dropout < 1.0) || !(c->attn_dropout >= 0.0 && c->attn_dropout < 1.0))
        return BROKEN(broken, "dropout %g, attn_dropout %g: they must lie in 0 up to 1", c->dropout,
                      c->attn_dropout);
    if ((c->router_bias || c->expert_bias) && c->experts == 0)
        return BROKEN(broken, "%s without experts", c->router_bias ? "router_bias" : "expert_bias");
    if (c->act_limit > 0.0 && (!c->gated || c->act != MODEL_ACT_GELU_FAST))
        return BROKEN(broken, "act_limit %g: it is of gates with x sigmoid(1.702 x)", c->act_limit);
    if (c->prefix && c->window > 0)
        return BROKEN(broken, "prefix and window together: no model has both");
    if (c->gain_plus_1 && (c->norm != MODEL_NORM_RMS || c->qk_whole))
        return BROKEN(broken, "gain_plus_1: only RMSNorms have it, and not those of qk_whole");
    if (c->qk_whole && !c->qk_norm)
        return BROKEN(broken, "qk_whole without qk_norm: it says what qk_norm normalises");
    if ((c->out_norm || c->both_norms) && (c->parallel || c->post_norm))
        return BROKEN(broken, "%s and %s together: no model has both",
                      c->out_norm ? "out_norm" : "both_norms", c->parallel ? "parallel" : "post_norm");
    if (c->both_norms && (c->out_norm || c->norm != MODEL_NORM_RMS))
        return BROKEN(broken, "both_norms: they are RMSNorms, and go with no out_norm");
    if (c->parallel && c->post_norm)
        return BROKEN(broken, "parallel and post_norm together: no model has both");
    return 1;
}

static int works(const model_config_t *config, broken_t *broken)
{
    broken->vary[0] = broken->vary[1] = 0;
    if (!check_given(config, broken) || !check_head_dim(config, broken))
        return 0;
    broken->vary[0] = broken->vary[1] = 0;
    const model_config_t c = model_config_complete(config);
    return check_widths(&c, broken) && check_kv_heads(&c, broken) && check_leaves(&c, broken) &&
           check_features(&c, broken) && check_latents(&c, broken) && check_router(&c, broken);
}

/* ---- what would be accepted ---------------------------------------------------------------------------- */

#define TRIES 4096

/* The nearest other value of one field, down or up, with which all rules are kept. */
static int nearest(const model_config_t *config, size_t at, int up, size_t *value)
{
    model_config_t c = *config;
    broken_t broken = {.quiet = 1};
    size_t *field = (size_t *)(void *)((char *)&c + at);
    for (int i = 0; i < TRIES && (up ? *field < LIMIT : *field > 1); i++) {
        *field = up ? *field + 1 : *field - 1;
        if (at == offsetof(model_config_t, heads) && config->kv_heads == config->heads)
            c.kv_heads = c.heads;
        if (works(&c, &broken)) {
            *value = *field;
            return 1;
        }
    }
    return 0;
}

/* "": no value of one field alone mends it. */
static void advise(const model_config_t *config, const broken_t *broken, char *text, size_t bytes)
{
    static const struct {
        size_t at;
        const char *name;
    } names[] = {{offsetof(model_config_t, heads), "heads"},
                 {offsetof(model_config_t, hidden), "hidden"},
                 {offsetof(model_config_t, kv_heads), "kv_heads"},
                 {offsetof(model_config_t, leaves), "leaves"}};
    size_t used = 0, value;
    *text = 0;
    for (size_t v = 0; v < 2 && broken->vary[v] != 0; v++) {
        const char *name = "";
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (names[i].at == broken->vary[v])
                name = names[i].name;
        int told = 0;
        for (int up = 0; up < 2; up++)
            if (used < bytes && nearest(config, broken->vary[v], up, &value)) {
                const char *join = used == 0 ? ": take " : told ? " or " : ", or ";
                used += (size_t)snprintf(text + used, bytes - used, "%s%s%s%zu", join, told ? "" : name,
                                         told ? "" : " ", value);
                told = 1;
            }
    }
}

gyre_status_t model_config_check_of(const model_config_t *config, const char *where)
{
    broken_t broken = {.quiet = 0};
    char advice[160];
    if (works(config, &broken))
        return GYRE_OK;
    advise(config, &broken, advice, sizeof advice);
    return gyre_fail(GYRE_ERR_INVALID, "%s%s%s%s", where ? where : "", where ? ": " : "", broken.why, advice);
}

int model_config_works(const model_config_t *config)
{
    broken_t broken = {.quiet = 1};
    return works(config, &broken);
}

gyre_status_t model_config_check(const model_config_t *config)
{
    return model_config_check_of(config, NULL);
}
