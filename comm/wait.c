/* SPDX-License-Identifier: Apache-2.0 */
/* comm/wait.c: spin, then yield, then sleep (see wait.h).
 *
 *              peers are on time              more ranks than cores, or peers often late
 *     first    spin for GYRE_SPIN (10 ms)     spin for 6 turns (or GYRE_SPIN)
 *     then     -                              200 times sched_yield, unless sleeps are the
 *                                              cheaper ones (yields.h)
 *     then     sleep on the doorbell (futex), or on the network's event descriptors, a bounded time; again
 *
 * While peers are on time nothing here makes a system call. "Often late" is for machines whose cores are busy
 * with other work. The scheduler may have put two ranks on one core: each message then costs a time slice
 * while both spin. A rank that sleeps is run as soon as it is woken. A peer that computes for long is not
 * late in this sense: the spinning thread keeps its core then, and the kernel counts no involuntary
 * switch. */
#include "comm/wait.h"

#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/error.h"
#include "base/thread/futex.h"
#include "comm/link.h"

enum {
    CLOCK_TURNS = 64,  /* the clock is read every so many turns */
    SPIN_TURNS = 6,    /* where cores are scarce: turns before the first yield */
    YIELD_TURNS = 200, /* and yields before sleeping: each lets every other runnable rank of the core run */
    SLEEP_MS = 50,     /* longest sleep; wake-ups are not lost, this only bounds the harm if one were */
    /* A network's descriptor does not hear perhaps a plain write by RDMA whose sender has not seen yet that
     * we sleep; */
    NETWORK_SLEEP_MS = 5,
    /* nor, if the bell has no socket, the ranks of this host. */
    DEAF_SLEEP_MS = 1
};
enum {
    LATE_STEP = 16,  /* a wait of more than LATE_NS in which this thread lost its core */
    LATE_MANY = 100, /* seven of them within a hundred waits or so: peers are often late */
    LATE_MOST = 160,
    PROBE_WAITS =
        64 /* of those, one in so many spins patiently again, to see whether that has become better */
};
#define LATE_NS (1 * MS)
#define MS      ((base_time_t)1000000)
#define SPIN_NS (10 * MS)
enum { BUSY_SPINS = 64, BUSY_YIELDS = 64, BUSY_NAP_NS = 50 * 1000 }; /* while another thread drives */

void comm_wait_begin(comm_wait_t *wait, comm_group_t *group, base_time_t deadline)
{
    memset(wait, 0, sizeof *wait);
    wait->group = group;
    wait->deadline = deadline;
    wait->trouble = group->trouble_seen;
}

/* The announcement of a sleep stands until somebody rings: another thread may be asleep on the same bell. */
static void disarm(comm_wait_t *wait)
{
    wait->armed = 0;
}

/* 1 if this thread was made to give its core to others since the last look. */
static int lost_its_core(comm_group_t *group)
{
    struct rusage use;

    if (getrusage(RUSAGE_THREAD, &use) != 0)
        return 0;
    int lost = use.ru_nivcsw > group->switches;
    group->switches = use.ru_nivcsw;
    return lost;
}

/* Learns from a wait that took `waited`. Waits that were short only thanks to yielding teach nothing. */
static void learn(comm_group_t *group, base_time_t waited, uint32_t yields)
{
    if (waited > LATE_NS)
        group->lateness += lost_its_core(group) ? LATE_STEP : 0;
    else if (yields == 0)
        group->lateness -= group->waits % PROBE_WAITS == 0 ? LATE_STEP : 1;
    if (group->lateness < 0)
        group->lateness = 0;
    if (group->lateness > LATE_MOST)
        group->lateness = LATE_MOST;
    group->waits++;
}

void comm_wait_was_short(comm_group_t *group)
{
    learn(group, 0, 0);
}

