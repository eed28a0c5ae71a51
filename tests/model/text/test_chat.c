/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations to ids: every template's text and what is learned of it, tokens within messages, the template
 * of a model's folder, and what is refused. */
/* one thread: TSan has nothing to see */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/chat/templates.h"
#include "tests/model/text/chat.h"

static void every_template(void **state)
{
    (void)state;
    const struct {
        const char *name, *text;
    } want[] = {
        {"chatml", "#<|im_start|>system\nbe#<|im_end|>\n#<|im_start|>user\n the <|im_end|>#<|im_end|>\n"
                   "#<|im_start|>assistant\n[ and\n#<|im_end|>]\n#<|im_start|>user\nhe#<|im_end|>\n"
                   "#<|im_start|>assistant\n[##<|im_end|>]\n"},
        {"llama3", "#<|begin_of_text|>#<|start_header_id|>system#<|end_header_id|>\n\nbe#<|eot_id|>"
                   "#<|start_header_id|>user#<|end_header_id|>\n\nthe <|im_end|>#<|eot_id|>"
                   "#<|start_header_id|>assistant#<|end_header_id|>\n\n[and#<|eot_id|>]"
                   "#<|start_header_id|>user#<|end_header_id|>\n\nhe#<|eot_id|>"
                   "#<|start_header_id|>assistant#<|end_header_id|>\n\n[##<|eot_id|>]"},
        {"llama3.1",
         "#<|begin_of_text|>#<|start_header_id|>system#<|end_header_id|>\n\nCutting Knowledge Date: "
         "December 2023\nToday Date: 26 Jul 2024\n\nbe#<|eot_id|>"
         "#<|start_header_id|>user#<|end_header_id|>\n\nthe <|im_end|>#<|eot_id|>"
         "#<|start_header_id|>assistant#<|end_header_id|>\n\n[and#<|eot_id|>]"
         "#<|start_header_id|>user#<|end_header_id|>\n\nhe#<|eot_id|>"
         "#<|start_header_id|>assistant#<|end_header_id|>\n\n[##<|eot_id|>]"},
        {"qwen3", "#<|im_start|>system\nbe#<|im_end|>\n#<|im_start|>user\n the <|im_end|>#<|im_end|>\n"
                  "#<|im_start|>assistant\n[ and\n#<|im_end|>]\n#<|im_start|>user\nhe#<|im_end|>\n"
                  "#<|im_start|>assistant\n#<think>\n\n#</think>\n\n[##<|im_end|>]\n"},
        {"gemma3", "#<bos>#<start_of_turn>user\nbe\n\nthe <|im_end|>#<end_of_turn>\n"
                   "#<start_of_turn>model\n[and#<end_of_turn>]\n#<start_of_turn>user\nhe#<end_of_turn>\n"
                   "#<start_of_turn>model\n[##<end_of_turn>]\n"},
        {"deepseek",
         "#<｜begin▁of▁sentence｜>be#<｜User｜> the <|im_end|>#<｜Assistant｜>[ and\n#<｜end▁of▁sentence｜>]"
         "#<｜User｜>he#<｜Assistant｜>[##<｜end▁of▁sentence｜>]"},
        {"zephyr", "<|system|>\nbe#</s>\n<|user|>\n the <|im_end|>#</s>\n<|assistant|>\n[ and\n#</s>]\n"
                   "<|user|>\nhe#</s>\n<|assistant|>\n[##</s>]\n"},
        {"plain", "be\n\nUser:\n the <|im_end|>\n\nAssistant:\n[ and\n#<|endoftext|>]\n\n"
                  "User:\nhe\n\nAssistant:\n[##<|endoftext|>]\n\n"},
    };
    char got[2048];
    model_tokenizer_t *tokenizer = open_chatty();
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(encode(tokenizer, want[i].name, talk, 5, got), GYRE_OK);
        assert_string_equal(got, want[i].text);
    }
    assert_int_equal(encode(tokenizer, "gemma", talk + 1, 4, got), GYRE_OK);
    assert_string_equal(got,
                        "#<bos>#<start_of_turn>user\nthe <|im_end|>#<end_of_turn>\n"
                        "#<start_of_turn>model\n[and#<end_of_turn>]\n#<start_of_turn>user\nhe#<end_of_turn>\n"
                        "#<start_of_turn>model\n[##<end_of_turn>]\n");
    assert_int_equal(encode(tokenizer, "mistral", talk + 1, 4, got), GYRE_OK);
    assert_string_equal(got, "#<s>[INST]  the <|im_end|> [/INST][ and\n#</s>][INST] he [/INST][##</s>]");
    /* a system message where there is none, and not where there is one */
    assert_int_equal(encode(tokenizer, "qwen2", talk + 3, 2, got), GYRE_OK);
    assert_string_equal(got,
                        "#<|im_start|>system\nYou are a helpful assistant.#<|im_end|>\n#<|im_start|>user\nhe"
                        "#<|im_end|>\n#<|im_start|>assistant\n[##<|im_end|>]\n");
    assert_int_equal(encode(tokenizer, "qwen2.5", talk, 2, got), GYRE_OK);
    assert_string_equal(
        got, "#<|im_start|>system\nbe#<|im_end|>\n#<|im_start|>user\n the <|im_end|>#<|im_end|>\n");
    assert_int_equal(encode(tokenizer, "smollm2", talk + 3, 1, got), GYRE_OK);
    assert_non_null(strstr(got, "AI assistant named SmolLM, trained by Hugging Face#<|im_end|>\n"));
    model_tokenizer_destroy(tokenizer);
}

