/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/test_sized.c: structs that carry their size (docs/abi.md), and the version macros. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <gyre/gyre.h>

#include "collectives/api/sized.h"

typedef struct {
    size_t size;
    int needed, other;
    double seconds;
} known_t;
typedef struct {
    size_t size;
    int needed, other;
    double seconds;
    void *newer;
    double newest;
} newer_t;
enum { LEAST = offsetof(known_t, seconds) };

static gyre_status_t given(known_t *own, const void *config)
{
    *own = (known_t){.size = sizeof *own, .seconds = 2.5};
    return coll_sized_read(own, sizeof *own, LEAST, config, "call");
}

static void an_older_program_gets_defaults(void **state)
{
    (void)state;
    known_t own, old = {.size = LEAST, .needed = 7, .other = 8, .seconds = 1.0};
    assert_int_equal(given(&own, &old), GYRE_OK);
    assert_int_equal(own.needed, 7);
    assert_int_equal(own.other, 8);
    assert_true(own.seconds == 2.5);
    old.size = sizeof old;
    assert_int_equal(given(&own, &old), GYRE_OK);
    assert_true(own.seconds == 1.0);
}

static void a_newer_program_leaves_new_fields_zero(void **state)
{
    (void)state;
    known_t own;
    newer_t newer = {.size = sizeof newer, .needed = 7, .seconds = 1.0};
    assert_int_equal(given(&own, &newer), GYRE_OK);
    assert_int_equal(own.needed, 7);
    assert_true(own.seconds == 1.0);
    /* each single byte that the library does not know */
    for (size_t i = sizeof own; i < sizeof newer; i++) {
        newer_t bad = newer;
        ((unsigned char *)&bad)[i] = 1;
        assert_int_equal(given(&own, &bad), GYRE_ERR_INVALID);
        assert_int_equal(own.needed, 0);
        char byte[32];
        snprintf(byte, sizeof byte, "byte %zu", i);
        assert_non_null(strstr(gyre_last_error(), byte));
    }
}

static void sizes_that_no_struct_has(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, LEAST - 8, LEAST + 1, sizeof(known_t) - 1, 4104, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        known_t own, config = {.size = sizes[i], .needed = 7};
        assert_int_equal(given(&own, &config), GYRE_ERR_INVALID);
        assert_int_equal(own.needed, 0);
        assert_int_equal(coll_sized_write(&config, LEAST, &own, sizeof own, "call"), GYRE_ERR_INVALID);
        assert_int_equal(config.needed, 7);
    }
}

static void results_for_older_and_newer_programs(void **state)
{
    (void)state;
    const known_t own = {.needed = 7, .other = 8, .seconds = 1.0};
    known_t old = {.size = LEAST, .seconds = 9.0};
    assert_int_equal(coll_sized_write(&old, LEAST, &own, sizeof own, "call"), GYRE_OK);
    assert_int_equal(old.size, LEAST);
    assert_int_equal(old.other, 8);
    assert_true(old.seconds == 9.0); /* not the program's */
    newer_t newer;
    memset(&newer, 0xff, sizeof newer);
    newer.size = sizeof newer;
    assert_int_equal(coll_sized_write(&newer, LEAST, &own, sizeof own, "call"), GYRE_OK);
    assert_int_equal(newer.size, sizeof newer);
    assert_true(newer.seconds == 1.0);
    assert_null(newer.newer);
    assert_true(newer.newest == 0.0);
}

