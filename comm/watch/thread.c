/* SPDX-License-Identifier: Apache-2.0 */
/* comm/watch/thread.c: the watcher's thread and its state. See watch.h.
 *
 * Locks: boot->lock guards edges, deaths and aborts. wake_lock guards the callbacks and is held while they
 * run, never together with boot->lock, so a callback may call comm_watch_dead. start_lock guards the thread's
 * start. */
#include "comm/watch/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot/reconnect.h"
#include "comm/watch/fd_pass.h"

/* What one turn of the loop polls; grows with the contacts. */
typedef struct {
    struct pollfd *polls;
    boot_contact_t **contacts;
    int cap;         /* contacts and listening sockets that there is room for */
    int short_of_it; /* some have to wait until there is memory */
} turn_t;

struct comm_watch {
    comm_boot_t *boot;
    int bell; /* eventfd that makes poll return; -1 while there is no thread */
    _Atomic int stop;
    pthread_t thread;
    int running;
    pthread_mutex_t start_lock;
    pthread_mutex_t wake_lock;
    comm_watch_sleeper_t *sleepers;
    uint32_t told; /* the trouble counter at the last round of callbacks; under wake_lock */
    watch_fds_t fds;
    turn_t turn; /* the thread's */
};

static void ring(void *user)
{
    comm_watch_t *watch = user;
    uint64_t one = 1;
    while (write(watch->bell, &one, sizeof(one)) < 0 && errno == EINTR)
        ; /* EAGAIN: it rings already */
}

static void wake_sleepers(comm_watch_t *watch)
{
    pthread_mutex_lock(&watch->wake_lock);
    uint32_t trouble = atomic_load_explicit(&watch->boot->trouble, memory_order_acquire);
    if (trouble != watch->told) {
        watch->told = trouble;
        for (comm_watch_sleeper_t *s = watch->sleepers; s != NULL; s = s->next)
            s->wake(s->user);
    }
    pthread_mutex_unlock(&watch->wake_lock);
}

enum { POLLS_FIXED = 1 + WATCH_FD_POLLS + BOOT_EDGES_MAX, CAP_FIRST = 16 };
#define AGAIN_NS ((base_time_t)100000000) /* between two attempts to get what the system has run out of */

/* 0: no memory for more than there was. */
static int make_room(turn_t *turn, int contacts)
{
    if (turn->polls != NULL && contacts <= turn->cap)
        return 1;
    int cap = contacts + CAP_FIRST;
    struct pollfd *polls = realloc(turn->polls, (size_t)(POLLS_FIXED + cap) * sizeof(*polls));
    if (polls != NULL)
        turn->polls = polls;
    boot_contact_t **list = realloc(turn->contacts, (size_t)cap * sizeof(boot_contact_t *));
    if (list != NULL)
        turn->contacts = list;
    if (polls == NULL || list == NULL)
        return 0;
    turn->cap = cap;
    return 1;
}

/* Without more memory the tree goes on, with as many contacts as there is room for. */
static void make_room_or_wait(turn_t *turn, int contacts)
{
    int before = turn->short_of_it;
    turn->short_of_it = !make_room(turn, contacts);
    if (turn->short_of_it && !before)
        log_warning("watcher: no memory to look at more than %d connections outside the tree", turn->cap);
}

/* The watcher cannot continue. This rank cannot either. Nor can the job, which would not learn of this rank's
 * end. */
static void give_up(comm_boot_t *boot, int err)
{
    char why[BOOT_TEXT];
    snprintf(why, sizeof(why), "rank %d: its watcher had to end: poll: %s", boot->rank, strerror(err));
    boot_lock(boot);
    boot_note_abort(boot, BOOT_ABORT_JOB, GYRE_ERR_SYSTEM, why, NULL);
    boot_unlock(boot);
    log_error("%s", why);
}

static base_time_t sooner(base_time_t a, base_time_t b)
{
    return a < b ? a : b;
}

