/* comm/boot_ask.c: what is a rank of another host doing? The question goes along the tree to it, its watcher's thread answers,
 * however busy the rank is, and the answer goes back. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot_tree.h"

/* The edge towards `rank`; NULL: it is no member. */
static boot_edge_t *towards(comm_boot_t *boot, int rank)
{
    int place = boot_place(boot, rank);
    if (place < 0 || place == boot->place)
        return NULL;
    for (int i = boot->place > 0; i < boot->edges_n; i++)
        if (place >= boot->edges[i].place && place < boot_tree_end(boot->edges[i].place, boot->members_n))
            return &boot->edges[i];
    return boot->place > 0 ? &boot->edges[0] : NULL;
}

static void pass_on(comm_boot_t *boot, int rank, const boot_message_t *m)
{
    boot_edge_t *edge = towards(boot, rank);
    if (edge != NULL && boot_edge_send(boot, edge, m->type, m->data, m->bytes) != GYRE_OK)
        log_warning("bootstrap: no memory to pass a question on to rank %d", rank);
}

void boot_take_ask(comm_boot_t *boot, const boot_message_t *m)
{
    unsigned char answer[8 + BOOT_TEXT];
    char text[BOOT_TEXT] = "running";
    if (m->bytes != 12)
        return;
    int origin = (int)boot_get32(m->data + 4), rank = (int)boot_get32(m->data + 8);
    if (rank != boot->rank) {
        pass_on(boot, rank, m);
        return;
    }
    if (boot->describe != NULL)
        boot->describe(boot->describe_user, text, sizeof(text));
    memcpy(answer, m->data, 8);
    memcpy(answer + 8, text, strlen(text));
    boot_message_t tell = {.type = BOOT_TELL, .data = answer, .bytes = 8 + strlen(text)};
    pass_on(boot, origin, &tell);
}

void boot_take_tell(comm_boot_t *boot, const boot_message_t *m)
{
    if (m->bytes < 8)
        return;
    int origin = (int)boot_get32(m->data + 4);
    if (origin != boot->rank) {
        pass_on(boot, origin, m);
        return;
    }
    for (int i = 0; i < BOOT_GETS_MAX; i++) {
        boot_asked_t *a = &boot->asked[i];
        if (a->id == boot_get32(m->data) && !a->answered) {
            a->found = boot_buf_add(&a->value, m->data + 8, m->bytes - 8);
            a->answered = 1;
        }
    }
}

gyre_status_t comm_boot_ask(comm_boot_t *boot, int rank, char *text, size_t bytes, base_time_t deadline)
{
    unsigned char frame[12];
    char said[BOOT_TEXT];
    gyre_status_t st = GYRE_OK;
    pthread_mutex_lock(&boot->lock);
    boot_edge_t *edge = towards(boot, rank);
    boot_asked_t *a = edge != NULL ? boot_asked_new(boot) : NULL;
    if (a == NULL) {
        pthread_mutex_unlock(&boot->lock);
        return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "rank %d cannot be asked", rank);
    }
    boot_put32(frame, a->id);
    boot_put32(frame + 4, (uint32_t)boot->rank);
    boot_put32(frame + 8, (uint32_t)rank);
    st = boot_edge_send(boot, edge, BOOT_ASK, frame, sizeof(frame));
    while (st == GYRE_OK && !a->answered)
        st = boot_wait(boot, deadline);
    if (st == GYRE_OK && !a->found)
        st = GYRE_ERR_NO_MEMORY;
    if (st == GYRE_OK) {
        boot_copy_text(said, a->value.data + a->value.from, boot_buf_len(&a->value));
        snprintf(text, bytes, "%s", said);
    }
    boot_buf_free(&a->value);
    memset(a, 0, sizeof(*a));
    pthread_mutex_unlock(&boot->lock);
    return st;
}