/* Thoughts in answers, a system's message that is not there or is as it is, an answer that nobody asked
 * for. */
static void thoughts(void **state)
{
    (void)state;
    static const message_t thinks[] = {SAYS("user", "</think>a"),
                                       SAYS("assistant", "<think>b</think>c</think>\nd")},
                           ends[] = {SAYS("system", " be "), SAYS("user", " a "),
                                     SAYS("assistant", "\n\n b")};
    char got[2048];
    model_tokenizer_t *tokenizer = open_chatty();
    assert_int_equal(encode(tokenizer, "deepseek", thinks, 2, got), GYRE_OK);
    assert_string_equal(
        got, "#<｜begin▁of▁sentence｜>#<｜User｜></think>a#<｜Assistant｜>[\nd#<｜end▁of▁sentence｜>]");
    assert_int_equal(encode(tokenizer, "gemma3", ends, 3, got), GYRE_OK);
    assert_string_equal(got, "#<bos>#<start_of_turn>user\n be \n\na#<end_of_turn>\n#<start_of_turn>model\n"
                             "[b#<end_of_turn>]\n");
    assert_int_equal(encode(tokenizer, "qwen3", ends + 1, 2, got), GYRE_OK);
    assert_string_equal(got,
                        "#<|im_start|>user\n a #<|im_end|>\n#<|im_start|>assistant\n#<think>\n\n#</think>\n\n"
                        "[ b#<|im_end|>]\n");
    assert_int_equal(encode(tokenizer, "qwen3", ends + 2, 1, got), GYRE_OK);
    assert_string_equal(got, "#<|im_start|>assistant\n[\n\n b#<|im_end|>]\n");
    assert_int_equal(encode(tokenizer, "llama3.1", ends + 1, 1, got), GYRE_OK);
    assert_string_equal(got,
                        "#<|begin_of_text|>#<|start_header_id|>system#<|end_header_id|>\n\nCutting Knowledge "
                        "Date: December 2023\nToday Date: 26 Jul 2024\n\n#<|eot_id|>"
                        "#<|start_header_id|>user#<|end_header_id|>\n\na#<|eot_id|>");
    assert_int_equal(encode(tokenizer, "qwen3", thinks, 2, got), GYRE_OK);
    assert_string_equal(got, "#<|im_start|>user\n</think>a#<|im_end|>\n#<|im_start|>assistant\n[#<think>\nb\n"
                             "#</think>\n\nd#<|im_end|>]\n");
    /* data has three names for them, and so do templates */
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < 3; i++)
        for (int shown = 0; shown < 2; shown++) {
            put("chat_template.jinja",
                shown ? "{{ messages[0].thinking }}" : "{{ messages[0].reasoning_content }}");
            json_t *messages = json_pack("[{s:s,s:s,s:s,s:n}]", "role", "assistant", "content", "a", names[i],
                                         "b", names[(i + 1) % 3]);
            assert_int_equal(encode_json(tokenizer, NULL, messages, NULL, got), GYRE_OK);
            if (strcmp(got, "[b]") != 0)
                fail_msg("%s: '%s'", names[i], got);
        }
    unlink(at("chat_template.jinja"));
    refuse(tokenizer, "gemma3", ends + 2, 1, GYRE_ERR_INVALID,
           "--template gemma3: line 1: the template refuses");
    refuse(tokenizer, "gemma", ends, 3, GYRE_ERR_INVALID, "user and assistant take turns");
    model_tokenizer_destroy(tokenizer);
}

