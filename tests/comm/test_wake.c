/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_wake.c: going to sleep and being woken, comm/wait.c and comm/memory/bell.c themselves, in
 * every interleaving of their loads, stores and fences: no wake-up is lost. Then with a mistake at a time,
 * which must be found: else the exploration would prove nothing. */
/* takes: 2 */
/* one thread: TSan has nothing to see */
/* ASan in check-long: the same interleavings, in three times the time */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#include "base/thread/fence.h"
#include "base/thread/futex.h"
#include "comm/transport.h"
#include "tests/support/explore.h"

enum { MESSAGES = 2, NETWORK_FD = 1000, BELL_FD = 1001 };

/* A mistake in the owner, in a ringer or in a transport. */
typedef enum {
    RIGHT,
    OWNER_FENCES_NOT,       /* after its announcement */
    OWNER_LOOKS_NOT,        /* once more after its announcement */
    OWNER_READS_WORD_LATE,  /* after its announcement */
    OWNER_ANNOUNCES_ONCE,   /* and not again after a ringer has taken that back */
    OWNER_DRAINS_LATE,      /* the socket, after its announcement */
    OWNER_SLEEPS_UNDRIVEN,  /* without a look of its own, since another thread was driving */
    OWNER_KEEPS_WHOM,       /* it awaits, in an announcement that stands */
    OWNER_CHANGES_WHOM,     /* there without a fence */
    RINGER_ORDERS_NOT,      /* the message before its look at `sleeping`; without membarrier */
    RINGER_CHANGES_NOTHING, /* the word */
    RINGER_CHANGES_EARLY,   /* the word, before it takes the announcement back */
    RINGER_KNOWS_NO_SOCKET, /* and wakes by the futex only */
    NETWORK_ARMS_ONCE       /* and not again after an event */
} mistake_t;

static mistake_t mistake;

/* Everything that the threads share. */
static struct {
    struct {
        uint32_t words[16];
    } bell;                      /* comm_bell_t */
    uint32_t message[MESSAGES];  /* 1: it has come */
    uint32_t finished[MESSAGES]; /* 1: a thread that drives has taken it */
    uint32_t socket;             /* bytes in it */
    /* Of the network: in the queue of completions, in the channel of its events; 1: an event is asked for;
     * completions taken so far. */
    uint32_t completions, events, notify, taken;
    uint32_t driving; /* 1: a thread does */
} shared __attribute__((aligned(64)));

static base_time_t clock_now;

static int is_shared(const volatile void *at)
{
    const volatile unsigned char *byte = at, *first = (const volatile unsigned char *)&shared;
    return byte >= first && byte < first + sizeof shared;
}

/* What never changes while threads run takes no step. */
static uint32_t model_load(const volatile void *at)
{
    if (!is_shared(at) || at == &shared.bell.words[2]) /* heavy */
        return *(const volatile uint32_t *)at;
    return explore_load(at);
}

static int model_poll(struct pollfd *polls, nfds_t n);

static void owner_fence(void)
{
    if (mistake != OWNER_FENCES_NOT)
        explore_fence();
}

static void owner_fence_all(void)
{
    if (mistake != OWNER_FENCES_NOT)
        explore_fence_all();
}

/* Only the owner makes the real fence where its bell is heavy; else thread 0 is the owner. */
static void model_fence(void)
{
    if (explore_thread() == 0)
        owner_fence();
    else if (mistake != RINGER_ORDERS_NOT)
        explore_fence();
}

static int put_byte(void)
{
    explore_add(&shared.socket, 1);
    return 1;
}

/* All there are: -1 if there is none. */
static int take_bytes(void)
{
    return explore_exchange(&shared.socket, 0) > 0 ? 1 : -1;
}

