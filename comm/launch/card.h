/* comm/launch/card.h: what rank 0 publishes through a launcher's channel, one word of printable ASCII without spaces:
 *
 *     gyre1;<64 hex digits>;<host:port>[,<host:port>...]      the job's secret, and where rank 0 can be reached
 *     gyre1;-;<host:port>[,...]                               the secret is the one that all ranks were given
 *     gyre1;!;<hex digits>                                    rank 0 failed: why, as text
 *
 * Less than 1,024 bytes, which every PMI takes. Pure functions: what is read came from outside. */
#ifndef COMM_LAUNCH_CARD_H
#define COMM_LAUNCH_CARD_H

#include <stddef.h>

enum { MEET_CARD_MAX = 1024, MEET_ERROR_MAX = 400 };

typedef struct {
    int have_secret;
    unsigned char secret[32];
    char root[256];
    char error[MEET_ERROR_MAX]; /* "": none */
} meet_card_t;

void meet_card_make(const meet_card_t *card, char text[MEET_CARD_MAX]);
/* 1, or 0 if it is not a card of this version; *card is then unspecified. */
int meet_card_parse(const char *text, size_t bytes, meet_card_t *card);

#endif
