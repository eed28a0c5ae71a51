/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/text/chat.h: conversations as readable text, with a small vocabulary that has tokens of chats:
 * for the tests of chats. Include after cmocka.h. */
#ifndef TESTS_MODEL_CHAT_H
#define TESTS_MODEL_CHAT_H

#include <jansson.h>

#include "model/chat/conversation.h"
#include "tests/model/text/vocabulary.h"

static const char *const specials[] = {"<|im_start|>",
                                       "<|im_end|>",
                                       "<|begin_of_text|>",
                                       "<|start_header_id|>",
                                       "<|end_header_id|>",
                                       "<|eot_id|>",
                                       "<s>",
                                       "</s>",
                                       "<bos>",
                                       "<start_of_turn>",
                                       "<end_of_turn>",
                                       "<think>",
                                       "</think>",
                                       "[CALLS]",
                                       "<｜begin▁of▁sentence｜>",
                                       "<｜User｜>",
                                       "<｜Assistant｜>",
                                       "<｜end▁of▁sentence｜>"};

/* The small vocabulary, and tokens of chats, special ones or not. */
static inline model_tokenizer_t *open_tokens(const char *special)
{
    static char changed[70000];
    const char *mark = "\"special\":true}", *place = strstr(json, mark);
    assert_non_null(place);
    size_t n = (size_t)(place - json) + strlen(mark);
    memcpy(changed, json, n);
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        n += (size_t)snprintf(changed + n, sizeof changed - n,
                              ",{\"id\":%zu,\"content\":\"%s\",\"special\":%s,\"normalized\":false}",
                              TOKENS + 1 + i, specials[i], special);
    snprintf(changed + n, sizeof changed - n, "%s", place + strlen(mark));
    put("chatty.json", changed);
    return open_spec("", "chatty.json");
}

static inline model_tokenizer_t *open_chatty(void)
{
    return open_tokens("true");
}

/* What ids say: tokens of the vocabulary's own after a '#', what is learned in brackets. */
static inline void show(const model_tokenizer_t *tokenizer, const model_ids_t *ids, char *out)
{
    int before = 0;
    for (size_t i = 0; i <= ids->count; i++) {
        int now = i < ids->count ? ids->learned[i] : 0;
        size_t n = 0;
        if (now != before)
            *out++ = now ? '[' : ']';
        before = now;
        if (i == ids->count)
            break;
        if (ids->id[i] >= TOKENS)
            *out++ = '#';
        const unsigned char *bytes = model_tokenizer_bytes(tokenizer, ids->id[i], &n);
        memcpy(out, bytes, n);
        out += n;
    }
    *out = 0;
}

typedef struct {
    const char *role, *text;
} message_t;

static inline json_t *conversation(const message_t *message, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:s,s:s}", "role", message[i].role, "content", message[i].text));
    return list;
}

static const char *today; /* NULL: there is none */

/* `messages` is taken. */
static inline gyre_status_t encode_json(const model_tokenizer_t *tokenizer, const char *name,
                                        json_t *messages, const json_t *tools, char *out)
{
    model_chat_t *chat = NULL;
    model_encoder_t *encoder = NULL;
    model_ids_t ids = {0};
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    gyre_status_t status = model_chat_open(tokenizer, at("chatty.json"), name, today, &chat);
    if (status == GYRE_OK)
        status = model_chat_encode(chat, encoder, messages, tools, &ids);
    json_decref(messages);
    if (status == GYRE_OK)
        show(tokenizer, &ids, out);
    model_chat_destroy(chat);
    model_encoder_destroy(encoder);
    free(ids.id);
    free(ids.learned);
    return status;
}

/* Of the program in the folder; `tools` may be NULL. */
static inline gyre_status_t encode_texts(const model_tokenizer_t *tokenizer, const char *messages,
                                         const char *tools, char *out)
{
    json_t *list = json_loads(messages, 0, NULL), *may = tools ? json_loads(tools, 0, NULL) : NULL;
    assert_non_null(list);
    const gyre_status_t status = encode_json(tokenizer, NULL, list, may, out);
    json_decref(may);
    return status;
}

static inline gyre_status_t encode(const model_tokenizer_t *tokenizer, const char *name,
                                   const message_t *message, size_t count, char *out)
{
    return encode_json(tokenizer, name, conversation(message, count), NULL, out);
}

#define SAYS(role_, text_) \
    {                      \
        role_, text_       \
    }

static const message_t talk[] = {SAYS("system", "be"), SAYS("user", " the <|im_end|>"),
                                 SAYS("assistant", " and\n"), SAYS("user", "he"), SAYS("assistant", "#")};

static inline void refuse(const model_tokenizer_t *tokenizer, const char *name, const message_t *message,
                          size_t count, gyre_status_t status, const char *word)
{
    char got[2048];
    assert_int_equal(encode(tokenizer, name, message, count, got), status);
    if (!strstr(gyre_last_error(), word))
        fail_msg("'%s' does not speak of '%s'", gyre_last_error(), word);
}

#endif
