/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_wire.c: what ucx-run and its agents on other hosts say to each other, either way; a job
 * that was taken is packed and taken again. The first byte chooses the way. */
#include "tests/fuzz/fuzz.h"
#include "tools/ucx-run/hosts/wire.h"

static void job(const run_frame_t *frame)
{
    run_wire_job_t taken, again;
    run_buffer_t packed = {0};
    run_frame_t second;
    const char *why = "";
    if (!run_wire_job(frame, &taken, &why)) {
        FUZZ_CHECK(why[0] != '\0');
        return;
    }
    FUZZ_CHECK(taken.ranks >= 1 && taken.world >= taken.ranks && taken.program[0] != NULL);
    for (int i = 0; i < taken.ranks; i++)
        FUZZ_CHECK(taken.number[i] >= 0 && taken.number[i] < taken.world);
    FUZZ_CHECK(run_wire_put_job(&packed, &taken));
    FUZZ_CHECK(run_wire_next(run_buffer_front(&packed), run_buffer_length(&packed), RUN_WIRE_TO_AGENT,
                             &second, &why) > 0);
    FUZZ_CHECK(run_wire_job(&second, &again, &why) && again.ranks == taken.ranks &&
               strcmp(again.secret, taken.secret) == 0);
    run_wire_job_free(&again);
    run_wire_job_free(&taken);
    run_buffer_free(&packed);
}

static void payload(const run_frame_t *frame)
{
    const char *text = "", *data = NULL;
    uint32_t a = 0, b = 0;
    unsigned state = 0;
    int i = 0, k = 0;
    size_t n = 0;
    switch (frame->kind) {
    case RUN_WIRE_JOB:
        job(frame);
        break;
    case RUN_WIRE_HELLO:
        (void)run_wire_hello(frame, &a, &b, &text);
        break;
    case RUN_WIRE_ROOT:
    case RUN_WIRE_GO:
        (void)run_wire_root(frame, &text, &i);
        break;
    case RUN_WIRE_SIGNAL:
        (void)run_wire_signal(frame, &i, &k);
        break;
    case RUN_WIRE_CLOSE:
        (void)run_wire_close(frame, &i);
        break;
    case RUN_WIRE_STARTED:
        (void)run_wire_started(frame, &i, &k);
        break;
    case RUN_WIRE_REFUSED:
        (void)run_wire_refused(frame, &i, &text);
        break;
    case RUN_WIRE_OUTPUT:
        if (run_wire_output(frame, &i, &k, &data, &n))
            FUZZ_CHECK(n == 0 || ((const unsigned char *)data >= frame->data &&
                                  (const unsigned char *)data + n <= frame->data + frame->bytes));
        break;
    case RUN_WIRE_EXIT:
        (void)run_wire_exit(frame, &i, &k, &state, &text);
        break;
    case RUN_WIRE_DOING:
        (void)run_wire_doing(frame, &i, &text);
        break;
    case RUN_WIRE_NOTE:
        (void)run_wire_note(frame, &text);
        break;
    default:
        break;
    }
    FUZZ_CHECK(strlen(text) <= frame->bytes); /* texts end within the payload */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    run_wire_way_t way = fuzz_byte(&in) & 1 ? RUN_WIRE_TO_LAUNCHER : RUN_WIRE_TO_AGENT;
    run_frame_t frame;
    const char *why = "";
    long used = run_wire_find_magic(in.at, in.left);
    FUZZ_CHECK(used <= (long)in.left);
    if (used > 0)
        (void)fuzz_bytes(&in, &(size_t){(size_t)used});
    while ((used = run_wire_next(in.at, in.left, way, &frame, &why)) > 0) {
        FUZZ_CHECK((size_t)used <= in.left && frame.data >= in.at &&
                   frame.data + frame.bytes <= in.at + used);
        payload(&frame);
        (void)fuzz_bytes(&in, &(size_t){(size_t)used});
    }
    return 0;
}