void comm_wait_moved(comm_wait_t *wait)
{
    base_time_t waited = wait->since != 0 ? base_now() - wait->since : 0;

    disarm(wait);
    if (wait->turns > 0)
        learn(wait->group, waited, wait->yields);
    wait->waited += waited;
    wait->since = 0;
    wait->turns = 0;
    wait->yields = 0;
    wait->busy = 0;
}

void comm_wait_end(comm_wait_t *wait)
{
    comm_wait_moved(wait);
}

/* Looks closer when the watcher's counter moved: deaths and aborts that concern this group. */
static gyre_status_t look_for_trouble(comm_wait_t *wait)
{
    comm_group_t *group = wait->group;
    comm_watch_t *watch = group->world->watch;
    char text[1024] = "";
    gyre_status_t status;
    uint32_t now;

    if (!watch)
        return GYRE_OK;
    now = atomic_load_explicit(comm_watch_trouble(watch), memory_order_relaxed);
    if (now == wait->trouble)
        return GYRE_OK;
    status = comm_group_trouble(group, text, sizeof text);
    if (status != GYRE_OK) {
        group->failed = 1;
        return gyre_fail_quiet(status, "%s", text);
    }
    group->trouble_seen = wait->trouble = now; /* it concerned others */
    return GYRE_OK;
}

static base_time_t spin_ns(const comm_group_t *group, int scarce)
{
    if (group->spin_ns > 0)
        return group->spin_ns;
    return scarce ? 0 : SPIN_NS;
}

/* Are cores scarce, by count or by what was learnt? */
static int cores_are_scarce(const comm_group_t *group)
{
    return comm_group_oversubscribed(group) ||
           (group->lateness >= LATE_MANY && group->waits % PROBE_WAITS != 0);
}

int comm_wait_scarce(const comm_group_t *group)
{
    return cores_are_scarce(group);
}

int comm_wait_patient(const comm_group_t *group)
{
    return group->spin_ns == 0 && !cores_are_scarce(group);
}

static void yield(comm_group_t *group, size_t bytes)
{
    base_time_t before = base_now();

    sched_yield();
    comm_yields_took(&group->yields, before, base_now(), bytes);
}

int comm_wait_yield(comm_group_t *group, int first)
{
    if (!comm_yields_pay(&group->yields))
        return 0;
    if (first)
        comm_yields_wait(&group->yields);
    yield(group, 0);
    return 1;
}

/* One turn of waiting that is not a sleep. 1: time to sleep. *now is set if the clock was read. */
static int patience_is_over(comm_wait_t *wait, base_time_t *now)
{
    int scarce = cores_are_scarce(wait->group);

    /* Compared with a yield the clock is cheap; in a spin it is read now and then. */
    if (wait->turns < SPIN_TURNS || (wait->turns % CLOCK_TURNS != 0 && !scarce))
        return 0;
    *now = base_now();
    if (wait->since == 0)
        wait->since = *now;
    if (*now - wait->since < spin_ns(wait->group, scarce))
        return 0;
    if (!scarce || wait->yields >= YIELD_TURNS || !comm_yields_pay(&wait->group->yields))
        return 1;
    if (wait->yields == 0)
        comm_yields_wait(&wait->group->yields);
    wait->yields++;
    wait->rest = COMM_REST_YIELD;
    return 0;
}

/* The second of the two steps into sleep. */
static void get_ready(comm_wait_t *wait)
{
    comm_group_t *group = wait->group;

    disarm(wait);
    wait->npolls = 0;
    if (group->network_state)
        wait->npolls = group->network->sleep_on(group, wait->polls);
    if (wait->npolls > 0 && group->bell_fd >= 0)
        wait->polls[wait->npolls++] = (struct pollfd){.fd = group->bell_fd, .events = POLLIN};
    if (!group->network_state || wait->npolls > 0)
        wait->rest = COMM_REST_SLEEP;
}

/* 1: messages of shared memory may come to this rank, and do not end its sleeps. */
static int is_deaf(const comm_group_t *group)
{
    return group->network_state && group->bell_fd < 0 && group->seg.base && !comm_group_shuns_memory(group);
}

