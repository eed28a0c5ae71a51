/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/members/circle.c: see circle.h.
 *
 * Each member says HERE, with its list, to all others of a small circle, and to its neighbours of a large
 * one. Gathering goes up and down a binomial tree over the list.
 *
 * A letter names its circle by a hash of the list and by its turn: how many circles of this communicator, tag
 * and list were closed before. The members of one list count alike, so letters of members that are ahead
 * wait, and those of circles that are over are dropped. A HERE for another list says one of two things. Its
 * sender may be ahead, and what this rank is in is over for it; or it is in it, too, by its list here, and
 * never came: then both wait for each other. Only the sender can tell. So it gets an ELSE, with the list
 * here, and finds that it has not closed that circle: MISMATCH.
 *
 * A member that gives up says FAIL, with the story. A tag that has failed once is not used again: letters of
 * the attempt may be under way.
 *
 * Data of a HERE: the list (pack_list); of an ELSE: u64 list, u32 turn, the list; of a FAIL: text. */
#include "comm/boot/members/circle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/boot/members/letters.h"

enum {
    SMALL = 32, /* members of a circle in which each says HERE to each */
    SHOWN = 24, /* members that a HERE or an ELSE lists, at most */
    LIST_BYTES = 4 + 4 * SHOWN
};

struct comm_circle {
    comm_boot_t *boot;
    const char *call;
    uint64_t comm, tag, list;
    uint32_t turn, round;
    const int *ranks, *world;
    int n, rank;
    base_time_t began, deadline;
    int parent, children_n, children[BOOT_EDGES_MAX]; /* places in the list; parent -1: none */
    boot_turns_t *turns;
    boot_letter_t *kept, *later; /* of this circle, for later; of other circles */
    int failed;
    unsigned char *heard; /* [n] */
    int elsewhere;        /* a member that said that it is in another circle; -1: none */
    char elsewhere_text[200];
};

typedef struct {
    boot_letter_kind_t kind;
    uint64_t list; /* of the circle that it is about */
    uint32_t turn, round, status, member;
    const void *data;
    size_t bytes;
} say_t;

static gyre_status_t post(const comm_circle_t *c, int to, const say_t *say)
{
    comm_boot_t *boot = c->boot;
    boot_buf_t frame = {0};
    unsigned char head[BOOT_LETTER_HEAD];
    boot_put32(head, (uint32_t)boot->rank);
    boot_put32(head + 4, (uint32_t)to);
    boot_put64(head + 8, c->comm);
    boot_put64(head + 16, c->tag);
    boot_put32(head + 24, (uint32_t)say->kind);
    boot_put32(head + 28, (uint32_t)c->n);
    boot_put64(head + 32, say->list);
    boot_put32(head + 40, say->turn);
    boot_put32(head + 44, say->round);
    boot_put32(head + 48, say->status);
    boot_put32(head + 52, say->member);
    boot_edge_t *edge = boot_edge_towards(boot, to);
    if (edge == NULL || !edge->open)
        return gyre_fail_quiet(GYRE_ERR_PEER_DEAD, "%s: there is no way to rank %d of the job", c->call, to);
    gyre_status_t st = GYRE_ERR_NO_MEMORY;
    if (boot_buf_add(&frame, head, sizeof(head)) &&
        (say->bytes == 0 || boot_buf_add(&frame, say->data, say->bytes)))
        st = boot_edge_send(boot, edge, BOOT_LETTER, frame.data, frame.to);
    boot_buf_free(&frame);
    return st == GYRE_OK ? st : gyre_fail(st, "no memory for a bootstrap message");
}

