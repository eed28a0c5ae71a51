/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/members/letters.c: see letters.h. */
#include "comm/boot/members/letters.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

void boot_letters_append(boot_letter_t **list, boot_letter_t *letter)
{
    while (*list != NULL)
        list = &(*list)->next;
    letter->next = NULL;
    *list = letter;
}

void boot_letters_drop(boot_letter_t **list)
{
    while (*list != NULL) {
        boot_letter_t *letter = *list;
        *list = letter->next;
        free(letter);
    }
}

/* The circle that it is for hears of it. Without a HERE it goes on, if all else comes. */
static void lose(comm_boot_t *boot, const unsigned char *d)
{
    log_info("bootstrap: no memory for a letter of rank %d", (int)boot_get32(d));
    if (boot_get32(d + 24) != HERE)
        boot->lost[boot->lost_n++ % BOOT_LOST_MAX] = (boot_lost_t){.from = (int)boot_get32(d),
                                                                   .comm = boot_get64(d + 8),
                                                                   .tag = boot_get64(d + 16),
                                                                   .list = boot_get64(d + 32),
                                                                   .turn = boot_get32(d + 40)};
}

int boot_letter_lost(const comm_boot_t *boot, uint64_t comm, uint64_t tag, uint64_t list, uint32_t turn)
{
    for (uint32_t i = 0; i < boot->lost_n && i < BOOT_LOST_MAX; i++) {
        const boot_lost_t *l = &boot->lost[i];
        if (l->comm == comm && l->tag == tag && l->list == list && l->turn == turn)
            return l->from;
    }
    return -1;
}

void boot_take_letter(comm_boot_t *boot, const boot_message_t *m)
{
    const unsigned char *d = m->data;
    if (m->bytes < BOOT_LETTER_HEAD)
        return;
    const int to = (int)boot_get32(d + 4);
    if (to != boot->rank) {
        boot_pass_on(boot, to, m);
        return;
    }
    const size_t bytes = m->bytes - BOOT_LETTER_HEAD;
    boot_letter_t *letter = malloc(sizeof(*letter) + bytes);
    if (letter == NULL) {
        lose(boot, d);
        return;
    }
    *letter = (boot_letter_t){.from = (int)boot_get32(d),
                              .comm = boot_get64(d + 8),
                              .tag = boot_get64(d + 16),
                              .kind = (boot_letter_kind_t)boot_get32(d + 24),
                              .members = boot_get32(d + 28),
                              .list = boot_get64(d + 32),
                              .turn = boot_get32(d + 40),
                              .round = boot_get32(d + 44),
                              .status = boot_get32(d + 48),
                              .member = boot_get32(d + 52),
                              .bytes = bytes};
    if (bytes > 0)
        memcpy(letter->data, d + BOOT_LETTER_HEAD, bytes);
    boot_letters_append(&boot->letters, letter);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

static boot_circles_t **circles_of(comm_boot_t *boot, uint64_t comm)
{
    boot_circles_t **at = &boot->circles;
    while (*at != NULL && (*at)->comm != comm)
        at = &(*at)->next;
    return at;
}

static size_t list_of(uint64_t tag)
{
    /* Knuth's: tags are often dense. The top bits of the product depend on all bits of the tag. */
    return (size_t)(tag * UINT64_C(0x9E3779B97F4A7C15) >> (64 - BOOT_TAG_BITS));
}

boot_turns_t **boot_turns_with(comm_boot_t *boot, uint64_t comm, uint64_t tag, int add)
{
    boot_circles_t **at = circles_of(boot, comm);
    if (*at == NULL && add) {
        *at = calloc(1, sizeof(**at));
        if (*at != NULL)
            (*at)->comm = comm;
    }
    return *at != NULL ? &(*at)->of[list_of(tag)] : NULL;
}

/* Frees those of `tag` (NULL: all) that are not open; returns whether any is left. */
static int free_turns(boot_turns_t **at, const uint64_t *tag)
{
    boot_turns_t **first = at;
    while (*at != NULL) {
        boot_turns_t *turns = *at;
        if ((!tag || turns->tag == *tag) && !turns->open) {
            *at = turns->next;
            free(turns);
        } else {
            at = &turns->next;
        }
    }
    return *first != NULL;
}

void boot_circles_free(comm_boot_t *boot)
{
    boot_letters_drop(&boot->letters);
    while (boot->circles != NULL) {
        boot_circles_t *circles = boot->circles;
        boot->circles = circles->next;
        for (int i = 0; i < BOOT_TAG_LISTS; i++)
            while (circles->of[i] != NULL) {
                boot_turns_t *turns = circles->of[i];
                circles->of[i] = turns->next;
                free(turns);
            }
        free(circles);
    }
}

static void forget_letters(comm_boot_t *boot, uint64_t comm, const uint64_t *tag)
{
    for (boot_letter_t **at = &boot->letters; *at != NULL;) {
        boot_letter_t *letter = *at;
        if (letter->comm == comm && (!tag || letter->tag == *tag)) {
            *at = letter->next;
            free(letter);
        } else {
            at = &letter->next;
        }
    }
}

void boot_circles_forget(comm_boot_t *boot, uint64_t comm, const uint64_t *tag)
{
    boot_circles_t **at = circles_of(boot, comm), *circles = *at;
    int left = 0;
    forget_letters(boot, comm, tag);
    if (circles == NULL)
        return;
    if (tag)
        (void)free_turns(&circles->of[list_of(*tag)], tag);
    for (int i = 0; i < BOOT_TAG_LISTS; i++)
        left |= tag ? circles->of[i] != NULL : free_turns(&circles->of[i], NULL);
    if (left)
        return;
    *at = circles->next;
    free(circles);
}
