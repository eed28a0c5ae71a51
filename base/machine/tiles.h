/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/tiles.h: whether this process may use the processor's tiles of bfloat16 (Intel's AMX). */
#ifndef BASE_MACHINE_TILES_H
#define BASE_MACHINE_TILES_H

/* Asks Linux for them. NULL: they may be used; else why not, for a message: "this processor has no ...".
 * Static storage. */
const char *base_tiles_missing(void);

#endif