static void *watch_main(void *user)
{
    comm_watch_t *watch = user;
    comm_boot_t *boot = watch->boot;
    turn_t *turn = &watch->turn;
    boot_edge_t *edges[BOOT_EDGES_MAX];
    base_log_hurry(1);              /* the others depend on this thread */
    base_time_t again = base_now(); /* when there is something to do whether or not something comes */
    while (!atomic_load_explicit(&watch->stop, memory_order_acquire)) {
        base_time_t until = BASE_TIME_NEVER;
        boot_lock(boot);
        make_room_or_wait(turn, boot_listener_count(boot));
        boot_unlock(boot); /* the windows' lock has no order with this one */
        struct pollfd *polls = turn->polls;
        polls[0] = (struct pollfd){.fd = watch->bell, .events = POLLIN, .revents = 0};
        int fds_n = watch_fds_polls(&watch->fds, polls + 1, &until);
        boot_lock(boot);
        int edges_n = boot_polls(boot, polls + 1 + fds_n, edges);
        /* a rank that connects meanwhile and finds no room rings */
        int listener_n = boot_listener_polls(boot, polls + 1 + fds_n + edges_n, turn->contacts, turn->cap);
        uint32_t wiring = boot->wiring;
        boot_unlock(boot);
        if (turn->short_of_it)
            until = sooner(until, base_now() + AGAIN_NS);
        int n = poll(polls, (nfds_t)(1 + fds_n + edges_n + listener_n), base_poll_ms(sooner(again, until)));
        if (n < 0) {
            int err = errno;
            if (err == EINTR)
                continue;
            /* It may pass, and the neighbours are patient for as long as GYRE_HEARTBEAT. */
            if (err == ENOMEM || err == EAGAIN) {
                log_warning("watcher: poll: %s", strerror(err));
                nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
                continue;
            }
            give_up(boot, err);
            wake_sleepers(watch);
            break;
        }
        uint64_t rings;
        if (polls[0].revents != 0 && read(watch->bell, &rings, sizeof(rings)) < 0 && errno != EAGAIN)
            log_warning("watcher: eventfd: %s", strerror(errno));
        boot_lock(boot);
        for (int i = 0; i < edges_n && boot->wiring == wiring; i++)
            boot_handle(boot, edges[i], polls[1 + fds_n + i].revents);
        for (int i = 0; i < listener_n; i++)
            boot_listener_handle(boot, turn->contacts[i], &polls[1 + fds_n + edges_n + i]);
        again = sooner(boot_beat(boot), boot_listener_tick(boot, base_now()));
        boot_unlock(boot);
        wake_sleepers(watch);
        watch_fds_handle(&watch->fds, polls + 1, fds_n);
    }
    return NULL;
}

enum { STACK = 256 * 1024 };

/* The thread blocks the application's signals. Its stack is short, unless the program's variables of threads,
 * which lie there, too, leave no room in it. */
static int start_thread(comm_watch_t *watch)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err == 0) {
        pthread_attr_setstacksize(&attr, STACK);
        err = pthread_create(&watch->thread, &attr, watch_main, watch);
        if (err == EINVAL)
            err = pthread_create(&watch->thread, NULL, watch_main, watch);
        pthread_attr_destroy(&attr);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

/* Starts the thread if it does not run yet: a job of one rank needs it only once it offers a window. */
gyre_status_t comm_watch_ensure(comm_watch_t *watch)
{
    gyre_status_t st = GYRE_OK;
    pthread_mutex_lock(&watch->start_lock);
    if (!watch->running) {
        watch->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (watch->bell < 0)
            st = gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "cannot make the watcher's eventfd");
        if (st == GYRE_OK && !make_room(&watch->turn, 1))
            st = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the watcher");
        if (st == GYRE_OK)
            st = watch_fds_listen(&watch->fds);
        if (st == GYRE_OK) {
            boot_lock(watch->boot);
            watch->boot->poke = ring;
            watch->boot->poke_user = watch;
            watch->boot->watched = 1;
            boot_beat_begin(watch->boot);
            boot_unlock(watch->boot);
            int err = start_thread(watch);
            if (err != 0)
                st = gyre_fail_errno(GYRE_ERR_SYSTEM, err, "cannot start the watcher's thread");
        }
        watch->running = st == GYRE_OK;
        if (st != GYRE_OK) {
            boot_lock(watch->boot);
            watch->boot->watched = 0;
            boot_unlock(watch->boot);
            if (watch->fds.fd >= 0)
                close(watch->fds.fd);
            watch->fds.fd = -1;
            if (watch->bell >= 0)
                close(watch->bell);
            watch->bell = -1;
        }
    }
    pthread_mutex_unlock(&watch->start_lock);
    return st;
}