static void sleep_on_polls(comm_wait_t *wait, int ms)
{
    comm_group_t *group = wait->group;
    const struct pollfd *last = &wait->polls[wait->npolls - 1];

    if (poll(wait->polls, (nfds_t)wait->npolls, ms) > 0 && last->fd == group->bell_fd &&
        last->revents & POLLIN)
        comm_bell_drain(group->bell_fd);
}

/* Returns what the clock shows when it wakes. */
static base_time_t sleep_a_bit(comm_wait_t *wait)
{
    comm_group_t *group = wait->group;
    int ms = wait->npolls == 0 ? SLEEP_MS : is_deaf(group) ? DEAF_SLEEP_MS : NETWORK_SLEEP_MS;
    const base_time_t before = base_now();
    base_time_t until = before + ms * MS, after;

    if (until > wait->deadline)
        until = wait->deadline;
    if (wait->npolls > 0)
        sleep_on_polls(wait, base_poll_ms(until));
    else
        base_futex_wait(&group->bell->bell, wait->bell, until);
    wait->sleeps++;
    after = base_now();
    comm_yields_woke(&group->yields, before, after);
    return after;
}

/* The rank for whose post this one waits; -1: any event may end its sleep. Where a fence interrupts others, a
 * rank does not announce its sleep again for each rank in turn. */
static int awaited(const comm_group_t *group)
{
    return group->outbox.base && group->seg.locals > COMM_FENCE_RANKS ? group->outbox.awaited : -1;
}

/* The first of the two steps into sleep (see wait.h). */
static void announce(comm_wait_t *wait)
{
    comm_group_t *group = wait->group;

    wait->whom = awaited(group);
    /* Without a socket a sleeper in poll(2) hears no bell: it need not interrupt the others for that. */
    if (!group->network_state)
        group->fences += (uint64_t)comm_bell_announce(group->bell, comm_bell_for(COMM_BELL_FUTEX, wait->whom),
                                                      &wait->bell);
    else if (group->bell_fd >= 0)
        group->fences += (uint64_t)comm_bell_announce(group->bell, COMM_BELL_SOCKET, &wait->bell);
    if (group->network_state && group->network->arm)
        group->network->arm(group);
    if (!wait->armed)
        comm_yields_slept(&group->yields);
    wait->armed = 1;
}

static gyre_status_t in_time(const comm_wait_t *wait, base_time_t now)
{
    if (now >= wait->deadline)
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the deadline passed");
    return GYRE_OK;
}

gyre_status_t comm_wait_idle(comm_wait_t *wait)
{
    comm_group_t *group = wait->group;
    gyre_status_t status = look_for_trouble(wait);
    base_time_t now = 0;

    wait->rest = COMM_REST_RELAX;
    wait->busy = 0;
    if (status != GYRE_OK)
        return status;
    wait->turns++;
    comm_group_progress(group);
    /* Another thread may have gone on to another rank's post since the announcement. */
    if (wait->armed && wait->whom == awaited(group))
        get_ready(wait);
    else if (wait->armed || patience_is_over(wait, &now))
        announce(wait);
    return now == 0 ? GYRE_OK : in_time(wait, now);
}

gyre_status_t comm_wait_rest(comm_wait_t *wait)
{
    switch (wait->rest) {
    case COMM_REST_SLEEP:
        return in_time(wait, sleep_a_bit(wait));
    case COMM_REST_YIELD:
        yield(wait->group, wait->bytes);
        return GYRE_OK;
    default:
        base_relax();
        return GYRE_OK;
    }
}

void comm_wait_busy(comm_wait_t *wait)
{
    const struct timespec nap = {.tv_nsec = BUSY_NAP_NS};

    wait->busy++;
    if (wait->busy <= BUSY_SPINS)
        base_relax();
    else if (wait->busy <= BUSY_SPINS + BUSY_YIELDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}