/* Texts between tokens are encoded as one: the space of "[INST] " and a message make the token " the". */
static void joined(void **state)
{
    (void)state;
    static const message_t lines[] = {SAYS("user", "the"), SAYS("assistant", "the")};
    model_tokenizer_t *tokenizer = open_chatty();
    model_encoder_t *encoder = NULL;
    model_chat_t *chat = NULL;
    model_ids_t ids = {0};
    const int spaced = find_token((const unsigned char *)" the", 4),
              bare = find_token((const unsigned char *)"he", 2);
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    assert_int_equal(model_chat_open(tokenizer, "", "mistral", NULL, &chat), GYRE_OK);
    json_t *messages = conversation(lines, 2);
    assert_int_equal(model_chat_encode(chat, encoder, messages, NULL, &ids), GYRE_OK);
    json_decref(messages);
    assert_true(ids.count > 4);
    assert_int_equal(ids.id[7], spaced); /* <s> [ I N S T ] */
    assert_false(ids.learned[7]);
    assert_int_equal(ids.id[ids.count - 2], bare); /* "t", "he", </s> */
    assert_true(ids.learned[ids.count - 3]);
    assert_false(ids.learned[ids.count - 4]);
    model_chat_destroy(chat);
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
    free(ids.id);
    free(ids.learned);
}

