/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/fixture.h: loads the machines of tests/topo/fixtures, wherever the test is started. */
#ifndef TESTS_TOPO_FIXTURE_H
#define TESTS_TOPO_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "topo/topo.h"

/* In the folder of this file, whose name the compiler knows relative to the root or in full. */
static inline const char *fixture_path(const char *name, char *path, size_t bytes)
{
    const char *here = __FILE__, *slash = strrchr(here, '/');
    snprintf(path, bytes, "%.*s/fixtures/%s", (int)(slash - here), here, name);
    return path;
}

static inline topo_t *load_fixture(const char *name)
{
    char path[512];
    topo_t *topo = NULL;
    assert_int_equal(topo_load(fixture_path(name, path, sizeof path), &topo), GYRE_OK);
    assert_non_null(topo);
    return topo;
}

#endif
