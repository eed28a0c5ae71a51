/* model/config.c: what a configuration must fulfil, and what its zeros mean. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "model/config.h"

/* Of any extent, so that no product of three of them overflows and no search below takes long. What the BLAS takes as the
 * width of a matrix is an int, and has a limit of its own: check_widths. */
#define LIMIT 1048576u

model_config_t model_config_complete(const model_config_t *config)
{
    model_config_t c = *config;
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.head_dim = c.head_dim ? c.head_dim : c.hidden / (c.heads ? c.heads : 1);
    c.ffn = c.ffn ? c.ffn : 4 * c.hidden;
    c.leaves = c.leaves ? c.leaves : 1;
    c.vocab_padded = c.vocab_padded ? c.vocab_padded : (c.vocab + c.leaves - 1) / c.leaves * c.leaves;
    c.rotary_dim = c.rotary_dim ? c.rotary_dim : c.head_dim;
    c.rope_theta = c.rope_theta > 0.0 ? c.rope_theta : 10000.0;
    c.norm_eps = c.norm_eps > 0.0 ? c.norm_eps : 1e-5;
    c.deepnorm = c.deepnorm > 0.0 ? c.deepnorm : 1.0;
    c.embed_shrink = c.embed_shrink > 0.0 ? c.embed_shrink : 1.0;
    c.top_k = c.top_k ? c.top_k : 2;
    c.capacity = c.capacity > 0.0 ? c.capacity : 1.25;
    return c;
}

size_t model_config_capacity(const model_config_t *config)
{
    const model_config_t c = model_config_complete(config);
    if (c.experts == 0)
        return 0;
    double slots = ceil(c.capacity * (double)c.top_k * (double)c.seq / (double)c.experts);
    return slots < 1.0 ? 1 : slots < (double)c.seq ? (size_t)slots : c.seq;
}

typedef struct {
    const char *name;
    size_t value, least, most;
} extent_t;

static gyre_status_t check_extents(const extent_t *extent, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (extent[i].value < extent[i].least || extent[i].value > extent[i].most)
            return gyre_fail(GYRE_ERR_INVALID, "%s is %zu: it must lie in %zu..%zu", extent[i].name,
                             extent[i].value, extent[i].least, extent[i].most);
    return GYRE_OK;
}

/* What is given, of which the rest is made: the arithmetic of model_config_complete stays small. */
static gyre_status_t check_given(const model_config_t *c)
{
    const extent_t extent[] = {{"vocab", c->vocab, 1, LIMIT},   {"seq", c->seq, 1, LIMIT},
                               {"layers", c->layers, 1, LIMIT}, {"hidden", c->hidden, 1, LIMIT},
                               {"heads", c->heads, 1, LIMIT},   {"leaves", c->leaves, 0, LIMIT}};
    return check_extents(extent, sizeof extent / sizeof extent[0]);
}

/* Columns of the weights of a complete configuration. */
static gyre_status_t check_widths(const model_config_t *c)
{
    const extent_t extent[] = {{"kv_heads", c->kv_heads, 1, LIMIT},
                               {"head_dim", c->head_dim, 1, LIMIT},
                               {"ffn", c->ffn, 1, LIMIT},
                               {"vocab_padded", c->vocab_padded, 1, 2 * LIMIT},
                               {"pos_offset", c->pos_offset, 0, LIMIT},
                               {"rotary_dim", c->rotary_dim, 1, LIMIT},
                               {"experts", c->experts, 0, LIMIT},
                               {"top_k", c->top_k, 1, LIMIT}};
    gyre_status_t status = check_extents(extent, sizeof extent / sizeof extent[0]);
    if (status != GYRE_OK)
        return status;
    const extent_t width[] = {
        {"heads * head_dim", c->heads * c->head_dim, 1, INT_MAX},
        {"(heads + 2 kv_heads) * head_dim", (c->heads + 2 * c->kv_heads) * c->head_dim, 1, INT_MAX},
        {"ffn of both halves of a gate", (c->gated ? 2 : 1) * c->ffn, 1, INT_MAX}};
    return check_extents(width, sizeof width / sizeof width[0]);
}

/* INVALID unless `part` divides `whole`, both within the limits; names the nearest that work. */
static gyre_status_t divides(const char *whole_name, size_t whole, const char *part_name, size_t part)
{
    if (whole % part == 0)
        return GYRE_OK;
    size_t down = part, up = part;
    while (down > 1 && whole % down != 0)
        down--;
    while (up < whole && whole % up != 0)
        up++;
    return gyre_fail(GYRE_ERR_INVALID, "%s %zu is not divisible by %s %zu: take %s %zu or %zu, or %s %zu",
                     whole_name, whole, part_name, part, part_name, down, up, whole_name,
                     (whole / part + 1) * part);
}

static gyre_status_t check_leaves(const model_config_t *c)
{
    if ((c->leaves & (c->leaves - 1)) != 0)
        return gyre_fail(GYRE_ERR_INVALID, "leaves %zu: it must be a power of two", c->leaves);
    gyre_status_t status = divides("heads", c->heads, "leaves", c->leaves);
    if (status == GYRE_OK)
        status = divides("kv_heads", c->kv_heads, "leaves", c->leaves);
    if (status == GYRE_OK && c->experts == 0)
        status = divides("ffn", c->ffn, "leaves", c->leaves);
    if (status == GYRE_OK && c->experts > 0)
        status = divides("experts", c->experts, "leaves", c->leaves);
    if (status == GYRE_OK)
        status = divides("vocab_padded", c->vocab_padded, "leaves", c->leaves);
    if (status == GYRE_OK && c->vocab_padded < c->vocab)
        status =
            gyre_fail(GYRE_ERR_INVALID, "vocab_padded %zu is less than vocab %zu", c->vocab_padded, c->vocab);
    return status;
}

static gyre_status_t check_features(const model_config_t *c)
{
    if (c->pos == MODEL_POS_ROPE && (c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim))
        return gyre_fail(GYRE_ERR_INVALID, "rotary_dim %zu: it must be even and at most head_dim (%zu)",
                         c->rotary_dim, c->head_dim);
    if (c->experts > 0 && c->top_k > c->experts)
        return gyre_fail(GYRE_ERR_INVALID, "top_k %zu: there are %zu experts", c->top_k, c->experts);
    if (!(c->dropout >= 0.0 && c->dropout < 1.0) || !(c->attn_dropout >= 0.0 && c->attn_dropout < 1.0))
        return gyre_fail(GYRE_ERR_INVALID, "dropout %g, attn_dropout %g: they must lie in 0 up to 1",
                         c->dropout, c->attn_dropout);
    if (c->parallel && c->post_norm)
        return gyre_fail(GYRE_ERR_INVALID, "parallel and post_norm together: no model has both");
    return GYRE_OK;
}

gyre_status_t model_config_check(const model_config_t *config)
{
    gyre_status_t status = check_given(config);
    if (status != GYRE_OK)
        return status;
    if (config->head_dim == 0 && config->hidden % config->heads != 0)
        return divides("hidden", config->hidden, "heads", config->heads);
    const model_config_t c = model_config_complete(config);
    status = check_widths(&c);
    if (status == GYRE_OK)
        status = divides("heads", c.heads, "kv_heads", c.kv_heads);
    if (status == GYRE_OK)
        status = check_leaves(&c);
    return status == GYRE_OK ? check_features(&c) : status;
}