/* As Llama 2 has it: a space in front of what follows a token, none before an answer that follows text. */
static void spaced(void **state)
{
    (void)state;
    put("spaced.json",
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"</s>\","
        "\"special\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
        "\"prepend\":\"\\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"\\u2581\"}]},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\","
        "\"unk_token\":"
        "\"<unk>\",\"fuse_unk\":true,\"vocab\":{\"<unk>\":0,\"</"
        "s>\":1,\"\\u2581\":2,\"x\":3,\"y\":4,\"xy\":5,"
        "\"\\u2581xy\":6},\"merges\":[[\"x\",\"y\"],[\"\\u2581\",\"xy\"]]}}");
    static const message_t lines[] = {SAYS("user", "xy"), SAYS("assistant", "xy")};
    /* "<|user|>\nxy" </s> "\n<|assistant|>\nxy" </s> "\n", where what is not x or y is unknown */
    static const model_token_t chats[] = {2, 0, 5, 1, 2, 0, 5, 1, 2, 0};
    static const unsigned char answer[] = {0, 0, 0, 0, 0, 0, 1, 1, 0, 0};
    static const struct {
        const char *text;
        size_t begin, count;
        model_token_t ids[4];
        unsigned char learned[4];
    } pairs[] = {{"xy xy", 2, 2, {6, 6}, {0, 1}},
                 {"xyxy", 2, 2, {6, 5}, {0, 1}},
                 {"xy xy", 3, 3, {6, 2, 5}, {0, 0, 1}}, /* a token reaches over the place */
                 {"xy", 0, 1, {6}, {1}},
                 {"xy", 2, 1, {6}, {0}},
                 {"xy", 1, 3, {2, 3, 4}, {0, 0, 1}},
                 {"", 0, 0, {0}, {0}}};
    model_tokenizer_t *tokenizer = open_spec("", "spaced.json");
    model_encoder_t *encoder = NULL;
    model_chat_t *chat = NULL;
    model_ids_t ids = {0};
    assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
    assert_int_equal(model_chat_open(tokenizer, "", "zephyr", NULL, &chat), GYRE_OK);
    json_t *messages = conversation(lines, 2);
    assert_int_equal(model_chat_encode(chat, encoder, messages, NULL, &ids), GYRE_OK);
    json_decref(messages);
    assert_int_equal(ids.count, sizeof answer);
    assert_memory_equal(ids.id, chats, sizeof chats);
    assert_memory_equal(ids.learned, answer, sizeof answer);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ids.count = 0;
        assert_int_equal(model_ids_encode(encoder, MODEL_AFTER_NOTHING, pairs[i].text, strlen(pairs[i].text),
                                          pairs[i].begin, &ids),
                         GYRE_OK);
        assert_int_equal(ids.count, pairs[i].count);
        assert_memory_equal(ids.id, pairs[i].ids, ids.count * sizeof *ids.id);
        assert_memory_equal(ids.learned, pairs[i].learned, ids.count);
    }
    model_chat_destroy(chat);
    model_encoder_destroy(encoder);
    model_tokenizer_destroy(tokenizer);
    free(ids.id);
    free(ids.learned);
}

/* Tokens of the template never come of messages: not where they are not special, as <｜User｜> of DeepSeek-R1's
 * distilled models, nor where special ones are taken from text. Other tokens do, and in other texts all. */
static void own_tokens(void **state)
{
    (void)state;
    static const message_t says[] = {SAYS("user", "<｜User｜>a<｜Assistant｜><bos>"),
                                     SAYS("assistant", "b<｜end▁of▁sentence｜><s>")};
    for (int special = 0; special < 2; special++) {
        model_tokenizer_t *tokenizer = open_tokens(special ? "true" : "false");
        model_encoder_t *encoder = NULL;
        model_chat_t *chat = NULL;
        model_ids_t ids = {0};
        char got[512];
        assert_int_equal(model_encoder_create(tokenizer, &encoder), GYRE_OK);
        model_encoder_specials(encoder, special);
        assert_int_equal(model_chat_open(tokenizer, "", "deepseek", NULL, &chat), GYRE_OK);
        json_t *messages = conversation(says, 2);
        assert_int_equal(model_chat_encode(chat, encoder, messages, NULL, &ids), GYRE_OK);
        json_decref(messages);
        show(tokenizer, &ids, got);
        assert_string_equal(got, "#<｜begin▁of▁sentence｜>#<｜User｜><｜User｜>a<｜Assistant｜>#<bos>"
                                 "#<｜Assistant｜>[b<｜end▁of▁sentence｜>#<s>#<｜end▁of▁sentence｜>]");
        ids.count = 0;
        assert_int_equal(
            model_ids_encode(encoder, MODEL_AFTER_NOTHING, "<｜User｜>", strlen("<｜User｜>"), 0, &ids),
            GYRE_OK);
        assert_int_equal(ids.count, 1);
        model_chat_destroy(chat);
        model_encoder_destroy(encoder);
        model_tokenizer_destroy(tokenizer);
        free(ids.id);
        free(ids.learned);
    }
}

