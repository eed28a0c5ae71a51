/* tools/lint.h: what clang-tidy must know of functions in other files. `make lint` includes it first.
   SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "base/error.h"

/* These return the status that they were given, which is never GYRE_OK. */
#define gyre_fail(status, ...)       (gyre_fail(status, __VA_ARGS__), (status))
#define gyre_fail_errno(status, ...) (gyre_fail_errno(status, __VA_ARGS__), (status))
#define gyre_fail_quiet(status, ...) (gyre_fail_quiet(status, __VA_ARGS__), (status))
