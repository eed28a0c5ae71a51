/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/members/letters.h: letters from one member of the job to another, which the watchers of the ranks
 * on the tree's way pass on; and what is kept of circles (circle.c). All under the bootstrap's lock.
 *
 * BOOT_LETTER is u32 from, u32 to, u64 comm, u64 tag, u32 kind, u32 members, u64 list, u32 turn, u32 round,
 * u32 status, u32 member; then data. */
#ifndef COMM_BOOT_MEMBERS_LETTERS_H
#define COMM_BOOT_MEMBERS_LETTERS_H

#include "comm/boot/tree.h"

enum { BOOT_LETTER_HEAD = 56 };
typedef enum { HERE = 1, UP = 2, DOWN = 3, ELSE = 4, FAIL = 5 } boot_letter_kind_t;

struct boot_letter {
    boot_letter_t *next;
    int from; /* rank of the job */
    uint64_t comm, tag, list;
    boot_letter_kind_t kind;
    uint32_t members, turn, round, status, member;
    size_t bytes;
    unsigned char data[];
};

/* What is known of the circles of a communicator, tag and list. */
typedef struct boot_turns {
    struct boot_turns *next;
    uint64_t tag, list;
    uint32_t closed;
    int open, failed;
} boot_turns_t;
/* Of a communicator. A program may take another tag for each call, and a tag that was used stays known. */
enum { BOOT_TAG_BITS = 7, BOOT_TAG_LISTS = 1 << BOOT_TAG_BITS };
struct boot_circles {
    boot_circles_t *next;
    uint64_t comm;
    boot_turns_t *of[BOOT_TAG_LISTS]; /* by a hash of the tag */
};

/* The list that has all turns of `tag`, among others. NULL: nothing is known of that communicator; add: no
 * memory to begin with it. */
boot_turns_t **boot_turns_with(comm_boot_t *boot, uint64_t comm, uint64_t tag, int add);

/* The rank of the job whose letter for this circle was lost here, for want of memory: nobody sends it again.
 * -1: no such letter. */
int boot_letter_lost(const comm_boot_t *boot, uint64_t comm, uint64_t tag, uint64_t list, uint32_t turn);
void boot_letters_append(boot_letter_t **list, boot_letter_t *letter); /* as its last one */
void boot_letters_drop(boot_letter_t **list);                          /* frees all of it */

#endif
