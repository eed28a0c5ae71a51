/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_jinja.c: programs of chat templates, on a conversation. Each byte that one writes is of a
 * message, or the program's own. The first byte says whether there is a day. */
#include "model/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    const int day = fuzz_byte(&in) & 1;
    json_t *variables = json_pack("{s:s,s:b,s:n}", "bos_token", "<s>", "add_generation_prompt", day, "tools"),
           *messages =
               json_pack("[{s:s,s:s},{s:s,s:s,s:i,s:f}]", "role", "user", "content", " a-b\nc ", "role",
                         "assistant", "content", "<think>x</think>\xc3\xa9", "n", 7, "share", 0.5);
    jinja_program_t *program = NULL;
    jinja_output_t out = {0};
    FUZZ_CHECK(variables && messages);
    if (jinja_compile((const char *)in.at, in.left, &program) == GYRE_OK &&
        jinja_run(program, &(jinja_input_t){variables, messages, NULL, day ? "2026-11-05" : NULL}, &out) ==
            GYRE_OK)
        for (size_t i = 0; i < out.bytes; i++)
            FUZZ_CHECK(out.from[i] <= 2 && out.generated[i] <= 1);
    jinja_output_free(&out);
    jinja_destroy(program);
    json_decref(variables);
    json_decref(messages);
    return 0;
}
