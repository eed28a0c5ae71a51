/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/card.h: the text that rank 0 publishes through a launcher's channel. It is one word of
 * printable ASCII without spaces:
 *
 *     gyre1;<64 hex digits>;<host:port>[,<host:port>...]      the job's secret, and the addresses of rank 0
 *     gyre1;-;<host:port>[,...]                               the secret is the one that all ranks were given
 *     gyre1;!;<hex digits>                                    rank 0 failed; the digits are the error's text
 *
 * A card has less than 1,024 bytes, which every PMI takes. Pure functions; the parser takes bytes from
 * outside. */
#ifndef COMM_LAUNCH_CARD_H
#define COMM_LAUNCH_CARD_H

#include <stddef.h>

enum { MEET_CARD_MAX = 1024, MEET_ERROR_MAX = 400 };

typedef struct {
    int have_secret;
    unsigned char secret[32];
    char root[256];
    char error[MEET_ERROR_MAX]; /* "": no error */
} meet_card_t;

void meet_card_make(const meet_card_t *card, char text[MEET_CARD_MAX]);
/* Returns 1, or 0 if the text is not a card of this version; *card is then unspecified. */
int meet_card_parse(const char *text, size_t bytes, meet_card_t *card);

#endif
