/* comm/boot/kv.c: the key-value exchange of the bootstrap.
 *
 * A fence carries new pairs up the tree; every rank keeps those of its own subtree, rank 0 has all. A get goes up
 * until some rank knows the key; the answer finds its way down because a child's subtree is a range of ranks. A key
 * should be put by one rank only. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/boot/tree.h"

enum { KEY_MAX = 255, VALUE_MAX = 64 * 1024 - 1, PAIR_HEAD = 6 };

static boot_pair_t **find(comm_boot_t *boot, const char *key)
{
    boot_pair_t **at = &boot->pairs[base_hash64(key, strlen(key), 0) % BOOT_KV_BUCKETS];
    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

/* Stores or replaces; 0 if memory is exhausted. */
static int store(comm_boot_t *boot, const char *key, const void *value, size_t bytes)
{
    unsigned char *copy = malloc(bytes > 0 ? bytes : 1);
    boot_pair_t **at = find(boot, key);
    if (copy != NULL && *at == NULL) {
        *at = calloc(1, sizeof(**at) + strlen(key) + 1);
        if (*at != NULL)
            strcpy((*at)->key, key);
    }
    if (copy == NULL || *at == NULL) {
        free(copy);
        return 0;
    }
    if (bytes > 0)
        memcpy(copy, value, bytes);
    free((*at)->value);
    (*at)->value = copy;
    (*at)->bytes = bytes;
    (*at)->fresh = 1;
    return 1;
}

gyre_status_t comm_boot_put(comm_boot_t *boot, const char *key, const void *value, size_t bytes)
{
    if (key == NULL || *key == '\0' || strlen(key) > KEY_MAX)
        return gyre_fail(GYRE_ERR_INVALID, "a bootstrap key must have 1 to %d bytes", KEY_MAX);
    if (bytes > VALUE_MAX || (value == NULL && bytes > 0))
        return gyre_fail(GYRE_ERR_INVALID, "the value of bootstrap key \"%s\" (%zu bytes) exceeds %d", key,
                         bytes, VALUE_MAX);
    pthread_mutex_lock(&boot->lock);
    int ok = store(boot, key, value, bytes);
    if (ok)
        (*find(boot, key))->own = 1;
    pthread_mutex_unlock(&boot->lock);
    return ok ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for bootstrap key \"%s\"", key);
}

int boot_kv_pack_fresh(comm_boot_t *boot, boot_buf_t *out)
{
    for (int b = 0; b < BOOT_KV_BUCKETS; b++)
        for (boot_pair_t *p = boot->pairs[b]; p != NULL; p = p->next) {
            unsigned char head[PAIR_HEAD];
            size_t key_bytes = strlen(p->key);
            if (!p->fresh)
                continue;
            head[0] = (unsigned char)key_bytes;
            head[1] = 0;
            boot_put32(head + 2, (uint32_t)p->bytes);
            if (!boot_buf_add(out, head, PAIR_HEAD) || !boot_buf_add(out, p->key, key_bytes) ||
                !boot_buf_add(out, p->value, p->bytes))
                return 0;
        }
    return 1;
}

int boot_kv_unpack(comm_boot_t *boot, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        char key[KEY_MAX + 1];
        if (bytes < PAIR_HEAD)
            return 0;
        size_t key_bytes = data[0];
        size_t value_bytes = boot_get32(data + 2);
        if (key_bytes == 0 || value_bytes > VALUE_MAX || bytes - PAIR_HEAD < key_bytes + value_bytes)
            return 0;
        memcpy(key, data + PAIR_HEAD, key_bytes);
        key[key_bytes] = '\0';
        if (!store(boot, key, data + PAIR_HEAD + key_bytes, value_bytes))
            return 0;
        data += PAIR_HEAD + key_bytes + value_bytes;
        bytes -= PAIR_HEAD + key_bytes + value_bytes;
    }
    return 1;
}

void boot_kv_sent(comm_boot_t *boot)
{
    for (int b = 0; b < BOOT_KV_BUCKETS; b++)
        for (boot_pair_t *p = boot->pairs[b]; p != NULL; p = p->next)
            p->fresh = 0;
}

void boot_kv_renew(comm_boot_t *boot)
{
    for (int b = 0; b < BOOT_KV_BUCKETS; b++)
        for (boot_pair_t **at = &boot->pairs[b]; *at != NULL;) {
            boot_pair_t *p = *at;
            p->fresh = 1;
            if (p->own) {
                at = &p->next;
                continue;
            }
            *at = p->next;
            free(p->value);
            free(p);
        }
}

void boot_kv_free(comm_boot_t *boot)
{
    for (int b = 0; b < BOOT_KV_BUCKETS; b++)
        while (boot->pairs[b] != NULL) {
            boot_pair_t *p = boot->pairs[b];
            boot->pairs[b] = p->next;
            free(p->value);
            free(p);
        }
    for (int i = 0; i < BOOT_GETS_MAX; i++)
        boot_buf_free(&boot->asked[i].value);
}