/* A field that fills what was padding would be read from programs that never set it. */
#define ENDS_WITH(type, field)                                                         \
    _Static_assert(offsetof(type, field) + sizeof(((type *)0)->field) == sizeof(type), \
                   #type " ends in padding")
ENDS_WITH(gyre_config_t, options);
ENDS_WITH(gyre_create_t, options);
ENDS_WITH(gyre_options_t, tag);
ENDS_WITH(gyre_comm_stats_t, sleep_seconds);
ENDS_WITH(gyre_place_t, host_name);
ENDS_WITH(gyre_buckets_config_t, user);

/* What a program of 0.2 holds of each struct: these offsets stay. */
static void layout(void **state)
{
    (void)state;
    if (sizeof(void *) != 8)
        skip();
    assert_int_equal(offsetof(gyre_config_t, reserved), 52);
    assert_int_equal(offsetof(gyre_config_t, init_timeout_s), 32);
    assert_int_equal(offsetof(gyre_config_t, options), 56);
    assert_int_equal(offsetof(gyre_create_t, reserved), 60);
    assert_int_equal(offsetof(gyre_create_t, options), 64);
    assert_int_equal(offsetof(gyre_create_t, all_gather), 16);
    assert_int_equal(offsetof(gyre_options_t, timeout_s), 32);
    assert_int_equal(offsetof(gyre_options_t, tag), 40);
    assert_int_equal(sizeof(gyre_unique_id_t), 128);
    assert_int_equal(offsetof(gyre_comm_stats_t, wait_seconds), 88);
    assert_int_equal(offsetof(gyre_place_t, host_name), 56);
    assert_int_equal(offsetof(gyre_buckets_config_t, bucket_bytes), 40);
    assert_int_equal(offsetof(gyre_buckets_config_t, user), 56);
    assert_int_equal(sizeof(gyre_redop_t), 16);
    assert_int_equal(sizeof(gyre_bucket_t), 56);
}

/* Negative ones are no other way to say "never". */
static void deadlines_are_not_negative(void **state)
{
    (void)state;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_comm_t *world = NULL;
    config.timeout_s = -1;
    assert_int_equal(gyre_init(&config, &world), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.timeout_s is -1"));
    config.timeout_s = 0;
    config.init_timeout_s = NAN;
    assert_int_equal(gyre_init(&config, &world), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "config.init_timeout_s is nan"));
    assert_null(world);
}

static void the_library_is_that_of_the_headers(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", GYRE_VERSION_MAJOR, GYRE_VERSION_MINOR, GYRE_VERSION_PATCH);
    assert_string_equal(GYRE_VERSION, text);
    assert_string_equal(gyre_version(), text);
    assert_int_equal(GYRE_VERSION_NUMBER,
                     GYRE_VERSION_MAJOR * 10000 + GYRE_VERSION_MINOR * 100 + GYRE_VERSION_PATCH);
    assert_true(GYRE_VERSION_MINOR < 100 && GYRE_VERSION_PATCH < 100);
}

/* The public calls follow the rules, too: alone in its job, this process is rank 0 of 1. */
static void calls(void **state)
{
    (void)state;
    gyre_comm_t *world = NULL;
    struct {
        gyre_config_t known;
        uint64_t newer[2];
    } config = {.known = GYRE_CONFIG_INITIALIZER};
    config.known.size = sizeof config;
    config.newer[1] = 1;
    assert_int_equal(gyre_init(&config.known, &world), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "gyre_init: "));
    config.newer[1] = 0;
    config.known.reserved = 0x5a5a5a5a; /* padding in 0.1: a program of that time has garbage there */
    assert_int_equal(gyre_init(&config.known, &world), GYRE_OK);

    struct {
        gyre_comm_stats_t known;
        uint64_t newer;
    } stats = {.known = {.size = sizeof stats}, .newer = 5};
    assert_int_equal(gyre_comm_stats(world, &stats.known), GYRE_OK);
    assert_int_equal(stats.newer, 0);
    stats.known.size = 3;
    assert_int_equal(gyre_comm_stats(world, &stats.known), GYRE_ERR_INVALID);

    struct {
        gyre_place_t known;
        uint64_t newer;
    } place = {.known = {.size = sizeof place}, .newer = 5};
    assert_int_equal(gyre_comm_place(world, 0, &place.known), GYRE_OK);
    assert_int_equal(place.newer, 0);
    assert_int_equal(place.known.host_size, 1);
    place.known.size = sizeof place.known - 1;
    assert_int_equal(gyre_comm_place(world, 0, &place.known), GYRE_ERR_INVALID);

    struct {
        gyre_options_t known;
        uint64_t newer;
    } options = {.known = GYRE_OPTIONS_INITIALIZER, .newer = 5};
    options.known.size = sizeof options;
    assert_int_equal(gyre_comm_set(world, &options.known), GYRE_ERR_INVALID);
    options.newer = 0;
    assert_int_equal(gyre_comm_set(world, &options.known), GYRE_OK);
    options.known.tag = UINT64_MAX; /* not an older program's */
    options.known.size = offsetof(gyre_options_t, tag);
    assert_int_equal(gyre_comm_set(world, &options.known), GYRE_OK);
    options.known.size = offsetof(gyre_options_t, timeout_s);
    assert_int_equal(gyre_comm_set(world, &options.known), GYRE_ERR_INVALID);

    gyre_unique_id_t id;
    gyre_comm_t *made = NULL;
    struct {
        gyre_create_t known;
        uint64_t newer;
    } create = {.known = GYRE_CREATE_INITIALIZER, .newer = 5};
    create.known.size = sizeof create;
    assert_int_equal(gyre_get_unique_id(&id), GYRE_OK);
    assert_int_equal(gyre_comm_create_id(&id, 0, 1, &create.known, &made), GYRE_ERR_INVALID);
    create.newer = 0;
    assert_int_equal(gyre_comm_create_id(&id, 0, 1, &create.known, &made), GYRE_OK);
    assert_int_equal(gyre_finalize(made), GYRE_OK);

    const size_t counts[] = {100, 200};
    gyre_buckets_t *buckets = NULL;
    struct {
        gyre_buckets_config_t known;
        uint64_t newer;
    } b = {.known = {.type = GYRE_FLOAT32, .op = GYRE_OP(GYRE_SUM), .bucket_bytes = 1}};
    const struct {
        size_t size;
        uint64_t newer;
        gyre_status_t want;
        size_t buckets; /* 1 byte: one for each tensor; the default: one for both */
    } cases[] = {{offsetof(gyre_buckets_config_t, bucket_bytes), 0, GYRE_OK, 1},
                 {offsetof(gyre_buckets_config_t, landed), 0, GYRE_OK, 2},
                 {sizeof b.known, 5, GYRE_OK, 2}, /* not the config's */
                 {sizeof b, 0, GYRE_OK, 2},
                 {sizeof b, 5, GYRE_ERR_INVALID, 0},
                 {0, 0, GYRE_ERR_INVALID, 0},
                 {offsetof(gyre_buckets_config_t, mode), 0, GYRE_ERR_INVALID, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b.known.size = cases[i].size;
        b.newer = cases[i].newer;
        assert_int_equal(gyre_buckets_create(world, &b.known, 2, counts, &buckets), cases[i].want);
        if (cases[i].want != GYRE_OK)
            continue;
        assert_int_equal(gyre_buckets_count(buckets), cases[i].buckets);
        assert_int_equal(gyre_buckets_destroy(buckets), GYRE_OK);
    }
    assert_int_equal(gyre_finalize(world), GYRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_older_program_gets_defaults),
                                       cmocka_unit_test(a_newer_program_leaves_new_fields_zero),
                                       cmocka_unit_test(sizes_that_no_struct_has),
                                       cmocka_unit_test(results_for_older_and_newer_programs),
                                       cmocka_unit_test(deadlines_are_not_negative),
                                       cmocka_unit_test(layout),
                                       cmocka_unit_test(the_library_is_that_of_the_headers),
                                       cmocka_unit_test(calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