static void watch_free(comm_watch_t *watch)
{
    watch_fds_free(&watch->fds);
    free(watch->turn.polls);
    free(watch->turn.contacts);
    pthread_mutex_destroy(&watch->start_lock);
    pthread_mutex_destroy(&watch->wake_lock);
    free(watch);
}

gyre_status_t comm_watch_start(comm_boot_t *boot, comm_watch_t **out)
{
    comm_watch_t *watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the watcher");
    watch->boot = boot;
    watch->bell = -1;
    pthread_mutex_init(&watch->start_lock, NULL);
    pthread_mutex_init(&watch->wake_lock, NULL);
    gyre_status_t st = watch_fds_init(&watch->fds, boot);
    if (st != GYRE_OK) {
        free(watch);
        return st;
    }
    if (boot->size > 1)
        st = comm_watch_ensure(watch);
    if (st != GYRE_OK) {
        watch_free(watch);
        return st;
    }
    *out = watch;
    return GYRE_OK;
}

void comm_watch_stop(comm_watch_t *watch)
{
    if (watch == NULL)
        return;
    if (watch->running) {
        atomic_store_explicit(&watch->stop, 1, memory_order_release);
        ring(watch);
        pthread_join(watch->thread, NULL);
        boot_lock(watch->boot);
        watch->boot->watched = 0;
        watch->boot->poke = NULL;
        boot_unlock(watch->boot);
        close(watch->bell);
    }
    watch_free(watch);
}

const _Atomic uint32_t *comm_watch_trouble(const comm_watch_t *watch)
{
    return &watch->boot->trouble;
}

void comm_watch_on_trouble(comm_watch_t *watch, comm_watch_sleeper_t *sleeper)
{
    pthread_mutex_lock(&watch->wake_lock);
    sleeper->next = watch->sleepers;
    sleeper->at = &watch->sleepers;
    if (sleeper->next != NULL)
        sleeper->next->at = &sleeper->next;
    watch->sleepers = sleeper;
    pthread_mutex_unlock(&watch->wake_lock);
}

void comm_watch_off_trouble(comm_watch_t *watch, comm_watch_sleeper_t *sleeper)
{
    pthread_mutex_lock(&watch->wake_lock);
    *sleeper->at = sleeper->next;
    if (sleeper->next != NULL)
        sleeper->next->at = sleeper->at;
    pthread_mutex_unlock(&watch->wake_lock);
}

int comm_watch_dead(const comm_watch_t *watch, const int *ranks, int n, char *how, size_t bytes)
{
    boot_lock(watch->boot);
    const boot_death_t *death = boot_first_death(watch->boot, ranks, n);
    int rank = death != NULL ? death->rank : -1;
    if (death != NULL && how != NULL)
        boot_death_text(death, how, bytes);
    boot_unlock(watch->boot);
    return rank;
}

int comm_watch_lost_member(const comm_watch_t *watch)
{
    comm_boot_t *boot = watch->boot;
    boot_lock(boot);
    int lost =
        boot_first_death(boot, boot->members, boot->members_n) != NULL || boot->view_epoch > boot->epoch;
    boot_unlock(boot);
    return lost;
}

