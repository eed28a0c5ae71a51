/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/shortest.h: a number for people. */
#ifndef BASE_TEXT_SHORTEST_H
#define BASE_TEXT_SHORTEST_H

#define BASE_SHORTEST 32
/* The shortest decimal that reads back as `value`: 0.1, not 0.10000000000000001. Returns `text`. */
const char *base_shortest(double value, char text[BASE_SHORTEST]);

#endif
