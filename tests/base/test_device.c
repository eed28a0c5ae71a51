/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_device.c: memory and streams of the host, of CUDA where there is some, and of CUDA where
 * there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/device/device.h"
#include "tests/base/capture.h"

static const base_device_t host = {BASE_HOST, 0};

/* Copies there and back through `device`, byte for byte, and zeroes a part. */
static void there_and_back(base_device_t device)
{
    enum { N = 100003 };
    static unsigned char from[N], to[N];
    void *memory = NULL;
    base_stream_t *stream = NULL;
    for (size_t i = 0; i < N; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    assert_int_equal(base_device_alloc(device, N, &memory), GYRE_OK);
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_int_equal(base_device_of(memory).kind, device.kind);
    assert_int_equal(base_device_of(memory).index, device.index);
    assert_int_equal(base_stream_create(device, &stream), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, memory, from, N), GYRE_OK);
    assert_int_equal(base_stream_zero(stream, (char *)memory + 10, 100), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, to, memory, N), GYRE_OK);
    assert_int_equal(base_stream_wait(stream), GYRE_OK);
    memset(from + 10, 0, 100);
    assert_memory_equal(from, to, N);
    assert_int_equal(base_stream_copy(stream, NULL, NULL, 0), GYRE_OK);
    assert_int_equal(base_stream_zero(stream, to, N), GYRE_OK); /* host memory, whatever the stream */
    assert_int_equal(base_stream_wait(stream), GYRE_OK);
    assert_int_equal(to[N - 1], 0);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
    assert_int_equal(base_device_free(device, memory), GYRE_OK);
}

static void host_round_trip(void **state)
{
    (void)state;
    char name[64];
    void *empty = NULL;
    assert_int_equal(base_device_count(BASE_HOST), 1);
    assert_string_equal(base_device_why_not(BASE_HOST), "");
    assert_int_equal(base_device_name(host, name, sizeof(name)), GYRE_OK);
    assert_string_equal(name, "host");
    assert_int_equal(base_device_alloc(host, 0, &empty), GYRE_OK);
    assert_non_null(empty);
    assert_int_equal(base_device_free(host, empty), GYRE_OK);
    assert_int_equal(base_device_free(host, NULL), GYRE_OK);
    assert_int_equal(base_stream_destroy(NULL), GYRE_OK);
    there_and_back(host);
}

/* On the host work is done when it is given: events have happened when they are recorded. */
static void host_events(void **state)
{
    (void)state;
    base_stream_t *stream = NULL, *other = NULL;
    base_event_t *from = NULL, *to = NULL, *untimed = NULL;
    int done = 0, native;
    double ms = -1;
    size_t free_bytes = 0, total = 0;
    void *pinned = NULL;
    char text[1024];
    assert_int_equal(base_stream_create_urgent(host, &stream), GYRE_OK);
    assert_int_equal(base_stream_wrap(host, &native, &other), GYRE_OK);
    assert_null(base_stream_native(stream));
    assert_null(base_stream_native(other));
    assert_int_equal(base_event_create(host, 1, &from), GYRE_OK);
    assert_int_equal(base_event_create(host, 1, &to), GYRE_OK);
    assert_int_equal(base_event_create(host, 0, &untimed), GYRE_OK);
    capture_t capture = capture_begin();
    assert_int_equal(base_event_elapsed_ms(from, to, &ms), GYRE_ERR_INVALID);
    assert_int_equal(base_event_record(from, stream), GYRE_OK);
    assert_int_equal(base_event_elapsed_ms(from, untimed, &ms), GYRE_ERR_INVALID);
    capture_end(capture, text, sizeof(text));
    assert_non_null(strstr(text, "never recorded"));
    assert_non_null(strstr(text, "without time"));
    assert_int_equal(base_event_record(to, stream), GYRE_OK);
    assert_int_equal(base_stream_wait_event(other, to), GYRE_OK);
    assert_int_equal(base_event_done(to, &done), GYRE_OK);
    assert_int_equal(done, 1);
    assert_int_equal(base_event_wait(to), GYRE_OK);
    assert_int_equal(base_event_elapsed_ms(from, to, &ms), GYRE_OK);
    assert_true(ms >= 0);
    assert_int_equal(base_device_memory(host, &free_bytes, &total), GYRE_OK);
    assert_true(free_bytes > 0 && free_bytes <= total);
    assert_int_equal(base_pinned_alloc(host, 100, &pinned), GYRE_OK);
    assert_int_equal(base_pinned_free(host, pinned), GYRE_OK);
    assert_int_equal(base_device_use(host), GYRE_OK);
    base_event_destroy(from);
    base_event_destroy(to);
    base_event_destroy(untimed);
    base_event_destroy(NULL);
    base_stream_destroy(stream);
    base_stream_destroy(other);
}

