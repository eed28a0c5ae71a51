/* model/config.c: what a configuration must fulfil, and what its zeros mean. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "model/config.h"

#define LIMIT 1048576u /* of any extent: products' sizes are ints in the BLAS */

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

/* INVALID unless `part` divides `whole`; names the nearest that work. */
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
    const struct {
        const char *name;
        size_t value;
    } extent[] = {{"vocab", config->vocab},
                  {"seq", config->seq},
                  {"layers", config->layers},
                  {"hidden", config->hidden},
                  {"heads", config->heads}};
    for (size_t i = 0; i < sizeof extent / sizeof extent[0]; i++)
        if (extent[i].value < 1 || extent[i].value > LIMIT)
            return gyre_fail(GYRE_ERR_INVALID, "%s is %zu: it must lie in 1..%u", extent[i].name,
                             extent[i].value, LIMIT);
    if (config->head_dim == 0 && config->hidden % config->heads != 0)
        return divides("hidden", config->hidden, "heads", config->heads);
    const model_config_t c = model_config_complete(config);
    gyre_status_t status = divides("heads", c.heads, "kv_heads", c.kv_heads);
    if (status == GYRE_OK)
        status = check_leaves(&c);
    return status == GYRE_OK ? check_features(&c) : status;
}
