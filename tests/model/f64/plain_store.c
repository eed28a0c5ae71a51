/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/f64/plain_store.c: the library's plain store, compiled for double. */
#include "tests/model/f64/f64.h"

#include "model/network/stage/plain_store.c"
