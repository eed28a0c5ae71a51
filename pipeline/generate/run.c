/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/run.c: sequences take turns in a decoder's slots; each call reads a token of every
 * sequence that is past its prompt, and a piece of the prompts of others.
 *
 * All ranks make the same plan. The ranks of the last stage have the logits and draw the same tokens; the
 * first of them sends these to all. */
#include "pipeline/generate/generate.h"

#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "model/network/decode/decode.h"
#include "pipeline/agree/agree.h"

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
    const pipe_part_t *part;
    pipe_generate_config_t config;
    model_decoder_t *decoder;
    int warned;                 /* that it is slow */
    int warned_of_logits;       /* that they are no numbers */
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

static gyre_status_t take_memory(pipe_generator_t *g)
{
    const model_config_t *c = &g->part->whole->config;
    const size_t batch = g->config.batch, rows = rows_of(g);
    g->sequence = calloc(batch, sizeof *g->sequence);
    g->piece = calloc(batch, sizeof *g->piece);
    g->said = calloc(batch, sizeof *g->said);
    g->x_in = calloc(rows * c->hidden, sizeof *g->x_in);
    g->x_out = calloc(rows * c->hidden, sizeof *g->x_out);
    g->logits = calloc(batch * c->vocab_padded, sizeof *g->logits);
    g->drawing = calloc(c->vocab_padded, sizeof *g->drawing);
    g->measuring = calloc(c->vocab_padded + c->leaves, sizeof *g->measuring);
    return g->sequence && g->piece && g->said && g->x_in && g->x_out && g->logits && g->drawing &&
                   g->measuring
               ? GYRE_OK
               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %zu sequences", batch);
}

static gyre_status_t make_decoder(void *user)
{
    pipe_generator_t *g = user;
    const pipe_part_t *part = g->part;
    const model_decoder_config_t how = {.params = part->slice,
                                        .weights = part->weights,
                                        .tp = part->tp,
                                        .first = part->first,
                                        .layers = part->layers,
                                        .embed = part->embed,
                                        .head = part->head,
                                        .slots = g->config.batch,
                                        .rows = rows_of(g),
                                        .positions = g->config.positions,
                                        .precision = pipe_source_precision(part->source),
                                        .fast = g->config.fast,
                                        .warns = gyre_comm_rank(part->world) == 0,
                                        .threads = part->threads};
    gyre_status_t status = take_memory(g);
    base_team_t *before = base_team_use(part->team);
    if (status == GYRE_OK)
        status = model_decoder_create(&how, &g->decoder);
    base_team_use(before);
    return status;
}

gyre_status_t pipe_generator_create(const pipe_part_t *part, const pipe_generate_config_t *config,
                                    pipe_generator_t **out)
{
    pipe_generator_t *g = calloc(1, sizeof *g);
    if (!g)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a generator");
    g->part = part;
    g->config = *config;
    gyre_status_t status = pipe_by_all(part->world, make_decoder, g, NULL);
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
static void draw(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t pieces, const pipe_generate_t *how)
{
    const model_config_t *c = &g->part->whole->config;
    for (size_t p = 0; p < pieces; p++) {
        const sequence_t *s = &g->sequence[g->piece[p].slot];
        const float *logits = g->logits + p * c->vocab_padded;
        if (!s->drew)
            continue;
        const pipe_prompt_t *of = &prompt[s->prompt];
        model_token_t token = of->given ? of->tokens[of->count + s->made]
                                        : (model_token_t)pipe_draw(&how->draw, logits, c->vocab, s->prompt,
                                                                   s->made, g->drawing);
        g->said[p] = (said_t){.token = token,
                              .log_probability = model_log_probability(c, logits, token, g->measuring)};
    }
}

static gyre_status_t read_pieces(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t pieces, size_t rows,
                                 const pipe_generate_t *how)
{
    const pipe_part_t *part = g->part;
    const size_t count = rows * part->whole->config.hidden;
    const int stage = (int)part->place.pp;
    gyre_status_t status = GYRE_OK;
    if (!part->embed)
        status = gyre_recv(g->x_in, count, GYRE_FLOAT32, stage - 1, part->pp);
    if (status == GYRE_OK)
        status = model_decoder_read(g->decoder, g->piece, pieces, g->x_in, g->x_out, g->logits);
    if (status == GYRE_OK && !part->head)
        status = gyre_send(g->x_out, count, GYRE_FLOAT32, stage + 1, part->pp);
    if (status == GYRE_OK && part->head)
        draw(g, prompt, pieces, how);
    if (status == GYRE_OK && gyre_comm_size(part->world) > 1)
        status = gyre_broadcast(g->said, g->said, 2 * pieces, GYRE_INT32, pipe_part_last(part), part->world);
    return status;
}

/* ---- all prompts --------------------------------------------------------------------------------------- */

/* Tokens that follow a prompt, at most. */
static size_t follow(const pipe_prompt_t *prompt, const pipe_generate_t *how)
{
    return prompt->given ? prompt->given : how->tokens;
}

static gyre_status_t check_prompt(const pipe_generator_t *g, const pipe_prompt_t *prompt, size_t number,
                                  size_t tokens)
{
    const model_config_t *c = &g->part->whole->config;
    const char *what = prompt->line ? "line" : "prompt";
    const size_t place = prompt->line ? prompt->line : number + 1;
    if (prompt->count == 0)
        return gyre_fail(GYRE_ERR_INVALID, "%s %zu has no tokens: a model needs at least one to go on from",
                         what, place);
    if (prompt->count > c->seq || tokens > c->seq + 1 - prompt->count) /* the last is not read */
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s %zu has %zu tokens, and %zu are to follow, but the model has %zu "
                         "positions: %s",
                         what, place, prompt->count, tokens, c->seq,
                         prompt->count <= c->seq ? "give fewer --tokens" : "shorten the prompt");
    for (size_t i = 0; i < prompt->count + prompt->given; i++)
        if (prompt->tokens[i] < 0 || (size_t)prompt->tokens[i] >= c->vocab)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s %zu holds id %d, but the model has %zu ids: the tokenizer is not the "
                             "model's",
                             what, place, (int)prompt->tokens[i], c->vocab);
    return GYRE_OK;
}

