/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_jinja.c: programs of chat templates, on a conversation that calls a tool. What one writes
 * is UTF-8 within its limits; each byte of it is of a message, the tools or the program's own; and it is the
 * same the second time, and with a program that was read once more. What is refused has a line, in UTF-8. The
 * first byte says whether there is a day and a tool. */
#include "base/error.h"
#include "base/utf8.h"
#include "model/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"

enum { MESSAGES = 4, MOST = 1 << 29 /* bytes, above what the interpreter gives a conversation so small */ };

static void check_error(gyre_status_t status)
{
    const char *why = gyre_last_error();
    FUZZ_CHECK(status == GYRE_ERR_INVALID || status == GYRE_ERR_NO_MEMORY);
    FUZZ_CHECK(base_utf8_span((const unsigned char *)why, strlen(why)) == strlen(why));
    FUZZ_CHECK(status == GYRE_ERR_NO_MEMORY || strncmp(why, "line ", 5) == 0);
}

static void check_output(const jinja_output_t *out)
{
    FUZZ_CHECK(out->bytes < MOST);
    FUZZ_CHECK(base_utf8_span((const unsigned char *)out->text, out->bytes) == out->bytes);
    for (size_t i = 0; i < out->bytes; i++)
        FUZZ_CHECK((out->from[i] & ~JINJA_CALL) <= MESSAGES + 1 && out->turn[i] <= MESSAGES &&
                   out->generated[i] <= 1);
}

static void check_same(const jinja_output_t *a, const jinja_output_t *b)
{
    FUZZ_CHECK(a->bytes == b->bytes);
    if (a->bytes == 0)
        return;
    FUZZ_CHECK(memcmp(a->text, b->text, a->bytes) == 0 && memcmp(a->generated, b->generated, a->bytes) == 0);
    FUZZ_CHECK(memcmp(a->from, b->from, a->bytes * sizeof *a->from) == 0);
    FUZZ_CHECK(memcmp(a->turn, b->turn, a->bytes * sizeof *a->turn) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    const int day = fuzz_byte(&in) & 1;
    json_t *variables = json_pack("{s:s,s:b,s:n}", "bos_token", "<s>", "add_generation_prompt", day, "tools"),
           *messages = json_pack(
               "[{s:s,s:s},{s:s,s:s,s:i,s:f},{s:s,s:[{s:s,s:{s:s,s:{s:f,s:[b,n]}}}]},{s:s,s:s,s:s}]", "role",
               "user", "content", " a-b\nc ", "role", "assistant", "content", "<think>x</think>\xc3\xa9", "n",
               7, "share", 0.5, "role", "assistant", "tool_calls", "id", "call00001", "function", "name", "f",
               "arguments", "x", 1e-7, "y", 1, "role", "tool", "tool_call_id", "call00001", "content", "21"),
           *tools = json_pack("[{s:{s:s,s:{s:{}}}}]", "function", "name", "f", "parameters", "properties");
    jinja_program_t *program[2] = {NULL, NULL};
    jinja_output_t out[3] = {0};
    const jinja_input_t input = {variables, messages, day ? tools : NULL, day ? "2026-11-05" : NULL};
    FUZZ_CHECK(variables && messages && tools);
    char *copy = fuzz_text(in.at, in.left); /* the program keeps nothing of its text */
    gyre_status_t status = jinja_compile(copy, in.left, &program[0]);
    memset(copy, '}', in.left);
    free(copy);
    FUZZ_CHECK(jinja_compile((const char *)in.at, in.left, &program[1]) == status);
    if (status == GYRE_OK) {
        FUZZ_CHECK(jinja_marks(program[0]) == jinja_marks(program[1]));
        status = jinja_run(program[0], &input, &out[0]);
        for (int i = 1; i < 3; i++)
            FUZZ_CHECK(jinja_run(program[i - 1], &input, &out[i]) == status);
    }
    if (status != GYRE_OK)
        check_error(status);
    for (int i = 0; i < 3; i++) {
        FUZZ_CHECK(status == GYRE_OK || !out[i].text);
        check_output(&out[i]);
        check_same(&out[0], &out[i]);
    }
    for (int i = 0; i < 3; i++)
        jinja_output_free(&out[i]);
    jinja_destroy(program[0]);
    jinja_destroy(program[1]);
    json_decref(variables);
    json_decref(messages);
    json_decref(tools);
    return 0;
}