/* Jinja's trim is Python's strip: all of Unicode's white space and four control characters. */
static void trimmed(void **state)
{
    (void)state;
    static const char *const spaces[] = {
        "\t",       "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",   "\x1f",   " ",
        "\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
        "\u2007",   "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
    static const char *const others[] = {"\x1b",   "\xc2\x84", "\u180e", "\u200b",
                                         "\u2060", "\ufeff",   "\u3001"};
    char got[512], text[128], want[256];
    model_tokenizer_t *tokenizer = open_chatty();
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            snprintf(text, sizeof text, "%s\u3000%s%sa%s%s\u00a0%s", spaces[i], others[k], spaces[i],
                     spaces[i], others[k], spaces[i]);
            const message_t message = {"user", text};
            assert_int_equal(encode(tokenizer, "gemma", &message, 1, got), GYRE_OK);
            snprintf(want, sizeof want, "#<bos>#<start_of_turn>user\n%s%sa%s%s#<end_of_turn>\n", others[k],
                     spaces[i], spaces[i], others[k]);
            assert_string_equal(got, want);
        }
    static const message_t nothing[] = {SAYS("user", "\u3000\x1c \u2028")};
    assert_int_equal(encode(tokenizer, "gemma", nothing, 1, got), GYRE_OK);
    assert_string_equal(got, "#<bos>#<start_of_turn>user\n#<end_of_turn>\n");
    model_tokenizer_destroy(tokenizer);
}

static void names(void **state)
{
    (void)state;
    char list[512] = "";
    for (size_t i = 0; i < chat_templates_count; i++) {
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 chat_templates[i].name);
        assert_true(model_chat_known(chat_templates[i].name));
    }
    assert_string_equal(list, model_chat_names());
    assert_false(model_chat_known("jinja"));
}

/* ChatML as many tokenizer_config.json have it. */
#define CHATML                                                                                          \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + " \
    "'<|im_end|>' + '\\\\n'}}{% endfor %}"

static void of_a_folder(void **state)
{
    (void)state;
    char got[2048];
    model_tokenizer_t *tokenizer = open_chatty();
    refuse(tokenizer, NULL, talk, 5, GYRE_ERR_NOT_FOUND, "there is no chat template next to");
    put("tokenizer_config.json",
        "{\"model_max_length\": 1000000000000000019884624838656, \"chat_template\": \"" CHATML "\"}");
    assert_int_equal(encode(tokenizer, NULL, talk + 3, 2, got), GYRE_OK);
    assert_string_equal(got, "#<|im_start|>user\nhe#<|im_end|>\n#<|im_start|>assistant\n[##<|im_end|>]\n");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": "
        "\"default\", \"template\": \"" CHATML " \\n\"}]}");
    assert_int_equal(encode(tokenizer, NULL, talk + 3, 2, got), GYRE_OK);
    put("tokenizer_config.json", "{\"chat_template\": \"" CHATML "{{ messages|shout }}\"}");
    refuse(tokenizer, NULL, talk, 5, GYRE_ERR_INVALID, "line 1: the filter shout is not supported");
    refuse(tokenizer, NULL, talk, 5, GYRE_ERR_INVALID, "chatml, qwen2");
    put("tokenizer_config.json", "{\"chat_template\": ");
    refuse(tokenizer, NULL, talk, 5, GYRE_ERR_FORMAT, "tokenizer_config.json");
    put("tokenizer_config.json", "{}");
    refuse(tokenizer, NULL, talk, 5, GYRE_ERR_NOT_FOUND, "--template");
    put("chat_template.jinja", "{{ messages }}");
    refuse(tokenizer, NULL, talk, 5, GYRE_ERR_INVALID, "chat_template.jinja");
    unlink(at("chat_template.jinja"));
    unlink(at("tokenizer_config.json"));
    model_tokenizer_destroy(tokenizer);
}

