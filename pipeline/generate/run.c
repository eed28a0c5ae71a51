/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/run.c: sequences take turns in a decoder's slots; each call reads a token of every
 * sequence that is past its prompt, and a piece of the prompts of others.
 *
 * All ranks make the same plan. The ranks of the last stage have the logits and draw the same tokens; the
 * first of them sends these to all. */
#include "pipeline/generate/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/network/decode/decode.h"
#include "pipeline/agree/agree.h"
#include "pipeline/plan/layout.h"

/* A sequence in a slot. */
typedef struct {
    size_t prompt;       /* SIZE_MAX: the slot is free */
    size_t read, made;   /* tokens of the prompt that were read; tokens after it */
    model_token_t token; /* the last of those */
    int drew;            /* the present call gives it a token */
} sequence_t;

/* What the last stage says of a piece. */
typedef struct {
    int32_t token;
    float log_probability;
} said_t;
_Static_assert(sizeof(said_t) == 8, "two words travel for each token");

struct pipe_generator {
    gyre_comm_t *world, *tp, *pp;
    pipe_generate_config_t config;
    pipe_place_t place;
    pipe_source_t *source;
    model_params_t *whole, *slice;
    float *weights;
    model_decoder_t *decoder;
    sequence_t *sequence;       /* [batch] */
    model_piece_t *piece;       /* [batch] */
    said_t *said;               /* [batch] */
    float *x_in, *x_out;        /* [rows, C] between stages */
    float *logits;              /* [batch, V'], on the last stage */
    float *drawing, *measuring; /* [V'], [V' + leaves] */
};

static size_t rows_of(const pipe_generator_t *g)
{
    return g->config.batch + g->config.prefill;
}

/* ---- making it ----------------------------------------------------------------------------------------- */

static gyre_status_t find_degrees(pipe_generator_t *g)
{
    const size_t ranks = (size_t)gyre_comm_size(g->world), layers = pipe_source_model(g->source)->layers;
    pipe_generate_config_t *c = &g->config;
    c->pp = c->pp > 0 ? c->pp : c->tp > 0 ? base_max_size(1, ranks / c->tp) : 1;
    c->tp = c->tp > 0 ? c->tp : base_max_size(1, ranks / c->pp);
    if (c->tp > ranks || c->pp > ranks || c->tp * c->pp != ranks)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--tp %zu times --pp %zu is not the number of ranks, %zu: every rank computes",
                         c->tp, c->pp, ranks);
    if (c->pp > layers)
        return gyre_fail(GYRE_ERR_INVALID, "--pp %zu: the model has %zu layers, and each stage needs one",
                         c->pp, layers);
    g->place = pipe_layout_place(&(pipe_layout_t){.tp = c->tp, .pp = c->pp, .dp = 1},
                                 (size_t)gyre_comm_rank(g->world));
    return GYRE_OK;
}

/* Without a word to the other ranks. */
static gyre_status_t open_model(void *user)
{
    pipe_generator_t *g = user;
    gyre_status_t status = pipe_source_open(&g->config.source, &g->source);
    if (status == GYRE_OK && pipe_source_model(g->source)->prefix)
        status = gyre_fail(GYRE_ERR_UNSUPPORTED,
                           "--load %s: a model with prefix masks fills blanks; only gyre-train's sample does",
                           g->config.source.path);
    if (status == GYRE_OK)
        status = find_degrees(g);
    return status == GYRE_OK ? model_params_create(pipe_source_model(g->source), &g->whole) : status;
}

static void layers_of(const pipe_generator_t *g, model_decoder_config_t *how)
{
    const pipe_layout_t layout = {.tp = g->config.tp, .pp = g->config.pp, .dp = 1, .chunks = 1};
    pipe_layout_layers(&layout, g->whole->config.layers, g->place.pp, &how->first, &how->layers);
    how->embed = g->place.pp == 0;
    how->head = g->place.pp + 1 == g->config.pp;
}

static gyre_status_t take_memory(pipe_generator_t *g)
{
    const model_config_t *c = &g->whole->config;
    const size_t batch = g->config.batch, rows = rows_of(g);
    g->weights = calloc(g->slice->total, sizeof *g->weights);
    g->sequence = calloc(batch, sizeof *g->sequence);
    g->piece = calloc(batch, sizeof *g->piece);
    g->said = calloc(batch, sizeof *g->said);
    g->x_in = calloc(rows * c->hidden, sizeof *g->x_in);
    g->x_out = calloc(rows * c->hidden, sizeof *g->x_out);
    g->logits = calloc(batch * c->vocab_padded, sizeof *g->logits);
    g->drawing = calloc(c->vocab_padded, sizeof *g->drawing);
    g->measuring = calloc(c->vocab_padded + c->leaves, sizeof *g->measuring);
    return g->weights && g->sequence && g->piece && g->said && g->x_in && g->x_out && g->logits &&
                   g->drawing && g->measuring
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu weights and %zu sequences", g->slice->total,
                           batch);
}