static gyre_status_t post_to(const comm_circle_t *c, int place, boot_letter_kind_t kind, const void *data,
                             size_t bytes)
{
    const say_t say = {
        .kind = kind, .list = c->list, .turn = c->turn, .round = c->round, .data = data, .bytes = bytes};
    return post(c, c->world[place], &say);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

/* 1: the member with whom this one exchanges HERE and FAIL. */
static int is_near(const comm_circle_t *c, int place)
{
    int near = c->n <= SMALL || place == c->parent;
    for (int k = 0; k < c->children_n; k++)
        near |= c->children[k] == place;
    return near && place != c->rank;
}

static int place_in(const comm_circle_t *c, int world)
{
    for (int i = 0; i < c->n; i++)
        if (c->world[i] == world)
            return i;
    return -1;
}

/* The list for a HERE or an ELSE: u32 each. */
static size_t pack_list(const comm_circle_t *c, unsigned char out[LIST_BYTES])
{
    const int shown = c->n < SHOWN ? c->n : SHOWN;
    boot_put32(out, (uint32_t)c->ranks[c->rank]); /* who says so, in the communicator's numbers */
    for (int i = 0; i < shown; i++)
        boot_put32(out + 4 + 4 * (size_t)i, (uint32_t)c->ranks[i]);
    return 4 + 4 * (size_t)shown;
}

/* "rank 2 with the 3 ranks 0, 1, 2" */
static void list_text(const unsigned char *data, size_t bytes, uint32_t members, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "rank %d with the %u ranks", (int)boot_get32(data), members);
    for (size_t at = 4; at + 4 <= bytes && used + 16 < room; at += 4)
        used += (size_t)snprintf(text + used, room - used, "%s %d", at > 4 ? "," : "",
                                 (int)boot_get32(data + at));
    if ((bytes - 4) / 4 < members && used + 5 < room)
        snprintf(text + used, room - used, ", ...");
}

/* The members that have not said HERE, such as "2, 5, 7"; "" if all neighbours have. */
static void missing_text(const comm_circle_t *c, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < c->n && used + 16 < room; i++) {
        if (is_near(c, i) && !c->heard[i])
            used += (size_t)snprintf(text + used, room - used, "%s%d", used > 0 ? ", " : "", c->ranks[i]);
    }
}

/* ---- giving up ----------------------------------------------------------------------------------------- */

/* The others hear it, with the last error as the story, which stays that. but: who knows it already, or
 * -1. */
static void give_up(comm_circle_t *c, gyre_status_t status, int but)
{
    char story[BOOT_TEXT], text[1024];
    const int known = status == GYRE_ERR_MISMATCH || status == GYRE_ERR_TIMEOUT ||
                      status == GYRE_ERR_PEER_DEAD || status == GYRE_ERR_ABORTED;
    if (c->failed)
        return;
    c->failed = c->turns->failed = 1;
    snprintf(text, sizeof(text), "%s", gyre_last_error());
    if (known)
        snprintf(story, sizeof(story), "%.*s", (int)sizeof(story) - 1, text);
    else
        snprintf(story, sizeof(story), "%s: rank %d could not go on: %.400s", c->call, c->ranks[c->rank],
                 text);
    const say_t say = {.kind = FAIL,
                       .list = c->list,
                       .turn = c->turn,
                       .status = (uint32_t)(known ? status : GYRE_ERR_ABORTED),
                       .data = story,
                       .bytes = strlen(story)};
    for (int i = 0; i < c->n; i++) {
        if (is_near(c, i) && c->world[i] != but && post(c, c->world[i], &say) != GYRE_OK)
            log_info("rank %d does not hear that this rank gave up: %s", c->ranks[i], gyre_last_error());
    }
    gyre_fail_quiet(status, "%s", text);
}

/* `letter` shows that its sender is in the circle `letter->list`, in which this rank would have to be,
 * too. */