/* Programs with the habits of published ones: what is learned begins where text is generated. */
static void programs(void **state)
{
    (void)state;
    static const struct {
        const char *program, *want;
    } cases[] = {
        /* gpt-oss: the channel is generated, too, and the last answer ends otherwise */
        {"{%- for m in messages %}\n    {%- if m.role == 'assistant' %}\n        {{- "
         "'<s>assistant<bos>final</s>' + "
         "m.content }}\n        {%- if loop.last %}{{ '<|eot_id|>' }}{% else %}{{ '<|im_end|>' }}{% endif "
         "%}\n    "
         "{%- else %}\n        {{- '<s>' + m.role + '</s>' + m.content + '<|im_end|>' }}\n    {%- endif %}\n"
         "{%- endfor %}\n{%- if add_generation_prompt %}\n<s>assistant\n{%- endif %}\n",
         "#<s>user#</s>the#<|im_end|>#<s>assistant[#<bos>final#</s>and#<|im_end|>]#<s>user#</s>he#<|im_end|>"
         "#<s>assistant[#<bos>final#</s>##<|eot_id|>]"},
        /* GLM-4: the next turn ends an answer, and nothing the last */
        {"{% for m in messages %}{{ '<' + ('s' if m.role == 'user' else 'bos') + '>\n' + m.content }}{% "
         "endfor %}"
         "{% if add_generation_prompt %}<bos>{% endif %}",
         "#<s>\nthe#<bos>[\nand#<s>]\nhe#<bos>[\n#]"},
        /* Phi-3: an end of the whole where nothing is generated */
        {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor "
         "%}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% else %}{{ '<|eot_id|>' }}{% endif "
         "%}",
         "#<|im_start|>user\nthe#<|im_end|>\n#<|im_start|>assistant\n[and#<|im_end|>]\n#<|im_start|>user\nhe"
         "#<|im_end|>\n#<|im_start|>assistant\n[##<|im_end|>]\n#<|eot_id|>"},
        /* blocks that say it */
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}"
         "{{ 'A' + m.content }}{% endgeneration %}</s>{% endif %}{% endfor %}",
         "the[Aand]#</s>he[A#]#</s>"},
        /* text alone */
        {"{% for m in messages %}{{ m.role[0] + ':' + m.content + '\n' }}{% endfor %}",
         "u:the\na:[and]\nu:he\na:[#]\n"}};
    static const message_t lines[] = {SAYS("user", "the"), SAYS("assistant", "and"), SAYS("user", "he"),
                                      SAYS("assistant", "#")};
    char got[2048];
    model_tokenizer_t *tokenizer = open_chatty();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("chat_template.jinja", cases[i].program);
        assert_int_equal(encode(tokenizer, NULL, lines, 4, got), GYRE_OK);
        assert_string_equal(got, cases[i].want);
    }
    put("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<bos>\"}}");
    put("chat_template.jinja", "{{ bos_token + strftime_now('%d %b %Y') }}");
    refuse(tokenizer, NULL, lines, 4, GYRE_ERR_INVALID, "give one with --date YYYY-MM-DD");
    today = "2026-11-05";
    assert_int_equal(encode(tokenizer, NULL, lines, 4, got), GYRE_OK);
    assert_string_equal(got, "#<bos>05 Nov 2026");
    today = NULL;
    unlink(at("chat_template.jinja"));
    unlink(at("tokenizer_config.json"));
    model_tokenizer_destroy(tokenizer);
}