static gyre_status_t load(void *user)
{
    pipe_generator_t *g = user;
    const size_t layers = g->whole->config.layers;
    model_decoder_config_t how = {
        .tp = {.comm = g->config.tp > 1 ? g->tp : NULL, .rank = g->place.tp, .size = g->config.tp},
        .slots = g->config.batch,
        .rows = rows_of(g),
        .precision = pipe_source_precision(g->source),
        .fast = g->config.fast};
    unsigned char *has = calloc(layers, 1);
    if (!has)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %zu layers", layers);
    layers_of(g, &how);
    memset(has + how.first, 1, how.layers);
    const model_slice_t slice = {
        .tp_rank = g->place.tp, .tp_size = g->config.tp, .has = has, .embed = how.embed, .head = how.head};
    gyre_status_t status = model_params_slice(g->whole, &slice, &g->slice);
    free(has);
    if (status == GYRE_OK)
        status = take_memory(g);
    if (status == GYRE_OK)
        status = pipe_source_read(g->source, g->whole, g->slice, g->weights);
    how.params = g->slice;
    how.weights = g->weights;
    if (status == GYRE_OK)
        status = model_decoder_create(&how, &g->decoder);
    if (status == GYRE_OK && model_decoder_slow(g->decoder))
        log_warning("each token costs a whole sequence's product of %s: the BLAS (%s) adds in an order that "
                    "Gyre does not know; --order fast does without the trainer's bits",
                    model_decoder_slow(g->decoder), model_matmul_kind());
    return status;
}

static gyre_status_t make_groups(pipe_generator_t *g)
{
    gyre_status_t status = gyre_comm_split(g->world, (int)g->place.pp, (int)g->place.tp, &g->tp);
    return status == GYRE_OK ? gyre_comm_split(g->world, (int)g->place.tp, (int)g->place.pp, &g->pp) : status;
}

gyre_status_t pipe_generator_create(gyre_comm_t *world, const pipe_generate_config_t *config,
                                    pipe_generator_t **out)
{
    pipe_generator_t *g = calloc(1, sizeof *g);
    if (!g)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a generator");
    g->world = world;
    g->config = *config;
    gyre_status_t status = pipe_by_all(world, open_model, g, NULL);
    if (status == GYRE_OK)
        status = make_groups(g);
    if (status == GYRE_OK)
        status = pipe_by_all(world, load, g, NULL);
    if (status != GYRE_OK) {
        pipe_generator_destroy(g);
        return status;
    }
    *out = g;
    return GYRE_OK;
}

void pipe_generator_destroy(pipe_generator_t *g)
{
    if (!g)
        return;
    model_decoder_destroy(g->decoder);
    gyre_comm_destroy(g->pp);
    gyre_comm_destroy(g->tp);
    model_params_destroy(g->slice);
    model_params_destroy(g->whole);
    pipe_source_close(g->source);
    free(g->weights);
    free(g->sequence);
    free(g->piece);
    free(g->said);
    free(g->x_in);
    free(g->x_out);
    free(g->logits);
    free(g->drawing);
    free(g->measuring);
    free(g);
}

const pipe_source_t *pipe_generator_source(const pipe_generator_t *g)
{
    return g->source;
}

/* ---- a call of the decoder ----------------------------------------------------------------------------- */

/* Pieces of the sequences that have one: *rows tokens in all. */
static size_t plan(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t *rows)
{
    size_t pieces = 0, left = g->config.prefill;
    *rows = 0;
    for (size_t i = 0; i < g->config.batch; i++) {
        sequence_t *s = &g->sequence[i];
        s->drew = 0;
        if (s->prompt == SIZE_MAX)
            continue;
        const pipe_prompt_t *from = &prompt[s->prompt];
        model_piece_t piece = {.slot = i, .tokens = &s->token, .count = 1};
        if (s->read < from->count) {
            piece.tokens = from->tokens + s->read;
            piece.count = base_min_size(left, from->count - s->read);
            left -= piece.count;
            s->read += piece.count;
        }
        if (piece.count == 0)
            continue;
        s->drew = s->read == from->count;
        *rows += piece.count;
        g->piece[pieces++] = piece;
    }
    return pieces;
}

/* The last stage's word on each piece. */
static void draw(pipe_generator_t *g, size_t pieces, const pipe_generate_t *how)
{
    const model_config_t *c = &g->whole->config;
    for (size_t p = 0; p < pieces; p++) {
        const sequence_t *s = &g->sequence[g->piece[p].slot];
        const float *logits = g->logits + p * c->vocab_padded;
        if (!s->drew)
            continue;
        size_t token = pipe_draw(&how->draw, logits, c->vocab, s->prompt, s->made, g->drawing);
        g->said[p] =
            (said_t){.token = (int32_t)token,
                     .log_probability = model_log_probability(c, logits, (model_token_t)token, g->measuring)};
    }
}