void boot_take_get(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m)
{
    char key[KEY_MAX + 1];
    if (m->bytes < 9 || m->bytes - 8 > KEY_MAX || from->rank < boot->rank)
        return;
    memcpy(key, m->data + 8, m->bytes - 8);
    key[m->bytes - 8] = '\0';
    const boot_pair_t *pair = *find(boot, key);
    if (pair == NULL && boot->place > 0) {
        if (boot_edge_send(boot, &boot->edges[0], BOOT_GET, m->data, m->bytes) != GYRE_OK)
            log_error("bootstrap: the question for \"%s\" could not be passed on", key);
        return;
    }
    boot_buf_t answer = {0};
    unsigned char found = pair != NULL;
    if (!boot_buf_add(&answer, m->data, 8) || !boot_buf_add(&answer, &found, 1) ||
        (found && !boot_buf_add(&answer, pair->value, pair->bytes)) ||
        boot_edge_send(boot, from, BOOT_VALUE, answer.data, boot_buf_len(&answer)) != GYRE_OK)
        log_error("bootstrap: the question for \"%s\" could not be answered", key);
    boot_buf_free(&answer);
}

void boot_take_value(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m)
{
    if (m->bytes < 9 || from->rank > boot->rank)
        return;
    uint32_t id = boot_get32(m->data);
    int origin = (int)boot_get32(m->data + 4);
    if (origin == boot->rank) {
        for (int i = 0; i < BOOT_GETS_MAX; i++) {
            boot_asked_t *a = &boot->asked[i];
            if (a->id != id || a->answered)
                continue;
            a->found = m->data[8] != 0 && boot_buf_add(&a->value, m->data + 9, m->bytes - 9);
            a->answered = 1;
        }
        return; /* no match: its caller timed out */
    }
    int place = boot_place(boot, origin);
    for (int i = 0; i < boot->edges_n; i++) {
        boot_edge_t *edge = &boot->edges[i];
        if (edge->place > boot->place && place >= edge->place &&
            place < boot_tree_end(edge->place, boot->members_n) &&
            boot_edge_send(boot, edge, BOOT_VALUE, m->data, m->bytes) != GYRE_OK)
            log_error("bootstrap: an answer for rank %d could not be passed on", origin);
    }
}

/* Copies a found value out. */
static gyre_status_t give(const char *key, const unsigned char *data, size_t length, void *value,
                          size_t *bytes)
{
    if (length > *bytes)
        return gyre_fail(GYRE_ERR_INVALID, "the value of bootstrap key \"%s\" has %zu bytes, room for %zu",
                         key, length, *bytes);
    if (length > 0)
        memcpy(value, data, length);
    *bytes = length;
    return GYRE_OK;
}

boot_asked_t *boot_asked_new(comm_boot_t *boot)
{
    for (int i = 0; i < BOOT_GETS_MAX; i++) {
        boot_asked_t *a = &boot->asked[i];
        if (a->id != 0)
            continue;
        if (++boot->asked_last == 0)
            boot->asked_last = 1; /* 0 marks a free place */
        a->id = boot->asked_last;
        return a;
    }
    return NULL;
}

/* Sends the question up and waits for the answer; under the lock. */
static gyre_status_t ask(comm_boot_t *boot, boot_asked_t *a, const char *key, base_time_t deadline)
{
    unsigned char frame[8 + KEY_MAX];
    size_t key_bytes = strlen(key);
    boot_put32(frame, a->id);
    boot_put32(frame + 4, (uint32_t)boot->rank);
    memcpy(frame + 8, key, key_bytes);
    gyre_status_t st = boot_edge_send(boot, &boot->edges[0], BOOT_GET, frame, 8 + key_bytes);
    while (st == GYRE_OK && !a->answered) {
        if (!boot->edges[0].open)
            return gyre_fail(GYRE_ERR_PEER_DEAD, "cannot ask for bootstrap key \"%s\": rank %d has %s", key,
                             boot->edges[0].rank, boot->edges[0].left ? "left the job" : "died");
        st = boot_wait(boot, deadline);
    }
    if (st == GYRE_ERR_TIMEOUT)
        return gyre_fail(GYRE_ERR_TIMEOUT, "bootstrap key \"%s\": rank %d did not answer in time", key,
                         boot->edges[0].rank);
    return st;
}

gyre_status_t comm_boot_get(comm_boot_t *boot, const char *key, void *value, size_t *bytes,
                            base_time_t deadline)
{
    if (key == NULL || *key == '\0' || strlen(key) > KEY_MAX || bytes == NULL)
        return gyre_fail(GYRE_ERR_INVALID, "a bootstrap key must have 1 to %d bytes", KEY_MAX);
    pthread_mutex_lock(&boot->lock);
    gyre_status_t st = GYRE_OK;
    const boot_pair_t *pair = *find(boot, key);
    boot_asked_t *a = NULL;
    if (pair != NULL) {
        st = give(key, pair->value, pair->bytes, value, bytes);
    } else if (boot->place > 0) {
        a = boot_asked_new(boot);
        if (a == NULL) {
            st = gyre_fail(GYRE_ERR_NO_MEMORY, "more than %d bootstrap gets at once", BOOT_GETS_MAX);
        } else {
            st = ask(boot, a, key, deadline);
            if (st == GYRE_OK && a->found)
                st = give(key, a->value.data + a->value.from, boot_buf_len(&a->value), value, bytes);
            else if (st == GYRE_OK)
                st = gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "no rank has put the bootstrap key \"%s\"", key);
            boot_buf_free(&a->value);
            memset(a, 0, sizeof(*a));
        }
    } else {
        st = gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "no rank has put the bootstrap key \"%s\"", key);
    }
    pthread_mutex_unlock(&boot->lock);
    return st;
}