/* A content of parts is a text, unless the program takes parts; those of other roles always are. */
static void parts(void **state)
{
    (void)state;
#define PART(text) "{\"type\": \"text\", \"text\": \"" text "\", \"image\": null}"
#define PARTS                                                                                              \
    "[{\"role\": \"user\", \"content\": [" PART("he") ", " PART(                                           \
        "<s>") "]}, {\"role\": \"assistant\", "                                                            \
               "\"content\": [" PART("and") "]}, {\"role\": \"tool\", \"content\": [" PART("a") ", " PART( \
                   "b") "]}, "                                                                             \
                        "{\"role\": \"assistant\", \"content\": []}]"
    static const struct {
        const char *program, *want;
    } cases[] = {
        {"{% for m in messages %}{{ m.role + m.content + '</s>' }}{% endfor %}",
         "userhe\n<s>#</s>assistant[and#</s>]toola\nb#</s>assistant#</s>"},
        {"{% for m in messages %}{{ m.role + (m.content if m.content is string else m.content|tojson) + "
         "'</s>' "
         "}}{% endfor %}",
         "userhe\n<s>#</s>assistant[and#</s>]toola\nb#</s>assistant#</s>"},
        {"{% for m in messages %}{{ m.role }}{% if m.content is string %}{{ m.content }}{% else %}"
         "{% for p in m.content %}{% if 'image' in p %}<image>{% endif %}{{ p.text }}{% endfor %}{% endif %}"
         "</s>{% endfor %}",
         "userhe<s>#</s>assistant[and#</s>]toola\nb#</s>assistant#</s>"}};
    static const struct {
        const char *content, *word;
    } refused[] = {
        {"[" PART("a") ", {\"type\": \"image_url\"}]",
         "message 1: a part of its \"content\" has the type 'image_url': only 'text' is read"},
        {"[\"a\"]", "message 1: a part of its \"content\" is not {\"type\": \"text\", \"text\": \"...\"}"},
        {"[{\"type\": \"text\"}]", "message 1: a part of its \"content\" is not {"},
        {"{}", "message 1: its \"content\" is not a text"}};
    char got[512], list[256];
    model_tokenizer_t *tokenizer = open_chatty();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("chat_template.jinja", cases[i].program);
        if (encode_texts(tokenizer, PARTS, NULL, got) != GYRE_OK)
            fail_msg("%zu: %s", i, gyre_last_error());
        assert_string_equal(got, cases[i].want);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(list, sizeof list, "[{\"role\": \"user\", \"content\": %s}]", refused[i].content);
        assert_int_not_equal(encode_texts(tokenizer, list, NULL, got), GYRE_OK);
        if (!strstr(gyre_last_error(), refused[i].word))
            fail_msg("'%s' does not speak of '%s'", gyre_last_error(), refused[i].word);
    }
    unlink(at("chat_template.jinja"));
    model_tokenizer_destroy(tokenizer);
}

static void refusals(void **state)
{
    (void)state;
    model_tokenizer_t *tokenizer = open_chatty(), *plain = open_spec("", "merges.txt"), *bytes = NULL;
    assert_int_equal(model_tokenizer_open("bytes", &bytes), GYRE_OK);
    refuse(tokenizer, "jinja", talk, 5, GYRE_ERR_INVALID,
           "there is no chat template 'jinja': there are chatml");
    refuse(tokenizer, "mistral", talk, 5, GYRE_ERR_INVALID, "user and assistant take turns");
    refuse(tokenizer, "mistral", talk + 2, 2, GYRE_ERR_INVALID, "user and assistant take turns");
    refuse(plain, "chatml", talk, 5, GYRE_ERR_INVALID,
           "needs the token <|im_start|>, which the tokenizer gpt2");
    refuse(bytes, "plain", talk, 5, GYRE_ERR_INVALID, "needs the token for the end of a text");
    model_tokenizer_destroy(tokenizer);
    model_tokenizer_destroy(plain);
    model_tokenizer_destroy(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template), cmocka_unit_test(thoughts),    cmocka_unit_test(joined),
        cmocka_unit_test(spaced),         cmocka_unit_test(own_tokens),  cmocka_unit_test(trimmed),
        cmocka_unit_test(names),          cmocka_unit_test(of_a_folder), cmocka_unit_test(programs),
        cmocka_unit_test(parts),          cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
