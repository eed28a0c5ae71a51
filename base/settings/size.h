/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/size.h: counts of bytes as text: one grammar for settings, flags and files, and two ways
 * to write them. */
#ifndef BASE_SETTINGS_SIZE_H
#define BASE_SETTINGS_SIZE_H

#include <stddef.h>
#include <stdint.h>

enum { BASE_SIZE_TEXT = 24 }; /* bytes of the longest text that these functions write, its 0 included */

/* Reads digits, then nothing, or one of K, M, G, T (powers of 1024), then nothing, B or iB; upper and
 * lower case are the same: 8, 512k, 64M, 4KiB, 1g. Before a unit there may be a point and up to 6 digits,
 * if that makes whole bytes: 1.5M. The whole text must be a size. 1, and *bytes is set; 0:
 * malformed, or above UINT64_MAX. */
int base_size_parse(const char *text, uint64_t *bytes);

/* Writes exactly this size as base_size_parse reads it, with the largest unit that leaves a whole number:
 * "8K", "1000". text: [BASE_SIZE_TEXT]. Returns text. */
const char *base_size_text(uint64_t bytes, char *text);

/* Writes about this size, for people: "480 MiB", "1.5 KiB", "12 B"; one decimal below 10 only. `bytes` is
 * at least 0 and may be a mean. text: [BASE_SIZE_TEXT]. Returns text. */
const char *base_size_about(double bytes, char *text);

#endif
