/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/ids.c: lists of ids, and texts of which parts are learned. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/chat/internal.h"

static gyre_status_t no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for the tokens of a document");
}

gyre_status_t model_ids_add(model_ids_t *ids, const model_token_t *id, size_t count, int learned)
{
    if (ids->room - ids->count < count) {
        size_t room = 2 * ids->room + count + 1024;
        model_token_t *grown = realloc(ids->id, room * sizeof *grown);
        ids->id = grown ? grown : ids->id;
        unsigned char *flags = grown ? realloc(ids->learned, room) : NULL;
        if (!flags)
            return no_memory();
        ids->learned = flags;
        ids->room = room;
    }
    if (count > 0) {
        memcpy(ids->id + ids->count, id, count * sizeof *id);
        memset(ids->learned + ids->count, learned, count);
    }
    ids->count += count;
    return GYRE_OK;
}

/* How many ids of text [bytes] the ids since `first` begin with; *all 1: with all of them. */
static gyre_status_t common(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                            const model_ids_t *ids, size_t first, size_t *same, int *all)
{
    const model_token_t *id;
    size_t count = 0;
    gyre_status_t status = bytes > 0 ? model_encode_after(encoder, after, text, bytes, &id, &count) : GYRE_OK;
    *same = 0;
    while (status == GYRE_OK && *same < count && *same < ids->count - first &&
           ids->id[first + *same] == id[*same])
        ++*same;
    *all = *same == count;
    return status;
}

gyre_status_t chat_encode_parts(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                                chat_part_t *part, size_t parts, model_ids_t *out)
{
    const size_t first = out->count;
    const model_token_t *id;
    size_t count = 0;
    gyre_status_t status = bytes > 0 ? model_encode_after(encoder, after, text, bytes, &id, &count) : GYRE_OK;
    if (status == GYRE_OK && count > 0)
        status = model_ids_add(out, id, count, 0);
    for (size_t i = 0; status == GYRE_OK && i < parts; i++) {
        const size_t begin = part[i].begin;
        size_t from, to = count;
        int whole = 1;
        if ((status = common(encoder, after, text, begin, out, first, &from, &whole)) != GYRE_OK)
            break;
        if (!whole) { /* a token reaches over the beginning */
            out->count = first;
            if ((status = chat_encode_parts(encoder, after, text, begin, part, i, out)) != GYRE_OK)
                break;
            for (size_t k = i; k < parts; k++) {
                part[k].begin -= begin;
                part[k].end -= begin;
            }
            return chat_encode_parts(encoder, MODEL_AFTER_TEXT, text + begin, bytes - begin, part + i,
                                     parts - i, out);
        }
        if (part[i].end < bytes) {
            status = common(encoder, after, text, part[i].end, out, first, &to, &whole);
            to += (size_t)(!whole && to < count); /* the token that reaches over the end is learned */
        }
        if (status == GYRE_OK && to > from)
            memset(out->learned + first + from, 1, to - from);
    }
    return status;
}

gyre_status_t model_ids_encode(model_encoder_t *encoder, model_after_t after, const char *text, size_t bytes,
                               size_t begin, model_ids_t *out)
{
    chat_part_t part = {begin, bytes};
    return chat_encode_parts(encoder, after, text, bytes, &part, begin < bytes, out);
}
