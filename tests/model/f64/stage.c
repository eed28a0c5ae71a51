/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/f64/stage.c: the library's stage, compiled for double: the same lines that train in float. */
#include "tests/model/f64/f64.h"

#include "model/network/stage/unit.c"