static void wake(volatile void *at, int count)
{
    if (count != INT32_MAX) /* explore_wake wakes all */
        abort();
    explore_wake(at);
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#define atomic_load_explicit(at, order)             model_load(at)
#define atomic_store_explicit(at, value, order)     explore_store(at, (uint32_t)(value))
#define atomic_exchange_explicit(at, value, order)  explore_exchange(at, (uint32_t)(value))
#define atomic_fetch_add_explicit(at, value, order) explore_add(at, value)
#define base_fence()                                model_fence()
#define base_fence_light()                          ((void)0)
#define base_fence_processes()                      owner_fence_all()
#define base_futex_wait(at, word, until)            ((void)(until), explore_sleep(at, word))
#define base_futex_wake(at, count)                  wake(at, count)
#define base_now()                                  (clock_now += 1000)
#define poll(polls, n, ms)                          ((void)(ms), model_poll(polls, n))
#define sendto(fd, byte, n, flags, name, length)    ((void)(fd), (void)(length), put_byte())
#define recv(fd, byte, n, flags)                    ((void)(fd), (void)(byte), take_bytes())

/* ringers are processes of their own */
#define pthread_mutex_lock(of)   ((void)(of))
#define pthread_mutex_unlock(of) ((void)(of))

#include "comm/link.h"

#include "comm/memory/bell.c"

_Static_assert(sizeof(comm_bell_t) == sizeof shared.bell && offsetof(comm_bell_t, heavy) == 8, "model_load");

static comm_bell_t *const bell = (comm_bell_t *)(void *)&shared.bell;

/* ---- mistakes ------------------------------------------------------------------------------------------ */

static int announced_once, armed_once;

static int announce_wrongly(uint32_t how, uint32_t *word)
{
    const uint32_t stands = atomic_load_explicit(&bell->sleeping, memory_order_relaxed);

    if ((mistake == OWNER_KEEPS_WHOM || mistake == OWNER_CHANGES_WHOM) && stands != COMM_BELL_AWAKE) {
        *word = atomic_load_explicit(&bell->bell, memory_order_acquire);
        if (mistake == OWNER_CHANGES_WHOM)
            atomic_store_explicit(&bell->sleeping, how, memory_order_release);
        return 0;
    }
    if (mistake == OWNER_KEEPS_WHOM || mistake == OWNER_CHANGES_WHOM)
        return comm_bell_announce(bell, how, word);
    if (mistake == OWNER_READS_WORD_LATE) {
        if (atomic_load_explicit(&bell->sleeping, memory_order_relaxed) != how) {
            atomic_store_explicit(&bell->sleeping, how, memory_order_release);
            fence(bell);
        }
        *word = atomic_load_explicit(&bell->bell, memory_order_acquire);
        return 1;
    }
    *word = atomic_load_explicit(&bell->bell, memory_order_acquire);
    if (!announced_once) {
        atomic_store_explicit(&bell->sleeping, how, memory_order_release);
        fence(bell);
    }
    announced_once = 1;
    return 1;
}

static int model_announce(comm_bell_t *of, uint32_t how, uint32_t *word)
{
    if (mistake == OWNER_READS_WORD_LATE || mistake == OWNER_ANNOUNCES_ONCE || mistake == OWNER_KEEPS_WHOM ||
        mistake == OWNER_CHANGES_WHOM)
        return announce_wrongly(how, word);
    int fences = comm_bell_announce(of, how, word);
    if (mistake == OWNER_DRAINS_LATE && how == COMM_BELL_SOCKET)
        comm_bell_drain(BELL_FD);
    return fences;
}

static void ring_wrongly(void)
{
    if (mistake == RINGER_CHANGES_EARLY)
        explore_add(&bell->bell, 1);
    uint32_t how = explore_exchange(&bell->sleeping, COMM_BELL_AWAKE);
    if (how == COMM_BELL_AWAKE)
        return;
    if (mistake == RINGER_KNOWS_NO_SOCKET)
        explore_add(&bell->bell, 1);
    explore_wake(&bell->bell);
}

static void ring(void)
{
    if (mistake < RINGER_CHANGES_NOTHING || mistake > RINGER_KNOWS_NO_SOCKET) {
        comm_bell_ring(bell);
        return;
    }
    comm_bell_order(bell);
    if (atomic_load_explicit(&bell->sleeping, memory_order_relaxed))
        ring_wrongly();
}

#define comm_bell_announce(of, how, word) model_announce(of, how, word)
#include "comm/wait.c"
#undef comm_bell_announce

/* ---- a network with a completion queue, as verbs ------------------------------------------------------- */

static comm_world_t world;
static comm_group_t group;
static int messages; /* that the owner waits for */

/* By a thread that drives: a completion of the network is one of the last messages. */
static void take_completions(void)
{
    for (uint32_t n = explore_exchange(&shared.completions, 0); n > 0; n--)
        explore_store(&shared.message[messages - 1 - (int)explore_add(&shared.taken, 1)], 1);
}

/* By a thread that drives. Returns how many messages it took. */
static int take_messages(void)
{
    int taken = 0;

    if (group.network)
        take_completions();
    group.outbox.awaited = -1;
    for (int m = 0; m < messages; m++) {
        if (explore_load(&shared.finished[m]))
            continue;
        if (!explore_load(&shared.message[m])) {
            if (!group.outbox.base)
                continue;
            group.outbox.awaited = m; /* posts are looked at in order */
            break;
        }
        explore_store(&shared.finished[m], 1);
        taken++;
    }
    return taken;
}

static void no_progress(comm_group_t *of)
{
    (void)of;
}

static void arm(comm_group_t *of)
{
    (void)of;
    explore_exchange(&shared.events, 0);
    if (mistake != NETWORK_ARMS_ONCE || armed_once++ == 0)
        explore_exchange(&shared.notify, 1);
}

static int sleep_on(comm_group_t *of, struct pollfd *polls)
{
    (void)of;
    polls[0] = (struct pollfd){.fd = NETWORK_FD, .events = POLLIN};
    return 1;
}

static const comm_transport_ops_t network = {.progress = no_progress, .arm = arm, .sleep_on = sleep_on};

static int hears_bell;

static int may_wake_up(void)
{
    return (hears_bell && shared.socket > 0) || shared.events > 0;
}

static int model_poll(struct pollfd *polls, nfds_t n)
{
    int ready = 0;

    hears_bell = polls[n - 1].fd == BELL_FD;
    explore_until(may_wake_up);
    for (nfds_t i = 0; i < n; i++) {
        polls[i].revents =
            explore_load(polls[i].fd == BELL_FD ? &shared.socket : &shared.events) ? POLLIN : 0;
        ready += polls[i].revents != 0;
    }
    return ready;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static int nobody_drives(void)
{
    return shared.driving == 0;
}

static int try_to_drive(void)
{
    return explore_exchange(&shared.driving, 1) == 0;
}

static void stop_driving(void)
{
    explore_store(&shared.driving, 0);
}

static int all_are_finished(void)
{
    for (int m = 0; m < messages; m++)
        if (!explore_load(&shared.finished[m]))
            return 0;
    return 1;
}

/* The loop of comm/wait.h, where spinning is over. shares: other threads drive, too. */
static void wait_for_all(int shares)
{
    comm_wait_t wait;

    comm_wait_begin(&wait, &group, BASE_TIME_NEVER);
    while (!all_are_finished()) {
        int moved = 0;
        wait.turns = wait.turns < SPIN_TURNS ? SPIN_TURNS : wait.turns;
        if (shares && !try_to_drive()) {
            if (mistake != OWNER_SLEEPS_UNDRIVEN || !wait.armed) {
                explore_until(nobody_drives); /* comm_wait_busy, as often as it takes */
                continue;
            }
            (void)comm_wait_idle(&wait);
            (void)comm_wait_rest(&wait);
            continue;
        }
        if (mistake != OWNER_LOOKS_NOT || !wait.armed)
            moved = take_messages();
        const int done = shares && all_are_finished(); /* by another thread, perhaps */
        if (!moved && !done)
            (void)comm_wait_idle(&wait);
        if (shares)
            stop_driving();
        if (moved || done)
            comm_wait_moved(&wait);
        else
            (void)comm_wait_rest(&wait);
    }
    comm_wait_end(&wait);
}

static void owner(void)
{
    wait_for_all(0);
}

static void owner_among_others(void)
{
    wait_for_all(1);
}

/* Another thread of the owner's process looks once. */
static void driver(void)
{
    while (!try_to_drive())
        explore_until(nobody_drives);
    take_messages();
    stop_driving();
}

/* It has looked at its message before, and takes completions for another one. */
static void driver_of_others(void)
{
    while (!try_to_drive())
        explore_until(nobody_drives);
    take_completions();
    stop_driving();
}

static void sends(int m)
{
    explore_store(&shared.message[m], 1);
    ring();
}

/* A post of rank m in its outbox. */
static void posts(int m)
{
    explore_store(&shared.message[m], 1);
    comm_bell_order(bell);
    comm_bell_ring_for(bell, m);
}

static void posts_first(void)
{
    posts(0);
}

static void posts_second(void)
{
    posts(1);
}

/* The owner may announce that it waits for a post that another thread then takes. */
static void posts_around_driver(void)
{
    posts(0);
    driver();
    posts(1);
}

static void sends_first(void)
{
    sends(0);
}

static void sends_second(void)
{
    sends(1);
}

static void sends_both(void)
{
    sends(0);
    sends(1);
}

/* An adapter: a completion, and its event if one was asked for. */
static void arrives(void)
{
    explore_add(&shared.completions, 1);
    if (explore_exchange(&shared.notify, 0))
        explore_add(&shared.events, 1);
}

static void arrive_both(void)
{
    arrives();
    arrives();
}

/* As the watcher's thread reports a failure: whether anybody sleeps or not. */
static void reports(void)
{
    explore_exchange(&shared.message[0], 1);
    comm_bell_wake(bell);
}

/* ---- what is explored ---------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    int messages, heavy, with_network, threads, posted; /* posted: in outboxes of many ranks */
    void (*body[EXPLORE_THREADS])(void);
} scene_t;

static const scene_t *scene;

static void begin_scene(void)
{
    memset(&shared, 0, sizeof shared);
    comm_bell_registered = scene->heavy;
    *(uint32_t *)&shared.bell.words[2] = (uint32_t)scene->heavy;
    bell->has_socket = (uint32_t)scene->with_network;
    messages = scene->messages;
    clock_now = 1000;
    announced_once = armed_once = 0;
    group = (comm_group_t){.world = &world, .n = 2, .oversubscribed = 1, .bell = bell, .bell_fd = -1};
    group.yields.sleeps = INT32_MAX;
    if (scene->posted) {
        group.outbox.base = (unsigned char *)&shared;
        group.seg.locals = COMM_FENCE_RANKS + 1;
    }
    if (scene->with_network) {
        group.network = &network;
        group.network_state = &shared;
        group.bell_fd = BELL_FD;
    }
}

static explore_result_t play(const scene_t *of, mistake_t with)
{
    explore_t what = {
        .threads = of->threads, .reset = begin_scene, .memory = &shared, .bytes = sizeof shared};

    scene = of;
    mistake = with;
    memcpy(what.body, of->body, sizeof what.body);
    return explore(&what);
}

static const scene_t scenes[] = {
    {"two messages", 2, 1, 0, 2, 0, {owner, sends_both}},
    {"two messages, no membarrier", 2, 0, 0, 2, 0, {owner, sends_both}},
    {"two ringers", 2, 1, 0, 3, 0, {owner, sends_first, sends_second}},
    {"two ringers, no membarrier", 2, 0, 0, 3, 0, {owner, sends_first, sends_second}},
    {"a failure", 1, 1, 0, 2, 0, {owner, reports}},
    {"asleep in poll, two messages", 2, 1, 1, 2, 0, {owner, sends_both}},
    {"asleep in poll, a ringer and a network", 2, 1, 1, 3, 0, {owner, sends_first, arrives}},
    {"asleep in poll, a failure", 1, 1, 1, 2, 0, {owner, reports}},
    {"two threads drive", 1, 1, 0, 3, 0, {owner_among_others, sends_first, driver}},
    {"asleep in poll, a network", 2, 1, 1, 2, 0, {owner, arrive_both}},
    {"two threads drive, a network", 1, 1, 1, 3, 0, {owner_among_others, arrives, driver_of_others}},
    {"two posts", 2, 0, 0, 3, 1, {owner, posts_first, posts_second}},
    {"two posts, another thread takes the first", 2, 0, 0, 2, 1, {owner_among_others, posts_around_driver}},
};
enum { SCENES = sizeof scenes / sizeof scenes[0] };

static void test_no_wake_up_is_lost(void **state)
{
    (void)state;
    for (int i = 0; i < SCENES; i++) {
        explore_result_t got = play(&scenes[i], RIGHT);
        printf("%s: %zu states\n", scenes[i].name, got.states);
        if (got.stuck)
            fail_msg("%s: a thread sleeps forever after\n%s", scenes[i].name, got.text);
        assert_true(got.states > 20);
    }
}

/* Each mistake by its scene; others may find it, too. */
static void test_mistakes_are_found(void **state)
{
    static const struct {
        mistake_t mistake;
        const char *scene;
    } finds[] = {
        {OWNER_FENCES_NOT, "two messages"},
        {OWNER_FENCES_NOT, "two messages, no membarrier"},
        {OWNER_FENCES_NOT, "asleep in poll, two messages"},
        {OWNER_LOOKS_NOT, "two messages"},
        {OWNER_READS_WORD_LATE, "two messages"},
        {OWNER_ANNOUNCES_ONCE, "two messages"},
        {OWNER_ANNOUNCES_ONCE, "asleep in poll, two messages"},
        {OWNER_DRAINS_LATE, "asleep in poll, two messages"},
        {OWNER_SLEEPS_UNDRIVEN, "two threads drive"},
        {OWNER_SLEEPS_UNDRIVEN, "two threads drive, a network"},
        {OWNER_KEEPS_WHOM, "two posts"},
        {OWNER_CHANGES_WHOM, "two posts"},
        {OWNER_FENCES_NOT, "two posts"},
        {RINGER_ORDERS_NOT, "two messages, no membarrier"},
        {RINGER_CHANGES_NOTHING, "two messages"},
        {RINGER_CHANGES_EARLY, "two messages"},
        {RINGER_KNOWS_NO_SOCKET, "asleep in poll, two messages"},
        {NETWORK_ARMS_ONCE, "asleep in poll, a network"},
    };

    (void)state;
    for (size_t f = 0; f < sizeof finds / sizeof finds[0]; f++)
        for (int i = 0; i < SCENES; i++)
            if (strcmp(scenes[i].name, finds[f].scene) == 0 && !play(&scenes[i], finds[f].mistake).stuck)
                fail_msg("mistake %d is not found by \"%s\"", (int)finds[f].mistake, finds[f].scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_wake_up_is_lost),
        cmocka_unit_test(test_mistakes_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
