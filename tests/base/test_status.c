/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_status.c: every status code has words of its own and kills what its group says; the same
 * for the names of types and reductions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <gyre/gyre.h>

static const struct {
    gyre_status_t status;
    gyre_scope_t scope;
} all[] = {
    {GYRE_OK, GYRE_SCOPE_NONE},
    {GYRE_IN_PROGRESS, GYRE_SCOPE_NONE},
    {GYRE_ERR_INVALID, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_TYPE, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_OVERFLOW, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_OVERLAP, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_UNSUPPORTED, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_NO_MEMORY, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_NOT_FOUND, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_IO, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_FORMAT, GYRE_SCOPE_OPERATION},
    {GYRE_ERR_MISMATCH, GYRE_SCOPE_COMMUNICATOR},
    {GYRE_ERR_PEER_DEAD, GYRE_SCOPE_COMMUNICATOR},
    {GYRE_ERR_TIMEOUT, GYRE_SCOPE_COMMUNICATOR},
    {GYRE_ERR_ABORTED, GYRE_SCOPE_COMMUNICATOR},
    {GYRE_ERR_TRANSPORT, GYRE_SCOPE_COMMUNICATOR},
    {GYRE_ERR_SYSTEM, GYRE_SCOPE_PROCESS},
    {GYRE_ERR_AUTH, GYRE_SCOPE_PROCESS},
    {GYRE_ERR_BOOTSTRAP, GYRE_SCOPE_PROCESS},
    {GYRE_ERR_INTERNAL, GYRE_SCOPE_PROCESS},
};
#define COUNT (sizeof(all) / sizeof(all[0]))

static void scopes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(gyre_status_scope(all[i].status), all[i].scope);
    assert_int_equal(gyre_status_scope((gyre_status_t)199), GYRE_SCOPE_OPERATION);
    assert_int_equal(gyre_status_scope((gyre_status_t)250), GYRE_SCOPE_COMMUNICATOR);
    assert_int_equal(gyre_status_scope((gyre_status_t)9999), GYRE_SCOPE_PROCESS);
}

static void words(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        assert_string_not_equal(gyre_status_string(all[i].status), "unknown status");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(gyre_status_string(all[i].status), gyre_status_string(all[j].status));
    }
    assert_string_equal(gyre_status_string(GYRE_ERR_PEER_DEAD), "peer dead");
    assert_string_equal(gyre_status_string((gyre_status_t)77), "unknown status");
}

static void types(void **state)
{
    (void)state;
    static const size_t bytes[GYRE_TYPE_COUNT] = {1, 1, 2, 2,  4, 4, 8, 8,  2, 2,  4,
                                                  8, 1, 8, 16, 1, 1, 8, 16, 8, 16, 8};
    static const char *const names[GYRE_TYPE_COUNT] = {
        "int8",          "uint8",       "int16",       "uint16",      "int32",       "uint32",
        "int64",         "uint64",      "half",        "bfloat16",    "float",       "double",
        "bool",          "complex64",   "complex128",  "float8_e4m3", "float8_e5m2", "float32_int32",
        "float64_int32", "int32_int32", "int64_int32", "int16_int32"};
    for (int i = 0; i < GYRE_TYPE_COUNT; i++) {
        assert_int_equal(gyre_type_size((gyre_type_t)i), bytes[i]);
        assert_string_equal(gyre_type_name((gyre_type_t)i), names[i]);
    }
    assert_int_equal(gyre_type_size((gyre_type_t)GYRE_TYPE_COUNT), 0);
    assert_int_equal(gyre_type_size((gyre_type_t)-1), 0);
    assert_string_equal(gyre_type_name((gyre_type_t)-1), "unknown");
}

static void redops(void **state)
{
    (void)state;
    static const char *const names[GYRE_REDOP_COUNT] = {
        "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor", "minloc", "maxloc"};
    for (int i = 0; i < GYRE_REDOP_COUNT; i++)
        assert_string_equal(gyre_redop_name((gyre_redop_kind_t)i), names[i]);
    assert_string_equal(gyre_redop_name((gyre_redop_kind_t)GYRE_REDOP_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scopes), cmocka_unit_test(words),
                                       cmocka_unit_test(types), cmocka_unit_test(redops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
