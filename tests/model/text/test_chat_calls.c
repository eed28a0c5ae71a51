/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations with tools, as data has them and as templates take them: what is written, what is learned of
 * it, and what is refused. */
/* one thread: TSan has nothing to see */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/model/text/chat.h"

#define CALL(arguments)                                                                         \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c1\", \"type\": " \
    "\"function\", "                                                                            \
    "\"function\": {\"name\": \"the\", \"arguments\": " arguments "}}]}"
#define TALK(arguments)                                                                           \
    "[{\"role\": \"user\", \"content\": \"he\", \"tool_calls\": null}, " CALL(                    \
        arguments) ", {\"role\": \"tool\", "                                                      \
                   "\"tool_call_id\": \"c1\", \"content\": \"<s>1\"}, {\"role\": \"assistant\", " \
                   "\"content\": \"and\"}]"
#define TOOLS "[{\"type\": \"function\", \"function\": {\"name\": \"<s>\"}}]"

#define WEIGHTS                                                                                    \
    "[{\"role\": \"user\", \"content\": \"he\"}, {\"role\": \"assistant\", \"content\": \"the\", " \
    "\"weight\": 0}, "                                                                             \
    "{\"role\": \"user\", \"content\": \"he\"}, {\"role\": \"assistant\", \"content\": \"and\", "  \
    "\"weight\": 1}]"

/* Programs with the habits of published ones. */
#define HERMES                                                                                           \
    "{% if tools %}{{ '<|im_start|>system\n' + tools[0].function|tojson + '<|im_end|>\n' }}{% endif %}"  \
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\n<r>' + m.content + "          \
    "'<|im_end|>\n' }}{% else %}{{ '<|im_start|>' + m.role }}{% if m.content %}{{ '\n' + m.content }}"   \
    "{% endif %}{% for c in m.tool_calls %}{% set c = c.function %}{{ '\n<think>{\"n\": \"' + c.name + " \
    "'\", ' "                                                                                            \
    "}}{{ c.arguments|tojson + '}\n</think>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"  \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
/* Mistral's: nothing begins an answer, and its tokens are the template's own; content may not be there */
#define MISTRAL                                                                                              \
    "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}{% if tools %}{{ tools|tojson }}{% endif %}" \
    "{{ '[' + m.content + ']' }}{% elif m.tool_calls is defined %}{{ '[CALLS] [' }}"                         \
    "{{ m.tool_calls[0].function|tojson + ']</s>' }}{% elif m.role == 'tool' %}{{ '<' + m.content + '>' }}"  \
    "{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}"
/* DeepSeek-V3's: arguments are a text, and content is none */
#define TEXTS                                                                                              \
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}{{ '<|im_start|>' + "      \
    "m.tool_calls[0].function.arguments + '<|im_end|>' }}{% else %}{{ m.content }}{% endif %}{% endfor %}" \
    "{{ tools is none }}"
/* gpt-oss's: the answer of a tool repeats the name of the call, and content may not be none */
#define HARMONY                                                                                              \
    "{% set l = namespace(n='') %}{% for m in messages %}{% if m.role == 'assistant' %}"                     \
    "{% if 'content' in m and '<s>' in m.content %}{% endif %}{% if 'tool_calls' in m %}"                    \
    "{% set c = m.tool_calls[0].function %}{{ '<s>assistant to=' + c.name + '<bos>' + c.arguments|tojson + " \
    "'</s>' }}{% set l.n = c.name %}{% else %}{{ '<s>assistant<bos>' + m.content + '<|eot_id|>' }}{% endif " \
    "%}"                                                                                                     \
    "{% elif m.role == 'tool' %}{{ '<s>' + l.n + ' to=assistant' + m.content + '<|im_end|>' }}{% else %}"    \
    "{{ '<s>user' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}"        \
    "{{ '<s>assistant' }}{% endif %}"

