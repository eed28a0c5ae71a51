/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/card.c: see card.h. */
#include "comm/launch/card.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "gyre1;";

void meet_card_make(const meet_card_t *card, char text[MEET_CARD_MAX])
{
    char hex[2 * MEET_ERROR_MAX + 1];
    if (card->error[0] != '\0') {
        sodium_bin2hex(hex, sizeof(hex), (const unsigned char *)card->error,
                       strnlen(card->error, MEET_ERROR_MAX - 1));
        snprintf(text, MEET_CARD_MAX, "%s!;%s", magic, hex);
        return;
    }
    if (card->have_secret)
        sodium_bin2hex(hex, sizeof(hex), card->secret, sizeof(card->secret));
    else
        strcpy(hex, "-");
    snprintf(text, MEET_CARD_MAX, "%s%.*s;%s", magic, (int)(2 * sizeof(card->secret)), hex, card->root);
    sodium_memzero(hex, sizeof(hex));
}

/* Exactly `bytes` hex digits into at most `room` bytes; how many, or 0. */
static size_t from_hex(const char *text, size_t bytes, void *out, size_t room)
{
    size_t n = 0;
    if (bytes == 0 || bytes % 2 != 0 || bytes / 2 > room ||
        sodium_hex2bin(out, room, text, bytes, NULL, &n, NULL) != 0 || n != bytes / 2)
        return 0;
    return n;
}

static int is_root_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr(".:-_[],%", c) != NULL);
}

int meet_card_parse(const char *text, size_t bytes, meet_card_t *card)
{
    size_t magic_bytes = sizeof(magic) - 1;
    memset(card, 0, sizeof(*card));
    if (bytes <= magic_bytes || bytes >= MEET_CARD_MAX || memcmp(text, magic, magic_bytes) != 0)
        return 0;
    text += magic_bytes;
    bytes -= magic_bytes;
    const char *semicolon = memchr(text, ';', bytes);
    if (semicolon == NULL)
        return 0;
    size_t word = (size_t)(semicolon - text), rest = bytes - word - 1;
    const char *root = semicolon + 1;
    if (word == 1 && *text == '!') { /* a text: one that begins with a NUL would say that nothing failed */
        size_t n = from_hex(root, rest, card->error, sizeof(card->error) - 1);
        return n > 0 && memchr(card->error, '\0', n) == NULL;
    }
    if (!(word == 1 && *text == '-')) {
        if (from_hex(text, word, card->secret, sizeof(card->secret)) != sizeof(card->secret))
            return 0;
        card->have_secret = 1;
    }
    if (rest == 0 || rest >= sizeof(card->root))
        return 0;
    for (size_t i = 0; i < rest; i++)
        if (!is_root_char(root[i]))
            return 0;
    memcpy(card->root, root, rest);
    return 1;
}
