/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/bucket/tensors.c: the tensors that `gyre-perf bucket` reduces: sizes of real models, in the
 * order in which a backward pass finishes them.
 *
 *  gpt2    GPT-2 124M, from the parameter table of the trainer: 148 tensors, 124,439,808 elements
 *  bloom   BLOOM-176B's list of layers, every width divided by 112 so that it fits (hidden 14,336 -> 128,
 * vocabulary
 *          250,880 -> 2,240), its 70 layers three times: 2,525 tensors, 41,924,352 elements
 *  FILE    one number of elements per line; empty lines and what follows a # do not count */
#include "tools/gyre-perf/bucket/bucket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/grow.h"
#include "model/network/params.h"

enum { BLOOM_HIDDEN = 14336 / 112, BLOOM_VOCABULARY = 250880 / 112, BLOOM_LAYERS = 3 * 70 };

/* Appends; 0: no memory. */
static int append(perf_tensors_t *t, size_t elements)
{
    if (!base_grow(&t->counts, &t->room, t->count, 1, sizeof *t->counts))
        return 0;
    t->counts[t->count++] = elements;
    t->elements += elements;
    t->largest = elements > t->largest ? elements : t->largest;
    return 1;
}

static int take_gpt2(perf_tensors_t *t)
{
    static const model_config_t config = {
        .vocab = 50257, .seq = 1024, .layers = 12, .hidden = 768, .heads = 12};
    model_params_t *params = NULL;
    if (model_params_create(&config, &params) != GYRE_OK)
        return 0;
    int fits = 1;
    for (size_t i = 0; i < params->rows && fits; i++)
        if (params->row[i].alias == MODEL_NONE) /* the head is the embedding */
            fits = append(t, params->row[i].count);
    model_params_destroy(params);
    return fits;
}

static int take_bloom(perf_tensors_t *t)
{
    const size_t h = BLOOM_HIDDEN;
    const size_t layer[] = {
        4 * h * h, h,     /* dense_4h_to_h: weight, bias */
        4 * h * h, 4 * h, /* dense_h_to_4h */
        h,         h,     /* post_attention_layernorm */
        h * h,     h,     /* dense */
        3 * h * h, 3 * h, /* query_key_value */
        h,         h,     /* input_layernorm */
    };
    int fits = append(t, h) && append(t, h); /* ln_f; NOLINT(misc-redundant-expression): both */
    for (int l = 0; l < BLOOM_LAYERS && fits; l++) {
        for (size_t i = 0; i < sizeof layer / sizeof *layer && fits; i++)
            fits = append(t, layer[i]);
    }
    return fits && append(t, h) && append(t, h) && /* word_embeddings_layernorm */
           append(t, BLOOM_VOCABULARY * h);        /* word_embeddings */
}

/* One line: 1 with a number, 0 without, -1: neither. */
static int take_line(char *line, size_t *elements)
{
    char *end;
    line[strcspn(line, "#\n")] = '\0';
    line += strspn(line, " \t\r");
    if (!*line)
        return 0;
    errno = 0;
    unsigned long long value = strtoull(line, &end, 10);
    end += strspn(end, " \t\r");
    if (*line < '0' || *line > '9' || errno || *end || value == 0 || value > SIZE_MAX / 64)
        return -1;
    *elements = (size_t)value;
    return 1;
}

static int take_file(const char *path, perf_tensors_t *t, char *why, size_t bytes)
{
    FILE *in = fopen(path, "re");
    if (!in) {
        snprintf(why, bytes, "--model %s: neither gpt2 nor bloom, and no file that can be read: %s", path,
                 strerror(errno));
        return 0;
    }
    char line[256];
    int right = 1;
    for (size_t number = 1, total = 0; right && fgets(line, sizeof line, in); number++) {
        size_t elements = 0;
        int found = take_line(line, &elements);
        if (found < 0 || !base_add(total, elements, &total) || total > SIZE_MAX / 64) {
            snprintf(why, bytes, "--model %s: line %zu is not a number of elements", path, number);
            right = 0;
        } else if (found && !append(t, elements)) {
            snprintf(why, bytes, "--model %s: no memory for %zu tensors", path, t->count);
            right = 0;
        }
    }
    if (right && (ferror(in) || t->count == 0)) {
        snprintf(why, bytes, "--model %s: %s", path, ferror(in) ? strerror(errno) : "no tensor in it");
        right = 0;
    }
    fclose(in);
    return right;
}

int perf_tensors_load(const char *model, perf_tensors_t *t, char *why, size_t bytes)
{
    *t = (perf_tensors_t){0};
    const int gpt2 = strcmp(model, "gpt2") == 0, bloom = strcmp(model, "bloom") == 0;
    int right = gpt2 ? take_gpt2(t) : bloom ? take_bloom(t) : take_file(model, t, why, bytes);
    if (!right && (gpt2 || bloom))
        snprintf(why, bytes, "--model %s: no memory for its list of tensors", model);
    if (!right)
        perf_tensors_free(t);
    return right ? PERF_OK : PERF_USAGE;
}

void perf_tensors_free(perf_tensors_t *t)
{
    free(t->counts);
    *t = (perf_tensors_t){0};
}