/* 1: the text says that it is about `rank`: "rank 3: ..." or "all_reduce #1 on rank 3: ...". */
static int names_rank(const char *text, int rank)
{
    char name[32];
    int length = snprintf(name, sizeof(name), " on rank %d", rank);
    const char *at = strstr(text, name);
    if (at != NULL && (at[length] == ' ' || at[length] == ':'))
        return 1;
    return strncmp(text, name + 4, (size_t)length - 4) == 0 &&
           (text[length - 4] == ' ' || text[length - 4] == ':');
}

int comm_watch_interrupted(void)
{
    return boot_locking();
}

void comm_watch_abort(comm_watch_t *watch, uint64_t id, gyre_status_t status, const char *text)
{
    char why[BOOT_TEXT];
    if (text != NULL && names_rank(text, watch->boot->rank))
        snprintf(why, sizeof(why), "%s", text);
    else
        snprintf(why, sizeof(why), "rank %d: %s", watch->boot->rank, text != NULL ? text : "no reason given");
    boot_lock(watch->boot);
    boot_note_abort(watch->boot, id, status, why, NULL);
    boot_unlock(watch->boot);
    pthread_mutex_lock(&watch->start_lock);
    int running = watch->running;
    pthread_mutex_unlock(&watch->start_lock);
    if (running)
        ring(watch);
    else
        wake_sleepers(watch);
}

gyre_status_t comm_watch_aborted(const comm_watch_t *watch, uint64_t id, char *text, size_t bytes)
{
    gyre_status_t st = GYRE_OK;
    boot_lock(watch->boot);
    const boot_abort_t *abort = boot_abort_of(watch->boot, id);
    if (abort != NULL) {
        st = abort->status;
        if (text != NULL)
            snprintf(text, bytes, "%s", abort->text);
    }
    boot_unlock(watch->boot);
    return st;
}

void comm_watch_forget(comm_watch_t *watch, uint64_t id)
{
    comm_boot_t *boot = watch->boot;
    boot_lock(boot);
    boot_circles_forget(boot, id, NULL);
    for (int i = 0; i < boot->aborts_n; i++)
        if (boot->aborts[i].id == id) {
            memmove(boot->aborts + i, boot->aborts + i + 1,
                    (size_t)(boot->aborts_n - i - 1) * sizeof(*boot->aborts));
            boot->aborts_n--;
            break;
        }
    boot_unlock(boot);
}

gyre_status_t comm_watch_offer(comm_watch_t *watch, uint64_t key, int fd)
{
    gyre_status_t st = comm_watch_ensure(watch);
    return st == GYRE_OK ? watch_fds_offer(&watch->fds, key, fd) : st;
}

void comm_watch_withdraw(comm_watch_t *watch, uint64_t key)
{
    watch_fds_withdraw(&watch->fds, key);
}

void comm_watch_address(const comm_watch_t *watch, unsigned char address[32])
{
    memcpy(address, watch->fds.address, 32);
}

gyre_status_t comm_watch_fetch(comm_watch_t *watch, const unsigned char address[32], uint64_t key, int *fd,
                               base_time_t deadline)
{
    comm_watch_fetch_t fetch = {0};
    gyre_status_t st;
    while ((st = watch_fds_fetch(&watch->fds, address, key, &fetch, fd, deadline)) == GYRE_IN_PROGRESS &&
           base_poll_ms(deadline) != 0)
        if (fetch.lost > 0)
            poll(NULL, 0, 1); /* before it is asked again */
    comm_watch_fetch_drop(&fetch);
    if (st == GYRE_IN_PROGRESS)
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "a local peer did not hand over its window in time");
    if (st == GYRE_ERR_TRANSPORT)
        log_error("%s", gyre_last_error());
    return st;
}

gyre_status_t comm_watch_fetch_some(comm_watch_t *watch, const unsigned char address[32], uint64_t key,
                                    comm_watch_fetch_t *fetch, int *fd, base_time_t until)
{
    return watch_fds_fetch(&watch->fds, address, key, fetch, fd, until);
}