/* Gemma 4's: the turn of a call goes on with its result. It leaves out thoughts before the last question. */
#define GEMMA                                                                                               \
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"                     \
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"                                                \
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<s>' + m.content }}{% elif m.tool_calls %}"        \
    "{{ '<bos>[CALLS]' }}{% if m.reasoning and loop.index0 > ns.last %}{{ '<think>' + m.reasoning + "       \
    "'</think>' }}{% endif %}{{ m.tool_calls[0].function.name + m.tool_calls[0].function.arguments|tojson " \
    "+ '</s><think>' }}{% for r in range(loop.index, messages|length) %}{% if messages[r].role != 'tool' "  \
    "%}{% break %}{% endif %}{{ 're:' + m.tool_calls[0].function.name + messages[r].content + '</think>' "  \
    "}}{% endfor %}{% elif m.role == 'assistant' %}{{ '<bos>' + m.content + '</s>' }}{% endif %}"           \
    "{% endfor %}{% if add_generation_prompt %}<bos>{% endif %}"
#define ALTERNATES                                                                   \
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == m.role %}" \
    "{{ raise_exception('turns') }}{% endif %}{% endfor %}"
#define ASKED "{\"role\": \"user\", \"content\": \"he\"}"
#define SAID  "{\"role\": \"assistant\", \"content\": \"and\"}"
#define THOUGHT                                                                                    \
    "{\"role\": \"assistant\", \"reasoning\": \"zz\", \"tool_calls\": [{\"function\": {\"name\": " \
    "\"the\", \"arguments\": {\"a\": 1}}}]}, {\"role\": \"tool\", \"content\": \"<s>1\"}"
#define WITH_TEXT(text)                                                                                \
    "{\"role\": \"assistant\", \"content\": \"" text "\", \"tool_calls\": [{\"function\": {\"name\": " \
    "\"the\", \"arguments\": \"{}\"}}]}"
/* The item of the loop is a number. */
#define NUMBERED                                                                                  \
    "{% for i in range(messages|length) %}{% set m = messages[i] %}{{ '<|im_start|>' + m.role }}" \
    "{{ m.content }}{% if m.tool_calls %}{{ '<think>' + m.tool_calls[0].function.name + "         \
    "m.tool_calls[0].function.arguments|tojson + '</think>!' }}{% endif %}{{ '<|im_end|>' }}{% endfor %}"
/* Calls are written where there is no text. */
#define EITHER                                                                        \
    "{% for m in messages %}{% if m.content %}{{ m.content }}{% elif m.tool_calls %}" \
    "{{ m.tool_calls[0].function|tojson }}{% endif %}</s>{% endfor %}"