static gyre_status_t mismatch(comm_circle_t *c, const boot_letter_t *letter)
{
    unsigned char list[LIST_BYTES];
    char mine[200], theirs[200], text[BOOT_TEXT];
    list_text(list, pack_list(c, list), (uint32_t)c->n, mine, sizeof(mine));
    list_text(letter->data, letter->bytes, letter->members, theirs, sizeof(theirs));
    gyre_status_t st =
        gyre_fail(GYRE_ERR_MISMATCH, "%s: called by %s, by %s: all members must give the same list", c->call,
                  mine, theirs);
    snprintf(text, sizeof(text), "%s", gyre_last_error());
    const say_t say = {.kind = FAIL,
                       .list = letter->list,
                       .turn = letter->turn,
                       .status = GYRE_ERR_MISMATCH,
                       .data = text,
                       .bytes = strlen(text)};
    if (post(c, letter->from, &say) != GYRE_OK)
        log_info("rank %d of the job does not hear of the mismatch: %s", letter->from, gyre_last_error());
    gyre_fail_quiet(st, "%s", text);
    give_up(c, st, -1);
    return st;
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

static boot_turns_t *turns_of(comm_boot_t *boot, uint64_t comm, uint64_t tag, uint64_t list)
{
    boot_turns_t **all = boot_turns_with(boot, comm, tag, 0), *t = all != NULL ? *all : NULL;
    while (t != NULL && !(t->tag == tag && t->list == list))
        t = t->next;
    return t;
}

static int is_over(const comm_circle_t *c, uint64_t list, uint32_t turn)
{
    const boot_turns_t *t = turns_of(c->boot, c->comm, c->tag, list);
    return t != NULL && turn < t->closed;
}

/* Says to the sender of a HERE for another list where this rank is. */
static void say_where(const comm_circle_t *c, const boot_letter_t *letter)
{
    unsigned char list[12 + LIST_BYTES];
    const size_t bytes = pack_list(c, list + 12);
    boot_put64(list, c->list);
    boot_put32(list + 8, c->turn);
    const say_t say = {.kind = ELSE,
                       .list = letter->list,
                       .turn = letter->turn,
                       .member = place_in(c, letter->from) >= 0,
                       .data = list,
                       .bytes = 12 + bytes};
    if (post(c, letter->from, &say) != GYRE_OK)
        log_info("rank %d of the job gets no answer: %s", letter->from, gyre_last_error());
}

static gyre_status_t take_else(comm_circle_t *c, boot_letter_t *letter)
{
    if (letter->bytes < 16)
        return GYRE_OK;
    letter->list = boot_get64(letter->data); /* what remains: where its sender is */
    letter->turn = boot_get32(letter->data + 8);
    letter->bytes -= 12;
    memmove(letter->data, letter->data + 12, letter->bytes);
    if (is_over(c, letter->list, letter->turn))
        return GYRE_OK;
    if (letter->member)
        return mismatch(c, letter);
    c->elsewhere = place_in(c, letter->from);
    list_text(letter->data, letter->bytes, letter->members, c->elsewhere_text, sizeof(c->elsewhere_text));
    return GYRE_OK;
}

/* A member has failed with this tag and another list: it does not come to this one any more. Owns the
 * letter. */
static gyre_status_t spent(comm_circle_t *c, boot_letter_t *letter)
{
    char text[BOOT_TEXT];
    gyre_status_t st;
    for (const boot_letter_t *l = c->later; l != NULL; l = l->next)
        if (l->kind == HERE && l->from == letter->from && l->list == letter->list && l->bytes >= 4) {
            free(letter);
            return mismatch(c, l);
        }
    boot_copy_text(text, letter->data, letter->bytes);
    st = gyre_fail(GYRE_ERR_ABORTED, "%s: rank %d has failed in a call with this tag: %.400s", c->call,
                   c->ranks[place_in(c, letter->from)], text);
    give_up(c, st, -1);
    free(letter);
    return st;
}

/* Owns the letter. */
static gyre_status_t take(comm_circle_t *c, boot_letter_t *letter)
{
    char text[BOOT_TEXT];
    gyre_status_t st = GYRE_OK;
    const int place = place_in(c, letter->from);
    const int ours = letter->list == c->list && letter->turn == c->turn && place >= 0;
    const int ahead = letter->list == c->list && letter->turn > c->turn; /* its sender has closed this one */
    if (is_over(c, letter->list, letter->turn)) {
        free(letter);
    } else if (!ours && !ahead && letter->kind == FAIL && place >= 0) {
        st = spent(c, letter);
    } else if (!ours && letter->kind != ELSE) {
        if (letter->kind == HERE && letter->bytes >= 4)
            say_where(c, letter);
        boot_letters_append(&c->later, letter);
    } else if (letter->kind == UP || letter->kind == DOWN) {
        boot_letters_append(&c->kept, letter);
    } else {
        if (ours && letter->kind == HERE) {
            c->heard[place] = 1;
        } else if (ours && letter->kind == ELSE) {
            st = take_else(c, letter);
        } else if (ours && letter->kind == FAIL) {
            boot_copy_text(text, letter->data, letter->bytes);
            st = letter->status > 1 && letter->status < 1000 ? (gyre_status_t)letter->status
                                                             : GYRE_ERR_ABORTED;
            st = gyre_fail(st, "%s", text);
            give_up(c, st, letter->from);
        }
        free(letter);
    }
    return st;
}

/* Takes what lies there for this communicator and tag. */
static gyre_status_t take_all(comm_circle_t *c)
{
    gyre_status_t st = GYRE_OK;
    for (boot_letter_t **at = &c->boot->letters; *at != NULL && st == GYRE_OK;) {
        boot_letter_t *letter = *at;
        if (letter->comm == c->comm && letter->tag == c->tag) {
            *at = letter->next;
            st = take(c, letter);
        } else {
            at = &letter->next;
        }
    }
    return st;
}

/* Why waiting is in vain, or OK. */
static gyre_status_t hopeless(const comm_circle_t *c)
{
    const comm_boot_t *boot = c->boot;
    char how[BOOT_TEXT + 16];
    const boot_abort_t *abort = boot_abort_of(boot, c->comm);
    if (abort != NULL)
        return gyre_fail(abort->status, "%s: %s", c->call, abort->text);
    const int lost = boot_letter_lost(boot, c->comm, c->tag, c->list, c->turn);
    if (lost >= 0)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for what rank %d of the job says", c->call, lost);
    if (boot->deaths_n == 0)
        return GYRE_OK;
    const boot_death_t *death = boot_first_death(boot, c->world, c->n);
    if (death != NULL) {
        boot_death_text(death, how, sizeof(how));
        return gyre_fail(GYRE_ERR_PEER_DEAD, "%s: rank %d %s", c->call, c->ranks[place_in(c, death->rank)],
                         how);
    }
    for (int i = 0; i < c->n; i++) {
        death = i == c->rank ? NULL : boot_death_on_way(boot, c->world[i]);
        if (death == NULL)
            continue;
        boot_death_text(death, how, sizeof(how));
        return gyre_fail(GYRE_ERR_PEER_DEAD,
                         "%s: rank %d cannot be reached, since rank %d of the job, which passes on "
                         "what they say, %s: call gyre_comm_shrink first",
                         c->call, c->ranks[i], death->rank, how);
    }
    return GYRE_OK;
}

static gyre_status_t too_late(const comm_circle_t *c, int place)
{
    unsigned char list[LIST_BYTES];
    char missing[200], mine[200];
    if (c->elsewhere >= 0 && !c->heard[c->elsewhere]) {
        list_text(list, pack_list(c, list), (uint32_t)c->n, mine, sizeof(mine));
        return gyre_fail(GYRE_ERR_MISMATCH, "%s: called by %s, by %s: all members must give the same list",
                         c->call, mine, c->elsewhere_text);
    }
    missing_text(c, missing, sizeof(missing));
    return gyre_fail(GYRE_ERR_TIMEOUT, "%s: rank %d waited for %.1f s in vain for rank %s", c->call,
                     c->ranks[c->rank], (double)(base_now() - c->began) * 1e-9,
                     missing[0] != '\0' ? missing
                                        : (snprintf(mine, sizeof(mine), "%d", c->ranks[place]), mine));
}

/* Waits for the letter of this round from a neighbour. The caller frees it. */
static gyre_status_t await(comm_circle_t *c, boot_letter_kind_t kind, int place, size_t bytes,
                           boot_letter_t **out)
{
    char missing[200], waited[24];
    boot_patience_t patience = boot_patience_begin();
    if (c->rank > 0)
        patience.at = BASE_TIME_NEVER;
    for (;;) {
        gyre_status_t st = take_all(c);
        if (st != GYRE_OK)
            return st;
        for (boot_letter_t **at = &c->kept; *at != NULL; at = &(*at)->next) {
            boot_letter_t *letter = *at;
            if (letter->kind != kind || letter->round != c->round || letter->from != c->world[place])
                continue;
            *at = letter->next;
            if (letter->bytes != bytes) {
                st = gyre_fail(GYRE_ERR_MISMATCH,
                               "%s: rank %d sent %zu bytes instead of %zu; use the same build on all "
                               "ranks",
                               c->call, c->ranks[place], letter->bytes, bytes);
                free(letter);
                return st;
            }
            *out = letter;
            return GYRE_OK;
        }
        st = hopeless(c);
        if (st != GYRE_OK)
            return st;
        st = boot_wait(c->boot, patience.at < c->deadline ? patience.at : c->deadline);
        if (boot_patience_over(&patience)) {
            missing_text(c, missing, sizeof(missing));
            log_warning("%s: rank %d has waited for %s for rank %s", c->call, c->ranks[0],
                        boot_patience_text(&patience, waited), missing);
        } else if (st == GYRE_ERR_TIMEOUT && base_poll_ms(c->deadline) == 0) {
            return too_late(c, place);
        } else if (st != GYRE_OK && st != GYRE_ERR_TIMEOUT) {
            return st;
        }
    }
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

static gyre_status_t open_turn(comm_circle_t *c)
{
    boot_turns_t **all = boot_turns_with(c->boot, c->comm, c->tag, 1), *mine = NULL;
    if (all == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a group");
    for (boot_turns_t *t = *all; t != NULL; t = t->next) {
        if (t->tag != c->tag)
            continue;
        if (t->open)
            return gyre_fail(GYRE_ERR_INVALID, "%s: another thread of this rank is in such a call", c->call);
        if (t->failed)
            return gyre_fail(GYRE_ERR_INVALID,
                             "%s: an earlier call with this tag has failed; take another tag", c->call);
        if (t->list == c->list)
            mine = t;
    }
    if (mine == NULL) {
        mine = calloc(1, sizeof(*mine));
        if (mine == NULL)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a group");
        *mine = (boot_turns_t){.next = *all, .tag = c->tag, .list = c->list};
        *all = mine;
    }
    mine->open = 1;
    c->turns = mine;
    c->turn = mine->closed;
    return GYRE_OK;
}

static void circle_free(comm_circle_t *c)
{
    boot_letters_drop(&c->kept);
    boot_letters_drop(&c->later);
    free(c->heard);
    free(c);
}

gyre_status_t comm_circle_open(comm_boot_t *boot, const char *call, uint64_t comm, uint64_t tag,
                               const int *ranks, const int *world, int n, int rank, base_time_t deadline,
                               comm_circle_t **out)
{
    unsigned char list[LIST_BYTES];
    comm_circle_t *c = calloc(1, sizeof(*c));
    if (c != NULL)
        c->heard = calloc((size_t)n, 1);
    if (c == NULL || c->heard == NULL) {
        free(c);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a group of %d ranks", n);
    }
    c->boot = boot;
    c->call = call;
    c->comm = comm;
    c->tag = tag;
    c->list = base_hash64(world, (size_t)n * sizeof(*world), 5);
    c->ranks = ranks;
    c->world = world;
    c->n = n;
    c->rank = rank;
    c->began = base_now();
    c->deadline = deadline;
    c->elsewhere = -1;
    c->parent = boot_tree_parent(rank);
    c->children_n = boot_tree_children(rank, n, c->children);
    boot_lock(boot);
    gyre_status_t st = open_turn(c);
    const size_t bytes = pack_list(c, list);
    for (int i = 0; st == GYRE_OK && i < n; i++) {
        if (is_near(c, i) && post_to(c, i, HERE, list, bytes) == GYRE_ERR_NO_MEMORY)
            st = GYRE_ERR_NO_MEMORY; /* no way: found out in gather, with the reason */
    }
    if (st == GYRE_ERR_NO_MEMORY && c->turns != NULL)
        give_up(c, st, -1);
    if (st != GYRE_OK && c->turns != NULL)
        c->turns->open = 0;
    boot_unlock(boot);
    if (st != GYRE_OK)
        circle_free(c);
    else
        *out = c;
    return st;
}

uint64_t comm_circle_id(const comm_circle_t *c)
{
    const uint64_t words[4] = {c->comm, c->tag, c->list, c->turn};
    return base_hash64(words, sizeof(words), 6);
}

/* What a neighbour waits for. Without a way to it the reason is the better error. */
static gyre_status_t hand(const comm_circle_t *c, int place, boot_letter_kind_t kind, const void *data,
                          size_t bytes)
{
    const gyre_status_t st = hopeless(c);
    return st == GYRE_OK ? post_to(c, place, kind, data, bytes) : st;
}

static gyre_status_t gather(comm_circle_t *c, size_t bytes, unsigned char *all)
{
    const int end = boot_tree_end(c->rank, c->n);
    boot_letter_t *letter;
    gyre_status_t st = GYRE_OK;
    for (int k = 0; k < c->children_n && st == GYRE_OK; k++) {
        const int child = c->children[k];
        const size_t part = (size_t)(boot_tree_end(child, c->n) - child) * bytes;
        st = await(c, UP, child, part, &letter);
        if (st != GYRE_OK)
            return st;
        if (part > 0)
            memcpy(all + (size_t)child * bytes, letter->data, part);
        free(letter);
    }
    if (c->parent >= 0) {
        st = hand(c, c->parent, UP, all + (size_t)c->rank * bytes, (size_t)(end - c->rank) * bytes);
        if (st == GYRE_OK)
            st = await(c, DOWN, c->parent, (size_t)c->n * bytes, &letter);
        if (st != GYRE_OK)
            return st;
        if (letter->bytes > 0)
            memcpy(all, letter->data, letter->bytes);
        free(letter);
    }
    for (int k = c->children_n - 1; k >= 0 && st == GYRE_OK; k--) /* the largest subtree first */
        st = hand(c, c->children[k], DOWN, all, (size_t)c->n * bytes);
    return st;
}

gyre_status_t comm_circle_gather(void *circle, const void *mine, size_t bytes, void *all)
{
    comm_circle_t *c = circle;
    size_t total;
    unsigned char *to = all;
    if (!base_mul((size_t)c->n, bytes, &total) || total > BOOT_MESSAGE_MAX - BOOT_LETTER_HEAD)
        return gyre_fail(GYRE_ERR_INVALID, "%s: %zu bytes from each of %d ranks are too many", c->call, bytes,
                         c->n);
    if (bytes > 0)
        memcpy(to + (size_t)c->rank * bytes, mine, bytes);
    boot_lock(c->boot);
    c->round++;
    gyre_status_t st = gather(c, bytes, to);
    if (st != GYRE_OK)
        give_up(c, st, -1);
    boot_unlock(c->boot);
    return st;
}

gyre_status_t comm_circle_close(comm_circle_t *c, gyre_status_t mine)
{
    char nothing = 0;
    gyre_status_t st = mine;
    if (st == GYRE_OK && c->n > 1)
        st = comm_circle_gather(c, &nothing, 0, &nothing);
    boot_lock(c->boot);
    if (st != GYRE_OK)
        give_up(c, st, -1);
    else
        c->turns->closed++;
    c->turns->open = 0;
    while (c->later != NULL) { /* before those that have come since */
        boot_letter_t **last = &c->later;
        while ((*last)->next != NULL)
            last = &(*last)->next;
        boot_letter_t *letter = *last;
        *last = NULL;
        letter->next = c->boot->letters;
        c->boot->letters = letter;
    }
    boot_unlock(c->boot);
    circle_free(c);
    return st;
}

void comm_circle_forget(comm_boot_t *boot, uint64_t comm, uint64_t tag)
{
    boot_lock(boot);
    boot_circles_forget(boot, comm, &tag);
    boot_unlock(boot);
}