static gyre_status_t read_pieces(pipe_generator_t *g, size_t pieces, size_t rows, const pipe_generate_t *how)
{
    const size_t count = rows * g->whole->config.hidden, last = g->config.pp - 1;
    gyre_status_t status = GYRE_OK;
    if (g->place.pp > 0)
        status = gyre_recv(g->x_in, count, GYRE_FLOAT32, (int)g->place.pp - 1, g->pp);
    if (status == GYRE_OK)
        status = model_decoder_read(g->decoder, g->piece, pieces, g->x_in, g->x_out, g->logits);
    if (status == GYRE_OK && g->place.pp < last)
        status = gyre_send(g->x_out, count, GYRE_FLOAT32, (int)g->place.pp + 1, g->pp);
    if (status == GYRE_OK && g->place.pp == last)
        draw(g, pieces, how);
    if (status == GYRE_OK && (g->config.pp > 1 || g->config.tp > 1))
        status =
            gyre_broadcast(g->said, g->said, 2 * pieces, GYRE_INT32, (int)(last * g->config.tp), g->world);
    return status;
}

/* ---- all prompts --------------------------------------------------------------------------------------- */

static gyre_status_t check_prompt(const pipe_generator_t *g, const pipe_prompt_t *prompt, size_t number,
                                  size_t tokens)
{
    const model_config_t *c = &g->whole->config;
    if (prompt->count == 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "prompt %zu has no tokens: a model needs at least one to go on from", number + 1);
    if (prompt->count > c->seq || tokens > c->seq + 1 - prompt->count) /* the last is not read */
        return gyre_fail(GYRE_ERR_INVALID,
                         "prompt %zu has %zu tokens, and --tokens %zu are to follow, but the model has %zu "
                         "positions: %s",
                         number + 1, prompt->count, tokens, c->seq,
                         prompt->count <= c->seq ? "give fewer --tokens" : "shorten the prompt");
    for (size_t i = 0; i < prompt->count; i++)
        if (prompt->tokens[i] < 0 || (size_t)prompt->tokens[i] >= c->vocab)
            return gyre_fail(GYRE_ERR_INVALID,
                             "prompt %zu holds id %d, but the model has %zu ids: the tokenizer is not the "
                             "model's",
                             number + 1, (int)prompt->tokens[i], c->vocab);
    return GYRE_OK;
}

/* Free slots take the next prompts. Answers whether any slot is taken. */
static int fill_slots(pipe_generator_t *g, size_t prompts, size_t *next)
{
    int taken = 0;
    for (size_t i = 0; i < g->config.batch; i++) {
        sequence_t *s = &g->sequence[i];
        if (s->prompt == SIZE_MAX && *next < prompts) {
            *s = (sequence_t){.prompt = (*next)++};
            model_decoder_reset(g->decoder, i);
        }
        taken |= s->prompt != SIZE_MAX;
    }
    return taken;
}

/* What was said becomes the sequences' next tokens. */
static gyre_status_t take_tokens(pipe_generator_t *g, size_t pieces, const pipe_generate_t *how,
                                 pipe_said_fn said, void *user)
{
    gyre_status_t status = GYRE_OK;
    for (size_t p = 0; status == GYRE_OK && p < pieces; p++) {
        sequence_t *s = &g->sequence[g->piece[p].slot];
        const said_t *word = &g->said[p];
        if (!s->drew)
            continue;
        s->token = word->token;
        int last = s->made + 1 == how->tokens || word->token == how->stop;
        status = said(user, s->prompt, s->made++, word->token, word->log_probability, last);
        if (last)
            s->prompt = SIZE_MAX;
    }
    return status;
}

gyre_status_t pipe_generate(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t prompts,
                            const pipe_generate_t *how, pipe_said_fn said, void *user)
{
    size_t next = 0, rows;
    gyre_status_t status = GYRE_OK;
    int muted = base_log_mute(gyre_comm_rank(g->world) != 0); /* all ranks find the same */
    for (size_t i = 0; status == GYRE_OK && i < prompts; i++)
        status = check_prompt(g, &prompt[i], i, how->tokens);
    base_log_mute(muted);
    for (size_t i = 0; i < g->config.batch; i++)
        g->sequence[i] = (sequence_t){.prompt = SIZE_MAX};
    while (status == GYRE_OK && how->tokens > 0 && fill_slots(g, prompts, &next)) {
        size_t pieces = plan(g, prompt, &rows);
        status = read_pieces(g, pieces, rows, how);
        if (status == GYRE_OK)
            status = take_tokens(g, pieces, how, said, user);
    }
    return status;
}