/* Free slots take the next prompts. Answers whether any slot is taken. */
static int fill_slots(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t prompts,
                      const pipe_generate_t *how, size_t *next)
{
    int taken = 0;
    for (size_t i = 0; i < g->config.batch; i++) {
        sequence_t *s = &g->sequence[i];
        while (*next < prompts && follow(&prompt[*next], how) == 0)
            ++*next;
        if (s->prompt == SIZE_MAX && *next < prompts) {
            *s = (sequence_t){.prompt = (*next)++};
            model_decoder_reset(g->decoder, i);
        }
        taken |= s->prompt != SIZE_MAX;
    }
    return taken;
}

static int is_stop(const model_specials_t *stop, model_token_t token)
{
    size_t i = 0;
    while (i < stop->count && stop->id[i] != token)
        i++;
    return i < stop->count;
}

/* Once: such logits give the id 0, whatever the prompt is. */
static void warn_of_logits(pipe_generator_t *g, const pipe_prompt_t *of, size_t prompt, size_t made)
{
    if (!g->warned_of_logits && gyre_comm_rank(g->part->world) == 0)
        log_warning("token %zu after %s %zu comes from logits that are no finite numbers: %s", made + 1,
                    of->line ? "line" : "prompt", of->line ? of->line : prompt + 1,
                    pipe_source_overflow(g->part->source));
    g->warned_of_logits = 1;
}

/* What was said becomes the sequences' next tokens. */
static gyre_status_t take_tokens(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t pieces,
                                 const pipe_generate_t *how, pipe_said_fn said, void *user)
{
    gyre_status_t status = GYRE_OK;
    for (size_t p = 0; status == GYRE_OK && p < pieces; p++) {
        sequence_t *s = &g->sequence[g->piece[p].slot];
        const said_t *word = &g->said[p];
        if (!s->drew)
            continue;
        s->token = word->token;
        const pipe_prompt_t *of = &prompt[s->prompt];
        if (!isfinite(word->log_probability))
            warn_of_logits(g, of, s->prompt, s->made);
        int last = s->made + 1 == follow(of, how) || (!of->given && is_stop(&how->stop, word->token));
        status = said(user, s->prompt, s->made++, word->token, word->log_probability, last);
        if (last)
            s->prompt = SIZE_MAX;
    }
    return status;
}

/* Once, and not before prompts that are refused. */
static void warn_slow(pipe_generator_t *g)
{
    const char *what = g->warned ? NULL : model_decoder_slow(g->decoder);
    g->warned = 1;
    if (what)
        BASE_LOG(
            g->part->slice->total <= PIPE_SMALL_PARAMETERS ? BASE_LOG_INFO : BASE_LOG_WARNING,
            "slow: this BLAS (%s) sums %s in an unknown order, so each token recomputes the whole sequence. "
            "--order fast is quicker, but its log-probabilities may differ in the last bits",
            model_matmul_kind(), what);
}

gyre_status_t pipe_generate(pipe_generator_t *g, const pipe_prompt_t *prompt, size_t prompts,
                            const pipe_generate_t *how, pipe_said_fn said, void *user)
{
    size_t next = 0, rows;
    gyre_status_t status = GYRE_OK;
    int muted = base_log_mute(gyre_comm_rank(g->part->world) != 0); /* all ranks find the same */
    for (size_t i = 0; status == GYRE_OK && i < prompts; i++)
        status = check_prompt(g, &prompt[i], i, follow(&prompt[i], how));
    base_log_mute(muted);
    if (status == GYRE_OK)
        warn_slow(g);
    for (size_t i = 0; i < g->config.batch; i++)
        g->sequence[i] = (sequence_t){.prompt = SIZE_MAX};
    while (status == GYRE_OK && fill_slots(g, prompt, prompts, how, &next)) {
        size_t pieces = plan(g, prompt, &rows);
        base_team_t *before = base_team_use(g->part->team);
        status = read_pieces(g, prompt, pieces, rows, how);
        base_team_use(before);
        if (status == GYRE_OK)
            status = take_tokens(g, prompt, pieces, how, said, user);
    }
    return status;
}