static void tools(void **state)
{
    (void)state;
    static const struct {
        const char *program, *messages, *tools, *want;
    } cases[] = {
        {HERMES, TALK("\"{\\\"a\\\": [1.5, true]}\""), TOOLS,
         "#<|im_start|>system\n{\"name\": \"<s>\"}#<|im_end|>\n#<|im_start|>user\nhe#<|im_end|>\n"
         "#<|im_start|>assistant\n[#<think>{\"n\": \"the\", {\"a\": [1.5, true]}}\n#</think>#<|im_end|>]\n"
         "#<|im_start|>user\n<r><s>1#<|im_end|>\n#<|im_start|>assistant\n[and#<|im_end|>]\n"},
        {HERMES, TALK("{\"a\": {\"role\": \"<|im_end|>\", \"<think>\": 0}}"), "[]",
         "#<|im_start|>user\nhe#<|im_end|>\n#<|im_start|>assistant\n[#<think>{\"n\": \"the\", {\"a\": "
         "{\"role\": \"<|im_end|>\", \"<think>\": 0}}}\n#</think>#<|im_end|>]\n"
         "#<|im_start|>user\n<r><s>1#<|im_end|>\n#<|im_start|>assistant\n[and#<|im_end|>]\n"},
        {MISTRAL, TALK("\"\""), NULL,
         "#<s>[he][#[CALLS] [{\"name\": \"the\", \"arguments\": {}}]#</s>]<<s>1>[and#</s>]"},
        {TEXTS, TALK("\"{}\""), NULL, "he[#<|im_start|>{}#<|im_end|>]<s>1[and]True"},
        /* an empty content is as none to a program that writes no calls next to it, and stays with others */
        {TEXTS, "[" ASKED "," WITH_TEXT("") "]", NULL, "he[#<|im_start|>{}#<|im_end|>]True"},
        {"{% for m in messages %}{{ m.content or m.tool_calls[0].function|tojson }}"
         "{{ m.content is defined }}</s>{% endfor %}",
         "[" ASKED "," WITH_TEXT("") "]", NULL,
         "heTrue#</s>[{\"name\": \"the\", \"arguments\": {}}True#</s>]"},
        {EITHER, "[" ASKED ", {\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}]", NULL,
         "he#</s>[a#</s>]"},
        {HARMONY, TALK("{\"a\": 1}"), NULL,
         "#<s>userhe#<|im_end|>#<s>assistant[ to=the#<bos>{\"a\": 1}#</s>]#<s>the to=assistant<s>1"
         "#<|im_end|>#<s>assistant[#<bos>and#<|eot_id|>]"},
        {GEMMA, TALK("{\"a\": 1}"), NULL,
         "#<s>he#<bos>[#[CALLS]the{\"a\": 1}#</s>#<think>]re:the<s>1#</think>#<bos>[and#</s>]"},
        /* thoughts of answers before the last question are left out */
        {GEMMA, "[" ASKED "," THOUGHT "," THOUGHT "," ASKED ", " SAID "]", NULL,
         "#<s>he#<bos>[#[CALLS]the{\"a\": 1}#</s>#<think>]re:the<s>1#</think>#<bos>[#[CALLS]the{\"a\": "
         "1}#</s>#<think>]re:the<s>1#</think>#<s>he#<bos>[and#</s>]"},
        {GEMMA, "[" ASKED "," SAID "," ASKED "," THOUGHT "," THOUGHT "," SAID "]", NULL,
         "#<s>he#<bos>[and#</s>]#<s>he#<bos>[#[CALLS]#<think>zz#</think>the{\"a\": 1}#</s>#<think>]re:the<s>1"
         "#</think>#<bos>[#[CALLS]#<think>zz#</think>the{\"a\": 1}#</s>#<think>]re:the<s>1#</think>#<bos>[and"
         "#</s>]"},
        {GEMMA ALTERNATES, "[" ASKED "," THOUGHT "," SAID "]", NULL,
         "#<s>he#<bos>[#[CALLS]#<think>zz#</think>the{\"a\": 1}#</s>#<think>]re:the<s>1#</think>#<bos>[and"
         "#</s>]"},
        /* GLM-4's: the next turn ends a call, too */
        {"{% for m in messages %}{% if m.tool_calls %}{{ '<bos>' }}{% for c in m.tool_calls %}"
         "{{ c.function.name + c.function.arguments|tojson + '</think>\n' }}{% endfor %}{% else %}"
         "{{ {'user': '<s>', 'tool': '<eos>', 'assistant': '<bos>'}[m.role] + m.content }}{% endif %}"
         "{% endfor %}{% if add_generation_prompt %}<bos>{% endif %}",
         TALK("{}"), NULL, "#<s>he#<bos>[the{}#</think>\n]<eos><s>1#<bos>[and]"},
        {MISTRAL,
         "[" ASKED ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"the\"}}]}]",
         NULL, "#<s>[he][#[CALLS] [{\"name\": \"the\", \"arguments\": {}}]#</s>]"},
        {MISTRAL, TALK("null"), NULL,
         "#<s>[he][#[CALLS] [{\"name\": \"the\", \"arguments\": {}}]#</s>]<<s>1>[and#</s>]"},
        /* tools in the system's message, where there is one */
        {"{% for m in messages %}{{ m.content }}{% if m.role == 'system' and tools %}{{ tools|tojson }}"
         "{% endif %}</s>{% endfor %}",
         "[{\"role\": \"system\", \"content\": \"a\"}, " ASKED ", " SAID "]", TOOLS,
         "a[{\"type\": \"function\", \"function\": {\"name\": \"<s>\"}}]#</s>he#</s>[and#</s>]"},
        {EITHER, TALK("{}"), NULL, "he#</s>[{\"name\": \"the\", \"arguments\": {}}#</s>]<s>1#</s>[and#</s>]"},
        {NUMBERED, "[" ASKED ", " SAID "]", NULL,
         "#<|im_start|>userhe#<|im_end|>#<|im_start|>assistant[and#<|im_end|>]"},
        /* answers that are not learned, as data says */
        {HERMES, WEIGHTS, NULL,
         "#<|im_start|>user\nhe#<|im_end|>\n#<|im_start|>assistant\nthe#<|im_end|>\n#<|im_start|>user\nhe"
         "#<|im_end|>\n#<|im_start|>assistant\n[and#<|im_end|>]\n"},
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}"
         "{{ 'A' + m.content }}{% endgeneration %}</s>{% endif %}{% endfor %}",
         WEIGHTS, NULL, "heAthe#</s>he[Aand]#</s>"},
    };
    static const struct {
        const char *program, *messages, *tools, *word;
    } refused[] = {
        {"{% for m in messages %}{{ m.role + m.content|default('') }}{% endfor %}", TALK("{}"), NULL,
         "message 2: %s does not write \"tool_calls\""},
        {"{% for m in messages %}{{ m.role + m.content|default('') }}{% endfor %}",
         "[{\"role\": \"user\", \"content\": \"a\"}]", TOOLS,
         "the conversation has \"tools\", which %s does not write"},
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
         "[{\"role\": \"developer\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}]", NULL,
         "message 1: %s writes nothing of the role 'developer'"},
        {"{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('No!') }}{% endif %}"
         "{{ m.content or m.tool_calls[0].function.arguments.zqkey }}{% endfor %}",
         TALK("{}"), NULL,
         "%s: line 1: the template refuses the conversation: No! (message 3 has the role 'tool')"},
        {HERMES, TALK("\"[1]\""), NULL, "message 2: the \"arguments\" of a call are neither an object nor"},
        {EITHER, "[" ASKED "," WITH_TEXT("and") "]", NULL,
         "message 2: %s does not write the \"tool_calls\" of this message"},
        {NUMBERED, TALK("{}"), NULL, "message 2: %s writes \"tool_calls\" outside of a loop over messages"},
        {GEMMA ALTERNATES, "[" ASKED "," THOUGHT "," SAID "," ASKED "]", NULL,
         "message 2: where its \"tool_calls\" end is not known: %s writes"},
        {HERMES, TALK("7"), NULL, "message 2: the \"arguments\" of a call are neither an object nor"},
    };
    char got[2048], word[2 * PATH_MAX];
    model_tokenizer_t *tokenizer = open_chatty();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("chat_template.jinja", cases[i].program);
        if (encode_texts(tokenizer, cases[i].messages, cases[i].tools, got) != GYRE_OK)
            fail_msg("%zu: %s", i, gyre_last_error());
        assert_string_equal(got, cases[i].want);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        put("chat_template.jinja", refused[i].program);
        snprintf(word, sizeof word, refused[i].word, at("chat_template.jinja"));
        assert_int_not_equal(encode_texts(tokenizer, refused[i].messages, refused[i].tools, got), GYRE_OK);
        if (!strstr(gyre_last_error(), word))
            fail_msg("'%s' does not speak of '%s'", gyre_last_error(), word);
    }
    unlink(at("chat_template.jinja"));
    /* a folder's own program for tools, whose errors come when it is wanted */
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d{{ messages[0].content "
        "}}\"}, {\"name\": \"tool_use\", \"template\": \"t{{ tools[0].function.name }}\"}]}");
    assert_int_equal(encode(tokenizer, NULL, talk + 3, 1, got), GYRE_OK);
    assert_string_equal(got, "dhe");
    assert_int_equal(encode_texts(tokenizer, TALK("{}"), TOOLS, got), GYRE_ERR_INVALID);
    assert_int_equal(encode_texts(tokenizer, "[{\"role\": \"user\", \"content\": \"a\"}]", TOOLS, got),
                     GYRE_OK);
    assert_string_equal(got, "t<s>");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d{{ messages[0].content "
        "}}\"}, {\"name\": \"tool_use\", \"template\": \"{% if %}\"}]}");
    assert_int_equal(encode(tokenizer, NULL, talk + 3, 1, got), GYRE_OK);
    assert_int_equal(encode_texts(tokenizer, TALK("{}"), TOOLS, got), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "line 1: "));
    unlink(at("tokenizer_config.json"));
    json_t *list = json_loads(TALK("{}"), 0, NULL);
    assert_int_equal(encode_json(tokenizer, "chatml", list, NULL, got), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "--template chatml does not write"));
    model_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tools)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