static void bad_arguments(void **state)
{
    (void)state;
    char text[2048];
    char byte = 1;
    void *memory = NULL;
    base_stream_t *stream = NULL, *none = NULL;
    assert_int_equal(base_stream_create(host, &stream), GYRE_OK);
    capture_t capture = capture_begin();
    gyre_status_t got[] = {
        base_device_alloc((base_device_t){BASE_HOST, 1}, 8, &memory),
        base_device_alloc((base_device_t){BASE_HOST, -1}, 8, &memory),
        base_device_alloc((base_device_t){(base_device_kind_t)7, 0}, 8, &memory),
        base_device_alloc(host, SIZE_MAX, &memory),
        base_device_alloc(host, SIZE_MAX / 2, &memory),
        base_stream_copy(stream, NULL, &byte, 1),
        base_stream_copy(stream, &byte, NULL, 1),
        base_stream_zero(stream, NULL, 1),
        base_stream_create((base_device_t){BASE_HOST, 2}, &none),
    };
    capture_end(capture, text, sizeof(text));
    static const gyre_status_t want[] = {GYRE_ERR_NOT_FOUND, GYRE_ERR_NOT_FOUND, GYRE_ERR_INVALID,
                                         GYRE_ERR_NO_MEMORY, GYRE_ERR_NO_MEMORY, GYRE_ERR_INVALID,
                                         GYRE_ERR_INVALID,   GYRE_ERR_INVALID,   GYRE_ERR_NOT_FOUND};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_int_equal(got[i], want[i]);
    assert_null(memory);
    assert_null(none);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
}

static void cuda_absent(void **state)
{
    (void)state;
    char text[2048], name[64] = "unchanged";
    void *memory = NULL;
    base_stream_t *stream = NULL;
    const base_device_t cuda = {BASE_CUDA, 0};
    if (base_device_count(BASE_CUDA) > 0) {
        print_message("skipped: this machine has %d CUDA device(s), so CUDA is not absent\n",
                      base_device_count(BASE_CUDA));
        skip();
    }
    const char *why = base_device_why_not(BASE_CUDA);
    assert_true(strlen(why) > 10);
    assert_null(strchr(why, '\n'));
    capture_t capture = capture_begin();
    void *function = NULL;
    base_event_t *event = NULL;
    size_t total = 0;
    gyre_status_t got[] = {
        base_device_name(cuda, name, sizeof(name)), base_device_alloc(cuda, 64, &memory),
        base_stream_create(cuda, &stream),          base_stream_wrap(cuda, NULL, &stream),
        base_event_create(cuda, 0, &event),         base_pinned_alloc(cuda, 64, &memory),
        base_device_memory(cuda, NULL, &total),     base_device_driver("cuStreamWaitValue32", &function)};
    capture_end(capture, text, sizeof(text));
    for (size_t i = 0; i < sizeof(got) / sizeof(got[0]); i++)
        assert_int_equal(got[i], GYRE_ERR_UNSUPPORTED);
    assert_null(event);
    assert_null(function);
    assert_non_null(strstr(text, why));
    assert_null(memory);
    assert_null(stream);
    assert_string_equal(name, "unchanged");
    assert_int_equal(base_device_of(&memory).kind, BASE_HOST);
    assert_int_equal(base_device_of(NULL).kind, BASE_HOST);
}

static void cuda_round_trip(void **state)
{
    (void)state;
    int count = base_device_count(BASE_CUDA);
    if (count == 0) {
        print_message("skipped: no CUDA device: %s\n", base_device_why_not(BASE_CUDA));
        skip();
    }
    assert_string_equal(base_device_why_not(BASE_CUDA), "");
    for (int i = 0; i < count; i++) {
        char name[256] = "";
        assert_int_equal(base_device_name((base_device_t){BASE_CUDA, i}, name, sizeof(name)), GYRE_OK);
        assert_true(name[0] != '\0');
        there_and_back((base_device_t){BASE_CUDA, i});
    }
    /* A host stream that meets device memory. */
    void *memory = NULL;
    base_stream_t *stream = NULL;
    int value = 42, back = 0;
    assert_int_equal(base_device_alloc((base_device_t){BASE_CUDA, 0}, sizeof(int), &memory), GYRE_OK);
    assert_int_equal(base_stream_create(host, &stream), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, memory, &value, sizeof(int)), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, &back, memory, sizeof(int)), GYRE_OK);
    assert_int_equal(back, 42);
    assert_int_equal(base_stream_zero(stream, memory, sizeof(int)), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, &back, memory, sizeof(int)), GYRE_OK);
    assert_int_equal(back, 0);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
    assert_int_equal(base_device_free((base_device_t){BASE_CUDA, 0}, memory), GYRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_round_trip), cmocka_unit_test(host_events),
                                       cmocka_unit_test(bad_arguments), cmocka_unit_test(cuda_absent),
                                       cmocka_unit_test(cuda_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
